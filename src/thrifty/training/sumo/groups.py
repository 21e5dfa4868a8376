"""Which parameters SUMO updates: GaLore's protocol, which the paper follows.

The matrices of attention and feed-forward blocks go to SUMO; embeddings, the head, norms and biases to AdamW.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from thrifty.training.sumo.matrix import shape_of
from thrifty.training.sumo.options import GROUP_OPTIONS

#: Layers whose weight is a matrix between features; a Hugging Face ``Conv1D`` is one by another name.
LINEAR_LAYERS = ("Linear", "Conv1D", "Conv1d", "Conv2d", "Conv3d", "MultiheadAttention")

#: What such a layer calls its matrices: torch's attention keeps its projections as parameters of its own.
MATRICES = ("weight", "in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")

#: Below this many rows or columns there is no subspace worth the name.
MIN_DIM = 16


def sumo_param_groups(
    model: nn.Module,
    *,
    target_modules: str | Sequence[str] = "all-linear",
    exclude: str | Sequence[str] = ("embed", "lm_head", "norm"),
    rank: int = 128,
    min_dim: int = MIN_DIM,
    aux_lr: float | None = None,
    no_decay_1d: bool = True,
    **options: Any,
) -> list[dict[str, Any]]:
    """Sort a model's trainable parameters into groups for :class:`SUMO`, each parameter with its name.

    Args:
        model: Any module; tied weights appear once, under their first name.
        target_modules: Whose weights are updated in a subspace: ``"all-linear"`` (linear, attention and convolution
            layers), one regular expression that is searched for in the module's name, or several (as Hugging Face's
            ``optim_target_modules``).
        exclude: Modules whose name contains one of these words (letter case aside) go to AdamW, unless
            ``target_modules`` names them.
        rank: Of the subspaces.
        min_dim: Weights whose smaller side is below this go to AdamW: there is no subspace worth the name.
        aux_lr: Learning rate of AdamW's groups; the optimizer's own if ``None``.
        no_decay_1d: Norms and biases take no weight decay.
        **options: Further options of SUMO's group (``scale=0.5``, ``split=3`` ...).

    Returns:
        Up to three groups: SUMO's, AdamW's, and AdamW's without decay.

    Raises:
        ValueError: No weight is chosen, a pattern is no regular expression, or the model has no trainable parameter.
        TypeError: An option is none of SUMO's, or the model is none.

    Example:
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 32))
        >>> groups = sumo_param_groups(model, rank=8)
        >>> [[name for name, _ in group["params"]] for group in groups]
        [['0.weight', '2.weight'], ['0.bias', '1.weight', '1.bias', '2.bias']]

    Source:
        GaLore's protocol (Zhao et al., arXiv 2403.03507): attention and MLP weights in a subspace, all else by AdamW.
    """
    unknown = sorted(options.keys() - set(GROUP_OPTIONS))
    if unknown:
        raise TypeError(
            f"options: SUMO has no {', '.join(unknown)}; a group may set {', '.join(sorted(GROUP_OPTIONS))}"
        )
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch module, got {type(model).__name__}")
    exclude = (exclude,) if isinstance(exclude, str) else exclude
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not trainable:
        raise ValueError("model: it has no trainable parameter")
    if all(p.ndim < 2 for _, p in trainable):
        raise ValueError(
            f"model: all of its {len(trainable)} trainable parameters are vectors; DeepSpeed ZeRO-3 and FSDP1 flatten "
            "weights: use FSDP2 (torch.distributed.fsdp.fully_shard)"
        )
    chosen = set(_targets(model, target_modules, exclude))
    low_rank, dense, short = [], [], []
    for name, parameter in trainable:
        if parameter in chosen and min(shape_of(parameter, options.get("split", 1))) >= min_dim:
            low_rank.append((name, parameter))
        elif parameter.ndim < 2 and no_decay_1d:
            short.append((name, parameter))
        else:
            dense.append((name, parameter))
    if not low_rank:
        raise ValueError(
            f"target_modules: {target_modules!r} without {', '.join(exclude)} leaves no weight of at least {min_dim} "
            f"rows and columns among {len(trainable)} parameters"
        )
    aux: dict[str, Any] = {"use_sumo": False} | ({} if aux_lr is None else {"lr": aux_lr})
    groups = [
        {"params": low_rank, "use_sumo": True, "rank": rank, **options},
        {"params": dense, **aux},
        {"params": short, **aux, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _targets(model: nn.Module, target_modules: str | Sequence[str], exclude: Iterable[str]) -> Iterable[Tensor]:
    """Yield the weights of the modules that are meant."""
    all_linear = target_modules in ("all-linear", ["all-linear"], ("all-linear",))
    patterns = [target_modules] if isinstance(target_modules, str) else list(target_modules)
    try:
        compiled = [] if all_linear else [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise ValueError(f"target_modules: {patterns!r} holds no regular expression: {error}") from error
    words = [word.casefold() for word in exclude]
    for name, module in model.named_modules():
        held = [getattr(module, attribute, None) for attribute in MATRICES]
        weights = [weight for weight in held if isinstance(weight, Tensor) and weight.ndim >= 2]
        named = any(pattern.search(name) for pattern in compiled)
        linear = any(base.__name__ in LINEAR_LAYERS for base in type(module).__mro__)
        excluded = any(word in name.casefold() for word in words)
        # A weight that is also an embedding (tied heads) is reached under the embedding's name first.
        wanted = all_linear and linear and not excluded
        yield from (weight for weight in weights if named or (wanted and not _is_embedding(model, weight)))


def _is_embedding(model: nn.Module, weight: Tensor) -> bool:
    return any(isinstance(module, nn.Embedding) and module.weight is weight for module in model.modules())
