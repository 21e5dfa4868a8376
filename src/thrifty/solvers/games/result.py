"""What play comes to: a joint distribution to sample from, its exact certificate, and the trace of its gap."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty._common.checks import whole
from thrifty.solvers.games.actions.base import Floats, Ints
from thrifty.solvers.games.losses import offsets


class Trace(NamedTuple):
    """The gap while play went on, an entry an evaluation.

    Args:
        rounds: Played by then, ``(E,)``.
        seconds: Of play by then, ``(E,)``.
        gaps: Of each player, of the losses realised, ``(E, P)``.
        expected_gaps: Likewise, of the losses that each round's laws led to expect.

    Example:
        >>> Trace(np.array([10]), np.array([0.1]), np.array([[0.2, -0.1]]), np.array([[0.1, 0.0]])).gap.tolist()
        [0.2]

    Source:
        the certificate of :func:`thrifty.solvers.games.cce_gaps`, evaluated while play goes on.
    """

    rounds: Ints
    seconds: Floats
    gaps: Floats
    expected_gaps: Floats

    @property
    def gap(self) -> Floats:
        """The largest gap of a player, at least 0."""
        largest: Floats = np.maximum(self.gaps.max(axis=1), 0.0)
        return largest


@dataclass(frozen=True)
class CCEResult:
    """A coarse correlated equilibrium up to :attr:`gap`: the uniform distribution over the rounds that were played.

    Where learners drew actions (all feedback but ``"expected"``), a round is one joint action; where they did not, it
    is a law for each player, drawn independently, and the certificate is about expected losses.

    Attributes:
        game: Whose equilibrium it is.
        feedback: What each player learned from.
        rounds: How many were played.
        seconds: How long that took, checkpoints left out.
        gaps: What the best fixed action would have saved each player a round; it may be negative.
        expected_gaps: The same of the losses expected of each round's laws: less noise, no guarantee of the play.
        marginals: The average of each player's laws, ``(d,)`` each.
        losses: The average loss vector that each player met, ``(d,)`` each.
        average_loss: The average loss of each player, ``(P,)``.
        trace: The gap while play went on.
        history: Coordinates played, ``(rounds, sum of m)``, padded by -1; or log weights, ``(rounds, sum of d)``; None
            where it was not kept.
        state: What play goes on from; see :meth:`save`.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto, solve_cce
        >>> result = solve_cce(ColonelBlotto([3, 3], [1, 2, 3]), "full", horizon=500)
        >>> result.gap < 0.1, len(result.sample(4, np.random.default_rng(0)))
        (True, 4)

    Source:
        the paper's section on equilibria: the average of play without regret.
    """

    game: Any
    feedback: tuple[str, ...]
    rounds: int
    seconds: float
    gaps: Floats
    expected_gaps: Floats
    marginals: list[Floats]
    losses: list[Floats]
    average_loss: Floats
    trace: Trace
    history: NDArray[Any] | None = field(repr=False)
    state: dict[str, Any] = field(repr=False)

    @property
    def gap(self) -> float:
        """The certificate: the largest of :attr:`gaps`, at least 0."""
        return max(0.0, float(self.gaps.max()))

    @property
    def drawn(self) -> bool:
        """Whether a round is a joint action (and not a law for each player)."""
        return "expected" not in self.feedback

    @property
    def exploitability(self) -> float:
        """How far the marginals are from a Nash equilibrium; see :func:`thrifty.solvers.games.exploitability`."""
        from thrifty.solvers.games.nash import exploitability

        return exploitability(self.game, self.marginals)

    @property
    def frequencies(self) -> list[Floats]:
        """How often each coordinate was played; where nothing was drawn, the marginals."""
        if not self.drawn:
            return self.marginals
        found = []
        for actions, part in zip(self.game.sets, self._parts(), strict=True):
            flat = part[part >= 0]
            found.append(np.bincount(flat, minlength=actions.d) / self.rounds)
        return found

    def plays(self) -> Iterator[list[Ints]]:
        """Give the joint action of each round, as :func:`thrifty.solvers.games.cce_gap` reads them.

        Raises:
            ValueError: Nothing was drawn, or the history was not kept.
        """
        if not self.drawn:
            raise ValueError('plays: expected learners that draw, got feedback "expected"; see sample()')
        for rows in zip(*self._parts(), strict=True):
            yield [row[row >= 0].astype(np.int64) for row in rows]

    def sample(self, n: int, rng: np.random.Generator, independent: bool = False) -> list[list[Ints]]:
        """Draw joint actions from the equilibrium.

        Args:
            n: How many.
            rng: Where random numbers come from.
            independent: Each player takes a round of its own: a mixed strategy each, which in a game of two players
                with opposite interests is a Nash equilibrium up to its exploitability.

        Returns:
            ``n`` joint actions, each a list of every player's coordinates.

        Raises:
            ValueError: The history was not kept.
        """
        parts = self._parts()
        columns = len(parts) if independent else 1
        rounds = np.broadcast_to(rng.integers(self.rounds, size=(whole("n", n), columns)), (n, len(parts)))
        if not self.drawn:
            return [
                [actions.law(part[t]).draw(rng) for actions, part, t in zip(self.game.sets, parts, row, strict=True)]
                for row in rounds
            ]
        joints = [[part[t] for part, t in zip(parts, row, strict=True)] for row in rounds]
        return [[taken[taken >= 0].astype(np.int64) for taken in joint] for joint in joints]

    def _parts(self) -> list[NDArray[Any]]:
        """Return the history of each player."""
        if self.history is None:
            raise ValueError("history: expected play whose history was kept, got history=False")
        sizes = [actions.m if self.drawn else actions.d for actions in self.game.sets]
        at = offsets(sizes)
        return [self.history[:, a:b] for a, b in itertools.pairwise(at)]

    def top(self, player: int, count: int = 10) -> list[tuple[Ints, float]]:
        """Return what a player played most: coordinates, and their share of the rounds.

        Where nothing was drawn, one action is drawn a round, always the same ones.

        Raises:
            ValueError: The history was not kept, or there is no such player.
        """
        if not 0 <= player < len(self.game.sets):
            raise ValueError(f"player: expected 0 to {len(self.game.sets) - 1}, got {player}")
        part, actions = self._parts()[player], self.game.sets[player]
        if not self.drawn:
            rng = np.random.default_rng(0)
            drawn = np.full((len(part), actions.m), -1)
            for row, theta in zip(drawn, part, strict=True):
                taken = actions.law(theta).draw(rng)
                row[: len(taken)] = taken
            part = drawn
        rows, counts = np.unique(part, axis=0, return_counts=True)
        order = np.argsort(-counts, kind="stable")[: whole("count", count)]
        return [(rows[i][rows[i] >= 0].astype(np.int64), counts[i] / len(part)) for i in order]

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write everything to one npz file, whole or not at all; nothing is pickled, and play can go on from it.

        Args:
            path: Where to.
            force: Replace what is there.

        Raises:
            FileExistsError: It is there, and ``force`` is False.
            ValueError: The game or its learners cannot be described in a file.
        """
        from thrifty.solvers.games.saving import save_state

        return save_state(self.game, self.state, path, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str], game: Any = None) -> CCEResult:
        """Read what :meth:`save` wrote.

        Args:
            path: The file.
            game: In place of the one that the file describes.

        Raises:
            ValueError: It is no such file, or damaged, or of another game.
        """
        from thrifty.solvers.games.saving import load

        return load(path, game)
