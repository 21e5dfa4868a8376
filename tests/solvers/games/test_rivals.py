"""Rivals do what they are said to do: the list has the kernels' laws, edges have the coordinates'."""

import math

import networkx as nx
import numpy as np
import pytest

from thrifty.solvers.games import (
    BlottoSet,
    ColonelBlotto,
    DagPathSet,
    ExplicitSet,
    KernelizedExp3IX,
    KernelizedGeometricHedge,
    NetworkCongestion,
    cce_gaps,
)
from thrifty.solvers.games.rivals import EdgeCB, Enumerated, comband_tuning, shortest_routes, total_cost

VALUES = [0.19111493, 0.11137238, 0.1715812, 0.25752549, 0.19212109, 0.07628491]


def test_a_list_plays_as_the_kernels_do():
    game = ColonelBlotto([5, 4], [1, 2, 3])
    rival = Enumerated(game)
    assert all(isinstance(actions, ExplicitSet) for actions in rival.sets)
    assert (rival.loss_bound, rival.zero_sum) == (game.loss_bound, game.zero_sum)
    rng = np.random.default_rng(0)
    ours = [KernelizedExp3IX(actions, 200) for actions in game.sets]
    theirs = [KernelizedExp3IX(actions, 200) for actions in rival.sets]
    plays = []
    for _ in range(200):
        joint = [learner.act(rng) for learner in ours]
        for one, other, taken, loss in zip(ours, theirs, joint, game.loss_vectors(joint), strict=True):
            one.observe(loss[taken])
            other._played = taken
            other.observe(loss[taken])
        plays.append(joint)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(other.theta, one.theta, atol=1e-9)
    np.testing.assert_allclose(cce_gaps(rival, plays), cce_gaps(game, plays), atol=1e-12)


def test_a_set_that_players_share_is_listed_once():
    roads = nx.DiGraph([(0, 1), (1, 2), (0, 2)])
    assert Enumerated(NetworkCongestion(roads, [(0, 2)] * 2)).nbytes == 2 * (2 * 4 + 8)
    with pytest.raises(ValueError, match="limit"):
        Enumerated(ColonelBlotto([50, 50], [1] * 10))


@pytest.mark.parametrize(("n", "k"), [(3, 3), (4, 2), (2, 5), (3, 1)])
def test_edges_have_the_second_moment_of_all_allocations(n, k):
    """The start is uniform, and every pair of edges has its share of the allocations."""
    learner, listed = EdgeCB(n, k, 0.1, 0.1), BlottoSet(n, k).enumerate_compact()
    nodes = np.array([np.cumsum([0, *(np.sort(row) % (n + 1))]) for row in listed])
    uses = (nodes[:, learner._layer] == learner._from) & (nodes[:, learner._layer + 1] == learner._to)
    assert (uses.sum(axis=1) == k).all()
    np.testing.assert_allclose(learner.second_moment(), uses.T.astype(float) @ uses / len(listed), atol=1e-12)


def test_edgecb_has_the_laws_of_a_learner_of_routes_on_its_graph():
    """Its estimates are those of all losses of edges, 28 dimensions where coordinates have 18."""
    game, scale = ColonelBlotto([3, 3], VALUES), max(VALUES)
    eta, gamma = 0.03, 0.05
    theirs = EdgeCB(3, 6, eta, gamma)
    edges = [((h, y), (h + 1, to)) for h, y, to in zip(theirs._layer, theirs._from, theirs._to, strict=True)]
    routes = DagPathSet(edges, (0, 0), (6, 3))
    assert routes.rank == 28
    assert BlottoSet(3, 6).rank == 18
    ours = KernelizedGeometricHedge(routes, 300, eta=eta, gamma=gamma, exploration="uniform")
    rng, enemy = np.random.default_rng(2), BlottoSet(3, 6)
    for _ in range(300):
        taken = theirs.act(rng)
        used = np.cumsum([0, *(taken % 4)])
        ours.act(rng)
        ours._played = np.array([routes.edges.index(((h, used[h]), (h + 1, used[h + 1]))) for h in range(6)])
        loss = game.loss_vectors([taken, enemy.uniform.draw(rng)])[0][taken].sum() * scale
        ours.observe(loss)
        theirs.observe(loss)
    wanted, reach = dict(zip(routes.edges, ours.law().marginals, strict=True)), np.eye(4)[0]
    for h in range(6):
        for (layer, y), (_, to) in edges:
            if layer == h:
                assert reach[y] * theirs.step[h, y, to] == pytest.approx(wanted[(h, y), (h + 1, to)], abs=1e-8)
        reach = reach @ theirs.step[h]


def test_edgecb_learns_what_is_best():
    rng = np.random.default_rng(0)
    losses = rng.uniform(size=12) / 3
    learner, paid = EdgeCB(3, 3, 0.1, 0.1), []
    for _ in range(3000):
        taken = learner.act(rng)
        paid.append(losses[taken].sum())
        learner.observe(paid[-1])
    actions = BlottoSet(3, 3)
    best, uniform = actions.argmin(losses)[1], actions.uniform.marginals @ losses
    assert np.mean(paid[-500:]) - best < 0.3 * (uniform - best)
    assert learner.play @ losses - best < 0.3 * (uniform - best)
    assert learner.play.reshape(3, 4).sum(axis=1) == pytest.approx(1.0)
    assert learner.play.reshape(3, 4).sum(axis=0) @ np.arange(4) == pytest.approx(3.0)


def test_the_tuning_of_comband():
    learner = EdgeCB(3, 6, 0.1, 0.1)
    eta, gamma = comband_tuning(learner, 20_000, math.log(56))
    spectrum = np.linalg.eigvalsh(learner.second_moment())
    least = spectrum[spectrum > 1e-9].min()
    assert eta == pytest.approx(gamma * least / 6), "so that no estimate times eta is beyond 1"
    assert 0 < gamma <= 0.5
    assert comband_tuning(learner, 80_000, math.log(56))[1] <= gamma


def test_shortest_routes_and_what_they_cost():
    roads = nx.DiGraph()
    roads.add_edge(0, 1, weight=1.0)
    roads.add_edge(1, 2, weight=1.0)
    roads.add_edge(0, 2, weight=3.0)
    game = NetworkCongestion(roads, [(0, 2)] * 3)
    joint = shortest_routes(game)
    assert [game.sets[0].describe(taken) for taken in joint] == ["0 -> 1 -> 2"] * 3
    assert total_cost(game, joint) == pytest.approx(3 * (3 + 3))
    straight = [np.array([game.sets[2].edges.index((0, 2))])]
    assert total_cost(game, joint[:2] + straight) == pytest.approx(2 * (2 + 2) + 3)
