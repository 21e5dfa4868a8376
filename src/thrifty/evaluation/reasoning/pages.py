"""Pages that show scores, and proofs in colours: what was needed, wasted, wrong, or skipped."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.report import Report
from thrifty.evaluation.reasoning.traces.align import Alignment, align
from thrifty.evaluation.reasoning.traces.scores import score_alignment

_COLOURS = {
    "axiom_restated": "#e8eef7", "inference": "#cdeccd", "restatement": "#eeeeee", "skip": "#fdf3c4",
    "arith_error": "#f8c9c4", "invalid": "#f8c9c4", "self_correction": "#f3ddf3", "other": "#ffffff",
}  # fmt: skip
_WASTED = "#fbd9a8"


def proof_html(problem: Problem, text: str, *, found: Alignment | None = None) -> str:
    """Show a written proof in colours, as a piece of HTML: what was needed, wasted, wrong, or skipped.

    Args:
        problem: The problem.
        text: What the model wrote.
        found: Its alignment; ``None``: made here.

    Returns:
        HTML that needs nothing else.

    Example:
        >>> from thrifty.evaluation.reasoning import generate
        >>> problem = generate(1, 0)[0]
        >>> "needed" in proof_html(problem, problem.gold_trace)
        True

    Source:
        The colours follow the labels of :func:`~thrifty.evaluation.reasoning.align`.
    """
    found = found or align(problem, text)
    body = []
    for step in found.steps:
        wasted = step.label in ("inference", "skip") and not step.relevant
        colour = _WASTED if wasted else _COLOURS[step.label]
        note = "wasted" if wasted else {"inference": "needed"}.get(step.label, step.label.replace("_", " "))
        if step.omitted:
            note += f", leaves out {'; '.join(str(problem.graph.nodes[node]) for node in step.omitted)}"
        body.append(f'<li style="background:{colour}">{escape(step.text)} <small>({escape(note)})</small></li>')
    told = " ".join(
        f"<span>{escape(s.text)}</span>" if s.source in ("base", "control") else f"<del>{escape(s.text)}</del>"
        for s in problem.sentences
    )
    scores = score_alignment(problem, found, text)
    efficiency = "–" if math.isnan(scores.efficiency) else f"{scores.efficiency:.2f}"
    verdict = "right" if scores.correct else f"wrong: {problem.answer}"
    head = f"answer {scores.answer} ({verdict}), efficiency {efficiency}"
    return (
        f"<section><h2>{escape(problem.id)}</h2><p>{told} <b>{escape(problem.question)}</b></p>"
        f"<p>{escape(head)}; "
        f"{scores.shortest} inferences needed, {scores.stated} made</p><ol>{''.join(body)}</ol></section>"
    )


def report_html(report: Report, proofs: Iterable[str] = ()) -> str:
    """Return a page with the table of conditions and coloured proofs."""
    rows = [line for line in report.to_markdown().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if "---" not in row]
    table = "".join(
        f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in row)}</tr>"
        for tag, row in zip(["th", *["td"] * len(cells)], cells, strict=False)
    )
    style = "body{font:15px sans-serif;max-width:70em;margin:2em auto}td,th{padding:.2em .6em}del{color:#999}"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>How much of each proof was needed</title>'
        f"<style>{style}li{{margin:.2em;padding:.2em}}</style><h1>How much of each proof was needed</h1>"
        f"<table>{table}</table>{''.join(proofs)}</html>\n"
    )
