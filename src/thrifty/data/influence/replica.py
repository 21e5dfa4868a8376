"""Views of a model: the same parameters under a structure of its own, so that the user's model is never changed.

A view can have fewer blocks (the cheap network of the embeddings) and eager attention: the fused kernels have no
forward-mode derivative, and no second one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from torch import nn

from thrifty.data.influence.parameters import block_list


def view(model: nn.Module, *, eager: bool = True, leaves: Mapping[str, nn.Parameter] | None = None) -> nn.Module:
    """Return a copy of the module tree in evaluation mode that shares every parameter's and buffer's memory.

    Args:
        model: Any module.
        eager: Attention by plain matrix products, where the model lets one choose (Hugging Face).
        leaves: Parameters that gradients are taken of; in the view no other one needs a gradient. They are found in
            ``view.leaves``, under the same names.
    """
    copier = _Copier(eager, leaves)
    twin = copier.copy(model)
    twin.__dict__["leaves"] = {name: copier.parameter(p) for name, p in (leaves or {}).items()}
    return twin


def truncated(network: nn.Module, num_blocks: int, *, blocks: str | None = None, eager: bool = True) -> nn.Module:
    """Return a view of a backbone that has its first ``num_blocks`` blocks alone; embeddings and final norm stay.

    Raises:
        ValueError: ``num_blocks`` is below 1, or the blocks cannot be found.
    """
    if num_blocks < 1:
        raise ValueError(f"num_blocks: expected at least 1, got {num_blocks}")
    copier = _Copier(eager)
    twin = copier.copy(network)
    name, layers = block_list(twin, blocks)
    kept = min(num_blocks, len(layers))
    parent, _, last = name.rpartition(".")
    twin.get_submodule(parent)._modules[last] = nn.ModuleList(list(layers)[:kept])
    for config in copier.configs.values():
        if getattr(config, "num_hidden_layers", None) == len(layers):
            config.num_hidden_layers = kept
            if getattr(config, "layer_types", None):
                config.layer_types = config.layer_types[:kept]
    return twin


class _Copier:
    """Copies a module tree; configurations are copied once each, so that what shares one goes on sharing it."""

    def __init__(self, eager: bool, leaves: Mapping[str, nn.Parameter] | None = None) -> None:
        self.eager = eager
        self.configs: dict[int, Any] = {}
        self._made: dict[int, nn.Module] = {}
        self._leaves = {id(p) for p in (leaves or {}).values()}
        self._parameters: dict[int, nn.Parameter] = {}

    def parameter(self, original: nn.Parameter) -> nn.Parameter:
        """Return the parameter that stands for one; a tied one is the same in all its places."""
        if id(original) not in self._parameters:
            twin = original.detach()
            self._parameters[id(original)] = cast(nn.Parameter, twin.requires_grad_(id(original) in self._leaves))
        return self._parameters[id(original)]

    def copy(self, module: nn.Module) -> nn.Module:
        """Copy one module and all below it."""
        if id(module) in self._made:
            return self._made[id(module)]
        twin = self._made[id(module)] = copy.copy(module)
        for name, value in module.__dict__.items():
            if name.startswith("_") and isinstance(value, dict):  # parameters, buffers, hooks
                twin.__dict__[name] = copy.copy(value)
        twin.__dict__["training"] = False
        for name, parameter in module._parameters.items():
            twin._parameters[name] = None if parameter is None else self.parameter(parameter)
        for name, child in module._modules.items():
            twin._modules[name] = None if child is None else self.copy(child)
        if "forward" in twin.__dict__:  # a patched forward is bound to the original
            bound = twin.__dict__["forward"]
            if getattr(bound, "__self__", None) is module:
                twin.__dict__["forward"] = bound.__func__.__get__(twin)
        config = module.__dict__.get("config")
        if config is not None and hasattr(config, "to_dict"):
            twin.__dict__["config"] = self._config(config)
        return twin

    def _config(self, config: Any) -> Any:
        if id(config) not in self.configs:
            twin = copy.deepcopy(config)
            if self.eager:
                twin._attn_implementation = "eager"
                twin._experts_implementation = "eager"  # grouped products of mixtures have no forward mode either
            if hasattr(twin, "use_cache"):
                twin.use_cache = False
            self.configs[id(config)] = twin
        return self.configs[id(config)]
