"""The last step: answers back to raw rows, and a certificate for each of *those*."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.ellice.constraints import Constraints
from thrifty.solvers.ellice.distances import changed_units
from thrifty.solvers.ellice.ellipsoid import RashomonEllipsoid
from thrifty.solvers.ellice.encoding import Encoded, Encoding
from thrifty.solvers.ellice.logistic import with_constant
from thrifty.solvers.ellice.problem import Answer, Problem
from thrifty.solvers.ellice.reading import Reading
from thrifty.solvers.ellice.region import nearest_index
from thrifty.solvers.ellice.result import RecourseResult


def certify(
    rashomon: RashomonEllipsoid,
    reading: Reading,
    given: Constraints,
    frame: Any,
    rows: Encoded,
    signs: NDArray[np.intp],
    problems: dict[int, Problem],
    answers: list[list[Answer]],
    began: float,
) -> RecourseResult:
    """Turn answers back into raw rows, and certify *those*: in float64, and by the deployed model's own forward."""
    encoding = reading.encoding
    query = np.array([i for i, found in enumerate(answers) for _ in found], dtype=np.intp)
    rank = np.array([r for found in answers for r in range(len(found))], dtype=np.intp)
    flat = [answer for found in answers for answer in found]
    like = frame.iloc[query]
    encoded = np.array([np.full(rows.shape[1], np.nan) if a.row is None else a.row for a in flat])
    encoded = encoded.reshape(len(flat), rows.shape[1])
    raw = _tidy(encoding.decode(encoded, like), encoding, given)
    status = np.array([answer.status for answer in flat], dtype=object)
    message = [answer.message for answer in flat]
    has = np.array([answer.row is not None for answer in flat], dtype=bool)
    certificates = {name: np.full(len(flat), np.nan) for name in ("nominal", "worst", "radius", "distance")}
    changed: list[tuple[str, ...]] = [()] * len(flat)
    for sign, problem in problems.items():
        at = np.flatnonzero(has & (signs[query] == sign))
        if not len(at):
            continue
        kept = raw.iloc[at].infer_objects()
        final = encoding.encode(kept)
        features = with_constant(reading.features(final))
        ellipsoid = problem.ellipsoid
        certificates["nominal"][at] = features @ reading.theta
        certificates["worst"][at] = ellipsoid.robust(features, sign)
        certificates["radius"][at] = ellipsoid.radius(features, sign, problem.threshold)
        certificates["distance"][at] = problem.distance_of(final, rows[query[at]])
        moved = changed_units(final, rows[query[at]], problem.region)
        deployed = reading.deployed_logit(kept)
        certified = (problem.slack(final) >= 0) & (sign * (deployed - problem.threshold) >= 0)
        for place, i in enumerate(at):
            changed[i] = tuple(n for n, m in zip(problem.region.names, moved[place], strict=True) if m)
            if not certified[place]:
                status[i], changed[i] = "not_found", ()
                message[i] = "an answer was found, but the deployed model's own precision does not confirm it"
                has[i] = False
    lost = ~has
    for values in certificates.values():
        values[lost] = np.nan
    if lost.any():
        raw = raw.astype(object).where(np.repeat(~lost[:, None], raw.shape[1], axis=1), None)
        raw = raw.infer_objects()
    return RecourseResult(
        queries=like,
        counterfactuals=raw,
        query=query,
        rank=rank,
        status=status,
        nominal_logit=certificates["nominal"],
        worst_logit=certificates["worst"],
        radius=certificates["radius"],
        distance=certificates["distance"],
        changed=tuple(changed),
        message=tuple(message),
        target=rashomon.classes_[(signs[query] > 0).astype(int)],
        epsilon=rashomon.ellipsoid_.epsilon,
        seconds=time.perf_counter() - began,
    )


def _tidy(raw: Any, encoding: Encoding, given: Constraints) -> Any:
    """Write whole numbers and allowed values exactly as they were given, undoing the rounding of the scaling."""
    for features, values in [((f,), np.unique(v)) for f, v in given.allowed_values.items()] + [(given.integer, None)]:
        for feature in features:
            name = encoding.names[encoding.column_of(feature, "constraints")]
            column = raw[name].to_numpy(dtype=float, copy=True)
            fine = np.isfinite(column)
            near = np.rint(column[fine]) if values is None else values[nearest_index(values, column[fine])]
            column[fine] = np.where(np.abs(near - column[fine]) < 1e-6 * (1 + np.abs(near)), near, column[fine])
            raw[name] = column
    return raw
