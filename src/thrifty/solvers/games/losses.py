"""What players lose, as compiled code: on contested battlefields, and on edges that cost more the more use them.

Losses are realised (from what all played) or expected (from the marginals of players who draw independently). The loop
in Python and the compiled loop of rounds call the same functions, so that both give the same numbers to the last bit.

Source: the paper's sections on Colonel Blotto and on congestion; expectations over independent players are products of
generating functions (numbers of ties, sums of soldiers, loads), multiplied out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: How a battlefield is decided; the first three differ in what who shares the first place wins.
SHARE, HALF, LOSE, RATIO, CONGESTION = range(5)


class Rules(NamedTuple):
    """A game as compiled code reads it.

    Contests: ``soldiers`` of each player, and ``table`` with the values of battlefields, a row a player. Congestion:
    ``where`` is the edge of each coordinate (players one after the other), and ``table`` what an edge costs under each
    load from 1 on. ``at`` is where each player's coordinates begin, with the end.
    """

    kind: int
    at: Ints
    soldiers: Ints
    where: Ints
    table: Floats


def offsets(sizes: Sequence[int]) -> Ints:
    """Return where parts of these sizes begin when they lie one after the other, with the end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def contest_rules(kind: int, soldiers: Sequence[int], values: Floats) -> Rules:
    """Return the rules of a contest."""
    at = offsets([values.shape[1] * (n + 1) for n in soldiers])
    return Rules(kind, at, np.array(soldiers, np.int64), np.zeros(0, np.int64), np.ascontiguousarray(values))


def congestion_rules(where: Sequence[Ints], table: Floats) -> Rules:
    """Return the rules of congestion."""
    flat = np.concatenate(where).astype(np.int64)
    return Rules(CONGESTION, offsets([len(w) for w in where]), np.zeros(0, np.int64), flat, table)


def realised_losses(rules: Rules, joint: Sequence[ArrayLike]) -> list[Floats]:
    """Return each player's loss vector, from the coordinates that all played."""
    rows = [np.asarray(taken, np.int64) for taken in joint]
    counts = np.array([len(row) for row in rows])
    taken = np.zeros((len(rows), max(1, int(counts.max()))), np.int64)
    for i, row in enumerate(rows):
        taken[i, : len(row)] = row
    out = np.empty(rules.at[-1])
    realise(rules, taken, counts, out)
    return [out[a:b] for a, b in zip(rules.at[:-1], rules.at[1:], strict=True)]


def expected_losses(rules: Rules, marginals: Sequence[ArrayLike]) -> list[Floats]:
    """Return each player's expected loss vector, from the marginals of players who draw independently."""
    out = np.empty(rules.at[-1])
    expect(rules, np.concatenate([np.asarray(x, np.float64) for x in marginals]), out)
    return [out[a:b] for a, b in zip(rules.at[:-1], rules.at[1:], strict=True)]


@njit(cache=True)
def _part(kind: int, rivals: int) -> float:
    """Return what of a value is won by who shares the first place with so many others."""
    if kind == SHARE:
        return 1.0 / (rivals + 1.0)
    return 0.5 if kind == HALF else 0.0


