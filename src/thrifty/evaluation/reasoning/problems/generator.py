"""Making problems: a base problem, and the same with distractors of every connection, amount and overlap, and controls.

All variants of a bundle share the base problem, its quantities, and, where they have as many distractors, the order of
their sentences. Every random choice follows from the bundle's seed, by NumPy's ``SeedSequence``, so that the same seed
gives the same text on every machine.

Source: arXiv 2510.25626, section on the data set.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from thrifty._common.checks import one_of, whole
from thrifty.evaluation.reasoning.logic.theorems import Theorem
from thrifty.evaluation.reasoning.problems import wording
from thrifty.evaluation.reasoning.problems.chains import Chain, anchors, control
from thrifty.evaluation.reasoning.problems.gate import faults
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.naming import BaseNames, ChainNames, name_base, name_chain, stated
from thrifty.evaluation.reasoning.problems.problem import (
    AMOUNTS,
    CELLS,
    CONNECTIONS,
    OVERLAPS,
    QUERIES,
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


def generate(
    n: int,
    seed: int = 0,
    connection: str = "none",
    amount: str = "none",
    overlap: str = "none",
    query: str = "question",
    *,
    depth: Sequence[int] = (2, 3),
    n_distractor_trees: int = 3,
    lexicon: Lexicon | None = None,
) -> list[Problem]:
    """Make problems of one condition; problem ``i`` has the base problem that every other condition's ``i`` has.

    Args:
        n: How many.
        seed: Every random choice follows from it.
        connection: ``"connected"``, ``"disconnected"``, or ``"none"`` for base problems and controls.
        amount: ``"simple"`` (one axiom), ``"complex"`` (one tree), ``"more_complex"`` (several), or ``"none"``.
        overlap: ``"no_overlap"``, ``"entity_overlap"``, ``"agent_overlap"``, ``"agent_entity_overlap"``; ``"control"``
            for relevant axioms in place of distractors; ``"none"``.
        query: ``"question"`` or ``"prove"``.
        depth: Inferences from the goal to the deepest axioms, of base problems and of distractors; drawn equally.
        n_distractor_trees: Trees of ``"more_complex"``.
        lexicon: Words of your own.

    Returns:
        The problems; each has passed the consistency gate.

    Raises:
        ValueError: There is no such condition, or the words do not suffice.

    Example:
        >>> problem = generate(1, 7, "disconnected", "complex", "agent_entity_overlap")[0]
        >>> len(problem.eager) > problem.shortest.length
        True

    Source:
        arXiv 2510.25626, section on the data set.
    """
    n = whole("n", n, least=0)
    cell = Cell(connection, amount, overlap)
    if cell not in CELLS:
        raise ValueError(
            f"connection, amount, overlap: expected one of {', '.join(map(str, CELLS))}, got {'/'.join(map(str, cell))}"
        )
    return [
        bundle.problems[cell]
        for bundle in bundles(
            n, seed, cells=(cell,), query=query, depth=depth, n_distractor_trees=n_distractor_trees, lexicon=lexicon
        )
    ]


def bundles(
    n: int,
    seed: int = 0,
    *,
    cells: Sequence[Cell] = CELLS,
    query: str = "question",
    depth: Sequence[int] = (2, 3),
    n_distractor_trees: int = 3,
    lexicon: Lexicon | None = None,
    first: int = 0,
) -> Iterator[Bundle]:
    """Yield base problems with their variants; arguments as :func:`generate`.

    Args:
        n: How many.
        seed: Every random choice follows from it.
        cells: Which variants.
        query: ``"question"`` or ``"prove"``.
        depth: As in :func:`generate`.
        n_distractor_trees: As in :func:`generate`.
        lexicon: Words of your own.
        first: Number of the first.

    Yields:
        Bundles.

    Raises:
        ValueError: As :func:`generate`.

    Example:
        >>> bundle = next(bundles(1, 0))
        >>> len(bundle.problems)
        28

    Source:
        arXiv 2510.25626, section on the data set.
    """
    n, seed = whole("n", n, least=0), whole("seed", seed, least=0)
    one_of("query", query, QUERIES)
    depths = tuple(whole("depth", each) for each in depth)
    trees = whole("n_distractor_trees", n_distractor_trees)
    if not depths or max(depths) > 6:
        raise ValueError(f"depth: expected numbers from 1 to 6, got {tuple(depth)}")
    words = lexicon or Lexicon.default()
    for number in range(whole("first", first, least=0), first + n):
        yield Maker(seed, number, query, depths, trees, words).make(cells)


def fresh_seed() -> int:
    """Return a seed that nobody has trained on: 96 random bits. Publish its hash, and the seed once results are in.

    Returns:
        A seed for :func:`generate`.

    Example:
        >>> fresh_seed() != fresh_seed()
        True

    Source:
        Commitment by hash, as in any sealed test set.
    """
    return secrets.randbits(96)


class Maker:
    """Draws one bundle again and again until every variant passes the gate."""

    def __init__(self, seed: int, number: int, query: str, depths: tuple[int, ...], trees: int, words: Lexicon) -> None:
        self.seed, self.number, self.query = seed, number, query
        self.depths, self.trees, self.words = depths, trees, words
        self.attempt = 0

    def make(self, cells: Sequence[Cell]) -> Bundle:
        """Return a bundle of these cells; raises as :func:`generate`."""
        found: list[str] = []
        for self.attempt in range(ATTEMPTS):
            drawn = self._draw()
            if drawn is None:
                continue
            # All variants decide, also those not asked for, so that a base problem does not depend on the cells.
            made = {cell: self._variant(cell, *drawn) for cell in CELLS}
            found = [
                fault
                for problem, steps, answer in made.values()
                for fault in faults(problem, answer=answer, length=steps)
            ]
            if not found:
                return Bundle({cell: made[cell][0] for cell in cells}, self.attempt)
        raise ValueError(
            f"seed: no bundle passed the gate in {ATTEMPTS} attempts; the last: {(found or ['no tree'])[0]}"
        )

    def rng(self, *path: int) -> Generator:
        """Return a generator of its own for one choice."""
        return np.random.default_rng([self.seed, self.number, self.attempt, *path])

    def _draw(self) -> tuple[Node, Variables, BaseNames, list[Chain]] | None:
        rng = self.rng(0)
        depth = self.depths[int(rng.integers(len(self.depths)))]
        root, variables = base_tree(rng, depth, total=bool(rng.integers(2)))
        try:
            draw_quantities(root, rng, BASE)
        except InfeasibleError:
            return None
        places = anchors(root)
        if not places:
            return None
        chains = [
            Chain(rng, places[int(rng.integers(len(places)))], self.depths[int(rng.integers(len(self.depths)))])
            for _ in range(self.trees)
        ]
        return root, variables, name_base(root, variables, self.words, rng), chains

    def _variant(
        self, cell: Cell, root: Node, variables: Variables, names: BaseNames, chains: list[Chain]
    ) -> tuple[Problem, int, int]:
        """Return a variant, and the inferences and the answer that it was made to have."""
        amount = AMOUNTS.index(cell.amount) if cell.amount in AMOUNTS else -1
        used = chains if amount == 2 else chains[: min(amount + 1, 1)]
        if cell.overlap == "control":
            counts: Counter[str] = sum(
                (c.rule_counts(connected=False, only_first=amount == 0) for c in used), Counter()
            )
            more = sum(len(c.leaves(connected=False, only_first=amount == 0)[0]) for c in used)
            rng = self.rng(1, amount)
            root, variables = control(root, variables, rng, more, counts, BASE)
            names = names.extended(variables, rng)
            used = []
        told = self._base_sentences(root, names, control=cell.overlap == "control")
        if used:
            told = self._merged(told, root, cell, names, used, only_first=amount == 0)
        return self._problem(cell, told, root, names), root.steps(), root.value

    def _base_sentences(self, root: Node, names: BaseNames, *, control: bool) -> list[tuple[Node, str, str]]:
        return [
            (leaf, self._worded(leaf, names, 2, at), "control" if control else "base")
            for at, leaf in enumerate(root.leaves())
        ]

    def _worded(self, leaf: Node, names: BaseNames | ChainNames, *path: int) -> str:
        theorem, subject, side = stated(leaf, names)
        return wording.statement(theorem, self.words, self.rng(*path), subject=subject, side=side)

    def _merged(
        self,
        told: list[tuple[Node, str, str]],
        root: Node,
        cell: Cell,
        names: BaseNames,
        chains: list[Chain],
        *,
        only_first: bool,
    ) -> list[tuple[Node, str, str]]:
        """Interleave the chains with the base; what is connected comes after what its anchor follows from."""
        connected = cell.connection == "connected"
        place = {id(leaf): at for at, (leaf, _, _) in enumerate(told)}
        taken = set(names.agents)
        things = {names.thing(number) for number in range(len(names.things))}
        order = self.rng(3, CONNECTIONS.index(cell.connection), AMOUNTS.index(cell.amount))
        for number, chain in enumerate(chains):
            leaves, agents = chain.leaves(connected=connected, only_first=only_first)
            named = name_chain(
                chain,
                agents,
                cell,
                root,
                names,
                taken,
                things,
                self.words,
                self.rng(4, number, OVERLAPS.index(cell.overlap)),
            )
            extra = [
                (leaf, self._worded(leaf, named, 5, number, at, int(connected)), f"irrelevant_{number + 1}")
                for at, leaf in enumerate(leaves)
            ]
            first = 0
            if connected:
                first = 1 + max(place[id(leaf)] for leaf in chain.anchor.leaves())
                first = 1 + next(at for at, line in enumerate(told) if line[0] is root.leaves()[first - 1])
            told = told[:first] + _interleaved(told[first:], extra, order)
        return told

    def _problem(self, cell: Cell, told: list[tuple[Node, str, str]], root: Node, names: BaseNames) -> Problem:
        """Read the program from the text: what is told when decides what a statement is about."""
        clock, reader = TextClock(), self.words.reader
        sentences = tuple(Sentence(text, read_statement(text, reader, clock), source) for _, text, source in told)
        ground = self.query == "prove"
        value = root.value if ground else None
        asked = Theorem(names.goal(root).key, value)
        question = wording.question(
            asked, self.words, self.rng(6), ground=ground, agents=[names.agent(agent) for agent in root.agents]
        )
        goal = read_goal(question, reader, clock)
        name = f"{self.seed}-{self.number}-{str(cell).replace('/', '-')}-{self.query}"
        return Problem(name, self.seed, cell, sentences, question, goal, self.words)


def _interleaved(
    a: list[tuple[Node, str, str]], b: list[tuple[Node, str, str]], rng: Generator
) -> list[tuple[Node, str, str]]:
    """Merge two lists, each in its own order; every merge is equally likely."""
    places = set(rng.choice(len(a) + len(b), size=len(b), replace=False).tolist())
    first, second = iter(a), iter(b)
    return [next(second) if at in places else next(first) for at in range(len(a) + len(b))]
