"""Reducing the tokens of a live vision transformer, and undoing it."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from thrifty.inference.token_reduction.blocks import PlainBlock, ReducedBlock, Run
from thrifty.inference.token_reduction.config import Config, FreqReduceConfig, Restoring, ToMeConfig, published_layers
from thrifty.inference.token_reduction.hosts import Host, find_host
from thrifty.inference.token_reduction.partition import Stage, Tokens
from thrifty.inference.token_reduction.reducers import make_reducer
from thrifty.inference.token_reduction.restore import restore_tokens

#: Below so many patches the paper reports a loss of more than 2.5 points.
FEW_PATCHES = 100

_MARK = "_thrifty_token_reduction"


class TokenReduction:
    """A reduction in force on a model; made by :func:`reduce_tokens`.

    Attributes:
        model: The model.
        config: The setting.
        host: Where its blocks are.

    Example:
        >>> import timm
        >>> vit = timm.create_model("vit_tiny_patch16_224", depth=3, embed_dim=48).eval()
        >>> reduction = reduce_tokens(vit, FreqReduceConfig((2,), 0.5), trace=True)
        >>> out = vit(torch.zeros(1, 3, 224, 224))
        >>> reduction.info()[0].after, reduction.remove() is vit
        (103, True)

    Source:
        arXiv 2511.21477, section 3.
    """

    def __init__(self, model: nn.Module, config: Config, host: Host, run: Run) -> None:
        self.model, self.config, self.host = model, config, host
        self._run = run
        self._hooks: list[Any] = []
        self._parameters: list[tuple[nn.Module, str]] = []
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def __repr__(self) -> str:
        return f"TokenReduction({self.config!r}, {type(self.model).__name__})"

    @property
    def tokens(self) -> Tokens:
        """Return what is known of the tokens that the last forward pass of this thread left.

        Raises:
            RuntimeError: There was none yet.
        """
        if self._run.tokens is None:
            raise RuntimeError("tokens: no forward pass has run in this thread yet")
        return self._run.tokens

    def info(self) -> tuple[Stage, ...]:
        """Return what each reduction of the last forward pass did: kept and dropped places, cells, sizes, counts.

        Raises:
            RuntimeError: Nothing ran yet, or ``trace`` is off.
        """
        if not self._run.track:
            raise RuntimeError("info: nothing was traced; use reduce_tokens(..., trace=True)")
        return self.tokens.history

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters that the reduction added (named ``freq_*`` in the model's ``state_dict``)."""
        return [getattr(block, name) for block, name in self._parameters]

    def restore(self, x: Tensor, mode: Restoring = "dc") -> Tensor:
        """Return one token a patch from the sequence that the last forward pass gave; see :func:`restore_tokens`."""
        return restore_tokens(x, self.tokens, mode)

    def save_pretrained(self, folder: str | os.PathLike[str], **kwargs: Any) -> None:
        """Write the weights, ``freq_*`` included, and the setting; see :func:`load_reduced`."""
        from thrifty.inference.token_reduction.saving import save_reduced

        save_reduced(self.model, Path(folder), **kwargs)

    def remove(self) -> nn.Module:
        """Put the model back as it was, and return it; a second call does nothing.

        Raises:
            RuntimeError: Something else was patched over the reduction since, and has to be undone first.
        """
        model = self.model
        if self.host.trunk.__dict__.get(_MARK) is not self:
            return model
        for owner, name, _, ours in self._replaced:
            if owner.__dict__.get(name) != ours:
                raise RuntimeError(
                    f"{type(owner).__name__}.{name} was replaced after the reduction; undo that first, then remove()"
                )
        for hook in self._hooks:
            hook.remove()
        for owner, name, before, _ in reversed(self._replaced):
            if before is _ABSENT:
                owner.__dict__.pop(name, None)
            else:
                owner.__dict__[name] = before
        for block, name in self._parameters:
            block._parameters.pop(name, None)
        if self._run.checkpointing:
            _checkpoint_owner(self.host).grad_checkpointing = True
        self.host.trunk.__dict__.pop(_MARK, None)
        self._hooks, self._replaced, self._parameters = [], [], []
        return model

    def __enter__(self) -> TokenReduction:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._replaced.append((owner, name, owner.__dict__.get(name, _ABSENT), value))
        owner.__dict__[name] = value

    def _add_parameter(self, block: nn.Module, name: str, value: Tensor) -> None:
        like = next(block.parameters())
        with torch.inference_mode(False):  # else a model that was reduced under it could never be trained
            block.register_parameter(name, nn.Parameter(value.clone().to(device=like.device, dtype=like.dtype)))
        self._parameters.append((block, name))

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute blocks in the backward pass; in the place of the host's method while in force."""
        self._run.checkpointing = enable
        _checkpoint_owner(self.host).grad_checkpointing = False

    def _take_over_checkpointing(self, *_: Any) -> None:
        """Checkpoint in the blocks: the host, from outside, would not know what is known of the tokens."""
        owner = _checkpoint_owner(self.host)
        if getattr(owner, "grad_checkpointing", False):
            self._run.checkpointing, owner.grad_checkpointing = True, False