@njit(cache=True, nogil=True)
def realise(rules: Rules, taken: Ints, counts: Ints, out: Floats) -> None:
    """Fill ``out`` with the losses of all players, one after the other, from the coordinates that they played."""
    players = counts.size
    if rules.kind == CONGESTION:
        load = np.zeros(rules.table.shape[0], np.int64)
        for i in range(players):
            for c in range(counts[i]):
                load[rules.where[rules.at[i] + taken[i, c]]] += 1
        for i in range(players):
            for c in range(counts[i]):
                load[rules.where[rules.at[i] + taken[i, c]]] -= 1
            for j in range(rules.at[i], rules.at[i + 1]):
                out[j] = rules.table[rules.where[j], load[rules.where[j]]]
            for c in range(counts[i]):
                load[rules.where[rules.at[i] + taken[i, c]]] += 1
        return
    fields = rules.table.shape[1]
    sent = np.zeros((players, fields), np.int64)
    for i in range(players):
        columns = rules.soldiers[i] + 1
        for c in range(counts[i]):
            sent[i, taken[i, c] // columns] = taken[i, c] % columns
    for i in range(players):
        for h in range(fields):
            at, value = rules.at[i] + h * (rules.soldiers[i] + 1), rules.table[i, h]
            most, rivals, rest = 0, 0, 0
            for g in range(players):
                if g != i:
                    rest += sent[g, h]
                    if rivals == 0 or sent[g, h] > most:
                        most, rivals = sent[g, h], 1
                    elif sent[g, h] == most:
                        rivals += 1
            for s in range(rules.soldiers[i] + 1):
                if rules.kind == RATIO:
                    won = s / (s + rest) if s + rest > 0 else 1.0 / players
                else:
                    won = 1.0 if s > most else (_part(rules.kind, rivals) if s == most else 0.0)
                out[at + s] = value * (1.0 - won)


@njit(cache=True, nogil=True)
def expect(rules: Rules, x: Floats, out: Floats) -> None:
    """Fill ``out`` with the expected losses of all players, from their marginals, one after the other."""
    if rules.kind == CONGESTION:
        _expect_loads(rules, x, out)
    elif rules.kind == RATIO:
        _expect_ratios(rules, x, out)
    else:
        _expect_wins(rules, x, out)


@njit(cache=True)
def _expect_loads(rules: Rules, x: Floats, out: Floats) -> None:
    """The load that others put on an edge is a sum of independent 0/1 numbers."""
    players, edges = rules.at.size - 1, rules.table.shape[0]
    uses = np.zeros((edges, players))
    for i in range(players):
        for j in range(rules.at[i], rules.at[i + 1]):
            uses[rules.where[j], i] = x[j]
    chance = np.empty(players)
    for i in range(players):
        for j in range(rules.at[i], rules.at[i + 1]):
            chance[:] = 0.0
            chance[0] = 1.0
            for g in range(players):
                p = uses[rules.where[j], g]
                if g != i and p > 0.0:
                    for load in range(players - 1, 0, -1):
                        chance[load] = chance[load] * (1.0 - p) + chance[load - 1] * p
                    chance[0] *= 1.0 - p
            total = 0.0
            for load in range(players):
                total += chance[load] * rules.table[rules.where[j], load]
            out[j] = total


@njit(cache=True)
def _expect_wins(rules: Rules, x: Floats, out: Floats) -> None:
    """The coefficient of z^r in Π (P(fewer than s) + P(s) z) is the chance of r ties and nobody above."""
    players, fields = rules.soldiers.size, rules.table.shape[1]
    ties = np.empty(players)
    for i in range(players):
        for h in range(fields):
            fewer = np.zeros(players)
            for s in range(rules.soldiers[i] + 1):
                ties[:] = 0.0
                ties[0] = 1.0
                for g in range(players):
                    if g == i:
                        continue
                    p = x[rules.at[g] + h * (rules.soldiers[g] + 1) + s] if s <= rules.soldiers[g] else 0.0
                    for r in range(players - 1, 0, -1):
                        ties[r] = ties[r] * fewer[g] + ties[r - 1] * p
                    ties[0] *= fewer[g]
                    fewer[g] += p
                won = ties[0]
                for r in range(1, players):
                    won += ties[r] * _part(rules.kind, r)
                out[rules.at[i] + h * (rules.soldiers[i] + 1) + s] = rules.table[i, h] * max(0.0, 1.0 - won)


@njit(cache=True)
def _expect_ratios(rules: Rules, x: Floats, out: Floats) -> None:
    """The chances of each number of soldiers of all others are a convolution."""
    players, fields = rules.soldiers.size, rules.table.shape[1]
    for i in range(players):
        others = rules.soldiers.sum() - rules.soldiers[i]
        chance, further = np.empty(others + 1), np.empty(others + 1)
        for h in range(fields):
            chance[:] = 0.0
            chance[0] = 1.0
            reached = 0
            for g in range(players):
                if g == i:
                    continue
                further[:] = 0.0
                for y in range(reached + 1):
                    for s in range(rules.soldiers[g] + 1):
                        further[y + s] += chance[y] * x[rules.at[g] + h * (rules.soldiers[g] + 1) + s]
                chance[:] = further
                reached += rules.soldiers[g]
            for s in range(rules.soldiers[i] + 1):
                won = 0.0
                for y in range(others + 1):
                    won += chance[y] * (s / (s + y) if s + y > 0 else 1.0 / players)
                out[rules.at[i] + h * (rules.soldiers[i] + 1) + s] = rules.table[i, h] * max(0.0, 1.0 - won)
