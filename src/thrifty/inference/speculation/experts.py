"""The experts of a live transformers model: pin how they are computed, and count which ones wake.

``batched_mm`` copies the weights of every token's experts, so that time grows with tokens × K whatever the batch is and
the effect that this package is about is gone; on devices other than CPUs ``generate`` switches from ``grouped_mm`` to
it while decoding, silently. Whatever is timed here calls ``forward`` itself, with ``grouped_mm`` pinned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_log = logging.getLogger(__name__)


def expert_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules that hold routed experts, one a layer that has them, in order."""
    return [
        module
        for module in model.modules()
        if type(module).__name__.endswith("Experts") and any(p.ndim == 3 for p in module.parameters(recurse=False))
    ]


@contextmanager
def pinned_experts(model: Any, implementation: str | None = "grouped_mm") -> Iterator[None]:
    """Compute experts in one way inside the block, and as before afterwards.

    Args:
        model: A transformers model; one without experts is left alone.
        implementation: ``"grouped_mm"``, ``"eager"`` or another that transformers knows; ``None`` changes nothing.

    Raises:
        ValueError: ``"grouped_mm"`` for float64, for which it has no kernel.
    """
    if implementation is None or not expert_modules(model):
        yield
        return
    if implementation == "grouped_mm" and model.dtype == torch.float64:
        raise ValueError(
            "experts: grouped_mm has no kernel for float64; expected 'eager', or None for a model that is set to it"
        )
    before = model.get_experts_implementation()
    if "batched_mm" in before.values():
        _log.warning(
            "the model computes experts with batched_mm, whose time grows with tokens × experts of a token; %s stands "
            "in for it here",
            implementation,
        )
    try:
        model.set_experts_implementation(implementation)
    except ValueError as error:
        raise ValueError(f"experts: {error} (experts=None leaves them as they are)") from None
    try:
        yield
    finally:
        model.set_experts_implementation(before)


class ExpertCounts:
    """Distinct experts that each pass woke, layer by layer: see :func:`counted_experts`."""

    def __init__(self, layers: int) -> None:
        self.layers: list[list[int]] = [[] for _ in range(layers)]
        self.load: list[Tensor | None] = [None] * layers

    def mean(self) -> float:
        """Return the mean over passes and layers.

        Raises:
            ValueError: Nothing was counted.
        """
        counts = [count for layer in self.layers for count in layer]
        if not counts:
            raise ValueError("model: no pass was counted; are there routed experts, and was it run inside the block?")
        return sum(counts) / len(counts)

    def imbalance(self) -> float:
        """Return how many times its even share the busiest expert of a layer got, mean over layers."""
        loads = [load.double() for load in self.load if load is not None]
        if not loads:
            raise ValueError("model: no pass was counted; are there routed experts, and was it run inside the block?")
        return float(sum(float(load.max() / load.mean()) for load in loads) / len(loads))


@contextmanager
def counted_experts(model: torch.nn.Module) -> Iterator[ExpertCounts]:
    """Count, inside the block, the distinct experts of each layer that every pass wakes.

    Counting costs a little time and, on a GPU, a wait: do not time passes inside.
    """
    modules = expert_modules(model)
    counts = ExpertCounts(len(modules))

    def counter(layer: int) -> Any:
        def count(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            index = kwargs["top_k_index"] if "top_k_index" in kwargs else args[1]
            experts = int(next(p.shape[0] for p in module.parameters(recurse=False) if p.ndim == 3))
            load = torch.bincount(index.reshape(-1), minlength=experts).cpu()
            counts.layers[layer].append(int((load > 0).sum()))
            earlier = counts.load[layer]
            counts.load[layer] = load if earlier is None else earlier + load

        return count

    hooks = [m.register_forward_pre_hook(counter(i), with_kwargs=True) for i, m in enumerate(modules)]
    try:
        yield counts
    finally:
        for hook in hooks:
            hook.remove()
