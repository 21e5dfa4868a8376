"""Which parameters count, and where a model keeps its blocks: names by architecture, with overrides.

``"mlp-out"``, the default, is the second linear map of every feed-forward layer (the authors' code: ``down_proj``).
With adapters (PEFT) it is the trainable parameters: gradients of frozen ones say nothing of the training to come.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from torch import nn

#: What selects parameters: ``"mlp-out"``, ``"all"`` (or ``None``) trainable ones, a regular expression, a predicate.
ParamFilter = str | Callable[[str], bool] | None

MLP_OUT = re.compile(
    r"(?:^|\.)(?:"
    r"down_proj|experts\.down_proj|"  # Llama, Mistral, Qwen, Gemma, Phi-3, and mixtures of experts
    r"mlp\.c_proj|mlp\.dense_4h_to_h|mlp\.fc2|fc2|fc_out|"  # GPT-2, NeoX and Bloom, Phi, OPT, GPT-J
    r"(?<!attention\.)output\.dense|ffn\.lin2|mlp\.Wo|ffn_output|"  # BERT, DeBERTa, ViT; DistilBERT; ModernBERT; ALBERT
    r"DenseReluDense\.wo|w2"  # T5, Mixtral's experts
    r")(?:\.weight)?$"
)


def select_parameters(model: nn.Module, params: ParamFilter = "mlp-out") -> dict[str, nn.Parameter]:
    r"""Return the parameters that influence is measured on, by name.

    Args:
        model: A Hugging Face model, with or without adapters, or any module.
        params: ``"mlp-out"``, a regular expression searched in names, a predicate on names, or ``"all"`` (or ``None``)
            for all trainable parameters.

    Returns:
        Name to parameter; only floating-point ones that are trainable.

    Raises:
        ValueError: None matches; the message shows names that there are.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        >>> list(select_parameters(model, r"^1\."))
        ['1.weight', '1.bias']
    """
    trainable = {
        name: p for name, p in model.named_parameters() if p.requires_grad and (p.is_floating_point() or p.is_complex())
    }
    if not trainable:
        raise ValueError("model: expected a trainable parameter, got none with requires_grad=True")
    if params in (None, "all") or (params == "mlp-out" and has_adapters(model)):
        return trainable
    if not isinstance(params, str):
        chosen, shown = {name: trainable[name] for name in filter(params, trainable)}, "the predicate"
    else:
        try:
            pattern, shown = MLP_OUT if params == "mlp-out" else re.compile(params), repr(params)
        except re.error as error:
            raise ValueError(f"params: expected a regular expression, got {params!r}: {error}") from None
        chosen = {name: p for name, p in trainable.items() if pattern.search(name)}
    if not chosen:
        names = list(trainable)
        some = ", ".join([*names[:3], *names[len(names) // 2 : len(names) // 2 + 3], *names[-2:]])
        raise ValueError(f"params: {shown} matches none of the {len(names)} trainable parameters; there are {some}")
    return chosen


def has_adapters(model: nn.Module) -> bool:
    """Tell whether PEFT has put adapters into the model."""
    return hasattr(model, "peft_config")


def without_wrappers(model: nn.Module) -> nn.Module:
    """Return the Hugging Face model inside PEFT's and data parallelism's wrappers."""
    model = getattr(model, "module", model) if type(model).__name__ == "DistributedDataParallel" else model
    if has_adapters(model) and hasattr(model, "get_base_model"):
        inner: Any = model
        base: nn.Module = inner.get_base_model()
        return base
    return model


def backbone(model: nn.Module) -> nn.Module:
    """Return the network without its head: what gives hidden states (of an encoder-decoder, the encoder)."""
    inner = without_wrappers(model)
    if getattr(getattr(inner, "config", None), "is_encoder_decoder", False) and hasattr(inner, "get_encoder"):
        encoder: nn.Module = inner.get_encoder()  # type: ignore[operator]
        return encoder
    prefix = str(getattr(inner, "base_model_prefix", ""))
    found = getattr(inner, prefix, inner) if prefix else inner
    return found if isinstance(found, nn.Module) else inner


def vocabulary_size(model: nn.Module) -> int | None:
    """Return how many token ids a model knows; ``None`` where it takes none."""
    inner: Any = without_wrappers(model)
    table = inner.get_input_embeddings() if hasattr(inner, "get_input_embeddings") else None
    size: int | None = getattr(table, "num_embeddings", None)
    return size


def block_list(network: nn.Module, blocks: str | None = None) -> tuple[str, nn.ModuleList]:
    """Find the list of blocks in a backbone.

    Args:
        network: The backbone.
        blocks: Its dotted name, where it cannot be found by itself.

    Returns:
        Its dotted name and the list.

    Raises:
        ValueError: There is none, or ``blocks`` names something else.
    """
    if blocks is not None:
        try:
            found = network.get_submodule(blocks)
        except AttributeError:
            found = None
        if not isinstance(found, nn.ModuleList):
            lists = ", ".join(name for name, m in network.named_modules() if isinstance(m, nn.ModuleList)) or "none"
            raise ValueError(f"blocks: {blocks!r} is no ModuleList of {type(network).__name__}; there are: {lists}")
        return blocks, found
    depth = getattr(getattr(network, "config", None), "num_hidden_layers", None)
    all_lists = [(name, m) for name, m in network.named_modules() if isinstance(m, nn.ModuleList) and len(m)]
    fitting = [pair for pair in all_lists if len(pair[1]) == depth] or sorted(all_lists, key=lambda pair: -len(pair[1]))
    if not fitting:
        raise ValueError(
            f"blocks: {type(network).__name__} holds no ModuleList; name its blocks, or give the embedding embed_fn="
        )
    return fitting[0]
