"""Which theorems a written proof states, and what each of its steps is.

A step is matched with a theorem of the *executed closure* that has its value, its agent (whole name), its thing, and
premises of its operands; repeats are restatements, and a conclusion whose premises were never stated is a skip, which
brings the steps left out with it.

Source: arXiv 2510.25626, section on alignment, for the idea; the matching, labels and skips are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from thrifty._common.checks import one_of
from thrifty.evaluation.reasoning.logic.shortest import smallest_tree
from thrifty.evaluation.reasoning.logic.theorems import Theorem
from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.problems.templates import straight
from thrifty.evaluation.reasoning.traces.claims import Claim, Equation, Vocabulary
from thrifty.evaluation.reasoning.traces.text import normalised, proof_text, segments

ALIGNERS = ("grammar", "official")
LABELS = (
    "axiom_restated", "inference", "restatement", "arith_error", "invalid", "skip", "self_correction", "other",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A step of a written proof.

    Args:
        text: What was written.
        label: One of ``LABELS``.
        theorem: Number of the theorem that it states, in the problem's hypergraph; ``None`` where there is none.
        edge: Number of the rule instance by which it follows, where that is known.
        omitted: Theorems that a skip leaves out.
        relevant: The shortest proof needs the theorem.

    Example:
        >>> Step("So it is.", "other").theorem is None
        True
    """

    text: str
    label: str
    theorem: int | None = None
    edge: int | None = None
    omitted: tuple[int, ...] = ()
    relevant: bool = False


@dataclass(frozen=True)
class Alignment:
    """A written proof, step by step.

    Args:
        steps: In reading order.
        coverage: Share of the quantitative steps that state a theorem; 0 where there are none.

    Example:
        >>> Alignment((), 0.0).theorems()
        []
    """

    steps: tuple[Step, ...]
    coverage: float

    def theorems(self, *, expand_skips: bool = True, stop: int | None = None) -> list[int]:
        """Return the distinct derived theorems that are stated, in order.

        Args:
            expand_skips: With those that a skip leaves out, before it.
            stop: A theorem after whose first statement nothing counts.
        """
        found: dict[int, None] = {}
        for step in self.steps:
            if step.label in ("inference", "skip") and step.theorem is not None:
                for node in (*(step.omitted if expand_skips else ()), step.theorem):
                    found.setdefault(node)
                if step.theorem == stop:
                    break
        return list(found)

    def labels(self) -> Counter[str]:
        """Return how many steps have each label."""
        return Counter(step.label for step in self.steps)


def align(problem: Problem, text: str, *, aligner: str = "grammar", trace: str = "both") -> Alignment:
    """Align a written proof with the theorems of a problem.

    Args:
        problem: The problem.
        text: What the model wrote.
        aligner: ``"grammar"``, or ``"official"``: the published rule, for comparison.
        trace: Which part counts: ``"visible"`` (outside ``<think>``), ``"thinking"`` or ``"both"``.

    Returns:
        The steps, and how many of them could be matched.

    Raises:
        ValueError: ``aligner`` or ``trace`` is unknown.

    Example:
        >>> from thrifty.evaluation.reasoning import read_problem
        >>> problem = read_problem("Mina has 16 figs. Ode has 5 figs less than Mina. How many figs does Ode have?")
        >>> [step.label for step in align(problem, "Ode has 16 - 5 = 11 figs.").steps]
        ['inference']

    Source:
        arXiv 2510.25626, section on alignment.
    """
    one_of("aligner", aligner, ALIGNERS)
    if aligner == "official":
        from thrifty.evaluation.reasoning.traces.official import align_official

        return align_official(problem, text)
    return _Aligner(problem).run(proof_text(text, trace))


@lru_cache(maxsize=256)
def _vocabulary(key: int, problem: _ByIdentity) -> Vocabulary:
    return Vocabulary(problem.problem)


