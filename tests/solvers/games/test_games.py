"""Losses of games against their definition, and the certificate against a list of all actions."""

import networkx as nx
import numpy as np
import pytest

from thrifty.solvers.games import (
    ColonelBlotto,
    KernelizedExp3IX,
    NetworkCongestion,
    SpanningTreeCongestion,
    cce_gap,
    cce_gaps,
)


def joint_of(game, allocations):
    return [[h * (n + 1) + s for h, s in enumerate(a)] for n, a in zip(game.soldiers, allocations, strict=True)]


def test_the_worked_example():
    game = ColonelBlotto([3, 3], [1, 2, 3])
    rounds = [((0, 0, 3), (1, 1, 1)), ((1, 1, 1), (0, 1, 2)), ((0, 1, 2), (0, 0, 3)), ((3, 0, 0), (1, 1, 1))]
    plays = [joint_of(game, pair) for pair in rounds]
    np.testing.assert_allclose(cce_gaps(game, plays), [0.4166667, -0.0833333], atol=1e-7)
    assert cce_gap(game, plays) == pytest.approx(0.4166667)
    assert game.zero_sum


@pytest.mark.parametrize(("tie", "wanted"), [("share", 2 / 3), ("half", 0.5), ("lose", 1.0)])
def test_ties_of_three(tie, wanted):
    game = ColonelBlotto([2, 2, 1], [1, 1], tie=tie)
    losses = game.loss_vectors(joint_of(game, [(1, 1), (1, 1), (1, 0)]))
    assert losses[0][1] == pytest.approx(wanted)
    assert losses[0][2] == 0.0
    assert losses[0][3 + 1] == pytest.approx({"share": 0.5, "half": 0.5, "lose": 1.0}[tie])


def test_a_ratio_contest_with_own_values():
    game = ColonelBlotto([3, 2], [[1, 2], [4, 2]], contest="ratio")
    first, second = game.loss_vectors(joint_of(game, [(2, 1), (1, 1)]))
    assert first[[2, 5]] == pytest.approx([0.25 / 3, 0.5 / 2])
    assert second[[1, 4]] == pytest.approx([2 / 3, 0.25])
    assert not game.zero_sum


def test_loads_on_roads():
    roads = nx.DiGraph([(0, 1), (1, 2), (0, 2)])
    game = NetworkCongestion(roads, [(0, 2), (0, 2), (1, 2)])
    edges = game.sets[0].edges
    through, straight = [edges.index((0, 1)), edges.index((1, 2))], [edges.index((0, 2))]
    first, second, third = game.loss_vectors([through, straight, [0]])
    assert first[through + straight] == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert second[through + straight] == pytest.approx([2 / 3, 1.0, 1 / 3])
    assert third == pytest.approx([2 / 3])


def test_semi_bandit_play_of_three_on_trees_comes_closer():
    graph = nx.complete_graph(5)
    nx.set_edge_attributes(graph, {edge: 1 + 3 * i for i, edge in enumerate(graph.edges())}, "weight")
    game = SpanningTreeCongestion(graph, 3)  # unequal edges: the uniform law is no equilibrium
    rngs = [np.random.default_rng(i) for i in range(3)]
    learners = [KernelizedExp3IX(actions, 1500) for actions in game.sets]
    plays = []
    for _ in range(1500):
        joint = [learner.act(rng) for learner, rng in zip(learners, rngs, strict=True)]
        for learner, taken, loss in zip(learners, joint, game.loss_vectors(joint), strict=True):
            learner.observe(loss[taken])
        plays.append(joint)
    assert cce_gap(game, plays) < 0.5 * cce_gap(game, plays[:75])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ColonelBlotto([3], [1, 2]), "at least two players"),
        (lambda: ColonelBlotto([3, 3], [-1, 2]), "values: expected"),
        (lambda: ColonelBlotto([3, 3], [[1, 2]] * 3), "expected 2 rows"),
        (lambda: ColonelBlotto([3, 3], [1], tie="both"), "tie: expected"),
        (lambda: NetworkCongestion(nx.DiGraph([(0, 1)]), [(0, 1)], cost=lambda _, load: -load), "cost: expected"),
        (lambda: cce_gaps(ColonelBlotto([3, 3], [1, 2]), []), "at least one round"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
