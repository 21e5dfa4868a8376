"""Recourse by gradients, for networks: the paper's continuous generator, all persons in one tensor.

``library`` and ``paper`` follow the authors' two programs, which stop at the first certified point and never look at
the distance. ``closest``, the default, begins like ``library`` (or at a certified row of the table, where that is nearer
or the descent finds none), then minimises the distance under the constraint by an augmented Lagrangian, and ends with a
bisection on the way back to the person.

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
    known: Encoded | None = None,
) -> list[Answer]:
    """Return a certified row for every person.

    Args:
        problem: Of a network, or of a linear model (then for comparison: the exact solver is better).
        rows: Encoded persons, ``[n, d]``.
        descent: How.
        seed: Of Gumbel noise and restarts.
        frozen: Columns that each person must keep besides those of the region.
        known: For each person a certified row to begin from where the descent ends farther away, or nowhere (NaN:
            none); ``"closest"`` only.

    Returns:
        One answer a person: ``"feasible"``, or ``"not_found"``. Nearest is never claimed.
    """
    if problem.distance == "sparse":
        raise ValueError("distance='sparse' is for method='data'; gradients keep changes few with sparsity=")
    answers: list[Answer] = []
    generator = torch.Generator().manual_seed(seed)
    for at in range(0, len(rows), descent.batch_size):
        piece = slice(at, at + descent.batch_size)
        crowd = Crowd(problem, rows[piece], None if frozen is None else frozen[piece])
        best = search(crowd, descent, generator, None if known is None else known[piece])
        answers += [crowd.answer(i, best[i]) for i in range(len(best))]
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
    crowd: Crowd, descent: Descent, generator: Generator, known: Encoded | None = None
) -> list[Float[np.ndarray, " d"] | None]:
    """Run a preset from every start; return each person's nearest certified row."""
    n = len(crowd.rows)
    best = crowd.origin.clone()
    far = torch.full((n,), float("inf"), dtype=torch.float64, device=crowd.device)
    for restart in range(descent.n_restarts):
        values = crowd.start()
        if restart:
            noise = torch.randn(values.shape, generator=generator, dtype=torch.float64).to(crowd.device)
            values = crowd.project(values + 0.5 * noise)
        found, done = first_certified(crowd, descent, generator, values)
        if descent.preset == "closest":
            if known is not None:
                found, done = nearer_of(crowd, found, done, known)
            found = shorten(crowd, found, done, descent, generator)
            found = walk_back(crowd, found, done, descent.halvings)
        distance = crowd.far(found)
        nearer = done & (distance < far)
        best[nearer], far[nearer] = found[nearer], distance[nearer]
    return [best[i].cpu().numpy() if bool(far[i] < float("inf")) else None for i in range(n)]


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


def nearer_of(crowd: Crowd, found: Tensor, done: Tensor, known: Encoded) -> tuple[Tensor, Tensor]:
    """Return for each person the nearer of the row that was found and a known one, and who has any."""
    rows = crowd.tensor(known)
    has = crowd.certified(rows) & ~rows.isnan().any(1)
    pick = has & (~done | (crowd.far(rows) < crowd.far(found)))
    return torch.where(pick[:, None], rows, found), done | has


def shorten(crowd: Crowd, found: Tensor, done: Tensor, descent: Descent, generator: Generator) -> Tensor:
    """Minimise the distance subject to slack ≥ 0 by an augmented Lagrangian; keep the nearest certified iterate."""
    if not bool(done.any()):
        return found
    values = found.clone()
    for choice in crowd.problem.region.choices:
        shares = crowd.tensor(choice.shares(found.cpu().numpy()))
        values[:, crowd.at(choice)] = 4.0 * shares  # the level that was found, firmly but not finally
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
