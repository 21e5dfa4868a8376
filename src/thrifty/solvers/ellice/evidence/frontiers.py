"""Frontiers of robustness against distance, and by how much one is ahead of another at equal distance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads

#: Mean L2 of the answers, mean share of models that accept one, share of persons whose answer all models accept.
Point = tuple[float, float, float]
#: One point for every value of a contender's own robustness parameter.
Frontier = list[Point]
DISTANCE, AGREEMENT, ALL = 0, 1, 2

OURS = "ElliCE"


def point(
    answers: Float[np.ndarray, "n d"],
    rows: Float[np.ndarray, "n d"],
    accepts: Callable[[Float[np.ndarray, "n d"]], Bool[np.ndarray, "k n"]],
) -> Point | None:
    """Judge answers by a list of models; who has none counts as rejected, and where nobody has one, there is no point.

    Args:
        answers: NaN where there is none.
        rows: The persons.
        accepts: Which model accepts which row.
    """
    has = np.isfinite(answers).all(axis=1)
    if not has.any():
        return None
    accepted = accepts(np.where(has[:, None], answers, 0.0)) & has
    far = float(np.linalg.norm(answers[has] - rows[has], axis=1).mean())
    return far, float(accepted.mean()), float(accepted.all(axis=0).mean())


def share_at(frontier: Sequence[Point], distance: float, measure: int = AGREEMENT) -> float | None:
    """Read a frontier at a mean distance: the most that any point at most that far reaches, linear in between.

    Returns:
        ``None`` if even its nearest point is farther.
    """
    points: NDArray[np.float64] = np.array(sorted((one[DISTANCE], one[measure]) for one in frontier))
    if not len(points) or distance < points[0, 0] - 1e-9:
        return None
    return float(np.interp(distance, points[:, 0], np.maximum.accumulate(points[:, 1])))


def lead(ours: Point, rival: Sequence[Point], measure: int = AGREEMENT) -> float | None:
    """Return by how much one of our points is above a rival's frontier at the same mean distance."""
    theirs = share_at(rival, ours[DISTANCE], measure)
    return None if theirs is None else ours[measure] - theirs


def least_lead(
    runs: Sequence[Mapping[str, Frontier]], places: Sequence[int], measure: int = AGREEMENT
) -> tuple[float, str]:
    """Return the smallest lead over all rivals at some of our points: its mean over the runs plus one sd, and where.

    A rival that is nowhere as near as our point, in some run, is not compared at it.
    """
    least, where = float("inf"), "no rival comes as near"
    for who in runs[0]:
        for place in places:
            ahead = [lead(run[OURS][place], run[who], measure) for run in runs if place < len(run[OURS])]
            if who == OURS or None in ahead or not ahead:
                continue
            mean, sd = float(np.mean(ahead)), float(np.std(ahead, ddof=1)) if len(ahead) > 1 else 0.0  # type: ignore[arg-type]
            if mean + sd < least:
                least, where = mean + sd, f"{who}: {mean:+.3f} ± {sd:.3f}"
    return least, where


def least_lead_anywhere(runs: Sequence[Mapping[str, Frontier]], measure: int = AGREEMENT) -> tuple[float, str]:
    """Return the smallest lead of our whole frontier over any single point of any rival, likewise."""
    least, where = float("inf"), ""
    for who in runs[0]:
        for place in range(min(len(run[who]) for run in runs)):
            reached = [share_at(run[OURS], run[who][place][DISTANCE], measure) for run in runs]
            if who == OURS or None in reached:
                continue  # nearer than any row of class 1 is: the deployed model itself rejects such answers
            ahead = [got - run[who][place][measure] for got, run in zip(reached, runs, strict=True)]  # type: ignore[operator]
            mean, sd = float(np.mean(ahead)), float(np.std(ahead, ddof=1)) if len(ahead) > 1 else 0.0
            if mean + sd < least:
                least, where = mean + sd, f"{who} #{place + 1}: {mean:+.3f} ± {sd:.3f}"
    return least, where


@dataclass(frozen=True)
class Leads:
    """The least leads over several tables: each a share, and where it was found.

    Attributes:
        chosen: At our chosen points, over what each rival reaches there.
        by_all: Likewise, for the share of persons whose answer all models accept.
        anywhere: Of our whole frontier over every point of every rival.
    """

    chosen: tuple[float, str]
    by_all: tuple[float, str]
    anywhere: tuple[float, str]


def contest(
    ctx: Context,
    evidence: Evidence,
    workload: str,
    names: Sequence[str],
    seeds: Sequence[int],
    measure: Callable[[str, int], dict[str, Frontier]],
    places: Sequence[int],
) -> Leads:
    """Measure every contender's frontier on every table and seed, show them, and return our leads."""
    found: list[tuple[tuple[float, str], ...]] = []
    for done, name in enumerate(names):
        runs: list[dict[str, Frontier]] = []
        for seed in seeds:
            ctx.progress(done * len(seeds) + len(runs), len(names) * len(seeds), f"{workload}: {name}")
            with threads(1):  # matrices this small gain nothing from more
                runs.append(ctx.once(f"{workload} {name}", seed, measure, name, seed))
        show(evidence, f"{name}, {workload}, at the distances of our chosen points", runs, places)
        least = (least_lead(runs, places), least_lead(runs, places, ALL), least_lead_anywhere(runs))
        found.append(tuple((lead, f"{name}, {where}") for lead, where in least))
    return Leads(*(min(several) for several in zip(*found, strict=True)))


def show(evidence: Evidence, workload: str, runs: Sequence[Mapping[str, Frontier]], places: Sequence[int]) -> None:
    """Add a row a contender, with what it reaches as far away as our chosen points are, and a picture."""
    for who in runs[0]:
        metrics = {}
        for number, place in enumerate(places, start=1):
            judged = [run for run in runs if place < len(run[OURS])]
            for measure, what in ((AGREEMENT, "accepted"), (ALL, "by all")):
                reached = [share_at(run[who], run[OURS][place][DISTANCE], measure) for run in judged]
                if reached and None not in reached:
                    metrics[f"{what}, point {number}"] = Measurement.of(reached, "share")  # type: ignore[arg-type]
        evidence.row(who, metrics, workload=workload)
    evidence.curves(
        f"Robustness: {workload}",
        "mean L2",
        "mean share of models that accept an answer",
        {who: _curve(who, runs) for who in runs[0] if all(run[who] for run in runs)},
    )


def _curve(who: str, runs: Sequence[Mapping[str, Frontier]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    length = min(len(run[who]) for run in runs)
    points = np.array([run[who][:length] for run in runs]).mean(axis=0)
    order = points[:, DISTANCE].argsort()
    return points[order, DISTANCE], points[order, AGREEMENT]
