"""Recourse by gradients, for networks: the paper's continuous generator, all persons in one tensor.

``library`` and ``paper`` follow the authors' two programs, which stop at the first certified point and never look at
the distance. ``closest``, the default, begins like ``library``, and at the nearest certified rows of the table; from
each it minimises the distance under the constraint by an augmented Lagrangian, and bisects the way back to the person.

Whether a point is certified is always asked of the *rounded* point, in float64. Where the authors' library averages
gradients at the two neighbouring allowed values, the straight-through gradient at the rounded value is used here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor
from torch.nn.functional import softplus

from thrifty.solvers.ellice.crowd import Crowd
from thrifty.solvers.ellice.encoding import Encoded
from thrifty.solvers.ellice.problem import Answer, Preset, Problem

#: Certified rows of the table that ``"closest"`` begins from, besides the person's own row.
KNOWN_STARTS = 3


@dataclass(frozen=True)
class Descent:
    """How gradients are followed.

    Attributes:
        preset: ``"closest"``, or the authors' ``"library"`` or ``"paper"``.
        lr: Of Adam, in units of encoded columns.
        max_steps: Steps to a first certified point.
        shorten_steps: Steps that then shorten the way (``"closest"``).
        halvings: Of the way back to the person at the end (``"closest"``).
        n_restarts: Starts from random points around the person; the nearest answer is kept.
        batch_size: Persons in one tensor.
    """

    preset: Preset = "closest"
    lr: float = 0.1
    max_steps: int = 1000
    shorten_steps: int = 300
    halvings: int = 30
    n_restarts: int = 1
    batch_size: int = 4096


def solve_gradient(
    problem: Problem,
    rows: Encoded,
    descent: Descent,
    seed: int = 0,
    frozen: Bool[np.ndarray, "n d"] | None = None,
    known: Float[np.ndarray, "n k d"] | None = None,
) -> list[Answer]:
    """Return a certified row for every person.

    Args:
        problem: Of a network, or of a linear model (then for comparison: the exact solver is better).
        rows: Encoded persons, ``[n, d]``.
        descent: How.
        seed: Of Gumbel noise and restarts.
        frozen: Columns that each person must keep besides those of the region.
        known: For each person certified rows to begin from as well (NaN: none), moved into the person's limits first;
            ``"closest"`` only.

    Returns:
        One answer a person: ``"feasible"``, or ``"not_found"``. Nearest is never claimed.
    """
    if problem.distance == "sparse":
        raise ValueError(
            "distance: expected another than 'sparse', which is for method='data' (here sparsity= keeps changes few)"
        )
    answers: list[Answer] = []
    generator = torch.Generator().manual_seed(seed)
    for at in range(0, len(rows), descent.batch_size):
        piece = slice(at, at + descent.batch_size)
        answers += search(
            problem,
            rows[piece],
            descent,
            generator,
            None if frozen is None else frozen[piece],
            None if known is None or descent.preset != "closest" else known[piece],
        )
    return answers


def gradient_order(problem: Problem, rows: Encoded, descent: Descent, seed: int = 0) -> list[list[int]]:
    """Rank the features of every person by the gradient that a whole search sums up on them (Algorithm 3, steps 1, 2).

    Returns:
        For each person the units that may change, largest first.
    """
    crowd = Crowd(problem, rows, None)
    first_certified(crowd, descent, torch.Generator().manual_seed(seed), crowd.start())
    summed = crowd.summed.cpu().numpy()
    units = problem.region.units
    mean = np.column_stack([summed[:, list(unit)].mean(axis=1) for unit in units])
    movable = [u for u, unit in enumerate(units) if not problem.region.frozen[list(unit)].all()]
    return [sorted(movable, key=lambda u, scores=scores: -float(scores[u])) for scores in mean]  # type: ignore[misc]


def solve_sparse_gradient(
    problem: Problem, rows: Encoded, most: int | None, descent: Descent, seed: int = 0
) -> list[Answer]:
    """Free one feature after another, in the order of their gradients, until a person is certified (Algorithm 3).

    Args:
        problem: Of a network.
        rows: Encoded persons.
        most: Features that may change; ``None``: as many as are needed.
        descent: How each search is made.
        seed: Of Gumbel noise.
    """
    orders = gradient_order(problem, rows, descent, seed)
    units = [list(unit) for unit in problem.region.units]
    answers = [Answer(None, "not_found", "no certified row was reached") for _ in rows]
    longest = max((len(order) for order in orders), default=0)
    for k in range(1, min(longest, longest if most is None else most) + 1):
        left = [i for i, answer in enumerate(answers) if answer.row is None and len(orders[i]) >= k]
        if not left:
            break
        frozen = np.ones((len(left), rows.shape[1]), bool)
        for at, i in enumerate(left):
            for unit in orders[i][:k]:
                frozen[at, units[unit]] = False
        found = solve_gradient(problem, rows[left], descent, seed, frozen)
        for i, answer in zip(left, found, strict=True):
            answers[i] = answer
    return answers


def search(
    problem: Problem,
    rows: Encoded,
    descent: Descent,
    generator: Generator,
    frozen: Bool[np.ndarray, "n d"] | None,
    known: Float[np.ndarray, "n k d"] | None,
) -> list[Answer]:
    """Run a preset from every start, all starts of all persons in one tensor; return each person's nearest answer."""
    n, starts = len(rows), descent.n_restarts + (0 if known is None else known.shape[1])
    # Start by start: all persons from their own row, all from a point around it (restarts), all from a known row.
    crowd = Crowd(problem, np.tile(rows, (starts, 1)), None if frozen is None else np.tile(frozen, (starts, 1)))
    values = crowd.start()
    again = slice(n, descent.n_restarts * n)
    noise = torch.randn(values[again].shape, generator=generator, dtype=torch.float64).to(crowd.device)
    values[again] += 0.5 * noise
    if known is not None:
        begin = crowd.origin.clone()
        begin[descent.n_restarts * n :] = crowd.tensor(known.swapaxes(0, 1).reshape(-1, rows.shape[1]))
        there = torch.arange(len(begin), device=begin.device) >= descent.n_restarts * n
        there &= ~begin.isnan().any(1)
        values = torch.where(there[:, None], crowd.values_of(begin.nan_to_num()), values)
    found, done = first_certified(crowd, descent, generator, values)
    if descent.preset == "closest":
        found = shorten(crowd, found, done, descent)
        found = walk_back(crowd, found, done, descent.halvings)
    far = torch.where(done, crowd.far(found), float("inf")).reshape(starts, n)
    best = far.argmin(0)
    nearest = found.reshape(starts, n, -1)[best, torch.arange(n, device=best.device)].cpu().numpy()
    reached = far.isfinite().any(0).tolist()
    return [crowd.answer(i, nearest[i] if reached[i] else None) for i in range(n)]


