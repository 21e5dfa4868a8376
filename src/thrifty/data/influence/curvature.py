"""Products with the target loss's Hessian, exact or Gauss-Newton, without ever forming it.

The exact product differentiates the gradient once more; the generalised Gauss-Newton matrix Jᵀ H_ℓ J, positive
semidefinite for convex losses of the outputs, goes forwards through the model, through the loss's Hessian, and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp

from thrifty.data.influence.examples import Batch, Examples
from thrifty.data.influence.losses import Forward, LossFn, call_model, to_device
from thrifty.data.influence.replica import view


class TargetHessian:
    """H_T of the mean target loss in the selected parameters, as a linear map on rows.

    Args:
        model: The model; eager attention is used, since fused kernels have no second derivative.
        params: Name to parameter.
        loss_fn: Model outputs and batch to one loss an example.
        target: The target examples.
        kind: ``"exact"`` or ``"ggn"``.
        batch_size: Examples a pass.
    """

    def __init__(
        self,
        model: nn.Module,
        params: Mapping[str, nn.Parameter],
        loss_fn: LossFn,
        target: Examples,
        *,
        kind: Literal["exact", "ggn"] = "exact",
        batch_size: int = 8,
    ) -> None:
        self._params = dict(params)
        self._twin = view(model, eager=True, leaves=self._params)
        self._loss_fn = loss_fn
        self._target = target
        self._kind = kind
        self._batch_size = batch_size
        self._device = next(iter(self._params.values())).device

    def __call__(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Return H_T times each row."""
        out = torch.zeros_like(rows)
        indices = self._target.valid
        for chosen, batch in self._target.batches(indices, self._batch_size):
            share = len(chosen) / len(indices)
            product = self._exact if self._kind == "exact" else self._gauss_newton
            out += share * product(rows, to_device(batch, self._device))
        return out

    def _exact(self, rows: Tensor, batch: Batch) -> Tensor:
        leaves: dict[str, Tensor] = self._twin.leaves  # type: ignore[assignment]
        loss = self._loss_fn(call_model(self._twin, batch), batch).mean()
        first = torch.autograd.grad(loss, list(leaves.values()), create_graph=True, allow_unused=True)
        pairs = [(g, i) for i, g in enumerate(first) if g is not None and g.requires_grad]
        out = []
        for row in rows:
            direction = list(self._split(row).values())
            slope = torch.stack([(g.float() * direction[i]).sum() for g, i in pairs]).sum()
            second = torch.autograd.grad(slope, list(leaves.values()), retain_graph=True, allow_unused=True)
            out.append(self._joined(dict(zip(leaves, second, strict=True))))
        return torch.stack(out)

    def _gauss_newton(self, rows: Tensor, batch: Batch) -> Tensor:
        values = {name: leaf.detach() for name, leaf in self._twin.leaves.items()}  # type: ignore[operator, union-attr]

        def logits(values: dict[str, Tensor]) -> Tensor:
            named = {f"inner.{name}": value for name, value in values.items()}
            found = functional_call(Forward(self._twin), named, (batch,))
            z: Tensor = getattr(found, "logits", found)
            return z

        def loss(z: Tensor) -> Tensor:
            return self._loss_fn(_Outputs(z), batch).mean()

        out = []
        z, back = vjp(logits, values)  # type: ignore[misc]
        for row in rows:
            direction = {name: v.to(values[name].dtype) for name, v in self._split(row).items()}
            moved = jvp(logits, (values,), (direction,))[1]
            curved = jvp(grad(loss), (z,), (moved,))[1]
            out.append(self._joined(back(curved)[0]))
        return torch.stack(out)

    def _split(self, row: Tensor) -> dict[str, Tensor]:
        sizes = [p.numel() for p in self._params.values()]
        pieces = torch.split(row, sizes)
        return {name: piece.reshape(p.shape) for (name, p), piece in zip(self._params.items(), pieces, strict=True)}

    def _joined(self, pieces: Mapping[str, Tensor | None]) -> Tensor:
        return torch.cat(
            [
                torch.zeros(p.numel(), device=p.device) if pieces[name] is None else pieces[name].reshape(-1).float()  # type: ignore[union-attr]
                for name, p in self._params.items()
            ]
        )


class _Outputs:
    """Logits where a loss looks for them."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
