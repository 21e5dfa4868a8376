"""Scores of many problems, and their tables by condition."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thrifty._common.files import write_whole
from thrifty.evaluation.reasoning.metrics import Anova, anova, paired_drop, wilson
from thrifty.evaluation.reasoning.problems.problem import BASE_CELL, CELLS, OVERLAPS, Cell, Problem
from thrifty.evaluation.reasoning.runners.models import Model
from thrifty.evaluation.reasoning.runners.run import MAX_TOKENS, by_problem, run
from thrifty.evaluation.reasoning.traces.align import align
from thrifty.evaluation.reasoning.traces.scores import Scores, count_tokens, score_alignment

SCHEMA, VERSION = "thrifty.reasoning.report", 1
_MEANS = ("efficiency", "precision", "recall", "exact", "irrelevant", "lev_efficient", "token_ratio", "coverage")


@dataclass(frozen=True)
class Line:
    """One scored completion."""

    problem_id: str
    cell: Cell
    query: str
    model: str
    scores: Scores

    @property
    def pair(self) -> str:
        """What the same base problem has in every condition."""
        return "-".join(self.problem_id.split("-")[:2])


@dataclass(frozen=True)
class Report:
    """The scores of a run.

    Args:
        lines: A scored completion each.

    Example:
        >>> from thrifty.evaluation.reasoning import generate, score_all
        >>> problems = generate(2, 0)
        >>> report = score_all(problems, {problem.id: problem.gold_trace for problem in problems})
        >>> report.cells()[0]["accuracy"], report.cells()[0]["efficiency"]
        (1.0, 1.0)
    """

    lines: tuple[Line, ...]

    def cells(self) -> list[dict[str, Any]]:
        """Return a row for each condition and query: accuracy, and means over the proofs that have them."""
        rows = []
        for cell, query in self._groups():
            lines = self._of(cell, query)
            right = sum(line.scores.correct for line in lines)
            row: dict[str, Any] = {"cell": str(cell), "query": query, "n": len(lines), "accuracy": right / len(lines)}
            row["low"], row["high"] = wilson(right, len(lines))
            for name in _MEANS:
                values = [float(getattr(line.scores, name)) for line in lines]
                kept = [value for value in values if not math.isnan(value)]
                row[name] = float(np.mean(kept)) if kept else math.nan
            row["no efficiency"] = sum(math.isnan(line.scores.efficiency) for line in lines)
            row["flagged"] = sum(line.scores.flagged for line in lines)
            rows.append(row)
        return rows

    def overlap_effect(self, metric: str = "precision", *, query: str = "question") -> Anova:
        """Compare a score over the kinds of overlap, all distracted conditions together."""
        return anova(
            [
                [float(getattr(s.scores, metric)) for s in self.lines if s.cell.overlap == overlap and s.query == query]
                for overlap in OVERLAPS
            ]
        )

    def drops(self, *, against: str = "base", query: str = "question") -> list[dict[str, Any]]:
        """Return by how much accuracy falls, pair by pair, from base problems (or ``"control"``) to each condition."""
        rows = []
        for cell, asked in self._groups():
            if asked != query or cell == BASE_CELL or cell.overlap == "control":
                continue
            other = BASE_CELL if against == "base" else Cell("none", cell.amount, "control")
            before = {line.pair: float(line.scores.correct) for line in self._of(other, query)}
            after = {line.pair: float(line.scores.correct) for line in self._of(cell, query)}
            both = sorted(before.keys() & after.keys())
            if both:
                gap, (low, high) = paired_drop([before[p] for p in both], [after[p] for p in both])
                rows.append(
                    {"cell": str(cell), "against": str(other), "n": len(both), "drop": gap, "low": low, "high": high}
                )
        return rows

    def to_markdown(self) -> str:
        """Return the table of conditions."""
        head = ["cell", "query", "n", "accuracy (95 %)", "efficiency", "precision", "recall", "exact", "irrelevant"]
        head += ["order distance", "gold tokens / tokens", "coverage", "without efficiency", "flagged"]
        rows = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
        for row in self.cells():
            shown = [row["cell"], row["query"], str(row["n"])]
            shown.append(f"{row['accuracy']:.3f} ({row['low']:.3f}–{row['high']:.3f})")
            shown += ["–" if math.isnan(row[name]) else f"{row[name]:.3f}" for name in _MEANS]
            rows.append(f"| {' | '.join([*shown, str(row['no efficiency']), str(row['flagged'])])} |")
        lines = ["\n".join(rows)]
        lines += [
            f"{d['cell']}: accuracy {d['drop']:+.3f} below base ({d['low']:+.3f} to {d['high']:+.3f})"
            for d in self.drops()
        ]
        return "\n\n".join([lines[0], "\n".join(lines[1:])]).strip() + "\n"

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the scores as JSONL.

        Raises:
            FileExistsError: It is there, and ``force`` is False.
        """
        lines = [json.dumps({"schema": SCHEMA, "version": VERSION})]
        lines += [
            json.dumps(
                {"problem_id": s.problem_id, "cell": s.cell, "query": s.query, "model": s.model} | s.scores.to_json()
            )
            for s in self.lines
        ]
        return write_whole(path, "\n".join(lines) + "\n", force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: It is something else.
        """
        try:
            head, *rest = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
            if (head.get("schema"), head.get("version")) != (SCHEMA, VERSION):
                raise ValueError(f"expected schema {SCHEMA!r} version {VERSION}, got {head}")
            return cls(
                tuple(
                    Line(r["problem_id"], Cell(*r["cell"]), r["query"], r["model"], Scores.from_json(r)) for r in rest
                )
            )
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"{path}: expected the scores of a run: {error}") from None

    def _groups(self) -> list[tuple[Cell, str]]:
        found = {(line.cell, line.query) for line in self.lines}
        order = {cell: at for at, cell in enumerate(CELLS)}
        return sorted(found, key=lambda pair: (pair[1] != "question", order.get(pair[0], len(order)), pair[0]))

    def _of(self, cell: Cell, query: str) -> list[Line]:
        return [line for line in self.lines if line.cell == cell and line.query == query]


def score_all(
    problems: Sequence[Problem],
    completions: Any,
    *,
    aligner: str = "grammar",
    trace: str = "both",
    until_goal: bool = False,
    tokenize: Callable[[str], int] = count_tokens,
) -> Report:
    """Score saved completions.

    Args:
        problems: The problems.
        completions: By problem id: the text, or a record with ``completion`` and ``finish_reason``. A problem without
            one is scored as silence.
        aligner: ``"grammar"`` or ``"official"``.
        trace: Which part counts; see ``score``.
        until_goal: Nothing counts after the goal.
        tokenize: Counts tokens.

    Returns:
        The report.

    Raises:
        ValueError: No completion belongs to any of the problems, or an option is unknown.

    Example:
        >>> from thrifty.evaluation.reasoning import generate
        >>> problems = generate(1, 0)
        >>> score_all(problems, {problems[0].id: "The answer is 0."}).cells()[0]["accuracy"]
        0.0

    Source:
        arXiv 2510.25626, section on evaluation.
    """
    if problems and not any(problem.id in completions for problem in problems):
        raise ValueError("completions: expected some of these problems' ids, got none; were they made by another seed?")
    lines = []
    for problem in problems:
        found = completions.get(problem.id, "")
        record = {"completion": found} if isinstance(found, str) else found
        text = record["completion"] or ""
        scores = score_alignment(
            problem,
            align(problem, text, aligner=aligner, trace=trace),
            text,
            until_goal=until_goal,
            finish_reason=record.get("finish_reason", "stop"),
            tokenize=tokenize,
        )
        lines.append(Line(problem.id, problem.cell, problem.query, record.get("model", "saved"), scores))
    return Report(tuple(lines))


def evaluate(
    problems: Sequence[Problem],
    model: Model,
    out: str | os.PathLike[str],
    *,
    k: int = 5,
    max_tokens: int = MAX_TOKENS,
    **options: Any,
) -> Report:
    """Ask a model every problem, and score what it writes.

    Args:
        problems: What to ask.
        model: Who is asked: ``EndpointModel``, ``TransformersModel``, ``VLLMModel``, or anything like them.
        out: A JSONL file of completions, from which an interrupted run goes on.
        k: Worked examples before the problem.
        max_tokens: Of a completion.
        **options: To ``score_all``.

    Returns:
        The report.

    Raises:
        RuntimeError: The model failed for good; what came before is in the file.

    Example:
        >>> from thrifty.evaluation.reasoning import generate
        >>> from thrifty.evaluation.reasoning.runners.models import Completion
        >>> class Echo:
        ...     name = "echo"
        ...     def complete(self, prompts, max_tokens):
        ...         yield from ((at, Completion("The answer is 7.")) for at, _ in enumerate(prompts))
        >>> evaluate(generate(2, 0), Echo(), "echo.jsonl").cells()[0]["n"]
        2

    Source:
        arXiv 2510.25626, section on evaluation.
    """
    return score_all(problems, by_problem(run(problems, model, out, k=k, max_tokens=max_tokens)), **options)
