"""The card that goes with a generated data set."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from thrifty.evaluation.reasoning.problems.problem import CELLS, Problem


def data_card(problems: Sequence[Problem], *, seed: int, rejected: int, digest: str) -> str:
    """Describe a data set in Markdown, with the head that data hubs read.

    Args:
        problems: The data set.
        seed: It was made with.
        rejected: Bundles that were drawn and did not pass the gate.
        digest: SHA-256 of the file.
    """
    rows = []
    for cell in CELLS:
        held = [problem for problem in problems if problem.cell == cell]
        if held:
            axioms = statistics.fmean(len(p.sentences) for p in held)
            needed = statistics.fmean(p.shortest.length for p in held)
            follow = statistics.fmean(len(p.eager) for p in held)
            rows.append(f"| {cell} | {len(held)} | {axioms:.1f} | {needed:.1f} | {follow:.1f} |")
    table = "\n".join(rows)
    return f"""---
language: en
license: apache-2.0
task_categories: [text-generation, question-answering]
tags: [reasoning, math word problems, synthetic, efficiency]
configs: [{{config_name: default, data_files: problems.jsonl}}]
---

# Word problems with irrelevant axioms, and their shortest proofs

{len(problems)} problems, made with seed {seed}; SHA-256 of `problems.jsonl`:
`{digest}`. Every problem has passed a gate:
its own text, read back, is free of contradiction and proves the answer, by one shortest proof, which uses no
irrelevant sentence ({rejected} bundles were drawn again).

| condition | problems | sentences | inferences needed | inferences that follow |
| --- | --- | --- | --- | --- |
{table}

One JSON object a line: `id`, `seed`, `connection`, `amount`, `overlap`, `query_form`, `question`, `body` (each sentence
with its logical form, its source, and whether the shortest proof needs it), `goal`, `answer`, `program`, `shortest`
(steps with premises and rules), `eager_trace` (theorems of the exhaustive reasoner), `tree_stats`, `schema_version`.

**Intended use**: measuring whether and how efficiently a language model reasons past what is irrelevant. **Limits**:
English; small whole numbers; one kind of question. Names and things are lists of our own; no text is anybody else's.
**Contamination**: make a test set of your own with a seed that nobody has seen.
"""
