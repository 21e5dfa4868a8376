"""Gradients of single examples: many in a backward pass where parameters belong to linear layers, else one by one.

For a linear layer y = W x the gradient of one example is Δᵀ X, from what went in (X, tokens × in) and what came back
(Δ, tokens × out). So one backward pass of a batch gives every example's own gradient, and weights' gradients of layers
that do not count are never computed. The first batch is checked against plain autograd on one of its examples.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty.data.influence.examples import Batch, Examples
from thrifty.data.influence.losses import LossFn, call_model, to_device
from thrifty.data.influence.replica import view

_log = logging.getLogger(__name__)


class UnsupportedLayerError(TypeError):
    """A parameter's gradient cannot be put together from its layer's input and output."""


class ExampleGradients:
    """Gives the gradient of each example's loss in the selected parameters, as rows.

    Args:
        model: The model; it is neither changed nor put into another mode (a view of it in evaluation mode is used).
        params: Name to parameter.
        loss_fn: Model outputs and batch to one loss an example.
        one_by_one: Use plain autograd on single examples throughout.

    Example:
        >>> from thrifty.data.influence.losses import labelled_loss
        >>> class Classifier(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = nn.Linear(3, 2)
        ...     def forward(self, x):
        ...         return self.linear(x)
        >>> model = Classifier()
        >>> rows = ExampleGradients(model, dict(model.named_parameters()), labelled_loss)
        >>> rows({"x": torch.ones(5, 3), "labels": torch.zeros(5, dtype=torch.long)}).shape
        torch.Size([5, 8])
    """

    def __init__(
        self, model: nn.Module, params: Mapping[str, nn.Parameter], loss_fn: LossFn, *, one_by_one: bool = False
    ) -> None:
        self.params = dict(params)
        self.device = next(iter(self.params.values())).device
        self.passes = 0
        self._loss_fn = loss_fn
        self._single = view(model, eager=False, leaves=self.params)
        self._layers = None if one_by_one else _layers(model, self.params)
        self._frozen = None if self._layers is None else view(model, eager=False)
        self._checked = False

    @property
    def batched(self) -> bool:
        """Whether one backward pass serves a whole batch."""
        return self._layers is not None

    def __call__(self, batch: Batch) -> Float[Tensor, "b d"]:
        """Return one float32 row an example, parameters in their order."""
        batch = to_device(batch, self.device)
        size = len(next(iter(batch.values())))
        if self._layers is not None:
            try:
                rows = self._together(batch, size)
                if not self._checked:
                    self._compare(rows[0], batch)
                self.passes += size
                return rows
            except UnsupportedLayerError as error:
                _log.info("gradients are computed one by one: %s", error)
                self._layers = self._frozen = None
        return torch.stack(
            [self._alone({name: value[i : i + 1] for name, value in batch.items()}) for i in range(size)]
        )

    def _alone(self, batch: Batch) -> Float[Tensor, " d"]:
        self.passes += 1
        leaves: dict[str, Tensor] = self._single.leaves  # type: ignore[assignment]
        loss = self._loss_fn(call_model(self._single, _unpadded(batch)), _unpadded(batch)).sum()
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        return torch.cat(
            [
                torch.zeros(p.numel(), device=p.device) if g is None else g.reshape(-1).float()
                for g, p in zip(found, leaves.values(), strict=True)
            ]
        )

    def _together(self, batch: Batch, size: int) -> Float[Tensor, "b d"]:
        assert self._layers is not None
        assert self._frozen is not None
        calls: dict[str, list[tuple[Tensor, Tensor]]] = {
            name: [] for name in {place for place, _ in self._layers.values()}
        }

        def remember(name: str) -> Any:
            def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
                if not output.requires_grad:
                    output = output.detach().requires_grad_()
                calls[name].append((inputs[0].detach(), output))
                return output

            return hook

        handles = [self._frozen.get_submodule(name).register_forward_hook(remember(name)) for name in calls]
        try:
            losses = self._loss_fn(call_model(self._frozen, batch), batch)
        finally:
            for handle in handles:
                handle.remove()
        if losses.shape != (size,):
            raise ValueError(f"loss_fn: expected one loss an example, shape ({size},), got {tuple(losses.shape)}")
        outputs = [output for made in calls.values() for _, output in made]
        if not outputs or not losses.requires_grad:
            return torch.zeros(size, sum(p.numel() for p in self.params.values()), device=self.device)
        back = iter(torch.autograd.grad(losses.sum(), outputs, allow_unused=True, materialize_grads=True))
        factors = {name: [(x, next(back)) for x, _ in made] for name, made in calls.items()}
        pieces = []
        for name, p in self.params.items():
            place, kind = self._layers[name]
            rows = [_row(x, delta, kind, size).reshape(size, -1) for x, delta in factors[place]]
            pieces.append(sum(rows[1:], rows[0]) if rows else torch.zeros(size, p.numel(), device=p.device))
        return torch.cat(pieces, dim=1) if len(pieces) > 1 else pieces[0]

    def _compare(self, row: Tensor, batch: Batch) -> None:
        alone = self._alone({name: value[:1] for name, value in batch.items()})
        if not torch.isfinite(alone).all():
            return  # reported with its index by whoever asked
        low = next(iter(self.params.values())).dtype != torch.float32
        if float((row - alone).norm()) > (0.05 if low else 1e-3) * float(alone.norm()) + 1e-12:
            raise UnsupportedLayerError("a selected parameter is used outside of its linear layer")
        self._checked = True


def iterate_gradients(
    gradients: ExampleGradients, examples: Examples, indices: Sequence[int] | np.ndarray, batch_size: int
) -> Iterator[tuple[np.ndarray, Float[Tensor, "b d"]]]:
    """Yield (indices, gradient rows), a batch at a time.

    Raises:
        ValueError: A gradient is not finite; the message names the example.
    """
    for chosen, batch in examples.batches(indices, batch_size):
        rows = gradients(batch)
        broken = ~torch.isfinite(rows.norm(dim=1))  # one pass: NaN and inf carry through a norm
        if bool(broken.any()):
            index = int(chosen[int(broken.nonzero()[0])])
            raise ValueError(
                f"{examples.name}: the gradient of the example at index {index} is not finite (NaN or inf); "
                "leave it out, or compute in float32"
            )
        yield chosen, rows


def _row(x: Tensor, delta: Tensor, kind: str, size: int) -> Tensor:
    if len(x) != size or len(delta) != size:
        raise UnsupportedLayerError(f"a linear layer saw {len(x)} rows for {size} examples")
    x, delta = x.float().reshape(size, -1, x.shape[-1]), delta.float().reshape(size, -1, delta.shape[-1])
    if kind == "bias":
        return delta.sum(1)
    if kind == "in-out":
        return torch.bmm(x.transpose(1, 2), delta)
    return torch.bmm(delta.transpose(1, 2), x)


def _layers(model: nn.Module, params: Mapping[str, nn.Parameter]) -> dict[str, tuple[str, str]] | None:
    """Return each parameter's module and how its gradient is made, or ``None`` if one is no linear layer's own."""
    names = {id(p): name for name, p in params.items()}
    found: dict[str, tuple[str, str]] = {}
    uses: dict[str, int] = {}
    for place, module in model.named_modules():
        for own, p in module._parameters.items():
            if p is None or id(p) not in names:
                continue
            name = names[id(p)]
            uses[name] = uses.get(name, 0) + 1
            if own == "bias" and _is_linear(module):
                found[name] = place, "bias"
            elif own == "weight" and _is_linear(module):
                found[name] = place, "in-out" if type(module).__name__ == "Conv1D" else "out-in"
    return found if len(found) == len(params) and max(uses.values()) == 1 else None


def _is_linear(module: nn.Module) -> bool:
    return type(module) is nn.Linear or type(module).__name__ in {"Conv1D", "NonDynamicallyQuantizableLinear"}


def _unpadded(batch: Batch) -> Batch:
    """Cut the right padding off a batch of one example."""
    mask = batch.get("attention_mask")
    if mask is None or "input_ids" not in batch:
        return batch
    length, width = int(mask.sum()), mask.shape[1]
    return {
        name: value[:, :length] if value.dim() == 2 and value.shape[1] == width else value
        for name, value in batch.items()
    }
