"""A run of play: learners, generators and books, which can stop at any chunk of rounds and go on exactly."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty.solvers.games import rounds
from thrifty.solvers.games.actions.base import Floats
from thrifty.solvers.games.learners import KernelizedExp3IX, KernelizedGeometricHedge, KernelizedOMWU
from thrifty.solvers.games.losses import offsets
from thrifty.solvers.games.result import CCEResult, Trace

#: Seconds that a chunk of rounds should take at most, and its most rounds; between chunks the clock is looked at.
CHUNK_SECONDS, CHUNK_ROUNDS = 0.2, 1024


def learner_of(kind: str, actions: Any, players: int, settings: Mapping[str, Any], exploration: str | ArrayLike) -> Any:
    """Return the learner for a kind of feedback."""
    horizon, eta, gamma, scale = (settings[name] for name in ("horizon", "eta", "gamma", "eta_scale"))
    if kind == "semi-bandit":
        return KernelizedExp3IX(actions, horizon, eta, gamma, scale)
    if kind == "bandit":
        return KernelizedGeometricHedge(actions, horizon, eta, gamma, exploration, scale)
    optimistic = settings["optimistic"]
    return KernelizedOMWU(
        actions, horizon, eta, kind == "expected" if optimistic is None else optimistic, players, scale
    )


class Run:
    """Play under way."""

    def __init__(
        self, game: Any, kinds: Sequence[str], learners: Sequence[Any], settings: dict[str, Any], compiled: bool
    ) -> None:
        self.game, self.kinds, self.learners, self.settings = game, tuple(kinds), learners, settings
        self.drawn = "expected" not in kinds
        streams = np.random.SeedSequence(settings["seed"]).spawn(len(learners) + 1)
        *self.rngs, self.noises = (np.random.default_rng(stream) for stream in streams)
        self.at = offsets([actions.d for actions in game.sets])
        self.books = rounds.Books(*(np.zeros(n) for n in (len(learners), len(learners), self.at[-1], self.at[-1])))
        self.round, self.seconds = 0, 0.0
        self.history: list[NDArray[Any]] = []
        self.trace: list[tuple[int, float, Floats, Floats]] = []
        can = compiled and not settings["noise"] and rounds.compilable(game, learners)
        self._chunk = 8
        self._walks = rounds.walks_of(game.sets) if can else None

    def go_on(self, most: int) -> None:
        """Play at most so many rounds, fewer where an epoch ends or they would take long."""
        ends = (getattr(learner, "left", None) for learner in self.learners)
        count = min(most, self._chunk, *(n for n in ends if n is not None))
        begun = time.perf_counter()
        chunk: NDArray[Any]
        if self.drawn:
            chunk = np.full((count, sum(actions.m for actions in self.game.sets)), -1, np.int32)
        else:
            chunk = np.empty((count, self.at[-1]))
        if self._walks is not None:
            rounds.play_compiled(
                self._walks, self.game, self.learners, self.rngs, self.books, chunk, self.drawn
            )  # fmt: skip
        else:
            noise = self.settings["noise"]
            rounds.play_rounds(
                self.game, self.learners, self.rngs, self.books, chunk, self.drawn, noise, self.noises
            )  # fmt: skip
        if self.settings["history"]:
            small = self.drawn and max(actions.d for actions in self.game.sets) < np.iinfo(np.int16).max
            self.history.append(chunk.astype(np.int16) if small else chunk)
        took = time.perf_counter() - begun
        self._chunk = min(CHUNK_ROUNDS, 1 + int(count * CHUNK_SECONDS / max(took, 1e-9)))
        self.round += count
        self.seconds += took

    def evaluate(self) -> float:
        """Note the gap, and return it."""
        if not (self.trace and self.trace[-1][0] == self.round):
            self.trace.append((self.round, self.seconds, *gaps_of(self.game, self.books, self.round, self.drawn)))
        return max(0.0, float(self.trace[-1][2].max()))

    def state(self) -> dict[str, Any]:
        """Return what play goes on from; later rounds do not change it."""
        return {
            "settings": self.settings,
            "round": self.round,
            "seconds": self.seconds,
            "learners": [learner.state_dict() if hasattr(learner, "state_dict") else {} for learner in self.learners],
            "generators": [rng.bit_generator.state for rng in (*self.rngs, self.noises)],
            "books": rounds.Books(*(held.copy() for held in self.books)),
            "trace": tuple(self.trace),
            "history": tuple(self.history),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.round, self.seconds = state["round"], state["seconds"]
        for learner, held in zip(self.learners, state["learners"], strict=True):
            learner.load_state_dict(held)
        for rng, held in zip((*self.rngs, self.noises), state["generators"], strict=True):
            rng.bit_generator.state = held
        for held, stored in zip(self.books, state["books"], strict=True):
            held[:] = stored
        self.trace, self.history = list(state["trace"]), list(state["history"])


def gaps_of(game: Any, books: rounds.Books, played: int, drawn: bool) -> tuple[Floats, Floats]:
    """Return each player's gap, of the losses realised and of those expected of the laws."""
    at = offsets([actions.d for actions in game.sets])
    best = [
        actions.argmin(books.losses[a:b])[1] for actions, a, b in zip(game.sets, at[:-1], at[1:], strict=True)
    ]  # fmt: skip
    expected: Floats = (books.mean - best) / played
    return (books.paid - best) / played if drawn else expected, expected


def result_of(game: Any, kinds: Sequence[str], state: Mapping[str, Any]) -> CCEResult:
    """Return what play came to by a state."""
    at = offsets([actions.d for actions in game.sets])
    parts = list(itertools.pairwise(at))
    books, played, drawn = state["books"], state["round"], "expected" not in kinds
    gaps, expected = gaps_of(game, books, played, drawn)
    noted = [np.array(column) for column in zip(*state["trace"], strict=True)] or [np.empty(0)] * 2 + [
        np.empty((0, len(parts)))
    ] * 2
    return CCEResult(
        game=game,
        feedback=tuple(kinds),
        rounds=played,
        seconds=state["seconds"],
        gaps=gaps,
        expected_gaps=expected,
        marginals=[books.plays[a:b] / played for a, b in parts],
        losses=[books.losses[a:b] / played for a, b in parts],
        average_loss=(books.paid if drawn else books.mean) / played,
        trace=Trace(*noted),
        history=np.concatenate(state["history"]) if state["history"] else None,
        state=dict(state),
    )
