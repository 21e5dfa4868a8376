"""Making problems: a base problem, and the same with distractors of every connection, amount and overlap, and controls.

All variants of a bundle share the base problem, its quantities, and, where they have as many distractors, the order of
their sentences. Every random choice follows from the bundle's seed, by NumPy's ``SeedSequence``, so that the same seed
gives the same text on every machine.

Source: arXiv 2510.25626, section on the data set.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from thrifty._common.checks import one_of, whole
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.making import Bundle, Plan, make_bundle
from thrifty.evaluation.reasoning.problems.problem import CELLS, QUERIES, Cell, Problem


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
    plan = Plan(seed, query, depths, trees, lexicon or Lexicon.default())
    for number in range(whole("first", first, least=0), first + n):
        yield make_bundle(plan, number, cells)


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
