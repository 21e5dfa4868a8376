"""What a person can and cannot change, as a user writes it: in the units of the table, with DiCE's spellings.

``compile.py`` turns it into limits on encoded rows, which solvers read (``region.py``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from thrifty._common import settings

Feature = int | str
Bounds = Literal["data"] | None

#: Schema and version of the JSON that constraints are written as; a person's own file may leave them out.
SCHEMA, VERSION = "thrifty.ellice.constraints", 1


@dataclass(frozen=True)
class Constraints:
    """Limits on change, in raw units. Features are named, or numbered by their column.

    Args:
        immutable: Features that keep their value.
        features_to_vary: The only features that may change; ``"all"``: all that are not immutable.
        permitted_range: Feature to (lowest, highest) value; for a category, the levels that it may take.
        one_way: Feature to ``"increase"`` or ``"decrease"``, the only direction in which it may change.
        allowed_values: Feature to the values that it may take (its own value only if it is among them).
        one_hot_groups: Columns of 0 and 1 of which exactly one is 1.
        integer: Features that take whole numbers.
        feature_weights: Feature to its weight u in the distance; 1 where none is given. For a category under the
            ``"mixed"`` distance it is the price of changing it, 0.5 by default.
        linear: (A, b): every answer has A·x ≤ b, x the raw numbers (in the order of the columns).

    Raises:
        ValueError: A list is none, or a mapping is none; features that the table lacks are refused when an explainer is
            fitted.

    Example:
        >>> from thrifty.solvers.ellice import Constraints
        >>> limits = Constraints(immutable=["age"], one_way={"income": "increase"})
        >>> Constraints.from_json(limits.to_json()) == limits
        True

    Source:
        the paper's actionability constraints, and DiCE's argument names.
    """

    immutable: Sequence[Feature] = ()
    features_to_vary: Sequence[Feature] | Literal["all"] = "all"
    permitted_range: Mapping[Feature, Sequence[Any]] = field(default_factory=dict)
    one_way: Mapping[Feature, str] = field(default_factory=dict)
    allowed_values: Mapping[Feature, Sequence[float]] = field(default_factory=dict)
    one_hot_groups: Sequence[Sequence[Feature]] = ()
    integer: Sequence[Feature] = ()
    feature_weights: Mapping[Feature, float] = field(default_factory=dict)
    linear: tuple[Sequence[Sequence[float]], Sequence[float]] | None = None

    def __post_init__(self) -> None:
        for name in ("immutable", "integer", "one_hot_groups", "features_to_vary"):
            value = getattr(self, name)
            listed = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str)
            if not listed and not (name == "features_to_vary" and isinstance(value, str)):
                raise ValueError(f"{name}: expected a list{' of features' if name[:3] != 'one' else ''}, got {value!r}")
        for name in ("permitted_range", "one_way", "allowed_values", "feature_weights"):
            if not isinstance(value := getattr(self, name), Mapping):
                raise ValueError(f"{name}: expected a mapping from features, as in {{'age': ...}}, got {value!r}")

    def to_json(self) -> str:
        """Return the constraints as JSON, with schema and version."""
        held = {name: value for name, value in asdict(self).items() if not _is_default(name, value)}
        return settings.dump(held, SCHEMA, VERSION, default=_jsonable)

    @classmethod
    def from_json(cls, text: str | os.PathLike[str]) -> Constraints:
        """Read constraints from JSON text, or from a file if a path is given.

        Raises:
            ValueError: It is not JSON, of another version, or has a key that is not known.
        """
        known = [entry.name for entry in fields(cls)]
        name = str(text) if isinstance(text, os.PathLike) else "constraints"
        if isinstance(text, os.PathLike):
            try:
                text = Path(text).read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{name}: expected JSON, got what is no text: {error}") from None
        stored = settings.parse(text, SCHEMA, VERSION, known=known, headless=True, name=name)
        if isinstance(stored.get("linear"), list):
            stored["linear"] = tuple(stored["linear"])
        return cls(**stored)


def _is_default(name: str, value: Any) -> bool:
    return value == "all" if name == "features_to_vary" else value is None or len(value) == 0


def _jsonable(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"constraints: expected what JSON carries, got a {type(value).__name__}")
