"""How far an answer is from the person, on encoded rows.

``l2``: √Σ u(Δ)²; ``l1``: Σ u|Δ|; ``mixed``: √(Σ u(Δ)² over numbers + Σ ū over changed categories), the paper's;
``sparse``: 100 · (number of changed columns) + Σ u|Δ|, the metric of the paper's sparse data-supported search.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from thrifty._common.checks import one_of
from thrifty.solvers.ellice.encoding import Encoded
from thrifty.solvers.ellice.region import Region

Distance = Literal["l2", "l1", "mixed", "sparse"]

#: A column counts as changed from this difference on.
CHANGED = 1e-5
#: What one changed column costs in the sparse metric.
SPARSE_PRICE = 100.0


def check_distance(distance: str) -> None:
    """Refuse an unknown distance.

    Raises:
        ValueError: It is none of the four.
    """
    one_of("distance", distance, get_args(Distance))


def distances(
    rows: Encoded, origin: NDArray[np.float64], region: Region, distance: Distance
) -> Float[np.ndarray, " n"]:
    """Return the distance of every row from ``origin`` (one row, or one for each)."""
    moved = rows - origin
    found: NDArray[np.float64]
    if distance == "l2":
        found = np.sqrt(np.square(moved) @ region.weights)
    elif distance == "l1":
        found = np.abs(moved) @ region.weights
    elif distance == "sparse":
        found = SPARSE_PRICE * (np.abs(moved) > CHANGED).sum(axis=1) + np.abs(moved) @ region.weights
    else:
        numbers = number_columns(region)
        found = np.square(moved[:, numbers]) @ region.weights[numbers]
        for choice in region.choices:
            found = found + choice.weight * (np.abs(moved[:, choice.columns]) > CHANGED).any(axis=1)
        found = np.sqrt(found)
    return found


def changed_units(rows: Encoded, origin: NDArray[np.float64], region: Region) -> NDArray[np.bool_]:
    """Tell which features differ from ``origin``: ``[n, units]``."""
    moved = np.abs(rows - origin) > CHANGED
    return np.column_stack([moved[:, list(unit)].any(axis=1) for unit in region.units])


def number_columns(region: Region) -> NDArray[np.intp]:
    """Return the encoded columns that belong to no category."""
    numbers = np.ones(len(region.weights), bool)
    for choice in region.choices:
        numbers[choice.columns] = False
    return np.flatnonzero(numbers)