class _Absent:
    """Marks an attribute that an instance did not have; the same object in every copy."""

    def __reduce__(self) -> str:
        return "_ABSENT"


_ABSENT = _Absent()


def reduce_tokens(
    model: nn.Module,
    config: Config | None = None,
    *,
    restored: Restoring | None = None,
    trace: bool = False,
    debug: bool = False,
    replace_existing: bool = False,
) -> TokenReduction:
    """Make a live vision transformer drop tokens, in place; its weights are not touched.

    Call, outputs and ``state_dict`` stay the host's, apart from new parameters named ``freq_*`` (all at their neutral
    value at first) and a shorter sequence of tokens. Training, autocast, gradient checkpointing, ``torch.compile``,
    ``torch.onnx.export``, DDP and ``copy.deepcopy`` work as before.

    Args:
        model: A timm ``VisionTransformer`` or ``Eva``, a transformers ViT, DeiT, DINOv2, DINOv3, CLIP or SigLIP vision
            model with or without a head, an open_clip model or tower, or a module that holds exactly one of these.
        config: Ours, or a rival's (``ToMeConfig``, ``EViTConfig``, ``PoolConfig``);
            by default ``FreqReduceConfig`` at 1/3, 7/12 and 5/6 of the depth (layers 4, 7 and 10 of twelve).
        restored: Give one token a patch again after the last block, as :func:`restore_tokens` does, so that the
            sequence has its full length (segmenters; average pooling weighted by what a token stands for).
        trace: Keep what each reduction did, for :meth:`TokenReduction.info` and pictures.
        debug: Refuse scores that are not finite (waits for an accelerator at each reduction).
        replace_existing: Replace a reduction that is in force.

    Returns:
        The reduction, with ``remove()``; also a context manager.

    Raises:
        TypeError: No plain vision transformer is in the model, the setting is none, or it is a rival's and the model's
            positions are rotary.
        ValueError: The schedule does not fit the depth, a score needs a class token and there is none, or a reduction
            is in force already.

    Example:
        >>> import timm
        >>> vit = timm.create_model("vit_tiny_patch16_224").eval()
        >>> with reduce_tokens(vit, FreqReduceConfig(keep=0.5)) as reduction:
        ...     out = vit(torch.zeros(1, 3, 224, 224))
        >>> out.shape, reduction.config.layers
        (torch.Size([1, 1000]), (4, 7, 10))

    Source:
        arXiv 2511.21477, section 3.
    """
    host = find_host(model)
    config = FreqReduceConfig(published_layers(len(host.blocks))) if config is None else config
    existing = host.trunk.__dict__.get(_MARK)
    if existing is not None and not replace_existing:
        raise ValueError(
            "model: a token reduction is in force already; call its remove() first, or pass replace_existing=True"
        )
    if isinstance(config, ToMeConfig) and config.layers is None:
        config = replace(config, layers=tuple(range(1, len(host.blocks) + 1)))
    residual = restored == "residual"  # needs what each reduction dropped
    reducer = make_reducer(config, trace=trace or residual, keep_values=residual, debug=debug)
    _check(config, host, restored)
    if existing is not None:
        existing.remove()
    run = Run(reducer, host.prefix, track=trace or restored is not None)
    reduction = TokenReduction(model, config, host, run)
    _install(reduction, restored)
    return reduction


def reduction_of(model: nn.Module) -> TokenReduction | None:
    """Return the reduction that is in force on a model, if there is one (that of a copy, for a copied model).

    Args:
        model: Any module.

    Example:
        >>> reduction_of(nn.Linear(2, 2)) is None
        True
    """
    for module in model.modules():
        if (found := module.__dict__.get(_MARK)) is not None:
            return found  # type: ignore[no-any-return]
    return None