class _ByIdentity:
    """A problem that is looked up by identity: hashing all its text would cost more than it saves."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __hash__(self) -> int:
        return id(self.problem)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.problem is self.problem


class _Aligner:
    """One reading of one proof."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.graph = problem, problem.graph
        self.words = _vocabulary(id(problem), _ByIdentity(problem))
        self.stated: set[int] = set()
        self.known = set(self.graph.given)
        self.needed = set(problem.shortest.theorems)

    def run(self, text: str) -> Alignment:
        """Label every step."""
        steps: list[Step] = []
        for sentence in segments(normalised(text)):
            plain = straight(sentence)
            axiom = self.words.axioms.get(plain)
            if axiom is not None:
                steps.append(Step(sentence, "axiom_restated", axiom, relevant=axiom in self.problem.relevant))
                continue
            if plain.startswith("Therefore, the answer"):
                steps.append(Step(sentence, "other"))
                continue
            claims = self.words.claims(plain)
            steps += [self._step(claim) for claim in claims] if claims else [Step(sentence, "other")]
        steps = _corrected(steps)
        counted = [step for step in steps if step.label not in ("axiom_restated", "other")]
        matched = sum(step.theorem is not None for step in counted)
        return Alignment(tuple(steps), matched / len(counted) if counted else 0.0)

    def _step(self, claim: Claim) -> Step:
        if claim.equation is not None and not claim.equation.true:
            return self._wrong(claim)
        ranked = [
            (rank, -place, node)
            for place, node in enumerate(self.words.by_value.get(claim.value, ()))
            if (rank := self._rank(claim, node)) is not None
        ]
        if not ranked:
            return self._wrong(claim)
        node = max(ranked)[2]
        relevant = node in self.needed
        if node in self.graph.given:
            return Step(claim.text, "axiom_restated", node, relevant=node in self.problem.relevant)
        if node in self.stated:
            return Step(claim.text, "restatement", node, relevant=relevant)
        edge = self._edge(claim, node)
        if edge is not None and self._ready(edge):
            self._state(node)
            return Step(claim.text, "inference", node, edge, relevant=relevant)
        proof = smallest_tree(self.graph, node, free=frozenset(self.stated))
        omitted = tuple(n for n in proof.theorems if n != node and n not in self.stated)
        self._state(*omitted, node)
        return Step(claim.text, "skip", node, edge, omitted, relevant)

    def _state(self, *nodes: int) -> None:
        self.stated.update(nodes)
        self.known.update(nodes)

    def _rank(self, claim: Claim, node: int) -> tuple[int, ...] | None:
        """Return how well a theorem fits a claim of its value, larger is better; ``None``: not at all."""
        theorem: Theorem = self.graph.nodes[node]
        named = self._named(claim, theorem)
        if named is None:
            return None
        operands = 1
        if claim.equation is None:
            if theorem.predicate not in ("cont", "total"):
                return None
        elif node in self.graph.given:
            return None
        else:
            operands = self._operands(claim.equation, node)
            if operands == 0 or (operands == 1 and named < 2):
                return None
        ready = any(self._ready(number) for number in self.graph.incoming.get(node, ()))
        return (operands, named, int(node not in self.stated), int(ready))

    def _named(self, claim: Claim, theorem: Theorem) -> int | None:
        """Return 2 if the claim names the theorem's agents and things, 1 if it names none, ``None`` if others."""
        key = theorem.key
        if theorem.predicate == "cont":
            agent, thing = key[1].replace("’", "'"), key[2]
            if claim.things and thing not in claim.things:
                return None
            if claim.subject is None:
                return 1
            if agent == claim.subject:
                return 2
            return 0 if claim.equation is not None and agent in claim.agents and len(claim.agents) > 1 else None
        if theorem.predicate == "comp":
            both = {place[0].replace("’", "'") for place in key[1:]}
            things = {place[1] for place in key[1:]}
            if claim.things and not things & claim.things:
                return None
            return 1 if not claim.agents else 2 if both <= claim.agents else None
        if theorem.predicate == "total":
            parts = {place[0].replace("’", "'") for place in key[2]}
            if claim.agents and not claim.agents <= parts:
                return None
            things = {key[1], *(place[1] for place in key[2])}
            if claim.things and not things & claim.things:
                return None
            if claim.equation is None and key[1] not in claim.things and len(claim.agents) < 2:
                return None
            return 2 if len(claim.agents) != 1 and (claim.agents or key[1] in claim.things) else 1
        return None

    def _operands(self, equation: Equation, node: int) -> int:
        """Return 2 if some rule instance has an equation's operands, 1 if theorems behind it have, else 0."""
        if any(self.graph.edges[number].head == node for number in self._instances(equation)):
            return 2
        if len(equation.operands) < 3:
            return 0
        behind = {n for number in self.graph.backwards(node) for n in self.graph.edges[number].tail} - {node}
        values = Counter(abs(self.graph.nodes[n].value) for n in behind)
        return int(not Counter(map(abs, equation.operands)) - values)

    def _edge(self, claim: Claim, node: int) -> int | None:
        """Return the rule instance by which a claim derives a theorem: one with its operands, ready ones first."""
        able: Sequence[int] = self.graph.incoming.get(node, ())
        if claim.equation is not None:
            able = [number for number in self._instances(claim.equation) if self.graph.edges[number].head == node]
        return next((number for number in able if self._ready(number)), next(iter(able), None))

    def _ready(self, number: int) -> bool:
        """Tell whether all premises of a rule instance are given or stated."""
        return self.known.issuperset(self.graph.edges[number].tail)

    def _instances(self, equation: Equation) -> Sequence[int]:
        """Return the rule instances whose premises have an equation's operands as values, in any order."""
        return self.words.by_operands.get(tuple(sorted(map(abs, equation.operands))), ())

    def _wrong(self, claim: Claim) -> Step:
        """Label a step whose value no theorem has: its operands are some rule's premises, or nothing fits."""
        for number in self._instances(claim.equation) if claim.equation else ():
            head = self.graph.edges[number].head
            if self._named(claim, self.graph.nodes[head]) in (1, 2):
                return Step(claim.text, "arith_error", head, number, relevant=head in self.needed)
        return Step(claim.text, "invalid")


def _corrected(steps: Iterable[Step]) -> list[Step]:
    """A wrong value that a later step puts right is a self-correction."""
    steps = list(steps)
    right: set[int] = set()
    for at in range(len(steps) - 1, -1, -1):
        step = steps[at]
        if step.label in ("inference", "skip") and step.theorem is not None:
            right.add(step.theorem)
        elif step.label == "arith_error" and step.theorem in right:
            steps[at] = replace(step, label="self_correction")
    return steps
