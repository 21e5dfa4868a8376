"""Theorems into sentences: statements, questions, and the conclusions of a written proof."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thrifty.evaluation.reasoning.logic.hypergraph import Edge, Hypergraph
from thrifty.evaluation.reasoning.logic.theorems import Container, Theorem
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.templates import listed, write


def statement(
    theorem: Theorem,
    lexicon: Lexicon,
    draw: float = 0.0,
    *,
    subject: Container | None = None,
    side: str = "receiver",
) -> str:
    """Word an axiom.

    Args:
        theorem: The axiom.
        lexicon: The words.
        draw: In [0, 1): which of the templates that fit.
        subject: Of a comparison, the container that stands first.
        side: Of a transfer, whom the text follows: ``"receiver"`` or ``"sender"``.
    """
    key, value = theorem
    if theorem.predicate == "cont":
        values = {"agent": key[1], "entity": _counted(key[2], value, lexicon), "q": str(value)}
        return write("cont", values, draw)
    if theorem.predicate in ("comp", "times"):
        return _comparison(theorem, lexicon, draw, subject or key[1])
    if theorem.predicate == "transfer":
        known = {role: place[0] for role, place in zip(("receiver", "sender"), key[1:], strict=True) if place}
        thing = (key[1] or key[2])[1]
        entity = lexicon.plural(thing) if value != 1 else thing
        return write("transfer", {**known, "q": str(value), "entity": entity, "side": side}, draw)
    if theorem.predicate == "rate":
        whole, part = key[1], key[2]
        values = {"agent": whole[0], "q": str(value), "whole entity": whole[1]}
        return write("rate", {**values, "part entity": _counted(part[1], value, lexicon)}, draw)
    if theorem.predicate == "compeq":
        roles = dict(zip(("agent", "other", "third", "fourth"), (place[0] for place in key[1:]), strict=True))
        return write("compeq", {**roles, "entity": lexicon.plural(key[1][1])}, draw)
    raise ValueError(f"theorem: a problem states no {theorem.predicate!r}")


def _comparison(theorem: Theorem, lexicon: Lexicon, draw: float, subject: Container) -> str:
    a, b = theorem.key[1:]
    value = theorem.value or 0
    if theorem.predicate == "comp" and subject == b:
        a, b, value = b, a, -value
    across = "" if a[1] == b[1] else " across"
    form = "times" if theorem.predicate == "times" else "more" if value >= 0 else "fewer"
    values = {"agent": a[0], "other": b[0], "q": str(abs(value)), "other entity": lexicon.plural(b[1])}
    values["entity"] = lexicon.plural(a[1]) if form == "times" else _counted(a[1], abs(value), lexicon)
    if not across:
        del values["other entity"]
    return write(form + across, values, draw)


def question(goal: Theorem, lexicon: Lexicon, draw: float = 0.0, *, ground: bool, agents: Sequence[str] = ()) -> str:
    """Word a goal: as a question, or (``ground``) as what is to be proven, which needs its value.

    Args:
        goal: What is asked.
        lexicon: The words.
        draw: In [0, 1): which of the templates that fit.
        ground: "Prove that ..." in place of "How many ...?".
        agents: Of a total, the order in which they are named; empty: the key's.
    """
    verb = "prove" if ground else "ask"
    values: dict[str, Any] = {}
    if ground:
        values["q"] = str(goal.value)
    if goal.predicate == "total":
        names = listed(list(agents) or list(dict.fromkeys(place[0] for place in goal.key[2])))
        return write(f"{verb} total", {**values, "agents": names, "whole": lexicon.plural(goal.key[1])}, draw)
    if goal.predicate == "comp":
        a, b = goal.key[1:]
        if (goal.value or 0) < 0:
            a, b, values["q"] = b, a, str(-(goal.value or 0))
        values = {**values, "agent": a[0], "other": b[0], "entity": lexicon.plural(a[1])}
        return write(f"{verb} comp", values, draw)
    _, agent, entity, _ = goal.key
    form = _counted(entity, goal.value, lexicon) if ground else lexicon.plural(entity)
    return write(f"{verb} cont", {**values, "agent": agent, "entity": form}, draw)


def conclusion(graph: Hypergraph, edge: Edge, lexicon: Lexicon) -> str:
    """Word an inference: "So Pia has 14 + 6 = 20 drums."."""
    theorem: Theorem = graph.nodes[edge.head]
    premises = [graph.nodes[node] for node in edge.tail]
    key, value = theorem
    values = {"sum": calculation(theorem, premises, edge.rule), "q": str(value)}
    if theorem.predicate == "total":
        names = listed(list(dict.fromkeys(place[0] for place in key[2])))
        return write("so total", {**values, "agents": names, "whole": lexicon.plural(key[1])})
    if theorem.predicate == "comp":
        a, b = key[1:] if (value or 0) >= 0 else (key[2], key[1])
        values["q"] = str(abs(value or 0))
        known = {"agent": a[0], "other": b[0], "entity": lexicon.plural(a[1]), "other entity": lexicon.plural(b[1])}
        return write("so comp" if a[1] == b[1] else "so comp across", {**values, **known})
    if theorem.predicate == "cont":
        return write("so cont", {**values, "agent": key[1], "entity": _counted(key[2], value, lexicon)})
    return f"So {theorem}."


def calculation(theorem: Theorem, premises: Sequence[Theorem], rule: str) -> str:
    """Write an inference's arithmetic, "14 + 6", so that it gives the theorem's value (of a difference, its size)."""
    first, *rest = (premise.value or 0 for premise in premises if premise.predicate != "compeq")
    if rule in ("rate", "times"):
        divided = first * rest[0] != theorem.value
        return f"{first} {'/' if divided else '*'} {rest[0]}"
    if rule == "total":
        return " + ".join(map(str, (first, *rest)))
    if rule == "difference":
        return f"{max(first, rest[0])} - {min(first, rest[0])}"
    up = (theorem.value or 0) >= first
    return f"{first} {'+' if up else '-'} {abs(rest[0])}"


def _counted(singular: str, count: int | None, lexicon: Lexicon) -> str:
    return singular if count == 1 else lexicon.plural(singular)
