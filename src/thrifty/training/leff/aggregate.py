"""Averaging layer by layer: a layer becomes the weighted mean over the clients that trained it, or stays.

    S_l = {i : l in block of i},    theta_l <- sum over S_l of D_i theta_i,l / sum over S_l of D_i

Sums are in float32 at least and one accumulator a tensor, so that memory does not grow with the number of clients.
Shen et al., NeurIPS 2025, section 3 (aggregation).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from thrifty._common.checks import number

State = dict[str, Tensor]


class LayerMean:
    """A weighted mean of states that hold different tensors, taken one state at a time.

    Example:
        >>> mean = LayerMean()
        >>> mean.add({"a": torch.tensor(2.0)}, 1)
        >>> mean.add({"a": torch.tensor(4.0), "b": torch.tensor(6.0)}, 3)
        >>> mean.result()
        {'a': tensor(3.5000), 'b': tensor(6.)}

    Source:
        Shen et al., NeurIPS 2025, section 3 (aggregation).
    """

    def __init__(self) -> None:
        self._sums: State = {}
        self._weights: dict[str, float] = {}

    def add(self, state: Mapping[str, Tensor], weight: float) -> None:
        """Add one client's tensors, weighted by the size of its data.

        Raises:
            ValueError: The weight is not positive.
        """
        number("weight", weight, "a positive number of examples", least=1e-300)
        for name, tensor in state.items():
            wide = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
            if name in self._sums:
                self._sums[name].add_(wide, alpha=weight)  # one pass over memory, nothing is allocated
            else:
                self._sums[name] = wide * weight
            self._weights[name] = self._weights.get(name, 0.0) + weight

    def result(self) -> State:
        """Return the mean of every tensor over those that had it, in float32 at least."""
        return {name: total / self._weights[name] for name, total in self._sums.items()}


def aggregate_layers(
    global_state: Mapping[str, Tensor], updates: Iterable[tuple[Mapping[str, Tensor], float]]
) -> State:
    """Return the complete state after a round: means where there are updates, and what was there elsewhere.

    Args:
        global_state: Every tensor of the global model.
        updates: What each client trained, and the size of its data; consumed one at a time. Sums depend on their
            order in the last digit, so give them in one that does not depend on who came first.

    Raises:
        ValueError: An update holds a tensor that the model has not, or of another shape or kind, or a weight is not
            positive.

    Example:
        >>> ten = torch.tensor(10.0)
        >>> a, b = {"1": ten * 0.2, "2": ten * 0.4}, {"2": ten * 0.8, "3": ten * 0.6}
        >>> {k: round(float(v)) for k, v in aggregate_layers(dict.fromkeys("1234", ten), [(a, 1), (b, 3)]).items()}
        {'1': 2, '2': 7, '3': 6, '4': 10}

    Source:
        Shen et al., NeurIPS 2025, section 3 (aggregation).
    """
    mean = LayerMean()
    for state, weight in updates:
        for name, tensor in state.items():
            there = global_state.get(name)
            if there is None or there.shape != tensor.shape or not tensor.is_floating_point():
                known = "none" if there is None else f"{tuple(there.shape)}"
                raise ValueError(
                    f"updates: expected floating-point tensors of the model, got {name!r} of shape "
                    f"{tuple(tensor.shape)} ({tensor.dtype}) where the model has {known}"
                )
        mean.add(state, weight)
    found = mean.result()
    return {name: found[name].to(t.dtype) if name in found else t for name, t in global_state.items()}


def padded_sums(state: Mapping[str, Tensor], weight: float, shapes: Mapping[str, torch.Size]) -> tuple[State, State]:
    """Return weighted tensors and weights, zero where the client has nothing: what secure aggregation may add up.

    Args:
        state: What a client trained.
        weight: The size of its data.
        shapes: Of every tensor that anybody trains.

    Returns:
        Sums and weights, both with one entry for every name, so that nobody sees which block it was.

    Example:
        >>> padded_sums({"a": torch.ones(1)}, 3, {"a": torch.Size([1]), "b": torch.Size([1])})[1]
        {'a': tensor(3.), 'b': tensor(0.)}

    Source:
        Bonawitz et al., CCS 2017: a server that learns sums only.
    """
    sums = {n: state[n].float() * weight if n in state else torch.zeros(shape) for n, shape in shapes.items()}
    return sums, {name: torch.tensor(float(weight) if name in state else 0.0) for name in shapes}


def from_sums(global_state: Mapping[str, Tensor], sums: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> State:
    """Return the complete state, given the sums over clients of what :func:`padded_sums` gives each.

    Args:
        global_state: Every tensor of the global model.
        sums: Sum over clients of the first part.
        weights: Sum over clients of the second.

    Example:
        >>> from_sums({"a": torch.ones(1)}, {"a": torch.ones(1) * 6}, {"a": torch.tensor(3.0)})
        {'a': tensor([2.])}

    Source:
        As :func:`aggregate_layers`.
    """
    return {
        name: (sums[name] / weights[name]).to(t.dtype) if name in sums and float(weights[name]) > 0 else t
        for name, t in global_state.items()
    }


class ServerOptimizer:
    """An optimiser of the server's for each tensor, whose gradient is what a round would change it by.

    Args:
        kind: ``"none"``: the mean itself; ``"momentum"`` (FedAvgM, 0.9) or ``"adam"`` (FedAdam, 0.9 and 0.99).
        lr: Its learning rate; with ``"none"`` at 1 the mean replaces the tensor bit by bit.

    Example:
        >>> server = ServerOptimizer("momentum")
        >>> server.step({"a": torch.tensor([1.0])}, {"a": torch.tensor([2.0])})
        {'a': tensor([2.])}

    Source:
        Hsu et al., 2019 (FedAvgM); Reddi et al., ICLR 2021 (FedAdam, tau 1e-3).
    """

    def __init__(self, kind: str = "none", lr: float = 1.0) -> None:
        self.kind, self.lr = kind, lr
        self.state: dict[str, State] = {}

    def step(self, current: Mapping[str, Tensor], means: Mapping[str, Tensor]) -> State:
        """Return the tensors that have a mean, after the step; a layer that nobody trained keeps its state too."""
        if self.kind == "none" and self.lr == 1:
            return {name: mean.to(current[name].dtype) for name, mean in means.items()}
        return {name: self._one(name, current[name], mean) for name, mean in means.items()}

    def state_dict(self) -> State:
        """Return its state as flat tensors."""
        return {f"{name}|{part}": tensor for name, parts in self.state.items() for part, tensor in parts.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`state_dict` gave."""
        self.state = {}
        for key, tensor in state.items():
            name, _, part = key.rpartition("|")
            self.state.setdefault(name, {})[part] = tensor

    def _one(self, name: str, current: Tensor, mean: Tensor) -> Tensor:
        change = mean.float() - current.detach().float()
        held: dict[str, Any] = self.state.setdefault(name, {})
        if self.kind == "momentum":
            change = held["m"] = 0.9 * held.get("m", torch.zeros_like(change)) + change
        elif self.kind == "adam":
            held["m"] = 0.9 * held.get("m", torch.zeros_like(change)) + 0.1 * change
            held["v"] = 0.99 * held.get("v", torch.zeros_like(change)) + 0.01 * change.square()
            change = held["m"] / (held["v"].sqrt() + 1e-3)
        return (current.detach().float() + self.lr * change).to(current.dtype)