def first_certified(crowd: Crowd, descent: Descent, generator: Generator, values: Tensor) -> tuple[Tensor, Tensor]:
    """Descend until certified, each person for themselves; return rounded rows and who has arrived."""
    paper = descent.preset == "paper"
    patience = 100 if paper else 50
    values = crowd.project(values).requires_grad_(True)
    adam = torch.optim.Adam([values], lr=descent.lr)
    found = crowd.rounded(values)
    done = crowd.certified(found)
    best = torch.full((len(values),), -float("inf"), dtype=torch.float64, device=crowd.device)
    since = torch.zeros(len(values), device=crowd.device)
    has_choices = bool(crowd.problem.region.choices)
    for _ in range(descent.max_steps):
        active = ~done & (since < patience) & ~crowd.blocked
        if not bool(active.any()):
            break
        adam.zero_grad()
        soft = crowd.realise(values, generator if has_choices else None)
        slack = crowd.slack(soft)
        if paper:
            loss = softplus(-crowd.nominal(soft)) + 0.5 * softplus(-slack)
        else:
            loss = (-slack).clamp_min(0)
            # Soft categories may be certified before the rounded ones: go on pushing until those are.
            loss = torch.where(slack >= 0, -1e-3 * slack, loss)
        torch.autograd.backward(loss[active].sum())
        gradient = values.grad
        assert gradient is not None
        gradient[crowd.held] = 0.0
        gradient[~active] = 0.0
        crowd.summed += gradient.abs()
        if not paper:  # one clip a person, as when persons come one by one
            gradient *= (1.0 / gradient.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1.0)
        kept = values.detach().clone()
        adam.step()
        with torch.no_grad():
            values[~active] = kept[~active]
            values[crowd.held] = kept[crowd.held]
            crowd.project(values)
        rounded = crowd.rounded(values)
        arrived = active & crowd.certified(rounded)
        found[active] = rounded[active]
        done |= arrived
        improved = slack.detach() > best + 1e-6
        best = torch.where(improved, slack.detach(), best)
        since = torch.where(improved, torch.zeros_like(since), since + 1)
    return found, done


def shorten(crowd: Crowd, found: Tensor, done: Tensor, descent: Descent) -> Tensor:
    """Minimise the distance subject to slack ≥ 0 by an augmented Lagrangian; keep the nearest certified iterate."""
    if not bool(done.any()):
        return found
    values = crowd.values_of(found)
    values.requires_grad_(True)
    adam = torch.optim.Adam([values], lr=descent.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, descent.shorten_steps, eta_min=descent.lr / 100)
    multiplier = torch.ones(len(values), dtype=torch.float64, device=crowd.device)
    best, far = found.clone(), crowd.far(found)
    for step in range(descent.shorten_steps):
        adam.zero_grad()
        soft = crowd.realise(values, None)
        slack = crowd.slack(soft)
        penalty = 10.0
        shortfall = (multiplier / penalty - slack).clamp_min(0)
        loss = crowd.cost(soft) + 0.5 * penalty * shortfall.square()
        torch.autograd.backward(loss[done].sum())
        gradient = values.grad
        assert gradient is not None
        gradient[crowd.held] = 0.0
        gradient[~done] = 0.0
        adam.step()
        schedule.step()
        with torch.no_grad():
            values[crowd.held] = found[crowd.held]
            crowd.project(values)
            if step % 10 == 9:
                multiplier = (multiplier - penalty * slack.detach()).clamp_min(0)
        rounded = crowd.rounded(values)
        distance = crowd.far(rounded)
        better = done & (distance < far) & crowd.certified(rounded)
        best[better], far[better] = rounded[better], distance[better]
    return best


def walk_back(crowd: Crowd, found: Tensor, done: Tensor, halvings: int) -> Tensor:
    """Bisect the straight way to the person for the last certified point; discrete parts stay as found."""
    low, high = torch.zeros(len(found), dtype=torch.float64, device=crowd.device), None
    high = torch.ones_like(low)
    start = crowd.project(crowd.origin.clone())
    for choice in crowd.problem.region.choices:
        start[:, crowd.at(choice)] = found[:, crowd.at(choice)]
    for j in crowd.problem.region.lattices:
        start[:, j] = found[:, j]
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        fine = crowd.certified(start + middle[:, None] * (found - start))
        high, low = torch.where(fine, middle, high), torch.where(fine, low, middle)
    back = start + high[:, None] * (found - start)
    better = done & crowd.certified(back)
    return torch.where(better[:, None], back, found)
