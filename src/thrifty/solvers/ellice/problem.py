"""One recourse problem: a model, an ellipsoid, a wanted class and limits; every solver takes it and returns answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from thrifty.solvers.ellice.distances import Distance, distances
from thrifty.solvers.ellice.encoding import Encoded
from thrifty.solvers.ellice.geometry import Ellipsoid
from thrifty.solvers.ellice.logistic import with_constant
from thrifty.solvers.ellice.reading import Reading
from thrifty.solvers.ellice.region import Region

#: Of gradients; here because settings name it where torch need not be.
Preset = Literal["closest", "library", "paper"]
Status = Literal["already_valid", "optimal", "feasible", "infeasible", "not_found", "no_candidate"]

#: By how many logits an answer passes the threshold, so that rounding (float32 models, raw units) cannot undo it.
MARGIN = 1e-6


@dataclass(frozen=True, eq=False)
class Answer:
    """What a solver found for one person.

    Attributes:
        row: The encoded answer; ``None`` if there is none.
        status: What is known of it: ``"optimal"`` is proven nearest, ``"feasible"`` certified only; ``"infeasible"``
            is proven, ``"not_found"`` is not, ``"no_candidate"``: no known row will do.
        message: Why there is none, it is not proven nearest, or among what it is.
    """

    row: Float[np.ndarray, " d"] | None
    status: Status
    message: str = ""


@dataclass(frozen=True, eq=False)
class Problem:
    """What all persons share.

    Attributes:
        reading: The model.
        ellipsoid: The near-optimal models.
        region: Limits on answers.
        sign: +1 where class 1 is wanted, else −1.
        threshold: As a logit.
        distance: What is minimised.
        deployed: The deployed model's last-layer parameters, where they are not the ellipsoid's centre
            (``center="refit"``): its logit must pass the threshold too.
    """

    reading: Reading
    ellipsoid: Ellipsoid
    region: Region
    sign: int
    threshold: float
    distance: Distance
    deployed: NDArray[np.float64] | None = None

    def slack(self, rows: Encoded) -> Float[np.ndarray, " n"]:
        """Return by how many logits every row is certified: at least 0 means that it is."""
        if not len(rows):
            return np.empty(0)
        features = with_constant(self.reading.features(rows))
        slack = self.sign * (self.ellipsoid.robust(features, self.sign) - self.threshold)
        if self.deployed is not None:
            slack = np.minimum(slack, self.sign * (features @ self.deployed - self.threshold))
        return slack

    def frozen_but(self, columns: NDArray[np.intp]) -> Problem:
        """The problem in which only these encoded columns may change."""
        frozen = np.ones_like(self.region.frozen)
        frozen[columns] = self.region.frozen[columns]
        return replace(self, region=replace(self.region, frozen=frozen))

    def without(self, columns: NDArray[np.intp]) -> Problem:
        """The problem in which these encoded columns may not change either."""
        frozen = self.region.frozen.copy()
        frozen[columns] = True
        return replace(self, region=replace(self.region, frozen=frozen))

    def distance_of(self, rows: Encoded, origin: NDArray[np.float64]) -> Float[np.ndarray, " n"]:
        """Return the distance that is minimised."""
        return distances(rows, origin, self.region, self.distance)

    def mutable_units(self) -> list[NDArray[np.intp]]:
        """Encoded columns of every feature that may change."""
        return [np.array(unit) for unit in self.region.units if not self.region.frozen[list(unit)].all()]


SolveAll = Callable[[Problem, Encoded], list[Answer]]


def already_valid(problem: Problem, rows: Encoded) -> Bool[np.ndarray, " n"]:
    """Tell which persons need no change."""
    valid = problem.slack(rows) >= 0
    for i in np.flatnonzero(valid):
        valid[i] = problem.region.satisfied(rows[i : i + 1], rows[i])[0]
    return np.asarray(valid)


def describe(value: Any) -> str:
    """Write a number as short as it is readable."""
    return f"{float(value):.4g}"
