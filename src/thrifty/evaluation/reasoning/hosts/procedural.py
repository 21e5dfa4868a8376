"""A procedural data set in the manner of reasoning-gym: item ``i`` is made when it is asked for.

Source: the protocol of reasoning-gym's ``ProceduralDataset``: ``__len__``, ``__getitem__`` with question, answer and
metadata, and ``score_answer``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from thrifty._common.checks import whole
from thrifty.evaluation.reasoning.problems.generator import bundles, generate
from thrifty.evaluation.reasoning.problems.problem import CELLS, Cell, Problem
from thrifty.evaluation.reasoning.traces.scores import score


class ReasoningDataset:
    """Problems of one condition, made as they are needed.

    Args:
        size: How many.
        seed: Every random choice follows from it.
        connection: Of the condition; as in ``generate``.
        amount: Likewise.
        overlap: Likewise.
        query: Likewise.

    Raises:
        ValueError: There is no such condition, or a number will not do.

    Example:
        >>> data = ReasoningDataset(3, seed=1, connection="disconnected", amount="simple", overlap="agent_overlap")
        >>> item = data[2]
        >>> data.score_answer(item["metadata"]["gold_trace"], item)
        1.0

    Source:
        reasoning-gym's protocol; a proof is worth its efficiency, a bare right answer 0.5.
    """

    def __init__(
        self,
        size: int = 500,
        *,
        seed: int = 0,
        connection: str = "none",
        amount: str = "none",
        overlap: str = "none",
        query: str = "question",
    ) -> None:
        self.size, self.seed = whole("size", size), whole("seed", seed, least=0)
        self.condition = (connection, amount, overlap, query)
        generate(0, seed, *self.condition)  # refuses what it would refuse later

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> dict[str, Any]:
        if not -self.size <= number < self.size:
            raise IndexError(f"{number}: expected a number below {self.size}")
        problem = self.problem(number % self.size)
        metadata = {**problem.to_record(), "gold_trace": problem.gold_trace}
        return {"question": problem.text, "answer": str(problem.answer), "metadata": metadata}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(self.size))

    def problem(self, number: int) -> Problem:
        """Return one problem: the one that ``generate`` has at this place."""
        connection, amount, overlap, query = self.condition
        cell = Cell(connection, amount, overlap)
        assert cell in CELLS
        return next(bundles(1, self.seed, cells=(cell,), query=query, first=number)).problems[cell]

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        """Return the efficiency of a complete proof; 0.5 for a bare right answer; else 0."""
        if not answer:
            return 0.0
        scores = score(Problem.from_record(entry["metadata"]), answer)
        if not math.isnan(scores.efficiency):
            return scores.efficiency
        return 0.5 if scores.correct else 0.0
