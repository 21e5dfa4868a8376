"""E4: traces whose labels are known: dropped steps, repeats, wrong sums, and names that contain one another."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.random import Generator

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.evaluation.reasoning.logic.shortest import smallest_tree
from thrifty.evaluation.reasoning.problems import wording
from thrifty.evaluation.reasoning.problems.generator import generate
from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.traces.align import align

LABELS = ("inference", "restatement", "skip", "arith_error", "invalid")


def labelled(problem: Problem, rng: Generator) -> list[tuple[str, str, int | None]]:
    """Return the lines of a trace with their labels and theorems."""
    graph, stated = problem.graph, set(problem.graph.given)
    lines: list[tuple[str, str, int | None]] = []
    for number in problem.eager:
        edge = graph.edges[number]
        text = wording.conclusion(graph, edge, problem.lexicon)
        draw = rng.random()
        if draw < 0.15 and edge.head != graph.goal and graph.uses.get(edge.head):
            continue  # left out: whoever needs it skips it
        if draw < 0.25:
            value = abs(graph.nodes[edge.head].value)
            wrong = text.replace(f"= {value}", f"= {value + 1}").replace(f"is {value}", f"is {value + 1}")
            lines.append((wrong, "arith_error", edge.head))
            continue
        ready = stated.issuperset(edge.tail)
        lines.append((text, "inference" if ready else "skip", edge.head))
        if not ready:
            stated.update(smallest_tree(graph, edge.head, free=frozenset(stated)).theorems)
        stated.add(edge.head)
        if draw > 0.85:
            lines.append((text, "restatement", edge.head))
        if draw > 0.9 and graph.nodes[edge.head].predicate == "cont":
            agent = graph.nodes[edge.head].key[1]
            lines.append((text.replace(f"{agent} has", f"{agent}’s stranger’s doctor has", 1), "invalid", None))
    return lines


def show(ctx: Context, evidence: Evidence) -> None:
    """Measure F1 by label, of both rules."""
    rng = np.random.default_rng(ctx.seed)
    problems = generate(60 if ctx.full else 8, ctx.seed + 3, "disconnected", "more_complex", "agent_overlap")
    problems += generate(60 if ctx.full else 8, ctx.seed + 4, "disconnected", "more_complex", "agent_entity_overlap")
    hits: Counter[str] = Counter()
    said: Counter[str] = Counter()
    true: Counter[str] = Counter()
    official = {"hits": 0, "said": 0, "true": 0}
    for problem in problems:
        lines = labelled(problem, rng)
        text = "\n".join(f"{number}. {line}" for number, (line, _, _) in enumerate(lines, start=1))
        steps = [step for step in align(problem, text).steps if step.label != "axiom_restated"]
        for (_, label, theorem), step in zip(lines, steps, strict=True):
            true[label] += 1
            said[step.label] += 1
            hits[label] += step.label == label and step.theorem == theorem
        wanted = {theorem for _, label, theorem in lines if label in ("inference", "skip")}
        found = [step.theorem for step in align(problem, text, aligner="official").steps if step.theorem is not None]
        official["hits"] += len(wanted & set(found))
        official["said"] += len(set(found))
        official["true"] += len(wanted)
    f1 = {label: 2 * hits[label] / (true[label] + said[label]) for label in LABELS if true[label]}
    evidence.row("grammar", {label: Measurement.of(value, "F1") for label, value in f1.items()})
    rule = 2 * official["hits"] / (official["said"] + official["true"])
    evidence.row("official", {"theorems stated": Measurement.of(rule, "F1")})
    worst = min(f1, key=lambda label: f1[label])
    evidence.measured("aligner-f1", Measurement.of(f1[worst], "F1"), reason=f"the worst label is {worst}")
