"""Which search answers which question: the modes and solvers of `improve_tree`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from thrifty.solvers.trees.bnb.branch_and_bound import solve_branch_and_bound
from thrifty.solvers.trees.bnb.vns import solve_vns
from thrifty.solvers.trees.boxes.dp import solve_dp
from thrifty.solvers.trees.instance.effort import max_boxes
from thrifty.solvers.trees.instance.problem import Problem
from thrifty.solvers.trees.instance.solution import Solution
from thrifty.solvers.trees.monotone import climb_monotone, solve_monotone, solve_monotone_brute
from thrifty.solvers.trees.small.brute import solve_brute
from thrifty.solvers.trees.small.budget import solve_budget
from thrifty.solvers.trees.sweeps.hillclimb import hill_climb, solve_single
from thrifty.solvers.trees.sweeps.moves import Secondary

Mode = Literal["exact", "hillclimb", "vns"]
Solver = Literal["auto", "sweep", "bnb", "dp", "budget", "brute"]

MODES: tuple[str, ...] = ("exact", "hillclimb", "vns")
SOLVERS: tuple[str, ...] = ("auto", "sweep", "bnb", "dp", "budget", "brute")

MANY_CHANGES = 4
"""From so many changes on branch and bound grows faster than the boxes of the dynamic programme, if those are few."""

FEW_BOXES = 2_000_000
"""Boxes that the dynamic programme gets through in seconds to minutes."""


@dataclass(frozen=True)
class Limits:
    """What a search may take, and whom it tells.

    Attributes:
        time_limit: Seconds; then the best found so far is returned, with a lower bound. ``None``: no limit.
        memory_limit_mb: Megabytes for remembered answers; beyond, they are worked out again.
        n_jobs: Threads of branch and bound; ``None`` is 1, -1 one a core.
        progress: Called with what is done and the total, 0 where that is not known.
        on_incumbent: Called with the errors of each better tree that branch and bound meets.
    """

    time_limit: float | None = None
    memory_limit_mb: float = 2048
    n_jobs: int | None = None
    progress: Callable[[int, int], None] | None = None
    on_incumbent: Callable[[float], None] | None = None


def fitting_solver(problem: Problem, k: int) -> Solver:
    """The exact solver that ``"auto"`` takes."""
    if k <= 1:
        return "sweep"
    return "dp" if k >= MANY_CHANGES and max_boxes(problem, k) <= FEW_BOXES else "bnb"


def search(
    problem: Problem,
    k: int,
    *,
    mode: Mode,
    solver: Solver,
    secondary: Secondary,
    limits: Limits,
    monotonic_cst: ArrayLike | None,
    max_rounds: int,
    random_state: int | np.random.RandomState | None,
) -> tuple[Solution, str]:
    """Run the search that was asked for, and say which solver it was.

    Raises:
        ValueError: The mode, the solver and ``k`` do not go together.
    """
    if monotonic_cst is not None:
        return _search_monotone(problem, k, monotonic_cst, mode=mode, solver=solver, secondary=secondary)
    if mode != "exact":
        if solver not in ("auto", "sweep" if mode == "hillclimb" else "bnb"):
            raise ValueError(f"solver: expected 'auto' with mode={mode!r}, which has its own, got {solver!r}")
        if mode == "vns":
            solution = solve_vns(
                problem,
                max_changes=max(k, 1),
                ties=max_rounds > 1,
                max_rounds=max_rounds,
                random_state=random_state,
                time_limit=limits.time_limit,
                memory_limit_mb=limits.memory_limit_mb,
                n_jobs=limits.n_jobs,
                on_incumbent=limits.on_incumbent,
                secondary=secondary,
            )
            return solution, "bnb"
        if k > 1:
            raise ValueError(
                f"k: expected 1 with mode='hillclimb', which changes one cut a step (or mode='vns'), got {k}"
            )
        solve = hill_climb if k == 1 else lambda problem, secondary: solve_single(problem, 0, secondary=secondary)
        return solve(problem, secondary=secondary), "sweep"
    chosen = fitting_solver(problem, k) if solver == "auto" else solver
    if chosen == "sweep":
        if k > 1:
            raise ValueError(f"k: expected 0 or 1 with solver='sweep' (or solver='auto'), got {k}")
        return solve_single(problem, k, secondary=secondary), chosen
    if chosen == "bnb":
        solution = solve_branch_and_bound(
            problem,
            k,
            time_limit=limits.time_limit,
            memory_limit_mb=limits.memory_limit_mb,
            n_jobs=limits.n_jobs,
            progress=limits.progress,
            on_incumbent=limits.on_incumbent,
            secondary=secondary,
        )
        return solution, chosen
    if chosen == "dp":
        tell = limits.progress
        progress = None if tell is None else lambda n_states: tell(n_states, 0)
        solution = solve_dp(
            problem, k, time_limit=limits.time_limit, memory_limit_mb=limits.memory_limit_mb, progress=progress
        )
        return solution, chosen
    return (solve_budget if chosen == "budget" else solve_brute)(problem, k), chosen


def _search_monotone(
    problem: Problem, k: int, monotonic_cst: ArrayLike, *, mode: Mode, solver: Solver, secondary: Secondary
) -> tuple[Solution, str]:
    """The same among trees whose predictions are monotone."""
    if mode == "hillclimb" and k == 1 and solver in ("auto", "sweep"):
        return climb_monotone(problem, monotonic_cst, secondary=secondary), "sweep"
    if mode == "exact" and solver == "brute":
        return solve_monotone_brute(problem, k, monotonic_cst), "brute"
    if mode == "exact" and k <= 1 and solver in ("auto", "sweep"):
        return solve_monotone(problem, k, monotonic_cst, secondary=secondary), "sweep"
    raise ValueError(
        "monotonic_cst: expected k of 0 or 1, mode='hillclimb' or solver='brute', which keep it, got "
        f"k={k}, mode={mode!r} and solver={solver!r}"
    )
