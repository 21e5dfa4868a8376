"""Learners without regret for the three kinds of feedback: ``act`` and ``observe`` in turn.

The law of a round is P(v) ∝ exp(-η ⟨c, v⟩), c being the cumulated (estimated) losses of all rounds before it.

Source: the paper's algorithms 1 (bandit) and 2 (semi-bandit) with its initial values mended (c = 0), and kernelised
optimistic multiplicative weights (Farina et al. 2022).
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from thrifty._common.checks import is_number, number, one_of, whole
from thrifty.solvers.games import steps
from thrifty.solvers.games.actions.base import ActionSet, Floats, Ints, Law

#: Rounds of the first epoch where no horizon is given; each further epoch is twice as long.
FIRST_EPOCH = 64

#: Coordinates beyond which a bandit learner's matrices are remarked upon.
MANY = 4000


class _Learner(ABC):
    """What all have: cumulated losses, the round, and epochs where no horizon is known."""

    def __init__(self, actions: ActionSet, horizon: int | None, eta: float | str, eta_scale: float) -> None:
        self.actions = actions
        self.horizon = None if horizon is None else whole("horizon", horizon)
        if isinstance(eta, str):
            one_of("eta", eta, ("practical", "theory"))
        elif not (is_number(eta) and 0 < eta < math.inf):
            raise ValueError(f"eta: expected 'practical', 'theory' or a number above 0, got {eta!r}")
        self._eta, self._scale = eta, number("eta_scale", eta_scale, "a number above 0", least=1e-300)
        self.cumulated = np.zeros(actions.d)
        self.round, self.epoch = 0, 0
        self._left = self.horizon or FIRST_EPOCH
        self._played: Ints | None = None
        self._law: Law | None = None
        self._tune(self._left)

    @abstractmethod
    def _tune(self, horizon: int) -> None:
        """Set the step sizes for so many rounds."""

    @abstractmethod
    def _learn(self, feedback: Any) -> None:
        """Take in what a round showed."""

    @property
    def theta(self) -> Floats:
        """The log weights of the coming round."""
        return -self.eta * self.cumulated

    eta: float
    #: What ``observe`` takes: ``"full"``, ``"semi-bandit"`` or ``"bandit"``.
    feedback: ClassVar[str]

    def law(self) -> Law:
        """Return the law of the coming round; its tables are built once."""
        if self._law is None:
            theta = self.theta
            if not np.isfinite(theta).all():
                raise ArithmeticError(f"round {self.round}: the log weights are no longer finite")
            self._law = self.actions.law(theta)
        return self._law

    @property
    def play(self) -> Floats:
        """The probability of each coordinate in the coming round's action."""
        return self.law().marginals

    def _draw(self, rng: np.random.Generator) -> Ints:
        return self.law().draw(rng)

    def act(self, rng: np.random.Generator) -> Ints:
        """Draw the round's action, and return its coordinates.

        Raises:
            RuntimeError: The last action was not followed by ``observe``.
        """
        if self._played is not None:
            raise RuntimeError("act: expected observe(...) after the last act(), got act() again")
        self._played = self._draw(rng)
        return self._played

    def observe(self, feedback: Any) -> None:
        """Learn from a round.

        Args:
            feedback: What the learner sees; see its class.

        Raises:
            RuntimeError: No action was played.
            TypeError: It is feedback of another kind.
            ValueError: A loss is out of its range.
        """
        if self._played is None:
            raise RuntimeError("observe: expected act() first, got none in this round")
        self._learn(feedback)
        self.go_on(1)

    @property
    def left(self) -> int | None:
        """Rounds until the next epoch begins; None: there are no epochs."""
        return self._left if self.horizon is None else None

    def go_on(self, rounds: int) -> None:
        """Count so many rounds, whose losses are cumulated already; none may lie beyond the epoch."""
        self._played, self._law = None, None
        self.round += rounds
        if self.horizon is None:
            self._left -= rounds
            if self._left == 0:
                self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.epoch += 1
        self._left = FIRST_EPOCH * 2**self.epoch
        self.cumulated[:] = 0.0
        self._tune(self._left)

    def state_dict(self) -> dict[str, Any]:
        """Return what the learner needs to go on exactly, between rounds."""
        if self._played is not None:
            raise RuntimeError("state_dict: expected observe(...) after the last act() first")
        return {"cumulated": self.cumulated.copy(), "round": self.round, "epoch": self.epoch, "left": self._left}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        found = np.asarray(state["cumulated"], float)
        if found.shape != (self.actions.d,):
            raise ValueError(f"state: expected cumulated losses of shape ({self.actions.d},), got {found.shape}")
        self.cumulated = found.copy()
        self.round, self.epoch, self._left = int(state["round"]), int(state["epoch"]), int(state["left"])
        self._played, self._law = None, None
        self._tune(self.horizon or FIRST_EPOCH * 2**self.epoch)


