"""What a method claims, and when a claim holds.

A claim is written down before anything is measured (the ``CLAIMS`` of an ``evidence.py``). Measuring it gives a
finding, whose status follows from the numbers alone: see :func:`judge`.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from scipy import special

Mode = Literal["quick", "full"]
Status = Literal["holds", "falls short", "cheaper but worse", "reported", "cannot show"]

#: A claim about one of these may not be bought with quality, so it needs a gate.
Cost = Literal["time", "memory", "bytes", "steps", "parameters", "FLOPs", "backward passes"]
#: What else can be claimed: how good it is, that two ways agree, how it grows, that accounts add up, why it works.
Property = Literal["quality", "exactness", "scaling", "accounting", "mechanism"]
COSTS, PROPERTIES = frozenset(get_args(Cost)), frozenset(get_args(Property))

_COMPARE = {"<": operator.lt, "<=": operator.le, ">=": operator.ge, "==": operator.eq}


@dataclass(frozen=True)
class Measurement:
    """One quantity over several runs: seeds, folds or interleaved repeats.

    Args:
        values: One number a run; all finite.
        unit: As printed behind the number (``"s"``, ``"MB"``, ``"errors"``, ``"ratio"``).
        timed: It comes from a clock, so that two runs with one seed may differ in it.

    Raises:
        ValueError: There is no value, or one of them is not finite.
    """

    values: tuple[float, ...]
    unit: str
    timed: bool = False

    def __post_init__(self) -> None:
        if not self.values or not all(math.isfinite(value) for value in self.values):
            raise ValueError(f"values: expected at least one number, all finite, got {self.values}")

    @classmethod
    def of(cls, values: float | Sequence[float], unit: str, *, timed: bool = False) -> Measurement:
        """Take one number or a sequence of them (numpy's included)."""
        several = values if hasattr(values, "__len__") else [values]
        return cls(tuple(float(value) for value in several), unit, timed)  # type: ignore[union-attr]

    @property
    def median(self) -> float:
        """The middle run."""
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest run."""
        return min(self.values), max(self.values)

    @property
    def mean(self) -> float:
        """The mean over runs."""
        return statistics.fmean(self.values)

    def interval(self, share: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the mean (Student's t).

        Raises:
            ValueError: A single run has no interval.
        """
        n = len(self.values)
        if n == 1:
            raise ValueError("interval: expected at least two runs, got one")
        half = float(special.stdtrit(n - 1, (1 + share) / 2)) * statistics.stdev(self.values) / math.sqrt(n)
        return self.mean - half, self.mean + half

    def over(self, other: Measurement) -> Measurement:
        """Divide run by run: the ratio of two things measured side by side.

        Raises:
            ValueError: The two have different units or numbers of runs, or something is divided by nothing.
        """
        ratios = [1.0 if a == b else a / b if b else math.inf for a, b in self._beside(other)]
        return Measurement.of(ratios, "ratio", timed=self.timed or other.timed)

    def minus(self, other: Measurement) -> Measurement:
        """Subtract run by run: by how much one of two things measured side by side is above the other.

        Raises:
            ValueError: The two have different units or numbers of runs.
        """
        return Measurement.of([a - b for a, b in self._beside(other)], self.unit, timed=self.timed or other.timed)

    def _beside(self, other: Measurement) -> list[tuple[float, float]]:
        if self.unit != other.unit or len(self.values) != len(other.values):
            raise ValueError(
                f"other: expected {len(self.values)} runs in {self.unit}, got {len(other.values)} in {other.unit}"
            )
        return list(zip(self.values, other.values, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return what ``results.json`` holds of it."""
        low, high = self.spread
        return {
            "median": self.median,
            "min": low,
            "max": high,
            "unit": self.unit,
            "runs": len(self.values),
            "timed": self.timed,
        }


@dataclass(frozen=True)
class Target:
    """What the measured number must be: ``Target("<=", 0.7)``."""

    op: Literal["<", "<=", ">=", "=="]
    value: float

    def __post_init__(self) -> None:
        if self.op not in _COMPARE:
            raise ValueError(f"op: expected one of {', '.join(_COMPARE)}, got {self.op!r}")

    def met_by(self, measured: float) -> bool:
        """Tell whether the measured number reaches the target."""
        return bool(_COMPARE[self.op](measured, self.value))


@dataclass(frozen=True)
class Gate:
    """The quality that a saving may not cost: how much worse than a rival's is still called equal.

    Args:
        metric: What is compared, for instance ``"test error"``.
        margin: How much worse is allowed, in the metric's unit (0: not at all).
        better: Which direction is good.
        by: ``"run"``: in no run (seed, fold, workload) may it be worse by more than the margin; ``"mean"``: not in the
            mean over runs; ``"sd"``: not in the mean, by more than the margin and one pooled standard deviation;
            ``"interval"``: not in the mean, beyond the margin and the 95 % interval of the mean difference. A single
            run has no spread, so that there all of them are ``"run"``.
        than: Whose quality it is held against, where that is not the claim's rival.

    Raises:
        ValueError: The margin is negative.
    """

    metric: str
    margin: float
    better: Literal["lower", "higher"] = "lower"
    by: Literal["run", "mean", "sd", "interval"] = "run"
    than: str | None = None

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise ValueError(f"margin: expected at least 0, got {self.margin}")

    def passed(self, ours: Sequence[float], rival: Sequence[float]) -> bool:
        """Compare runs that were made side by side.

        Raises:
            ValueError: The two differ in length, or there is no run.
        """
        if len(ours) != len(rival) or len(ours) == 0:
            raise ValueError(f"ours and rival: expected one number a run in each, got {len(ours)} and {len(rival)}")
        worse = Measurement.of(ours, "").minus(Measurement.of(rival, ""))
        if self.better == "higher":
            worse = Measurement.of([-value for value in worse.values], "")
        if self.by == "run" or len(ours) == 1:
            return worse.spread[1] <= self.margin
        slack = {
            "mean": lambda: 0.0,
            "sd": lambda: pooled_deviation(ours, rival),
            "interval": lambda: worse.mean - worse.interval()[0],
        }[self.by]()
        return worse.mean <= self.margin + slack


def pooled_deviation(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the pooled standard deviation over the runs of two contenders."""
    return math.sqrt((statistics.variance(ours) + statistics.variance(theirs)) / 2)


@dataclass(frozen=True)
class Claim:
    """A sentence that a run can confirm or refute.

    Args:
        id: Short, stable, hyphenated.
        text: The sentence, readable on its own.
        about: The resource or property; a cost with a target needs a gate.
        unit: Unit of the measured number.
        contenders: Ours first, then whom it is measured against.
        target: What would make it hold; ``None`` for a finding that is only reported.
        gate: The quality that it may not cost.
        published: What the paper printed, quoted for the reader.
        budget: The mode that it needs: a ``"full"`` claim is listed in quick mode as *cannot show*.

    Raises:
        ValueError: It is about a cost, has a target and names no gate; it names no contender; or ``about`` is unknown.
    """

    id: str
    text: str
    about: Cost | Property
    unit: str
    contenders: tuple[str, ...]
    target: Target | None = None
    gate: Gate | None = None
    published: str | None = None
    budget: Mode = "quick"

    def __post_init__(self) -> None:
        if self.about not in COSTS | PROPERTIES:
            known = ", ".join(sorted(COSTS | PROPERTIES))
            raise ValueError(f"claim {self.id!r}: about: expected one of {known}, got {self.about!r}")
        if not self.contenders:
            raise ValueError(f"claim {self.id!r} names no contender")
        if self.about in COSTS and self.target is not None and self.gate is None:
            raise ValueError(f"claim {self.id!r} is about {self.about}: it needs a gate on quality")


@dataclass(frozen=True)
class Finding:
    """A claim after a run: what was measured, and the status that follows."""

    claim: Claim
    status: Status
    measurement: Measurement | None = None
    gate_passed: bool | None = None
    reason: str | None = None
    limit: str | None = field(default=None)

    def to_json(self) -> dict[str, Any]:
        """Return what ``results.json`` holds of it."""
        claim, measured = self.claim, self.measurement
        return {
            "id": claim.id,
            "text": claim.text,
            "about": claim.about,
            "published": claim.published,
            "contenders": list(claim.contenders),
            "measured": measured.median if measured else None,
            "unit": claim.unit,
            "spread": list(measured.spread) if measured else None,
            "runs": len(measured.values) if measured else 0,
            "timed": measured.timed if measured else False,
            "target": {"op": claim.target.op, "value": claim.target.value} if claim.target else None,
            "gate": {
                "metric": claim.gate.metric,
                "margin": claim.gate.margin,
                "better": claim.gate.better,
                "by": claim.gate.by,
                "than": claim.gate.than,
                "passed": self.gate_passed,
            }
            if claim.gate
            else None,
            "budget": claim.budget,
            "status": self.status,
            "reason": self.reason,
            "limit": self.limit,
        }


def judge(
    claim: Claim,
    measurement: Measurement,
    *,
    gate: tuple[Sequence[float], Sequence[float]] | float | None = None,
    reason: str | None = None,
    limit: str | None = None,
) -> Finding:
    """Decide what a measurement says of a claim.

    Args:
        claim: The claim.
        measurement: Its number in every run, in the claim's unit; the median is held against the target.
        gate: The gate's metric, one number a run: ours, and the rival's in the same runs; an error that should be 0 may
            stand alone.
        reason: A remark for the reader, for instance why it falls short.
        limit: How far the number is from what the machine allows.

    Raises:
        ValueError: The units differ, or the claim has a gate and its numbers are missing (or the reverse).
    """
    if measurement.unit != claim.unit:
        raise ValueError(f"measurement: claim {claim.id!r} is in {claim.unit}, got {measurement.unit}")
    if (claim.gate is None) != (gate is None):
        raise ValueError(
            f"gate: claim {claim.id!r} {'has no' if claim.gate is None else 'needs the numbers of its'} gate"
        )
    pair = ([gate], [0.0]) if isinstance(gate, float | int) else gate
    passed = claim.gate.passed(*pair) if claim.gate and pair else None
    status: Status
    if claim.target is None:
        status = "reported"
    elif not claim.target.met_by(measurement.median):
        status = "falls short"
    else:
        status = "cheaper but worse" if passed is False else "holds"
    return Finding(claim, status, measurement, passed, reason, limit)
