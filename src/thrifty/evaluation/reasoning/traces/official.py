"""The published alignment rule, for comparison: values equal, and names found as substrings.

Its faults are kept, since they are what it is compared for: "Melvyn" is found in "Melvyn’s teacher"; another sum with
the same value matches; steps without a number are lost; every match counts.

Source: the rule of arXiv 2510.25626's code as described in words; written anew.
"""

from __future__ import annotations

import re

from thrifty.evaluation.reasoning.logic.theorems import Theorem
from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.traces.align import Alignment, Step

_ITEM = re.compile(r"^\d+\.\s*", re.MULTILINE)
_EQUATION = re.compile(r"(\d+(?:\s*[-+*/]\s*\d+)*)\s*=\s*(\d+)")


def align_official(problem: Problem, text: str) -> Alignment:
    """Align by the published rule; see :func:`~thrifty.evaluation.reasoning.traces.align.align`."""
    graph, needed = problem.graph, set(problem.shortest.theorems)
    steps: list[Step] = []
    stated: set[int] = set()
    matched = counted = 0
    for item in _ITEM.split(text)[1:]:
        lowered = item.lower()
        found: list[int] = []
        for left, right in _EQUATION.findall(item):
            value = _left_to_right(left)
            if value != int(right) or not re.search(r"[-+*/]", left):
                continue
            found += [
                n for n in graph.theorems if graph.nodes[n].value == value and _named(graph.nodes[n], lowered, problem)
            ]
        if _EQUATION.search(item):
            counted += 1
            matched += bool(found)
        for node in found:
            steps.append(
                Step(item.strip(), "restatement" if node in stated else "inference", node, relevant=node in needed)
            )
            stated.add(node)
        if not found:
            steps.append(Step(item.strip(), "other"))
    return Alignment(tuple(steps), matched / counted if counted else 0.0)


def _left_to_right(text: str) -> int:
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    value = numbers[0]
    for operator, number in zip(re.findall(r"[-+*/]", text), numbers[1:], strict=True):
        if operator == "+":
            value += number
        elif operator == "-":
            value -= number
        elif operator == "*":
            value *= number
        else:
            value = value // number if number else 0
    return value


def _named(theorem: Theorem, text: str, problem: Problem) -> bool:
    places = theorem.key[2] if theorem.predicate == "total" else theorem.key[1:]
    if theorem.predicate == "cont":
        places = (theorem.key[1:],)
    agents = {place[0].lower() for place in places}
    things = {place[1] for place in places} | ({theorem.key[1]} if theorem.predicate == "total" else set())
    forms = {form for thing in things for form in (thing, problem.lexicon.plural(thing))}
    return any(agent in text for agent in agents) and any(form in text for form in forms)
