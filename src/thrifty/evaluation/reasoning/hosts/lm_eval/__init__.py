"""A task for lm-evaluation-harness: ``lm_eval --include_path`` this folder, ``--tasks proof_efficiency``.

Source: lm-evaluation-harness' ``generate_until`` tasks with functions for documents, results and aggregation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thrifty._common.extras import require
from thrifty.evaluation.reasoning.problems.generator import generate
from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.runners.prompts import BEGIN
from thrifty.evaluation.reasoning.traces.scores import score


def task_folder() -> Path:
    """Return the folder to give to ``--include_path``."""
    return Path(__file__).parent


def load(
    n: int = 100,
    seed: int = 0,
    connection: str = "disconnected",
    amount: str = "complex",
    overlap: str = "agent_entity_overlap",
    query: str = "question",
    **_: Any,
) -> dict[str, Any]:
    """Return the harness's documents: the split ``test``, and base problems to learn the format from."""
    datasets = require("datasets", extra="llm")

    def rows(problems: Sequence[Problem]) -> Any:
        return datasets.Dataset.from_list(
            [{"question": p.text, "gold": p.gold_trace, "record": json.dumps(p.to_record())} for p in problems]
        )

    shown = generate(8, seed + 1, query=query)
    return {"test": rows(generate(n, seed, connection, amount, overlap, query)), "train": rows(shown)}


def doc_to_text(doc: dict[str, Any]) -> str:
    """Return the prompt."""
    return f"Q: {doc['question']}\nA: {BEGIN}"


def doc_to_target(doc: dict[str, Any]) -> str:
    """Return the written shortest proof."""
    return str(doc["gold"])


def process_results(doc: dict[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Score a completion."""
    found = score(Problem.from_record(json.loads(doc["record"])), results[0])
    return {
        "correct": float(found.correct),
        "efficiency": found.efficiency,
        "precision": found.precision,
        "recall": found.recall,
    }


def mean_of_known(values: Sequence[float]) -> float:
    """Average what is a number."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
