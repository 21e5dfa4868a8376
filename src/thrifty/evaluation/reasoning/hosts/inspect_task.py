"""A task for Inspect AI: ``inspect eval thrifty/proof_efficiency -T connection=disconnected ...``.

Source: Inspect's tasks and scorers; a scorer's value is a dictionary, with metrics by key.
"""

from __future__ import annotations

import math
from typing import Any

from thrifty._common.extras import require
from thrifty.evaluation.reasoning.problems.generator import generate
from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.runners.prompts import SYSTEM, examples
from thrifty.evaluation.reasoning.traces.scores import score

#: Scores that a sample has; those without a meaning are left out of the mean.
KEYS = ("correct", "efficiency", "precision", "recall", "coverage")


def _inspect(module: str) -> Any:
    try:
        return require(module, extra="reasoning")
    except ImportError as error:
        raise ImportError("inspect_ai is not installed: pip install inspect-ai", name="inspect_ai") from error


def proof_scorer() -> Any:
    """Return Inspect's scorer of proofs.

    Raises:
        ImportError: inspect-ai is not installed.
    """
    scorers = _inspect("inspect_ai.scorer")

    @scorers.metric
    def mean_of_known() -> Any:
        """Average what is a number."""

        def compute(scores: list[Any]) -> float:
            values = [float(item.score.value) for item in scores]
            known = [value for value in values if not math.isnan(value)]
            return sum(known) / len(known) if known else math.nan

        return compute

    @scorers.scorer(metrics={key: [mean_of_known()] for key in KEYS})
    def proof_efficiency_scorer() -> Any:
        async def scored(state: Any, target: Any) -> Any:
            problem = Problem.from_record(state.metadata["record"])
            text = state.output.completion
            found = score(problem, text, finish_reason="length" if state.output.stop_reason == "max_tokens" else "stop")
            values = {key: float(getattr(found, key)) for key in KEYS}
            return scorers.Score(value=values, answer=str(found.answer), explanation=str(dict(found.labels)))

        return scored

    return proof_efficiency_scorer()


def proof_efficiency(
    n: int = 100,
    seed: int = 0,
    connection: str = "disconnected",
    amount: str = "complex",
    overlap: str = "agent_entity_overlap",
    query: str = "question",
    k: int = 5,
) -> Any:
    """Return Inspect's task: problems of one condition, worked examples in the system message.

    Args:
        n: Problems.
        seed: Every random choice follows from it.
        connection: Of the condition; as in ``generate``.
        amount: Likewise.
        overlap: Likewise.
        query: Likewise.
        k: Worked examples.

    Raises:
        ImportError: inspect-ai is not installed.
        ValueError: There is no such condition.
    """
    inspect, data, solver = (_inspect(f"inspect_ai{part}") for part in ("", ".dataset", ".solver"))
    samples = [
        data.Sample(id=p.id, input=f"Q: {p.text}", target=str(p.answer), metadata={"record": p.to_record()})
        for p in generate(n, seed, connection, amount, overlap, query)
    ]
    shown = "\n\n".join(f"Q: {e.text}\nA: Let's think step by step.\n{e.gold_trace}" for e in examples(k, query=query))
    return inspect.Task(
        dataset=data.MemoryDataset(samples, name="proof_efficiency"),
        solver=[
            solver.system_message((f"{SYSTEM}\n\n{shown}").replace("{", "{{").replace("}", "}}")),
            solver.generate(),
        ],
        scorer=proof_scorer(),
    )
