"""Rounds of play, one after the other: in Python for any learners, and compiled for allocations, subsets and routes.

One round: every player's law is built once from its cumulated losses; all draw; the game tells the losses of that joint
action; each learner learns from what its feedback shows of them, with the moments of the law that drew; and the books
are kept, which no learner sees. The compiled loop does the same arithmetic in the same order, on uniform numbers drawn
from the players' own generators, so that its results equal those of the loop in Python to the last bit.

Source: the order of the paper's algorithms 1 and 2, all players at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.solvers.games import chains
from thrifty.solvers.games.actions.walks import WalkSet
from thrifty.solvers.games.learners import KernelizedExp3IX, KernelizedOMWU
from thrifty.solvers.games.losses import Floats, Ints, Rules, expect, offsets, realise


class Books(NamedTuple):
    """Sums over the rounds so far; players lie one after the other.

    ``paid``: realised losses, ``(P,)``; ``mean``: losses expected of each round's laws, ``(P,)``; ``losses`` and
    ``plays``: loss vectors and marginals, ``(D,)``.
    """

    paid: Floats
    mean: Floats
    losses: Floats
    plays: Floats


class Walks(NamedTuple):
    """The graphs of all players, one after the other; the ``..._at`` say where each begins."""

    at: Ints
    steps: Ints
    first: Ints
    first_at: Ints
    head: Ints
    label: Ints
    slot: Ints
    edge_at: Ints
    letters: Ints
    rows: Ints
    letters_at: Ints
    total: Ints


class Weights(NamedTuple):
    """The learners' numbers as compiled code reads and writes them."""

    semi: NDArray[np.bool_]
    optimistic: NDArray[np.bool_]
    eta: Floats
    gamma: Floats
    cumulated: Floats
    last: Floats


@njit(cache=True, nogil=True)
def book(at: Ints, taken: Ints, counts: Ints, losses: Floats, play: Floats, books: Books) -> None:
    """Enter a round into the books."""
    for i in range(counts.size):
        paid, mean = 0.0, 0.0
        for c in range(counts[i]):
            paid += losses[at[i] + taken[i, c]]
        for j in range(at[i], at[i + 1]):
            mean += losses[j] * play[j]
        books.paid[i] += paid
        books.mean[i] += mean
    for j in range(losses.size):
        books.losses[j] += losses[j]
        books.plays[j] += play[j]


