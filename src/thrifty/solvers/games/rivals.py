"""What the kernels are measured against: the same play over a list, edges of a layered graph, and shortest routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.checks import number, whole
from thrifty.solvers.games.actions import ActionSet, BlottoSet, ExplicitSet
from thrifty.solvers.games.actions.base import Floats, Ints


class Enumerated:
    """A game whose actions are written down, so that each round costs as much as there are of them.

    Learners on it are EXP2 and its kin over a list: they have the laws of the kernels, round by round.

    Args:
        game: With ``sets`` and ``loss_vectors``.
        limit: The most actions of a player.

    Raises:
        ValueError: A player has more.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto
        >>> Enumerated(ColonelBlotto([3, 3], [1, 2, 3])).nbytes
        200

    Source:
        EXP2: Dani, Hayes and Kakade (2007).
    """

    def __init__(self, game: Any, limit: int = 20_000_000) -> None:
        self.game = game
        listed: dict[int, ExplicitSet] = {}  # players may share a set
        for actions in game.sets:
            if id(actions) not in listed:
                listed[id(actions)] = ExplicitSet(actions.enumerate_compact(limit), actions.d)
        self.sets: list[ActionSet] = [listed[id(actions)] for actions in game.sets]
        #: Bytes of a list and of a law over it, for one player's largest set.
        self.nbytes = max(made.rows.nbytes + 8 * len(made.rows) for made in listed.values())

    @property
    def loss_bound(self) -> float:
        """The most that a player can lose in a round."""
        return float(self.game.loss_bound)

    @property
    def zero_sum(self) -> bool:
        """Whether two players' losses always sum to the same."""
        return bool(self.game.zero_sum)

    def loss_vectors(self, joint: Sequence[ArrayLike]) -> list[Floats]:
        """Return each player's loss vector, from the coordinates that all played."""
        vectors: list[Floats] = self.game.loss_vectors(joint)
        return vectors


class EdgeCB:
    """Bandit Colonel Blotto on the edges of a layered graph: ComBand with weight pushing, vectorised.

    Node (h, y) of the graph has y soldiers placed on the first h battlefields; an allocation is a path, and a loss is
    estimated for every edge, of which there are O(n² k) where our coordinates are O(n k). Each round takes the
    pseudo-inverse of a matrix of edges. Exploring rounds draw an allocation uniformly.

    Args:
        soldiers: How many there are.
        battlefields: How many there are.
        eta: Step size.
        gamma: Share of exploring rounds.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> learner, rng = EdgeCB(3, 6, 0.03, 0.05), np.random.default_rng(0)
        >>> learner.edges, len(learner.act(rng))
        (48, 6)
        >>> learner.observe(0.5)

    Source:
        Vu, Loiseau and Silva, "Combinatorial bandits for sequential learning in Colonel Blotto games" (2019); weight
        pushing of Takimoto and Warmuth (2003). Written from the papers; their script has no licence.
    """

    #: What ``observe`` takes.
    feedback = "bandit"

    def __init__(self, soldiers: int, battlefields: int, eta: float, gamma: float) -> None:
        self.actions = BlottoSet(soldiers, battlefields)
        self.soldiers, self.battlefields = whole("soldiers", soldiers), whole("battlefields", battlefields)
        self.eta = number("eta", eta, "a number above 0", least=1e-300)
        self.gamma = number("gamma", gamma, "a number in [0, 1)", least=0.0, below=1.0)
        n, k = self.soldiers, self.battlefields
        forward = np.triu(np.ones((n + 1, n + 1)))
        #: The probability of going on from y to y', a matrix a layer.
        self.step: Floats = np.stack([forward] * k)
        self.step[0, 1:] = 0.0
        self.step[k - 1, :, :n] = 0.0
        self._layer, self._from, self._to = np.nonzero(self.step)
        #: How many edges the graph has.
        self.edges = len(self._layer)
        self._push()
        self._uniform = self.step.copy()
        self._explored = self.second_moment()
        self._played: Ints | None = None

    def _push(self) -> None:
        """Make transition probabilities of weights, from the last layer back."""
        ways = np.zeros(self.soldiers + 1)
        ways[-1] = 1.0
        for h in range(self.battlefields - 1, -1, -1):
            weighed = self.step[h] * ways
            ways = weighed.sum(axis=1)
            self.step[h] = np.divide(weighed, ways[:, None], out=np.zeros_like(weighed), where=ways[:, None] > 0)

    def second_moment(self) -> Floats:
        """Return the probability of each pair of edges, ``(edges, edges)``."""
        at = np.searchsorted(self._layer, np.arange(self.battlefields + 1))
        reach = np.zeros(self.soldiers + 1)
        reach[0] = 1.0
        sigma = np.zeros((self.edges, self.edges))
        for h in range(self.battlefields):
            here = slice(at[h], at[h + 1])
            passes = reach[self._from[here]] * self.step[h, self._from[here], self._to[here]]
            sigma[here, here] = np.diag(passes)
            between = np.eye(self.soldiers + 1)
            for g in range(h + 1, self.battlefields):
                later = slice(at[g], at[g + 1])
                onward = self.step[g, self._from[later], self._to[later]]
                block = passes[:, None] * between[self._to[here][:, None], self._from[later]] * onward
                sigma[here, later], sigma[later, here] = block, block.T
                between = between @ self.step[g]
            reach = reach @ self.step[h]
        return sigma

    @property
    def play(self) -> Floats:
        """The probability of each coordinate in the coming round's action."""
        law, reach = np.zeros(self.actions.d), np.eye(self.soldiers + 1)[0]
        for h in range(self.battlefields):
            passes = reach[:, None] * self.step[h]
            for s in range(self.soldiers + 1):
                law[h * (self.soldiers + 1) + s] = np.trace(passes, offset=s)
            reach = reach @ self.step[h]
        return (1 - self.gamma) * law + self.gamma * self.actions.uniform.marginals

    def act(self, rng: np.random.Generator) -> Ints:
        """Draw the round's allocation, and return its coordinates as :class:`BlottoSet` has them."""
        step = self._uniform if rng.random() < self.gamma else self.step
        uniforms, node = rng.random(self.battlefields), 0
        nodes = [0]
        for h in range(self.battlefields):
            ahead = np.cumsum(step[h, node])
            node = int(np.searchsorted(ahead, min(uniforms[h], np.nextafter(ahead[-1], 0.0)), side="right"))
            nodes.append(node)
        self._played = np.array(nodes, np.int64)
        return np.arange(self.battlefields) * (self.soldiers + 1) + np.diff(self._played)

    def observe(self, loss: float) -> None:
        """Learn from the loss of the whole allocation."""
        assert self._played is not None, "act() comes first"
        taken = (self._played[self._layer] == self._from) & (self._played[self._layer + 1] == self._to)
        mixed = (1 - self.gamma) * self.second_moment() + self.gamma * self._explored
        estimate = loss * (np.linalg.pinv(mixed, rcond=1e-10, hermitian=True) @ taken)
        moved = -self.eta * estimate
        self.step[self._layer, self._from, self._to] *= np.exp(moved - moved.max())
        self._push()
        self._played = None


