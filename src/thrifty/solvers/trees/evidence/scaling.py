"""How the dynamic programme grows: with the number of boxes, and with what the theory says makes instances hard."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.solvers.trees.boxes.dp import solve_dp
from thrifty.solvers.trees.instance.gadgets import hitting_set_instance
from thrifty.solvers.trees.instance.problem import Problem, build_problem
from thrifty.solvers.trees.instance.solution import Solution
from thrifty.solvers.trees.model.tree import Tree

CUTS = 7  # a complete tree of depth 3, every cut of which may change
ROWS = 400

#: Pairs of features and distinct values a feature; full runs take the larger ones too.
QUICK_SIZES = ((1, 3), (1, 5), (1, 8), (2, 3), (2, 5), (2, 8), (3, 3), (3, 5), (3, 8), (2, 32), (2, 64))
FULL_SIZES = (*QUICK_SIZES, (3, 16), (3, 24), (4, 8))


def show(ctx: Context, evidence: Evidence) -> None:
    """Count states against the bound, and time three families of instances."""
    _states(ctx, evidence)
    _families(ctx, evidence)


def _states(ctx: Context, evidence: Evidence) -> None:
    sizes = FULL_SIZES if ctx.full else QUICK_SIZES
    shares, states, seconds = [], [], []
    for done, (d, D) in enumerate(sizes):
        ctx.progress(done, len(sizes), f"dynamic programme, d = {d}, D = {D}")
        solution, took = solve(instance(d, D, ROWS, ctx.seed), CUTS)
        shares.append(solution.n_states / (CUTS * (D + 1) ** (2 * d)))
        states.append(solution.n_states)
        seconds.append(took)
    evidence.row(
        "dynamic programme",
        {
            "share of the bound": Measurement.of(shares, "ratio"),
            "states": Measurement.of(states, "states"),
            "time": Measurement.of(seconds, "s", timed=True),
        },
        workload=f"generated, {len(sizes)} sizes of d and D, k = s = {CUTS}",
    )
    evidence.measured("states-scale", Measurement.of(max(shares), "ratio"))
    slope = float(np.polyfit(np.log(states), np.log(seconds), 1)[0])
    evidence.measured("states-slope", Measurement.of(slope, "exponent", timed=True))
    points = {"dynamic programme": (states, seconds)}
    evidence.curves("Time over states", "states", "seconds", points, kind="scatter", log_x=True, log_y=True)


def _families(ctx: Context, evidence: Evidence) -> None:
    families = {
        "features: d = 9 to 18 at D = 2": [(hitting_set(d, ctx.seed), d) for d in (9, 12, 15, 18)],
        "values: D = 8 to 64 at d = 2": [(instance(2, D, ROWS, ctx.seed), CUTS) for D in (8, 16, 32, 64)],
        "rows: n = 400 to 25 600 at d = 2, D = 4": [
            (instance(2, 4, n, ctx.seed), CUTS) for n in (400, 1_600, 6_400, 25_600)
        ],
    }
    growth, plotted = [], {}
    for done, (family, problems) in enumerate(families.items()):
        ctx.progress(done, len(families), family)
        seconds = [min(solve(problem, k)[1] for _ in range(2)) for problem, k in problems]
        states = [solve(problem, k)[0].n_states for problem, k in problems]
        growth.append(seconds[-1] / seconds[0])
        evidence.row(
            family,
            {
                "states grow by": Measurement.of(states[-1] / states[0], "ratio"),
                "time grows by": Measurement.of(growth[-1], "ratio", timed=True),
            },
            workload="what makes it hard: one thing grows, the other two stay",
        )
        plotted[family] = (range(1, len(seconds) + 1), seconds)
    *hard, easy = growth
    evidence.measured("hardness", Measurement.of(min(hard) / easy, "ratio", timed=True))
    evidence.curves("What makes it hard", "step", "seconds", plotted, log_y=True)


def hitting_set(d: int, seed: int) -> Problem:
    """Generate 2 d random pairs of d elements: is there a hitting set, as threshold adjustment?"""
    generator = np.random.default_rng(seed)
    pairs = [generator.choice(d, 2, replace=False).tolist() for _ in range(2 * d)]
    tree, X, y = hitting_set_instance(pairs, d)
    return build_problem(tree, X, y, operation="adjust", min_samples_leaf=0)


def solve(problem: Problem, k: int) -> tuple[Solution, float]:
    """Run the dynamic programme, and time it."""
    began = time.perf_counter()
    solution = solve_dp(problem, k)
    return solution, time.perf_counter() - began


def instance(d: int, D: int, rows: int, seed: int) -> Problem:
    """Generate random values and noisy classes under a complete tree whose cuts all send everything right."""
    generator = np.random.default_rng(seed)
    X = generator.integers(D, size=(rows, d)).astype(float)
    y = (X.sum(axis=1) + generator.normal(size=rows) > d * (D - 1) / 2).astype(int)
    return build_problem(complete_tree(3, d), X, y, operation="exchange", min_samples_leaf=0)


def complete_tree(depth: int, n_features: int) -> Tree:
    """Return a complete tree on features 0, 1, ... in turn, every threshold below all values, two classes."""
    n_cuts = 2**depth - 1
    n_nodes = 2 * n_cuts + 1
    left: NDArray[np.int32] = np.full(n_nodes, -1, dtype=np.int32)
    left[:n_cuts] = 2 * np.arange(n_cuts) + 1
    is_cut = left >= 0
    return Tree(
        left=left,
        right=np.where(is_cut, left + 1, -1),
        feature=np.where(is_cut, np.arange(n_nodes) % n_features, -1),
        threshold=np.where(is_cut, -1.0, 0.0),
        value=np.full((n_nodes, 2), 0.5),
        weight=np.zeros(n_nodes),
        n_samples=np.zeros(n_nodes, dtype=np.int64),
        classes=np.array([0, 1]),
        n_features=n_features,
    )
