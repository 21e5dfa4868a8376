"""Near-optimal networks by perturbing a fitted one: Rashomon dropout and adversarial weight perturbation (AWP).

All perturbed copies are one stack of parameters, evaluated by ``vmap``. The loss that bounds them is the mean logistic
loss plus (λ/2)‖all parameters‖² (the paper's evaluators).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

Stack = dict[str, Tensor]

#: Noise levels that dropout tries, and the share of draws that must stay under the bound.
SCALES, SHARE, TRIES = np.geomspace(1e-4, 0.8, 20), 0.05, 500
#: Of AWP: steps, step size and momentum.
STEPS, RATE, MOMENTUM = 400, 1e-3, 0.9


@dataclass(frozen=True, eq=False)
class Family:
    """A network architecture with its training table.

    Attributes:
        module: The fitted network, float64, in eval mode.
        to_logit: Output to logit, ``[n, outputs]`` to ``[n]``.
        rows: Encoded training rows; ``[n, d]``.
        y: Labels in {0, 1}; ``[n]``.
        l2: λ.
    """

    module: nn.Module
    to_logit: Callable[[Tensor], Tensor]
    rows: Tensor
    y: Tensor
    l2: float

    @property
    def base(self) -> Stack:
        """The fitted parameters."""
        return {name: value.detach() for name, value in self.module.named_parameters()}

    def logits(self, parameters: Stack, rows: Tensor) -> Tensor:
        """Return one model's logits."""
        return self.to_logit(functional_call(self.module, parameters, (rows,)))

    def loss(self, parameters: Stack) -> Tensor:
        """Return one model's objective on the training table."""
        fit = binary_cross_entropy_with_logits(self.logits(parameters, self.rows), self.y)
        return fit + 0.5 * self.l2 * sum(value.square().sum() for value in parameters.values())

    def losses(self, stack: Stack, chunk: int = 50) -> Tensor:
        """Return every model's objective."""
        with torch.no_grad():
            return torch.cat([vmap(self.loss)(piece) for piece in _pieces(stack, chunk)])

    def all_logits(self, stack: Stack, rows: Tensor, chunk: int = 50) -> Float[np.ndarray, "k n"]:
        """Return every model's logits."""
        with torch.no_grad():
            found = [vmap(lambda one: self.logits(one, rows))(piece) for piece in _pieces(stack, chunk)]
        array: NDArray[np.float64] = torch.cat(found).cpu().numpy()
        return array


def dropout(family: Family, bound: float, n_models: int, seed: int) -> tuple[Stack, int]:
    """Multiply every weight by N(1, s²), with the largest s for which enough draws stay under the bound.

    Returns:
        The models under the bound, and how many were drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    scale = SCALES[0]
    for candidate in SCALES[::-1]:
        if float((family.losses(_noisy(family.base, TRIES, candidate, generator)) <= bound).double().mean()) > SHARE:
            scale = candidate
            break
    stack = _noisy(family.base, n_models, scale, generator)
    kept = family.losses(stack) <= bound
    if not bool(kept.any()):
        stack = _noisy(family.base, n_models, scale / 2, generator)
        kept = family.losses(stack) <= bound
    return {name: value[kept] for name, value in stack.items()}, n_models


def awp(family: Family, bound: float, n_models: int) -> tuple[Stack, int]:
    """Push the fitted network, for each of ``n_models`` evenly strided rows, towards the other class on that row.

    SGD with momentum on the row's loss for the other label (plus the penalty), until the objective on the training
    table would pass the bound; the step that does is taken back.
    """
    at = np.unique(np.linspace(0, len(family.rows) - 1, n_models).astype(int))
    rows, other = family.rows[at], 1 - family.y[at]
    stack = {name: value.expand(len(at), *value.shape).clone() for name, value in family.base.items()}
    speed = {name: torch.zeros_like(value) for name, value in stack.items()}

    def push(parameters: Stack, row: Tensor, label: Tensor) -> Tensor:
        logit = family.logits(parameters, row[None])[0]
        penalty = sum(value.square().sum() for value in parameters.values())
        return softplus(torch.where(label == 1, -logit, logit)) + 0.5 * family.l2 * penalty

    slope = vmap(grad(push))
    moving = torch.ones(len(at), dtype=torch.bool)
    for _ in range(STEPS):
        active = torch.nonzero(moving)[:, 0]
        if not len(active):
            break
        here = {name: value[active] for name, value in stack.items()}
        there = {}
        for name, value in slope(here, rows[active], other[active]).items():
            speed[name][active] = MOMENTUM * speed[name][active] + value
            there[name] = here[name] - RATE * speed[name][active]
        fine = family.losses(there) <= bound
        for name, value in stack.items():
            value[active[fine]] = there[name][fine]
        moving[active[~fine]] = False
    return stack, len(at)


def _noisy(base: Stack, k: int, scale: float, generator: torch.Generator) -> Stack:
    return {
        name: value * (1 + scale * torch.randn((k, *value.shape), generator=generator, dtype=value.dtype))
        for name, value in base.items()
    }


def _pieces(stack: Stack, chunk: int) -> list[Stack]:
    size = len(next(iter(stack.values())))
    if size == 0:
        return [stack]
    return [{name: value[at : at + chunk] for name, value in stack.items()} for at in range(0, size, chunk)]
