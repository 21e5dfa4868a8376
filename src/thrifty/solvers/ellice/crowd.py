"""Many persons in one tensor: their limits, what their values stand for, and their certificates, differentiably.

Numbers are optimised as they are, categories as logits of a softmax, allowed values by a straight-through gradient.
The gradient of g₁ at x̃ is that of θ_wᵀx̃ with the worst model θ_w held fixed (Danskin).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Generator, Tensor

from thrifty.solvers.ellice.distances import number_columns
from thrifty.solvers.ellice.encoding import Encoded
from thrifty.solvers.ellice.problem import MARGIN, Answer, Problem
from thrifty.solvers.ellice.region import Box, Choice

#: Logits that a category starts from: 0.1, and 1 for the person's level (the authors' values).
START_OFF, START_ON = 0.1, 1.0
#: Logit of a level that a search begins from because it was found before.
START_FIRM = 4.0


class Crowd:
    """Many persons at once: their limits as tensors, and the steps that all of them take together."""

    def __init__(self, problem: Problem, rows: Encoded, frozen: NDArray[np.bool_] | None) -> None:
        self.problem, self.rows = problem, rows
        network = problem.reading.network
        self.device = network.device if network is not None else "cpu"
        self.tensor_features = network.tensor_features if network is not None else lambda z: z
        region = problem.region
        self.boxes: list[Box] = [region.box(row, None if frozen is None else frozen[i]) for i, row in enumerate(rows)]
        d = rows.shape[1]
        self.origin = self.tensor(rows)
        self.lower = self.tensor(np.array([box.lower for box in self.boxes]).reshape(-1, d))
        self.upper = self.tensor(np.array([box.upper for box in self.boxes]).reshape(-1, d))
        self.held = self.lower == self.upper
        self.weights = self.tensor(region.weights)
        self.theta = self.tensor(problem.ellipsoid.theta)
        self.inverse = self.tensor(problem.ellipsoid.whitening.T @ problem.ellipsoid.whitening)
        self.deployed = None if problem.deployed is None else self.tensor(problem.deployed)
        self.numbers = number_columns(region)
        self.A, self.b = self.tensor(region.A), self.tensor(region.b)
        self.blocked = torch.tensor([box.obstacle is not None for box in self.boxes], device=self.device)
        self.summed = torch.zeros_like(self.origin)

    def answer(self, i: int, row: Float[np.ndarray, " d"] | None) -> Answer:
        """Return one person's answer."""
        if self.boxes[i].obstacle:
            return Answer(None, "infeasible", str(self.boxes[i].obstacle))
        return Answer(None, "not_found", "no certified row was reached") if row is None else Answer(row, "feasible")

    # -- the values that are optimised: numbers as they are, categories as logits

    def start(self) -> Tensor:
        """Return everybody's own row, categories as logits."""
        values = torch.minimum(torch.maximum(self.origin, self.lower), self.upper)
        for choice in self.problem.region.choices:
            shares = self.tensor(choice.shares(self.rows))
            values[:, self.at(choice)] = START_OFF + (START_ON - START_OFF) * shares
        return values

    def values_of(self, rows: Tensor) -> Tensor:
        """Return the values that stand for rows: their levels firmly, but not finally; what is held as the person's."""
        values = torch.where(self.held, self.origin, rows)
        for choice in self.problem.region.choices:
            shares = self.tensor(choice.shares(rows.cpu().numpy()))
            values[:, self.at(choice)] = START_FIRM * shares
        return values

    def realise(self, values: Tensor, generator: Generator | None) -> Tensor:
        """Return encoded rows, differentiably: softmax shares for categories, straight-through allowed values."""
        rows = values.clone()
        for j, lattice in self.problem.region.lattices.items():
            nearest = self._nearest_value(values[:, j].detach(), lattice)
            rows[:, j] = torch.where(
                self.held[:, j], self.origin[:, j], values[:, j] + (nearest - values[:, j]).detach()
            )
        for choice in self.problem.region.choices:
            at = self.at(choice)
            logits = self._masked(choice, values[:, at])
            if generator is not None:  # Gumbel-softmax, temperature 1
                noise = torch.rand(logits.shape, generator=generator, dtype=torch.float64).to(self.device)
                logits = logits - (-(noise.clamp_min(1e-10)).log()).log()
            shares = logits.softmax(1)[:, : len(choice.columns)]
            soft = self.tensor(choice.off) + shares * self.tensor(choice.on - choice.off)
            rows[:, at] = torch.where(self.held[:, at], self.origin[:, at], soft)
        return rows

    def rounded(self, values: Tensor) -> Tensor:
        """Return the rows that would be handed out: one level a category, allowed values, within bounds."""
        rows = self.realise(values, None).detach()
        for choice in self.problem.region.choices:
            at = self.at(choice)
            pick = self._masked(choice, values[:, at].detach()).argmax(1, keepdim=True)
            hard = self.tensor(choice.off).repeat(len(rows), 1)
            for level in range(len(choice.columns)):
                chosen = pick[:, 0] == level
                hard[chosen, level] = float(choice.on[level])
            rows[:, at] = torch.where(self.held[:, at], self.origin[:, at], hard)
        return rows

    def _masked(self, choice: Choice, logits: Tensor) -> Tensor:
        """Return logits: levels that are not permitted at −∞, the baseline's behind them if there is one."""
        barred = [level not in choice.permitted for level in range(len(choice.columns))]
        logits = logits.masked_fill(torch.tensor(barred, device=self.device), -1e9)
        if choice.has_baseline:
            baseline = START_OFF if -1 in choice.permitted else -1e9
            logits = torch.cat([logits, torch.full_like(logits[:, :1], baseline)], 1)
        return logits

    def at(self, choice: Choice) -> Tensor:
        """Return the columns of a category."""
        return torch.as_tensor(choice.columns, device=self.device)

    def _nearest_value(self, values: Tensor, lattice: NDArray[np.float64]) -> Tensor:
        grid = self.tensor(lattice)
        right = torch.searchsorted(grid, values.contiguous()).clamp(0, len(grid) - 1)
        left = (right - 1).clamp_min(0)
        return torch.where((values - grid[left]).abs() <= (grid[right] - values).abs(), grid[left], grid[right])

    def project(self, values: Tensor) -> Tensor:
        """Return values within bounds and linear limits, by cyclic projections; what is frozen stays."""
        numbers = torch.as_tensor(self.numbers, device=self.device)
        for _ in range(50 if len(self.b) else 1):
            inside = torch.minimum(torch.maximum(values[:, numbers], self.lower[:, numbers]), self.upper[:, numbers])
            values[:, numbers] = inside
            if not len(self.b):
                break
            over = 0.0
            for a, b in zip(self.A, self.b, strict=True):
                free = torch.where(self.held, 0.0, a)
                excess = (values @ a - b).clamp_min(0)
                over = max(over, float(excess.max()))
                values -= (excess / free.square().sum(1).clamp_min(1e-12))[:, None] * free * (1 + 1e-9)
            if over <= 1e-9:
                break
        return values

    # -- certificates

    def slack(self, rows: Tensor) -> Tensor:
        """Return by how many logits rows are certified, differentiably (Danskin: the worst model is held fixed)."""
        features = self.tensor_features(rows)
        features = torch.cat([features, torch.ones_like(features[:, :1])], 1)
        sign, epsilon = self.problem.sign, self.problem.ellipsoid.epsilon
        turned = features.detach() @ self.inverse
        norm = (features.detach() * turned).sum(1, keepdim=True).clamp_min(1e-300).sqrt()
        worst = self.theta - sign * (2 * epsilon) ** 0.5 * turned / norm
        slack = sign * ((features * worst).sum(1) - self.problem.threshold)
        if self.deployed is not None:
            slack = torch.minimum(slack, sign * (features @ self.deployed - self.problem.threshold))
        robust: Tensor = slack - MARGIN
        return robust

    def nominal(self, rows: Tensor) -> Tensor:
        """Return the centre's logit past the threshold, differentiably."""
        features = self.tensor_features(rows)
        return self.problem.sign * (features @ self.theta[:-1] + self.theta[-1] - self.problem.threshold)

    def certified(self, rows: Tensor) -> Tensor:
        """Tell which rounded rows are certified and within linear limits."""
        with torch.no_grad():
            fine = self.slack(rows) >= 0
        if len(self.b):
            fine &= (rows @ self.A.T <= self.b + 1e-7 * (1 + self.b.abs())).all(1)
        return fine & ~self.blocked

    # -- distances, as tensors

    def cost(self, rows: Tensor) -> Tensor:
        """Return what is minimised, differentiably: squared distance, or L1 distance; categories by their shares."""
        moved = rows - self.origin
        if self.problem.distance == "l1":
            return moved.abs() @ self.weights
        if self.problem.distance == "l2":
            return moved.square() @ self.weights
        numbers = torch.as_tensor(self.numbers, device=self.device)
        total = moved[:, numbers].square() @ self.weights[numbers]
        for left, weight in self._left_shares(rows):
            total = total + weight * left
        return total

    def _left_shares(self, rows: Tensor) -> Iterator[tuple[Tensor, float]]:
        """Yield for every category the share that has left the person's level, and its price."""
        for choice in self.problem.region.choices:
            at = self.at(choice)
            span, off = self.tensor(choice.on - choice.off), self.tensor(choice.off)
            shares, was = (rows[:, at] - off) / span, (self.origin[:, at] - off) / span
            yield 0.5 * ((shares - was).abs().sum(1) + (shares.sum(1) - was.sum(1)).abs()), choice.weight

    def far(self, rows: Tensor) -> Tensor:
        """Return the distance of rounded rows from their persons."""
        return self.tensor(self.problem.distance_of(rows.cpu().numpy(), self.rows))

    def tensor(self, values: NDArray[np.float64]) -> Tensor:
        """Return float64 on our device."""
        return torch.as_tensor(values, dtype=torch.float64, device=self.device)