def comband_tuning(learner: EdgeCB, horizon: int, log_size: float) -> tuple[float, float]:
    """Return η and γ of ComBand's theorem for losses in [0, 1], from the edges' second moment under exploration.

    Args:
        learner: Any, on the graph in question.
        horizon: Rounds.
        log_size: Natural logarithm of the number of allocations.

    Source:
        Cesa-Bianchi and Lugosi, "Combinatorial bandits" (2012), theorem 1.
    """
    eigenvalues = np.linalg.eigvalsh(learner._explored)
    least = float(eigenvalues[eigenvalues > 1e-10 * eigenvalues[-1]][0])
    d, m = learner.edges, learner.battlefields
    gamma = np.sqrt(m) / least * np.sqrt(log_size / ((d / m + 2 / least) * horizon))
    gamma = float(min(0.5, gamma))
    return gamma * least / m, gamma


def shortest_routes(game: Any) -> list[Ints]:
    """Return the joint action in which everybody takes the route that is shortest when nobody else is there.

    Args:
        game: Of congestion.

    Example:
        >>> import networkx as nx
        >>> from thrifty.solvers.games import NetworkCongestion
        >>> game = NetworkCongestion(nx.DiGraph([(0, 1), (1, 2), (0, 2)]), [(0, 2)] * 3)
        >>> [game.sets[0].describe(route) for route in shortest_routes(game)]
        ['0 -> 2', '0 -> 2', '0 -> 2']

    Source:
        all-or-nothing assignment.
    """
    alone = game.loss_vectors([np.empty(0, np.int64) for _ in game.sets])
    return [np.flatnonzero(actions.argmin(loss)[0]) for actions, loss in zip(game.sets, alone, strict=True)]


def total_cost(game: Any, joint: Sequence[ArrayLike]) -> float:
    """Return what a joint action costs all players together, in the units of the game's costs."""
    losses = game.loss_vectors(joint)
    paid = sum(float(loss[np.asarray(taken, np.int64)].sum()) for loss, taken in zip(losses, joint, strict=True))
    return float(game.scale) * paid
