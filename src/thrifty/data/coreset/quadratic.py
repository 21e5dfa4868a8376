"""CREST's trigger: choose anew where the loss has left its quadratic model (Yang et al., arXiv 2306.01244)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from thrifty._common.checks import number, whole
from thrifty.data.coreset.scoring import device_of, evaluating, run, split, to_device
from thrifty.data.coreset.triggers import Check


class QuadraticTrigger:
    """Fires when |L − (L₀ + ḡ·δ + ½ δ·h̄δ)| exceeds a share of L, on a random part of the data.

    L₀, the gradient ḡ and the diagonal h̄ of the Hessian are taken when a subset is chosen, δ is what the parameters
    have moved since. Diagonals come of Hutchinson's estimator and are averaged over selections as in Adam, with bias
    correction. The flatter the loss, the rarer the check: every ⌈c ‖h̄ first‖ / ‖h̄ now‖⌉ of the monitor's.

    Args:
        threshold: The share of L.
        samples: Of the random part.
        probes: Random signs of an estimate.
        decay: Of the average of squares of diagonals.
        scale: c.
        seed: Of the part and of the signs.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> from thrifty.data.coreset import RepresentativenessMonitor
        >>> RepresentativenessMonitor(trigger=QuadraticTrigger(), every=1).watches
        True

    Source:
        arXiv 2306.01244, section 4.2 and algorithm 1; here it is looked at before an epoch, not within one, and δ is a
        difference of parameters, so that a step needs no second backward pass.
    """

    def __init__(
        self,
        threshold: float = 0.1,
        samples: int = 256,
        probes: int = 1,
        decay: float = 0.99,
        scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.threshold = number("threshold", threshold, "a number above 0", least=1e-300)
        self.samples, self.probes = whole("samples", samples), whole("probes", probes)
        self.decay = number("decay", decay, "a number in [0, 1)", least=0.0, below=1.0)
        self.scale = number("scale", scale, "a number above 0", least=1e-300)
        self.seed = whole("seed", seed, least=0)
        self._at: list[Tensor] = []
        self._gradient: list[Tensor] = []
        self._square: list[Tensor] = []
        self._loss = math.nan
        self._first = math.nan
        self._selections = self._wait = 0
        self._part: list[int] = []

    def __call__(self, check: Check) -> bool:
        """Tell whether the loss has left the model made at the last selection.

        Raises:
            ValueError: There was none.
        """
        if not self._at:
            raise ValueError("trigger: expected a selection before the first check, got none")
        self._wait -= 1
        if self._wait > 0:
            return False
        self._wait = self._interval()
        loss, _ = self._loss_of(check.coreset, gradient=False)
        return abs(loss - self.predicted(check.coreset)) > self.threshold * loss

    def predicted(self, coreset: Any) -> float:
        """Return what the quadratic model says of the loss at the parameters as they are."""
        value = self._loss
        for now, then, gradient, diagonal in zip(
            _parameters(coreset), self._at, self._gradient, self._diagonals(), strict=True
        ):
            moved = now.detach() - then
            value += float((gradient * moved).sum() + (diagonal * moved.square()).sum() / 2)
        return value

    def selected(self, coreset: Any) -> None:
        """Make the model anew, at the parameters as they are."""
        generator = torch.Generator().manual_seed((self.seed << 20) + self._selections)
        self._selections += 1
        self._part = torch.randperm(coreset.n, generator=generator)[: self.samples].tolist()
        parameters = _parameters(coreset)
        with torch.enable_grad(), evaluating(coreset.model):
            self._loss, gradients = self._loss_of(coreset, gradient=True)
            diagonals = [torch.zeros_like(parameter) for parameter in parameters]
            for _ in range(self.probes):
                signs = [torch.randint(0, 2, p.shape, generator=generator).to(p) * 2 - 1 for p in parameters]
                products = torch.autograd.grad(gradients, parameters, signs, retain_graph=True, materialize_grads=True)
                for diagonal, sign, product in zip(diagonals, signs, products, strict=True):
                    diagonal.add_(sign * product.detach() / self.probes)
        self._at = [parameter.detach().clone() for parameter in parameters]
        self._gradient = [gradient.detach() for gradient in gradients]
        squares = self._square or [torch.zeros_like(diagonal) for diagonal in diagonals]
        self._square = [
            self.decay * square + (1 - self.decay) * diagonal.square()
            for square, diagonal in zip(squares, diagonals, strict=True)
        ]
        if math.isnan(self._first):
            self._first = self._norm()
        self._wait = self._interval()

    def _diagonals(self) -> list[Tensor]:
        """Return h̄: roots of the averaged squares, as Adam corrects them."""
        correction = 1 - self.decay**self._selections
        return [(square / correction).sqrt() for square in self._square]

    def _norm(self) -> float:
        return math.sqrt(sum(float(diagonal.square().sum()) for diagonal in self._diagonals()))

    def _interval(self) -> int:
        return max(1, math.ceil(self.scale * self._first / max(self._norm(), 1e-12 * self._first, 1e-300)))

    def _loss_of(self, coreset: Any, *, gradient: bool) -> tuple[float, tuple[Tensor, ...]]:
        """Return the mean loss on the random part, and its gradient if that is asked for."""
        parameters, device = _parameters(coreset), device_of(coreset.model)
        batches = coreset.batches(coreset.plain, self._part)
        total, gradients = 0.0, tuple(torch.zeros_like(parameter) for parameter in parameters)
        with torch.set_grad_enabled(gradient), evaluating(coreset.model):
            for batch in batches:
                inputs, targets = split(to_device(batch, device))
                loss = coreset.scorer.loss(run(coreset.model, inputs), targets).sum() / len(self._part)
                total += float(loss.detach())
                if gradient:
                    found = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
                    gradients = tuple(g + f for g, f in zip(gradients, found, strict=True))
        return total, gradients

    def state_dict(self) -> dict[str, Any]:
        """Return what the trigger needs to go on; its tensors are as large as the model's."""
        return {name: getattr(self, name) for name in _STATE}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        for name in _STATE:
            setattr(self, name, state[name])


_STATE = ("_at", "_gradient", "_square", "_loss", "_first", "_selections", "_wait", "_part")


def _parameters(coreset: Any) -> list[Tensor]:
    return [parameter for parameter in coreset.model.parameters() if parameter.requires_grad]
