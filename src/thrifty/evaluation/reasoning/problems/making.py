"""One bundle: a base problem and its variants, drawn again until all of them pass the gate.

What variants share is made once: the sentences of the base problem, the names of distractors by what they overlap
with, and the order in which both are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator

from thrifty.evaluation.reasoning.logic.theorems import Theorem
from thrifty.evaluation.reasoning.problems import wording
from thrifty.evaluation.reasoning.problems.chains import Chain, anchors, control, draw_chain
from thrifty.evaluation.reasoning.problems.gate import shortfalls
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.naming import BaseNames, ChainNames, name_base, name_chains, stated
from thrifty.evaluation.reasoning.problems.problem import (
    AMOUNTS,
    BASE_CELL,
    CONNECTIONS,
    OVERLAPS,
    Cell,
    Problem,
    Sentence,
)
from thrifty.evaluation.reasoning.problems.reading import TextClock, read_goal, read_statement
from thrifty.evaluation.reasoning.problems.trees import (
    BASE,
    InfeasibleError,
    Node,
    Variables,
    base_tree,
    draw_quantities,
)

#: A sentence and its source.
Told = tuple[str, str]
#: Bundles that are drawn before one passes the gate, at most.
ATTEMPTS = 50


@dataclass(frozen=True)
class Bundle:
    """A base problem with its variants.

    Args:
        problems: By cell.
        rejected: Bundles that were drawn and did not pass the gate.
    """

    problems: Mapping[Cell, Problem]
    rejected: int = 0


@dataclass(frozen=True)
class Plan:
    """What a maker draws bundles by.

    Args:
        seed: Every random choice follows from it, the bundle's number and the attempt.
        query: ``"question"`` or ``"prove"``.
        depths: Inferences from the goal to the deepest axioms; drawn equally.
        trees: Irrelevant trees of ``"more_complex"``.
        words: The lexicon.
    """

    seed: int
    query: str
    depths: tuple[int, ...]
    trees: int
    words: Lexicon


@dataclass(frozen=True)
class Sampler:
    """How quantities are found: of a base tree, of an irrelevant chain (which draws its own), of a control.

    Each raises ``InfeasibleError`` where it finds none.
    """

    base: Callable[..., None] = draw_quantities
    chain: Callable[..., Chain] = draw_chain
    control: Callable[..., tuple[Node, Variables]] = control


def make_bundle(plan: Plan, number: int, cells: Sequence[Cell], sampler: Sampler = Sampler()) -> Bundle:
    """Draw bundle ``number`` until every variant passes the gate.

    Variants that are not asked for decide too, so that a base problem does not depend on the cells.

    Raises:
        ValueError: None did, or the words do not suffice.
    """
    found: Sequence[str] = ()
    for attempt in range(ATTEMPTS):
        try:
            made = Draft(plan, number, attempt, sampler).variants()
        except InfeasibleError as error:
            found = [str(error)]
            continue
        found = [fault for problem, length, answer in made.values() for fault in shortfalls(problem, length, answer)]
        if not found:
            return Bundle({cell: made[cell][0] for cell in cells}, attempt)
    raise ValueError(f"seed: no bundle passed the gate in {ATTEMPTS} attempts; the last: {found[0]}")


class Draft:
    """One attempt at a bundle: trees with their quantities, which :meth:`variants` turns into problems.

    Raises:
        InfeasibleError: There are no quantities, or nothing that a distractor could hang on.
    """

    def __init__(self, plan: Plan, number: int, attempt: int, sampler: Sampler) -> None:
        self.plan, self.number, self.attempt = plan, number, attempt
        rng = self.rng(0)

        def depth() -> int:
            return plan.depths[int(rng.integers(len(plan.depths)))]

        self.root, self.variables = base_tree(rng, depth(), total=bool(rng.integers(2)))
        sampler.base(self.root, rng, BASE)
        places = anchors(self.root)
        if not places:
            raise InfeasibleError("no container of the base problem is written at one time only")
        order = rng.permutation(len(places)).tolist()  # chains hang on different containers, where there are enough
        self.chains = [sampler.chain(rng, places[order[n % len(order)]], depth()) for n in range(plan.trees)]
        rng = self.rng(1)
        self.controls = {amount: self._control(amount, sampler, rng) for amount in AMOUNTS}

    def _control(self, amount: str, sampler: Sampler, rng: Generator) -> tuple[Node, Variables]:
        """Lengthen the base tree by as many axioms as the disconnected variants of an amount have more."""
        used = self.chains if amount == "more_complex" else self.chains[:1]
        rules = [] if amount == "simple" else [rule for chain in used for rule in chain.rules[1:]]
        more = 1 if amount == "simple" else sum(len(chain.rules) for chain in used)
        return sampler.control(self.root, self.variables, rng, more, rules, BASE)

    def rng(self, *path: int) -> Generator:
        """Return a generator of its own for one choice."""
        return np.random.default_rng([self.plan.seed, self.number, self.attempt, *path])

    @cached_property
    def names(self) -> BaseNames:
        """The names of the base problem."""
        return name_base(self.root, self.variables, self.plan.words, self.rng(7))

    def variants(self) -> dict[Cell, tuple[Problem, int, int]]:
        """Return every variant, with the inferences and the answer that it was made to have."""
        told = {BASE_CELL: self._told(self.root, self.names, "base")}
        for connection in CONNECTIONS:
            told |= self._distracted(connection, told[BASE_CELL])
        roots = dict.fromkeys(told, self.root)
        for amount, (root, variables) in self.controls.items():
            cell = Cell("none", amount, "control")
            names = self.names.extended(variables, self.rng(8, AMOUNTS.index(amount)))
            told[cell], roots[cell] = self._told(root, names, "control"), root
        return {
            cell: (self._problem(cell, lines, roots[cell]), roots[cell].steps(), roots[cell].value)
            for cell, lines in told.items()
        }

    def _distracted(self, connection: str, base: list[Told]) -> dict[Cell, list[Told]]:
        """Return the sentences of every variant with distractors of one connection."""
        side = CONNECTIONS.index(connection)
        leaves = [chain.leaves(connected=connection == "connected") for chain in self.chains]
        styles = self.rng(5, side).random((self.plan.trees, max(self.plan.depths)))
        orders = {amount: self._order(connection, amount, [len(told) for told, _ in leaves]) for amount in AMOUNTS}
        found = {}
        for overlap in OVERLAPS:
            rng = self.rng(4, OVERLAPS.index(overlap))
            agents = [count for _, count in leaves]
            named = name_chains(self.chains, agents, connection, overlap, self.root, self.names, rng)
            texts = [
                self._worded(told, names, style) for (told, _), names, style in zip(leaves, named, styles, strict=True)
            ]
            for amount, order in orders.items():
                found[Cell(connection, amount, overlap)] = [
                    base[at] if chain < 0 else (texts[chain][at], f"irrelevant_{chain + 1}") for chain, at in order
                ]
        return found

    def _order(self, connection: str, amount: str, leaves: Sequence[int]) -> list[tuple[int, int]]:
        """Interleave the chains' axioms with the base's (chain −1), each as (chain, number of the axiom).

        What is connected comes after what its anchor follows from.
        """
        base = self.root.leaves()
        rng = self.rng(3, CONNECTIONS.index(connection), AMOUNTS.index(amount))
        order = [(-1, at) for at in range(len(base))]
        for number in range(self.plan.trees if amount == "more_complex" else 1):
            extra = [(number, at) for at in range(1 if amount == "simple" else leaves[number])]
            first = 0
            if connection == "connected":
                needed = self.chains[number].anchor.leaves()
                first = 1 + order.index((-1, max(at for at, leaf in enumerate(base) if leaf in needed)))
            order[first:] = _interleaved(order[first:], extra, rng)
        return order

    def _told(self, root: Node, names: BaseNames, source: str) -> list[Told]:
        leaves = root.leaves()
        return [(text, source) for text in self._worded(leaves, names, self.rng(2).random(len(leaves)))]

    def _worded(self, leaves: Sequence[Node], names: BaseNames | ChainNames, styles: Iterable[float]) -> list[str]:
        words = self.plan.words
        return [
            wording.statement(theorem, words, float(style), subject=subject, side=side)
            for (theorem, subject, side), style in zip((stated(leaf, names) for leaf in leaves), styles, strict=False)
        ]

    def _question(self, root: Node) -> str:
        ground = self.plan.query == "prove"
        asked = Theorem(self.names.goal(root).key, root.value if ground else None)
        agents = [self.names.agent(agent) for agent in root.agents]
        return wording.question(asked, self.plan.words, self.rng(6).random(), ground=ground, agents=agents)

    def _problem(self, cell: Cell, told: Sequence[Told], root: Node) -> Problem:
        """Read the program from the text: what is told when decides what a statement is about."""
        words, clock, question = self.plan.words, TextClock(), self._question(root)
        sentences = tuple(Sentence(text, read_statement(text, words.reader, clock), source) for text, source in told)
        name = f"{self.plan.seed}-{self.number}-{str(cell).replace('/', '-')}-{self.plan.query}"
        goal = read_goal(question, words.reader, clock)
        return Problem(name, self.plan.seed, cell, sentences, question, goal, words)


def _interleaved(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]], rng: Generator) -> list[tuple[int, int]]:
    """Merge two lists, each in its own order; every merge is equally likely."""
    places = set(rng.choice(len(a) + len(b), size=len(b), replace=False).tolist())
    first, second = iter(a), iter(b)
    return [next(second) if at in places else next(first) for at in range(len(a) + len(b))]
