"""Answers that the branch and bound remembers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from thrifty.solvers.trees.bnb.tables import Answer

Key = tuple[int, int, bytes]
"""Node, budget, and the set of points as packed bits."""

OVERHEAD = 300
"""Bytes that an answer takes beside its packed bits: tuple, numbers, place in the dictionary."""


@dataclass
class Memo:
    """Answers by node, budget and points, forgotten all at once when they fill the memory given.

    Threads may share it: what one of them misses it only works out again.

    Attributes:
        limit: Bytes.
    """

    limit: float
    _size: float = 0.0
    _answers: dict[Key, tuple[Answer, float]] = field(default_factory=dict)

    def get(self, key: Key, threshold: float) -> Answer | None:
        """The answer to a question with this threshold, from one with that or a higher one; an exact one always."""
        found = self._answers.get(key)
        if found is None:
            return None
        answer, asked = found
        return answer if answer.value < np.inf or asked >= threshold else None

    def put(self, key: Key, threshold: float, answer: Answer) -> None:
        """Remember the answer to a question with this threshold."""
        size = len(key[2]) + OVERHEAD
        if size > self.limit:
            return
        if self._size + size > self.limit:
            self._answers.clear()
            self._size = 0.0
        self._size += size
        exact = answer.value < threshold
        self._answers[key] = (Answer(answer.lower, answer.value if exact else np.inf), threshold)
