"""Bytes of optimizer state: counted in a live optimizer, and foretold from shapes, for SUMO and what it replaces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from thrifty._common.checks import one_of, whole
from thrifty.training.sumo.groups import sumo_param_groups
from thrifty.training.sumo.sharded import local

#: Numbers of state for a weight whose larger side is m, smaller side n, at rank r.
NUMBERS: Mapping[str, Any] = {
    "sumo": lambda m, n, r: (m + n) * r,
    "galore": lambda m, n, r: 2 * m * r + n * r,  # as galore-torch stores it: the smaller side is projected away
    "muon": lambda m, n, r: m * n,
    "adamw": lambda m, n, r: 2 * m * n,
    "sgd": lambda m, n, r: m * n,
}

Shape = Sequence[int]


def optimizer_state_bytes(optimizer: Optimizer) -> dict[str, int]:
    """Count the bytes of every tensor that an optimizer keeps, by the name of the state entry.

    Args:
        optimizer: Any; a SUMO object, or a rival (projectors that galore-torch keeps as objects are counted as well).

    Returns:
        Bytes on this rank for each entry (``"basis"``, ``"moment"``, ``"exp_avg"`` ...), and their ``"total"``.

    Example:
        >>> import torch
        >>> weight = torch.nn.Parameter(torch.ones(8, 4))
        >>> optimizer = torch.optim.AdamW([weight])
        >>> weight.sum().backward(); optimizer.step()
        >>> optimizer_state_bytes(optimizer)
        {'exp_avg': 128, 'exp_avg_sq': 128, 'step': 4, 'total': 260}
    """
    found: dict[str, int] = {}
    for state in optimizer.state.values():
        for name, value in state.items():
            held = sum(local(tensor).numel() * tensor.element_size() for tensor in _tensors(value))
            found[name] = found.get(name, 0) + held
    return dict(sorted(found.items())) | {"total": sum(found.values())}


def estimate_state_bytes(
    model: nn.Module | Iterable[Shape] | Mapping[str, Shape],
    rank: int,
    method: str = "sumo",
    *,
    bytes_a_number: int = 4,
    target_modules: str | Sequence[str] = "all-linear",
) -> dict[str, int]:
    """Foretell the bytes of optimizer state.

    Args:
        model: A module (meta device will do), whose parameters are sorted as :func:`sumo_param_groups` does; or shapes,
            in which every shape of two or more dimensions counts as a low-rank weight.
        rank: r; cut to the smaller side of a weight.
        method: ``"sumo"``, ``"galore"`` (as galore-torch stores it), ``"muon"``, ``"adamw"`` or ``"sgd"``.
        bytes_a_number: 4 for float32 state.
        target_modules: As in :func:`sumo_param_groups`.

    Returns:
        ``"matrices"`` (what the method keeps), ``"others"`` (AdamW's state of the rest) and ``"total"``, without the
        few scalars a weight.

    Raises:
        ValueError: The method is unknown, ``rank`` < 1, or ``model`` is one shape rather than a list of them.

    Example:
        >>> estimate_state_bytes([(4096, 11008)], 128, "sumo")["matrices"] // 4
        1933312

    Source:
        Algorithm 1: (m + n)·r numbers a weight; the others as galore-torch and torch.optim store them.
    """
    one_of("method", method, NUMBERS)
    whole("rank", rank)
    whole("bytes_a_number", bytes_a_number)
    matrices, others = _sorted(model, target_modules)
    numbers = sum(_numbers(method, shape, rank) for shape in matrices)
    rest = sum((1 if method == "sgd" else 2) * math.prod(shape) for shape in others)
    held = {"matrices": numbers * bytes_a_number, "others": rest * bytes_a_number}
    return held | {"total": sum(held.values())}


def _numbers(method: str, shape: Shape, rank: int) -> int:
    n, m = sorted((shape[0], math.prod(shape[1:])))
    return int(NUMBERS[method](m, n, min(rank, n)))


def _sorted(model: Any, target_modules: str | Sequence[str]) -> tuple[list[Shape], list[Shape]]:
    if isinstance(model, nn.Module):
        groups = sumo_param_groups(model, target_modules=target_modules)
        pairs = [(group["use_sumo"], tuple(p.shape)) for group in groups for _, p in group["params"]]
        return [shape for low, shape in pairs if low], [shape for low, shape in pairs if not low]
    try:
        shapes = [
            tuple(whole("model", side, least=0) for side in shape)
            for shape in (model.values() if isinstance(model, Mapping) else model)
        ]
    except (TypeError, ValueError):
        raise ValueError(
            f"model: expected a module or a list of shapes such as [(4096, 4096)], got {model!r}"
        ) from None
    return [shape for shape in shapes if len(shape) >= 2], [shape for shape in shapes if len(shape) < 2]


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif hasattr(value, "__dict__"):
        yield from _tensors(list(vars(value).values()))
