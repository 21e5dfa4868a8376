"""What local search gives a small readable tree: errors in training and on held-out folds, at the same size."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.tree import DecisionTreeClassifier

from thrifty._common.tables import one_hot, read_table
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import keel
from thrifty.bench.data.keel import Table
from thrifty.bench.evidence import Evidence
from thrifty.solvers.trees import improve_tree, tao

#: The tables that the claim names, and one more that was chosen before the first run.
TABLES = ("magic", "phoneme", "banana", "german", "pima", "satimage")
DEPTHS = (3, 4)
FOLDS = 5
OURS, CART = "hill-climb", "CART"

#: Errors in training and shares of errors in test, one number a fold, and the seconds that the fold took.
Folds = dict[str, dict[str, list[float]]]


def show(ctx: Context, evidence: Evidence) -> None:
    """Five-fold cross-validation on every table, at both depths, for each seed."""
    tables = [_own(ctx)] if ctx.data else [keel.load(name) for name in TABLES]
    seeds = ctx.seeds(quick=1, full=5)
    pieces = [(table, depth) for table in tables for depth in DEPTHS]
    found: dict[tuple[str, int], list[Folds]] = {}
    for done, (table, depth) in enumerate(pieces):
        ctx.progress(done, len(pieces), f"{table.name}, depth {depth}")
        for seed in seeds:
            folds = ctx.once(f"{table.name}, depth {depth}", seed, cross_validate, table, depth, seed)
            found.setdefault((table.name, depth), []).append(folds)
        _rows(evidence, f"{table.name}, depth {depth}", found[table.name, depth])

    def total(contender: str, metric: str, place: int, key: tuple[str, int]) -> float:
        return float(np.mean(found[key][place][contender][metric]))

    places = range(len(seeds))

    def test_error(contender: str) -> list[float]:
        return [float(np.mean([total(contender, "test", i, key) for key in found])) for i in places]

    ratios = [max(total(OURS, "train", i, key) / total(CART, "train", i, key) for key in found) for i in places]
    evidence.measured(
        "same-size-fewer-errors", Measurement.of(ratios, "ratio"), gate=(test_error(OURS), test_error(CART))
    )
    labels = tuple(f"{name}, depth {depth}" for name, depth in found)
    for metric, title, scale in (("train", "Training errors", 1.0), ("test", "Test error", 100.0)):
        points = {
            who: (labels, [scale * np.mean([total(who, metric, i, key) for i in places]) for key in found])
            for who in found[next(iter(found))][0]
        }
        unit = "errors" if metric == "train" else "%"
        evidence.curves(f"{title} at the same size", "", unit, points, kind="bar")


def cross_validate(table: Table, depth: int, seed: int) -> Folds:
    """Fit every contender on each fold; ours starts from CART's tree, and its time includes CART's."""
    results: Folds = {name: {"train": [], "test": [], "seconds": []} for name in CONTENDERS}
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    for train, test in folds.split(table.X, table.y):
        for name, fit in CONTENDERS.items():
            began = time.perf_counter()
            model = fit(table.X[train], table.y[train], depth, seed)
            results[name]["seconds"].append(time.perf_counter() - began)
            results[name]["train"].append(float((model.predict(table.X[train]) != table.y[train]).sum()))
            results[name]["test"].append(float((model.predict(table.X[test]) != table.y[test]).mean()))
    return results


def fit_cart(X: np.ndarray, y: np.ndarray, depth: int, seed: int) -> DecisionTreeClassifier:
    """What everybody has."""
    return DecisionTreeClassifier(max_depth=depth, random_state=seed).fit(X, y)


def fit_hill_climb(X: np.ndarray, y: np.ndarray, depth: int, seed: int) -> DecisionTreeClassifier:
    """CART's tree, then the best exchange of one cut again and again."""
    return improve_tree(fit_cart(X, y, depth, seed), X, y, operation="exchange", mode="hillclimb")[0]


def fit_tao(X: np.ndarray, y: np.ndarray, depth: int, seed: int) -> DecisionTreeClassifier:
    """CART's tree, then alternating optimisation of its tests with the leaves' classes held fixed."""
    return tao(fit_cart(X, y, depth, seed), X, y)


CONTENDERS: dict[str, Callable[[np.ndarray, np.ndarray, int, int], Any]] = {
    OURS: fit_hill_climb,
    CART: fit_cart,
    "TAO": fit_tao,
}


def _rows(evidence: Evidence, workload: str, found: list[Folds]) -> None:
    for contender in found[0]:
        every = {metric: [v for folds in found for v in folds[contender][metric]] for metric in found[0][contender]}
        evidence.row(
            contender,
            {
                "training errors": Measurement.of(every["train"], "errors"),
                "test error": Measurement.of([100 * share for share in every["test"]], "%"),
                "time": Measurement.of(every["seconds"], "s", timed=True),
            },
            workload=workload,
        )


def _own(ctx: Context) -> Table:
    """Read the user's table: a header line, the class in the last column."""
    assert ctx.data is not None
    *features, target = (columns := read_table(ctx.data))
    X, names = one_hot({name: columns[name] for name in features})
    class_names, y = np.unique(columns[target].astype(str), return_inverse=True)
    return Table(ctx.data.stem, X, y, names, tuple(class_names))