def _losses(found: Any, size: int) -> Floats:
    """Return losses in [0, 1], one a coordinate."""
    if np.ndim(found) != 1:
        raise TypeError(f"feedback: expected a vector of losses, got {type(found).__name__}")
    losses = np.asarray(found, float)
    if losses.shape != (size,):
        raise ValueError(f"feedback: expected {size} losses, got {losses.size}")
    _in_range(losses, 1.0)
    return losses


def _in_range(losses: ArrayLike, most: float) -> None:
    low, high = float(np.min(losses)), float(np.max(losses))
    if not (low >= -1e-12 and high <= most * (1 + 1e-12)):
        advice = f"divide by {high / most:g}" if low >= 0 else f"add {-low:g}, then divide by {(high - low) / most:g}"
        raise ValueError(f"feedback: expected losses in [0, {most:g}], got [{low:g}, {high:g}]; {advice}")


class KernelizedOMWU(_Learner):
    """Multiplicative weights from whole loss vectors, optimistic: the last loss is expected to come again.

    ``observe`` takes all losses, ``(d,)`` in [0, 1].

    Args:
        actions: The set.
        horizon: Rounds to be played; None: epochs of doubling length.
        eta: ``"practical"``, ``"theory"`` or a number.
        optimistic: Count the last loss twice.
        players: Of the game, for the optimistic step size.
        eta_scale: Multiplies the step size.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import numpy as np
        >>> from thrifty.solvers.games import KernelizedOMWU, MSet
        >>> learner, rng = KernelizedOMWU(MSet(3, 1), 100), np.random.default_rng(0)
        >>> for _ in range(100):
        ...     _ = learner.act(rng)
        ...     learner.observe([0.0, 1.0, 1.0])
        >>> bool(learner.law().marginals[0] > 0.99)
        True

    Source:
        Farina et al. (2022); the paper's Remark 1.1.
    """

    feedback = "full"

    def __init__(
        self,
        actions: ActionSet,
        horizon: int | None = None,
        eta: float | str = "practical",
        optimistic: bool = True,
        players: int = 2,
        eta_scale: float = 1.0,
    ) -> None:
        self.optimistic, self.players = optimistic, whole("players", players)
        #: The losses of the last round.
        self.last = np.zeros(actions.d)
        super().__init__(actions, horizon, eta, eta_scale)

    def _tune(self, horizon: int) -> None:
        self.eta = self._scale * (
            steps.full(self.actions, horizon, self._eta, optimistic=self.optimistic, players=self.players)
            if isinstance(self._eta, str)
            else self._eta
        )

    @property
    def theta(self) -> Floats:
        """The log weights of the coming round."""
        return -self.eta * (self.cumulated + self.last if self.optimistic else self.cumulated)

    def _learn(self, feedback: Any) -> None:
        self.last[:] = _losses(feedback, self.actions.d)
        self.cumulated += self.last

    def expect(self, losses: ArrayLike) -> None:
        """Learn from expected losses of a round in which nothing was drawn."""
        self._learn(losses)
        self.go_on(1)

    def _begin_epoch(self) -> None:
        super()._begin_epoch()
        self.last[:] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return what the learner needs to go on exactly, between rounds."""
        return super().state_dict() | {"last": self.last.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        super().load_state_dict(state)
        self.last = np.asarray(state["last"], float).copy()


class KernelizedExp3IX(_Learner):
    """Multiplicative weights from the losses of the chosen coordinates, with implicit exploration.

    ``observe`` takes a mapping of chosen coordinates to losses in [0, 1], or the losses in the order in which ``act``
    gave the coordinates.

    Args:
        actions: The set.
        horizon: Rounds to be played; None: epochs of doubling length.
        eta: ``"practical"``, ``"theory"`` or a number.
        gamma: Added to the probability that an estimate is divided by; None: as eta is chosen.
        eta_scale: Multiplies the step size (and gamma, where that is not given).

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import numpy as np
        >>> from thrifty.solvers.games import KernelizedExp3IX, MSet
        >>> learner, rng = KernelizedExp3IX(MSet(3, 1), 500), np.random.default_rng(0)
        >>> for _ in range(500):
        ...     chosen = learner.act(rng)
        ...     learner.observe({j: float(j != 0) for j in chosen.tolist()})
        >>> bool(learner.law().marginals[0] > 0.9)
        True

    Source:
        Neu (2015); the paper's algorithm 2.
    """

    feedback = "semi-bandit"

    def __init__(
        self,
        actions: ActionSet,
        horizon: int | None = None,
        eta: float | str = "practical",
        gamma: float | None = None,
        eta_scale: float = 1.0,
    ) -> None:
        self._gamma = None if gamma is None else number("gamma", gamma, "a number of at least 0", least=0.0)
        super().__init__(actions, horizon, eta, eta_scale)

    def _tune(self, horizon: int) -> None:
        if isinstance(self._eta, str):
            eta, gamma = steps.semi_bandit(self.actions, horizon, self._eta)
        else:
            eta, gamma = self._eta, self._eta * self.actions.m / 2
        self.eta = eta * self._scale
        self.gamma = gamma * self._scale if self._gamma is None else self._gamma

    def _learn(self, feedback: Any) -> None:
        chosen = self._played
        assert chosen is not None
        if isinstance(feedback, Mapping):
            if set(feedback) != set(chosen.tolist()):
                raise ValueError(
                    f"feedback: expected the losses of {sorted(chosen.tolist())}, got those of {sorted(feedback)}"
                )
            feedback = [feedback[j] for j in chosen.tolist()]
        losses = _losses(feedback, chosen.size)
        self.cumulated[chosen] += losses / (self.law().marginals[chosen] + self.gamma)


class KernelizedGeometricHedge(_Learner):
    """Multiplicative weights from one number a round: the loss of the whole action.

    ``observe`` takes a number in [0, m]. With probability gamma the action is drawn from the exploring law, else from
    the weights; losses are estimated by L P⁺v, P being the second moment of the mixture, on coordinates of full rank.

    Args:
        actions: The set.
        horizon: Rounds to be played; None: epochs of doubling length.
        eta: ``"practical"``, ``"theory"`` or a number.
        gamma: Share of exploring rounds; None: as eta is chosen (a number for eta: 0.1).
        exploration: ``"spanner"`` (with the theorem's guarantee), ``"uniform"``, or actions as rows, ``(n, d)``.
        eta_scale: Multiplies the step size.

    Raises:
        ValueError: An argument is out of range, or the exploring actions do not span the set.

    Example:
        >>> import numpy as np
        >>> from thrifty.solvers.games import KernelizedGeometricHedge, MSet
        >>> learner, rng = KernelizedGeometricHedge(MSet(3, 1), 1000), np.random.default_rng(0)
        >>> for _ in range(1000):
        ...     learner.observe(float(learner.act(rng)[0] != 0))
        >>> bool(learner.law().marginals[0] > 0.8)
        True

    Source:
        Dani, Hayes and Kakade (2007); Cesa-Bianchi and Lugosi (2012); the paper's algorithm 1.
    """

    feedback = "bandit"

    def __init__(
        self,
        actions: ActionSet,
        horizon: int | None = None,
        eta: float | str = "practical",
        gamma: float | None = None,
        exploration: str | ArrayLike = "spanner",
        eta_scale: float = 1.0,
    ) -> None:
        self._gamma = None if gamma is None else number("gamma", gamma, "a number in [0, 1)", least=0.0, below=1.0)
        if actions.d > MANY:
            warnings.warn(
                f"actions: {actions.d} coordinates take {actions.d**2 * 8 / 2**20:.0f} MiB a matrix, and their cube in "
                "time a round",
                stacklevel=2,
            )
        J = actions.support
        self._rows: list[Ints] | None = None
        if isinstance(exploration, str):
            one_of("exploration", exploration, ("spanner", "uniform"))
        if isinstance(exploration, str) and exploration == "uniform":
            explored, self._explored_play = actions.uniform.second_moment[np.ix_(J, J)], actions.uniform.marginals
        else:
            rows = np.asarray(actions.spanner() if isinstance(exploration, str) else exploration)
            if rows.ndim != 2 or rows.shape[1] != actions.d:
                raise ValueError(f"exploration: expected rows of {actions.d}, got shape {rows.shape}")
            on = rows[:, J].astype(float)
            if np.linalg.matrix_rank(on) < J.size:
                raise ValueError(f"exploration: expected actions that span the set, rank {J.size}")
            self._rows = [np.flatnonzero(row) for row in rows]
            explored, self._explored_play = on.T @ on / len(rows), rows.mean(axis=0)
        self._explored = explored
        super().__init__(actions, horizon, eta, eta_scale)

    def _tune(self, horizon: int) -> None:
        if isinstance(self._eta, str):
            eta, gamma = steps.bandit(self.actions, horizon, self._eta)
        else:
            eta, gamma = self._eta, 0.1
        self.eta = eta * self._scale
        self.gamma = gamma if self._gamma is None else self._gamma

    @property
    def play(self) -> Floats:
        """The probability of each coordinate in the coming round's action, exploring rounds included."""
        return (1 - self.gamma) * self.law().marginals + self.gamma * self._explored_play

    def _draw(self, rng: np.random.Generator) -> Ints:
        if rng.random() >= self.gamma:
            return self.law().draw(rng)
        if self._rows is None:
            return self.actions.uniform.draw(rng)
        return self._rows[int(rng.integers(len(self._rows)))]

    def _learn(self, feedback: Any) -> None:
        if not is_number(feedback):
            raise TypeError(f"feedback: expected one number, the loss of the action, got {type(feedback).__name__}")
        loss, J = float(feedback), self.actions.support
        _in_range(loss, float(self.actions.m))
        assert self._played is not None
        mixed = (1 - self.gamma) * self.law().second_moment[np.ix_(J, J)] + self.gamma * self._explored
        played = self.actions.vector(self._played)[J].astype(float)
        self.cumulated[J] += loss * cho_solve(cho_factor(mixed, check_finite=False), played, check_finite=False)