def walks_of(sets: Sequence[Any]) -> Walks:
    """Return the graphs of sets of paths."""
    graphs = [actions.graph for actions in sets]

    def flat(parts: list[Ints]) -> tuple[Ints, Ints]:
        return np.concatenate([part.ravel() for part in parts]), offsets([part.size for part in parts])

    first, first_at = flat([graph.first for graph in graphs])
    head, edge_at = flat([graph.head for graph in graphs])
    letters, letters_at = flat([graph.letters for graph in graphs])
    return Walks(
        at=offsets([actions.d for actions in sets]),
        steps=offsets([actions.steps for actions in sets]),
        first=first, first_at=first_at, head=head, edge_at=edge_at,
        label=flat([graph.label for graph in graphs])[0], slot=flat([graph.slot for graph in graphs])[0],
        letters=letters, letters_at=letters_at,
        rows=np.array([graph.letters.shape[0] for graph in graphs]),
        total=np.array([graph.total for graph in graphs]),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _laws(
    walks: Walks, weights: Weights, theta: Floats, step: Floats, weight: Floats, reach: Floats, x: Floats
) -> bool:
    """Build every player's law and first moment; False: log weights are no longer finite."""
    for i in range(walks.total.size):
        a, b = walks.at[i], walks.at[i + 1]
        for j in range(a, b):
            held = weights.cumulated[j]
            if weights.optimistic[i]:
                held = held + weights.last[j]
            theta[j] = -weights.eta[i] * held
            if not np.isfinite(theta[j]):
                return False
        e, f = walks.edge_at[i], walks.edge_at[i + 1]
        u, v = walks.first_at[i], walks.first_at[i + 1]
        p, q = walks.letters_at[i], walks.letters_at[i + 1]
        rows = walks.rows[i]
        letters = walks.letters[p:q].reshape((rows, (q - p) // max(1, rows)))
        first, head, label = walks.first[u:v], walks.head[e:f], walks.label[e:f]
        chains.chain(
            first, head, label, walks.slot[e:f], letters, walks.total[i], theta[a:b], step[e:f], weight[p:q]
        )  # fmt: skip
        chains.first_moment(first, head, label, step[e:f], reach[: v - u - 1], x[a:b])
    return True


@njit(cache=True, nogil=True)
def _rounds(
    walks: Walks, rules: Rules, weights: Weights, uniforms: Floats, books: Books, most: Ints, history: NDArray[np.int32]
) -> int:  # fmt: skip
    """Play as many rounds as ``uniforms`` has rows; return how many there were before log weights became infinite."""
    players, total = walks.total.size, walks.at[-1]
    theta, x, losses = np.empty(total), np.empty(total), np.empty(total)
    step, weight = np.empty(walks.head.size), np.empty(walks.letters.size)
    reach = np.empty(walks.first.size)
    longest = 0
    for i in range(players):
        longest = max(longest, walks.steps[i + 1] - walks.steps[i])
    taken, counts = np.zeros((players, longest), np.int64), np.zeros(players, np.int64)
    for t in range(uniforms.shape[0]):
        if not _laws(walks, weights, theta, step, weight, reach, x):
            return t
        for i in range(players):
            e, f = walks.edge_at[i], walks.edge_at[i + 1]
            first = walks.first[walks.first_at[i] : walks.first_at[i + 1]]
            drawn = uniforms[t, walks.steps[i] : walks.steps[i + 1]]
            counts[i] = chains.walk(first, walks.head[e:f], walks.label[e:f], step[e:f], drawn, taken[i])
            for c in range(counts[i]):
                history[t, most[i] + c] = taken[i, c]
        realise(rules, taken, counts, losses)
        book(walks.at, taken, counts, losses, x, books)
        for i in range(players):
            a = walks.at[i]
            if weights.semi[i]:
                for c in range(counts[i]):
                    j = a + taken[i, c]
                    weights.cumulated[j] += losses[j] / (x[j] + weights.gamma[i])
            else:
                for j in range(a, walks.at[i + 1]):
                    weights.last[j] = losses[j]
                    weights.cumulated[j] += losses[j]
    return int(uniforms.shape[0])


@njit(cache=True, nogil=True)
def _expected_rounds(walks: Walks, rules: Rules, weights: Weights, books: Books, history: Floats) -> int:
    """Play rounds in which nobody draws: all learn from the losses that the others' laws lead to expect."""
    total = walks.at[-1]
    x, losses = np.empty(total), np.empty(total)
    step, weight = np.empty(walks.head.size), np.empty(walks.letters.size)
    reach = np.empty(walks.first.size)
    taken, nobody = np.zeros((walks.total.size, 1), np.int64), np.zeros(walks.total.size, np.int64)
    theta = np.empty(total)
    for t in range(history.shape[0]):
        if not _laws(walks, weights, theta, step, weight, reach, x):
            return t
        history[t] = theta
        expect(rules, x, losses)
        book(walks.at, taken, nobody, losses, x, books)
        weights.last[:] = losses
        for j in range(total):
            weights.cumulated[j] += losses[j]
    return int(history.shape[0])


def compilable(game: Any, learners: Sequence[Any]) -> bool:
    """Tell whether the compiled loop can play: paths, and learners whose step is one of the two that it has."""
    return hasattr(game, "rules") and all(
        isinstance(learner.actions, WalkSet)
        and learner.actions is actions
        and type(learner) in (KernelizedOMWU, KernelizedExp3IX)
        for learner, actions in zip(learners, game.sets, strict=True)
    )


def play_compiled(
    walks: Walks, game: Any, learners: Sequence[Any], rngs: Sequence[Any], books: Books, history: NDArray, drawn: bool
) -> None:
    """Play as many rounds as ``history`` has rows, compiled; arguments as :func:`play_rounds`, and the graphs."""
    rounds = len(history)
    weights = Weights(
        semi=np.array([isinstance(learner, KernelizedExp3IX) for learner in learners]),
        optimistic=np.array([bool(getattr(learner, "optimistic", False)) for learner in learners]),
        eta=np.array([learner.eta for learner in learners], float),
        gamma=np.array([getattr(learner, "gamma", 0.0) for learner in learners], float),
        cumulated=np.concatenate([learner.cumulated for learner in learners]),
        last=np.concatenate([getattr(learner, "last", np.zeros(learner.actions.d)) for learner in learners]),
    )
    if drawn:
        most = offsets([actions.m for actions in game.sets])
        uniforms = np.hstack(
            [rng.random((rounds, learner.actions.steps)) for rng, learner in zip(rngs, learners, strict=True)]
        )
        played = _rounds(walks, game.rules, weights, uniforms, books, most, history)
    else:
        played = _expected_rounds(walks, game.rules, weights, books, history)
    if played < rounds:
        raise ArithmeticError(f"round {learners[0].round + played}: the log weights are no longer finite")
    for i, learner in enumerate(learners):
        part = slice(walks.at[i], walks.at[i + 1])
        learner.cumulated[:] = weights.cumulated[part]
        if isinstance(learner, KernelizedOMWU):
            learner.last[:] = weights.last[part]
        learner.go_on(rounds)


def play_rounds(
    game: Any, learners: Sequence[Any], rngs: Sequence[Any], books: Books, history: NDArray, drawn: bool, noise: float,
    noises: np.random.Generator,
) -> None:  # fmt: skip
    """Play as many rounds as ``history`` has rows, in Python.

    Args:
        game: With ``sets``, ``loss_vectors`` and, where nobody draws, ``expected_losses``.
        learners: One a player.
        rngs: Their generators.
        books: Entered into.
        history: Filled: coordinates played, or, where nobody draws, log weights.
        drawn: Whether players draw actions.
        noise: Of what learners are shown; see :func:`shown`.
        noises: Where noise comes from.
    """
    at, most = offsets([actions.d for actions in game.sets]), offsets([actions.m for actions in game.sets])
    taken = np.zeros((len(learners), max(actions.m for actions in game.sets)), np.int64)
    counts = np.zeros(len(learners), np.int64)
    for row in history:
        joint = [learner.act(rng) for learner, rng in zip(learners, rngs, strict=True)] if drawn else []
        plays = [learner.play for learner in learners]
        losses = game.loss_vectors(joint) if drawn else game.expected_losses(plays)
        for i, chosen in enumerate(joint):
            counts[i] = len(chosen)
            taken[i, : len(chosen)] = chosen
            row[most[i] : most[i] + len(chosen)] = chosen
        if not drawn:
            row[:] = np.concatenate([learner.theta for learner in learners])
        book(at, taken, counts, np.concatenate(losses), np.concatenate(plays), books)
        for i, learner in enumerate(learners):
            if drawn:
                learner.observe(shown(learner.feedback, losses[i], joint[i], learner.actions.m, noise, noises))
            else:
                learner.expect(losses[i])


def shown(feedback: str, losses: Floats, chosen: Ints, most: int, noise: float, rng: np.random.Generator) -> Any:
    """Return what a learner sees of a round.

    With noise, a share of each loss is replaced by a coin that comes up with the loss as its probability: the mean is
    the loss, and the range stays. (A bandit's coin is for the loss of the whole action, in units of its largest.)
    """
    if feedback == "bandit":
        total = float(losses[chosen].sum())
        if noise:
            total += noise * (most * float(rng.random() * most < total) - total)
        return total
    seen = losses if feedback == "full" else losses[chosen]
    return seen + noise * ((rng.random(seen.size) < seen) - seen) if noise else seen
