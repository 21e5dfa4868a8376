"""What can be wrong with a logic program."""

from __future__ import annotations


class InconsistentProgram(ValueError):  # noqa: N818 - the field says "inconsistent program"
    """Two derivations give one theorem two values, or the closure does not end.

    Args:
        message: What happened, in words.
        first, second: The two derivations, in words; empty where the closure is unbounded.
    """

    def __init__(self, message: str, first: str = "", second: str = "") -> None:
        super().__init__(message)
        self.first, self.second = first, second


class GoalNotDerivable(ValueError):  # noqa: N818 - likewise
    """The goal does not follow from the axioms, or has another value than it is asked to have."""