def _check(config: Config, host: Host, restored: Any) -> None:
    depth = len(host.blocks)
    layers = config.layers or ()
    if layers[-1] > depth:
        raise ValueError(f"layers: the model has {depth} blocks, got {layers}; they are numbered from 1")
    if restored not in (None, "dc", "residual"):
        raise ValueError(f"restored: expected None, 'dc' or 'residual', got {restored!r}")
    if restored == "residual" and not isinstance(config, FreqReduceConfig):
        raise ValueError(f"restored: 'residual' needs DC tokens, which {type(config).__name__} does not make; use 'dc'")
    if host.rotary and not isinstance(config, FreqReduceConfig):
        raise TypeError(
            f"config: this model's positions are rotary, and tokens that {type(config).__name__} makes have no place; "
            "use FreqReduceConfig (score='random' and 'low' included)"
        )
    by_class = config.method == "evit" or getattr(config, "score", "") == "cls"
    if by_class and not host.has_class_token:
        raise ValueError("score: attention of the class token was asked for, and this model has none; use 'attn_mean'")
    for index, block in enumerate(host.blocks, start=1):
        forward = block.__dict__.get("forward")
        if forward is not None and not isinstance(getattr(forward, "__self__", None), (PlainBlock, ReducedBlock)):
            raise ValueError(
                f"model: block {index} ({type(block).__name__}) has a forward of its own, from another patch that the "
                "reduction would bypass; undo it first"
            )
    windows: Any = getattr(config, "window", ())
    if host.grid is not None and max(windows, default=0) > min(host.grid):
        raise ValueError(
            f"window: {max(windows)} cells along a side of a grid of {host.grid[0]} x {host.grid[1]} patches; expected "
            "at most one a patch"
        )
    patches = None if host.grid is None else host.grid[0] * host.grid[1]
    if patches is not None and patches < FEW_PATCHES:
        warnings.warn(
            f"{patches} patches are few: at 49 the paper reports a loss of more than 2.5 points; reduction pays off "
            "from about 196 on",
            stacklevel=3,
        )


def _install(reduction: TokenReduction, restored: Restoring | None) -> None:
    host, run, config = reduction.host, reduction._run, reduction.config
    layers = config.layers or ()
    first = 0 if getattr(config, "reweight", "none") == "all" else layers[0] - 1
    for index, block in enumerate(host.blocks):
        if index < first:
            if host.kind != "transformers":
                reduction._replace(block, "forward", PlainBlock(block, run).forward)
            continue
        stage = layers.index(index + 1) if index + 1 in layers else None
        if isinstance(config, FreqReduceConfig):
            _add_weights(reduction, config, index, stage)
        last = restored if index == len(host.blocks) - 1 else None
        reduction._replace(block, "forward", ReducedBlock(host.part(index), run, stage, last).forward)
    reduction._hooks.append(host.patches.register_forward_hook(run.images_came))
    reduction._hooks.append(host.trunk.register_load_state_dict_pre_hook(_stay_where_missing))  # type: ignore[no-untyped-call]
    if host.kind == "transformers":
        for module in reduction.model.modules():
            # Only at the outer doors: inside, transformers hands on masks of its own.
            outer = any(part is host.trunk for part in module.modules())
            if outer and hasattr(module, "config") and hasattr(module, "save_pretrained"):
                reduction._hooks.append(module.register_forward_pre_hook(_refuse_attentions, with_kwargs=True))
    else:
        reduction._hooks.append(host.patches.register_forward_pre_hook(reduction._take_over_checkpointing))
        reduction._replace(host.trunk, "set_grad_checkpointing", reduction.set_grad_checkpointing)
        reduction._take_over_checkpointing()
    if hasattr(reduction.model, "save_pretrained"):
        reduction._replace(reduction.model, "save_pretrained", reduction.save_pretrained)
    host.trunk.__dict__[_MARK] = reduction


def _add_weights(reduction: TokenReduction, config: FreqReduceConfig, index: int, stage: int | None) -> None:
    """Give a block its learnable weights: w1; beta where DC tokens are seen; embeddings where they are made."""
    block = reduction.host.blocks[index]
    heads = reduction.host.part(index).heads
    shares: Any = config.keep
    windows: Any = config.window
    makes = [layer for layer, share, w in zip(config.layers, shares, windows, strict=True) if share < 1 and w]
    if config.reweight != "none":
        reduction._add_parameter(block, "freq_w1", torch.zeros(heads))
        if makes and index + 1 > makes[0]:
            reduction._add_parameter(block, "freq_beta", torch.full((heads,), float(config.beta_init)))
    if config.dc_pos_embed == "learned" and stage is not None and config.layers[stage] in makes:
        cells = windows[stage] ** 2
        reduction._add_parameter(block, "freq_dc_pos", torch.zeros(cells, reduction.host.width))


def _stay_where_missing(trunk: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Let a plain checkpoint load strictly: what the reduction added stays as it is."""
    if not any(".freq_" in name for name in state):
        state.update({prefix + name: p.detach() for name, p in trunk.named_parameters() if ".freq_" in name})


def _checkpoint_owner(host: Host) -> Any:
    return getattr(host.trunk, "transformer", host.trunk) if host.kind == "open_clip" else host.trunk


def _refuse_attentions(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Refuse to hand out attention maps, which a fused kernel never makes.

    Raises:
        ValueError: They were asked for.
    """
    if kwargs.get("output_attentions") or getattr(module.config, "output_attentions", False):
        raise ValueError(
            "output_attentions: attention goes through a fused kernel and its length changes with the layer; remove "
            "the reduction first, or pass trace=True to reduce_tokens and read the scores from info()"
        )
    if kwargs.get("attention_mask") is not None and getattr(module, "main_input_name", "") == "pixel_values":
        raise ValueError(
            "attention_mask: a reduced model attends to all tokens, got a mask; packed sequences of images (NaViT) "
            "cannot be reduced: remove the reduction first"
        )
