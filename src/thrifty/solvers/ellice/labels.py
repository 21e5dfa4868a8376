"""Labels, wanted labels and thresholds as users write them, and the codes, signs and logits that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty._common.checks import is_number


def class_codes(y: ArrayLike, classes: NDArray | None, n: int) -> tuple[NDArray, NDArray[np.intp]]:
    """Return the two labels and every row's code, 0 or 1.

    Args:
        y: Labels of any kind: 0/1, −1/1, booleans, strings.
        classes: The model's own, class 1 last; ``None``: sorted as they occur.
        n: Rows that there should be.

    Raises:
        ValueError: There are more than two, or other ones than the model knows, or their number is wrong.
    """
    labels = as_array(y, dtype=None)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if not n:
        raise ValueError("X: expected training rows, of which the Hessian is a mean, got none")
    if labels.shape != (n,):
        raise ValueError(f"y: expected a label for each of {n} rows, got shape {labels.shape}")
    if any(label is None or str(label) in ("nan", "<NA>", "NaT") for label in labels.tolist()):
        raise ValueError("y: expected no missing labels; leave those rows out")
    try:
        found = np.unique(labels)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise ValueError(f"y: expected all numbers, or all text, got the types {kinds}") from None
    if len(found) == 1:
        raise ValueError(f"y: expected two classes, got {found.tolist()}")
    if classes is None:
        if len(found) > 2:
            raise ValueError(f"y: expected two classes (code one against the rest), got {len(found)}")
        classes = found
    if strange := sorted({str(label) for label in found if label not in classes}):
        raise ValueError(f"y: expected the labels {classes.tolist()} that the model knows, got also {strange[:5]}")
    return classes, (labels == classes[1]).astype(np.intp)


def sign_of(target: Any, classes: NDArray) -> int:
    """Return +1 where ``target`` is class 1, else −1.

    Raises:
        ValueError: It is neither of the labels, nor 0 or 1.
    """
    labels = classes.tolist()
    if np.ndim(target) == 0:
        if target in labels:
            return 1 if labels.index(target) == 1 else -1
        if isinstance(target, (int, np.integer)) and target in (0, 1):
            return 1 if target == 1 else -1
    raise ValueError(f"target: expected one of the labels {labels}, got {target!r}")


def threshold_logit(threshold: float) -> float:
    """Return ln(p/(1−p)) of a probability between 0 and 1.

    Raises:
        ValueError: It is none.
    """
    if not (is_number(threshold) and 0 < threshold < 1):
        raise ValueError(
            f"threshold: expected a probability between 0 and 1 (0.5: the likelier class), got {threshold!r}"
        )
    return float(np.log(threshold) - np.log1p(-threshold))


def as_array(values: Any, dtype: Any = float) -> NDArray:
    """Return an array, of a torch tensor too; ``dtype=None`` keeps its type."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values) if dtype is None else np.asarray(values, dtype=dtype)
