"""Where a model's transformer layers are, and what is around them: embeddings before, norm and head behind.

``LayerView`` looks at a model and changes nothing. ``shared_copy`` makes a second model around other layers that shares
every tensor with the first one, except those that it is told to own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

#: Path of the layers below the base model, by ``config.model_type``.
FAMILIES = {
    "bert": "encoder.layer", "roberta": "encoder.layer", "xlm-roberta": "encoder.layer", "electra": "encoder.layer",
    "deberta": "encoder.layer", "deberta-v2": "encoder.layer", "distilbert": "transformer.layer", "vit": "layers",
    "deit": "layers", "dinov2": "encoder.layer", "gpt2": "h", "gpt_neox": "layers", "opt": "decoder.layers",
    "llama": "layers", "mistral": "layers", "qwen2": "layers", "qwen3": "layers", "gemma": "layers",
    "gemma2": "layers", "phi3": "layers",
}  # fmt: skip
_EMBEDDING = re.compile(r"^(wte|wpe|rotary\w*|project_in|.*embed.*)$")
_NORM = re.compile(r"norm|ln_f", re.IGNORECASE)


class LayerView:
    """The layers of a model, and what is around them.

    Args:
        model: A transformer: a Hugging Face model, or any module whose layers stand in one ``nn.ModuleList``.
        layers: Path of that list (``"model.layers"``); found by itself for the usual families, and wherever one list
            alone has as many entries as ``config.num_hidden_layers``.

    Raises:
        ValueError: The layers are not found (the message lists candidates), there are two stacks of them, or one
            layer stands twice.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> tiny = GPT2Config(n_embd=8, n_layer=3, n_head=2)
        >>> view = LayerView(GPT2LMHeadModel(tiny))
        >>> view.path, view.num_layers, list(view.extras())
        ('transformer.h', 3, ['transformer.ln_f.weight', 'transformer.ln_f.bias'])

    Source:
        Shen et al., NeurIPS 2025: blocks, and (from its parameter counts) frozen embeddings and trained output layers.
    """

    def __init__(self, model: nn.Module, layers: str | None = None) -> None:
        self.model = model
        self.path = _find(model, layers)
        found = model.get_submodule(self.path)
        self.layers: nn.ModuleList = found  # type: ignore[assignment]
        if len({id(layer) for layer in self.layers}) < len(self.layers):
            raise ValueError(
                f"layers: expected layers of their own, got one module several times in {self.path!r} (ALBERT-like)"
            )

    @property
    def num_layers(self) -> int:
        """L, the number of layers."""
        return len(self.layers)

    def block(self, start: int, length: int) -> list[nn.Module]:
        """Return the modules of a block of consecutive layers, from 0.

        Raises:
            ValueError: It does not fit into the model.
        """
        if not (start >= 0 and length >= 1 and start + length <= self.num_layers):
            raise ValueError(
                f"start, length: expected a block within layers 0 to {self.num_layers - 1}, got {start} and {length}"
            )
        return list(self.layers[start : start + length])

    def embeddings(self) -> dict[str, nn.Parameter]:
        """Return what is before the layers, by name; it is frozen everywhere."""
        return {name: p for name, p in self._around() if self._is_embedding(name)}

    def extras(self, which: str = "auto") -> dict[str, nn.Parameter]:
        """Return what is behind the layers and trained by everybody: final norm, pooler, untied head.

        Args:
            which: ``"auto"``: all of it; ``"norm_only"``: norms; ``"none"``.
        """
        if which == "none":
            return {}
        behind = {name: p for name, p in self._around() if not self._is_embedding(name)}
        return {name: p for name, p in behind.items() if which == "auto" or _NORM.search(name)}

    def layer_tensors(self, index: int) -> dict[str, Tensor]:
        """Return the tensors of one layer that are trained and averaged, by their names in the model.

        These are parameters and floating-point buffers; counters and position indices are nobody's to average.
        """
        prefix = f"{self.path}.{index}."
        found = {prefix + name: tensor for name, tensor in self.layers[index].state_dict(keep_vars=True).items()}
        return {name: tensor for name, tensor in found.items() if tensor.is_floating_point()}

    def trained(self, block: Collection[int], extras: str = "auto") -> dict[str, Tensor]:
        """Return what a client with this block trains, by name."""
        found: dict[str, Tensor] = {}
        for index in sorted(block):
            found |= self.layer_tensors(index)
        return found | self.extras(extras)

    def sizes(self) -> tuple[list[int], int, int]:
        """Return how many parameters each layer, the extras and the embeddings have."""
        layers = [sum(p.numel() for p in layer.parameters()) for layer in self.layers]
        return (
            layers,
            sum(p.numel() for p in self.extras().values()),
            sum(p.numel() for p in self.embeddings().values()),
        )

    def embedding_modules(self) -> list[nn.Module]:
        """Return the modules before the layers."""
        return [
            module
            for name, module in self.model.named_modules()
            if name and not self._inside(name) and self._is_embedding(name)
        ]

    def _inside(self, name: str) -> bool:
        return (name + ".").startswith(self.path + ".") and name != self.path

    def _around(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self.model.named_parameters() if not self._inside(name)]

    def _is_embedding(self, name: str) -> bool:
        """Tell by the names on the way; a head of its own is none, whatever it is called (``embed_out``)."""
        head = getattr(self.model, "get_output_embeddings", lambda: None)()
        if head is not None and getattr(head, "weight", None) is not self._input_weight():
            (at,) = [path for path, module in self.model.named_modules() if module is head] or [None]
            if at is not None and (name + ".").startswith(at + "."):
                return False
        return any(_EMBEDDING.match(part) for part in name.split("."))

    def _input_weight(self) -> Any:
        try:
            return getattr(self.model.get_input_embeddings(), "weight", None)  # type: ignore[operator]
        except (AttributeError, NotImplementedError):
            return None


def _find(model: nn.Module, layers: str | None) -> str:
    config: Any = getattr(model, "config", None)
    candidates = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module)
    }
    listed = ", ".join(f"{name} ({len(module)})" for name, module in candidates.items()) or "none"
    if layers is not None:
        if layers not in candidates:
            raise ValueError(f"layers: expected the path of a ModuleList, one of {listed}; got {layers!r}")
        return layers
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"model: expected one stack of layers, got an encoder and a decoder ({listed})")
    known = FAMILIES.get(getattr(config, "model_type", ""))
    if known is not None:
        base = getattr(model, "base_model_prefix", "")
        for path in (f"{base}.{known}", known, f"{base}.encoder.{known}"):
            if path in candidates:
                return path
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    depth = getattr(text, "num_hidden_layers", None)
    fitting = [name for name, module in candidates.items() if depth in (None, len(module))]
    outermost = [name for name in fitting if not any(name.startswith(other + ".") for other in fitting)]
    if len(outermost) != 1:
        raise ValueError(f"layers: expected the path of the layers' ModuleList; candidates: {listed}; got None")
    return str(outermost[0])


def shared_copy(
    view: LayerView, layers: Sequence[nn.Module], sources: Sequence[int], *, own: Collection[int] = ()
) -> nn.Module:
    """Return a model around other layers, which shares every tensor with the first one but for those that it owns.

    Args:
        view: The model.
        layers: What stands in place of its layers: some of them, or stand-ins of their class.
        sources: The layer that each of them is, or was made from; it keeps that layer's place in per-layer settings.
        own: ``id`` of each tensor that is copied and trained.
    """
    memo: dict[int, Any] = {}
    for module in (view.model, *layers):
        for tensor in (*module.parameters(), *module.buffers()):
            if id(tensor) not in memo:
                held = tensor.detach().clone() if id(tensor) in own else tensor.detach()
                is_parameter = isinstance(tensor, nn.Parameter)
                memo[id(tensor)] = nn.Parameter(held, requires_grad=id(tensor) in own) if is_parameter else held
    inside = nn.ModuleList()
    memo[id(view.layers)] = inside
    copy = deepcopy(view.model, memo)
    theirs = next((m.config for m in view.layers.modules() if hasattr(m, "config")), None)
    for layer in layers:  # a stand-in was made in another copy, and must listen to this one's settings
        for module in layer.modules():
            config = getattr(module, "config", None)
            if config is not None and theirs is not None and id(config) not in memo:
                memo[id(config)] = deepcopy(theirs, memo)
        inside.append(deepcopy(layer, memo))
    resize(copy, inside, sources, view.num_layers)
    return copy


def resize(model: nn.Module, layers: nn.ModuleList, sources: Sequence[int], before: int) -> None:
    """Make a model's configuration, and its layers' numbers, agree with the layers that it now has."""
    configs = [config for m in (model, *model.modules()) if (config := getattr(m, "config", None)) is not None]
    configs += [text for config in configs if hasattr(config, "get_text_config") and (text := config.get_text_config())]
    for config in {id(config): config for config in configs}.values():
        if getattr(config, "num_hidden_layers", None) != before:
            continue
        for name, value in per_layer(config, before).items():
            setattr(config, name, [value[source] for source in sources])
        config.num_hidden_layers = len(layers)
        if hasattr(config, "use_cache"):
            config.use_cache = False
    number_layers(model, layers, sources)


def number_layers(model: nn.Module, layers: nn.ModuleList, sources: Sequence[int]) -> None:
    """Give each layer its number; GPT-2 models that scale attention by it keep the one of their source."""
    scaled = getattr(getattr(model, "config", None), "scale_attn_by_inverse_layer_idx", False)
    for place, (layer, source) in enumerate(zip(layers, sources, strict=True)):
        for module in layer.modules():
            if isinstance(getattr(module, "layer_idx", None), int):
                module.layer_idx = source if scaled else place  # type: ignore[assignment]


def per_layer(config: Any, count: int) -> Mapping[str, Sequence[Any]]:
    """Return the settings of a configuration that have one entry a layer (``layer_types``)."""
    return {
        name: value
        for name, value in vars(config).items()
        if "layer" in name and isinstance(value, list | tuple) and len(value) == count
    }


def set_modes(view: LayerView, trained: Collection[int]) -> None:
    """Put a model into training mode, but what is frozen (embeddings, other layers) into evaluation mode."""
    view.model.train()
    for module in view.embedding_modules():
        module.eval()
    for index, layer in enumerate(view.layers):
        if index not in trained:
            layer.eval()
    inside = {id(module) for layer in view.layers for module in layer.modules()}
    for module in view.model.modules():  # statistics outside the layers are nobody's to average
        if isinstance(module, nn.modules.batchnorm._NormBase) and id(module) not in inside:
            module.eval()


def on_device(batch: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Return a batch whose tensors are on a device."""
    return {key: value.to(device) if isinstance(value, Tensor) else value for key, value in batch.items()}
