"""Tables of payoffs against play, and to other libraries and back."""

import sys
from itertools import product

import networkx as nx
import numpy as np
import pytest

from thrifty.solvers.games import ColonelBlotto, NetworkCongestion, SpanningTreeCongestion, cce_gaps
from thrifty.solvers.games.conversion import (
    action_names,
    from_gambit,
    from_nashpy,
    from_pyspiel,
    to_gambit,
    to_nashpy,
    to_pyspiel,
)
from thrifty.solvers.games.normal_form import NormalFormGame, payoff_tables

ROADS = nx.DiGraph([(0, 1), (1, 3), (0, 2), (2, 3), (1, 2), (0, 3)])
GAMES = {
    "blotto": lambda: ColonelBlotto([3, 2], [[1, 2, 3], [2, 2, 1]]),
    "three players": lambda: ColonelBlotto([2, 1, 2], [1, 2], tie="share"),
    "trees": lambda: SpanningTreeCongestion(nx.complete_graph(4), 2),
    "roads": lambda: NetworkCongestion(ROADS, [(0, 3), (0, 3), (1, 3)]),
}
each_game = pytest.mark.parametrize("made", GAMES.values(), ids=GAMES)


def listed(game):
    return [[row[row >= 0] for row in actions.enumerate_compact()] for actions in game.sets]


@each_game
def test_tables_hold_what_every_joint_action_pays(made):
    game = made()
    tables, rows = payoff_tables(game), listed(game)
    assert tables.shape == (len(rows), *map(len, rows))
    for at in product(*(range(len(mine)) for mine in rows)):
        joint = [mine[a] for mine, a in zip(rows, at, strict=True)]
        for i, loss in enumerate(game.loss_vectors(joint)):
            assert tables[(i, *at)] == pytest.approx(-loss[joint[i]].sum(), abs=1e-12)


@each_game
def test_the_table_has_the_gaps_of_the_game(made):
    game, rng = made(), np.random.default_rng(0)
    table, rows = NormalFormGame(payoff_tables(game)), listed(game)
    plays = [[int(rng.integers(len(mine))) for mine in rows] for _ in range(40)]
    joint = [[mine[a] for mine, a in zip(rows, play, strict=True)] for play in plays]
    ours = cce_gaps(table, [[[a] for a in play] for play in plays]) * table.scale
    np.testing.assert_allclose(ours, cce_gaps(game, joint), atol=1e-12)
    assert table.zero_sum == game.zero_sum


@each_game
def test_openspiel_and_back(made):
    pyspiel = pytest.importorskip("pyspiel")
    game = made()
    there = to_pyspiel(game)
    assert isinstance(there, pyspiel.MatrixGame if len(game.sets) == 2 else pyspiel.TensorGame)
    np.testing.assert_array_equal(from_pyspiel(there).payoffs, payoff_tables(game))
    named = there.row_action_name(1) if len(game.sets) == 2 else there.action_name(0, 1)
    assert named == action_names(game)[0][1]


def test_openspiel_sees_the_same_payoff():
    pytest.importorskip("pyspiel")
    game = ColonelBlotto([3, 3], [1, 2, 3])
    there, names = to_pyspiel(game), action_names(game)
    at = names[0].index("0-0-3"), names[1].index("1-1-1")
    assert there.player_utility(0, *at) == pytest.approx(-1.0)
    assert there.player_utility(1, *at) == pytest.approx(-1.0)


def test_openspiels_blotto_is_refused_with_its_reason():
    pyspiel = pytest.importorskip("pyspiel")
    with pytest.raises(ValueError, match="±1 to whoever wins more battlefields, which is no sum"):
        from_pyspiel(pyspiel.load_game("blotto"))
    with pytest.raises(TypeError, match="extensive_to_tensor_game"):
        from_pyspiel(pyspiel.load_game("tic_tac_toe"))
    with pytest.raises(TypeError, match="expected a pyspiel"):
        from_pyspiel("matrix_rps")


def test_nashpy_and_back():
    pytest.importorskip("nashpy")
    game = GAMES["blotto"]()
    there = to_nashpy(game)
    np.testing.assert_array_equal(from_nashpy(there).payoffs, payoff_tables(game))
    rows, columns = np.eye(10)[3], np.eye(6)[2]
    assert there[rows, columns] == pytest.approx(payoff_tables(game)[:, 3, 2])
    with pytest.raises(ValueError, match="expected two players"):
        to_nashpy(GAMES["three players"]())


@pytest.mark.parametrize("made", [GAMES["blotto"], GAMES["three players"]], ids=["two players", "three players"])
def test_gambit_and_back(made):
    pytest.importorskip("pygambit")
    game = made()
    there = to_gambit(game)
    np.testing.assert_allclose(from_gambit(there).payoffs, payoff_tables(game), atol=1e-12)
    assert [s.label for s in next(iter(there.players)).strategies] == action_names(game)[0]
    assert there.to_nfg().startswith("NFG 1")


def test_gambit_that_is_absent_says_how_it_comes(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygambit", None)
    with pytest.raises(ImportError, match=r'pip install "thrifty\[gambit\]"'):
        to_gambit(GAMES["blotto"]())


def test_matrix_games_of_others_are_learned():
    game = NormalFormGame([[[3, 0], [5, 1]], [[3, 5], [0, 1]]])  # the prisoner's dilemma
    assert not game.zero_sum
    assert cce_gaps(game, [[[1], [1]]]).max() * game.scale == pytest.approx(-0.0)
    assert cce_gaps(game, [[[0], [0]]]) * game.scale == pytest.approx([2.0, 2.0])


def test_losses_of_tables_are_in_the_range_that_learners_take():
    tables = np.random.default_rng(1).normal(size=(3, 2, 3, 4)) * np.array([1, 10, 100])[:, None, None, None]
    game = NormalFormGame(tables)
    seen = np.concatenate([loss for at in np.ndindex(2, 3, 4) for loss in game.loss_vectors([[a] for a in at])])
    assert (seen.min(), seen.max()) == (0.0, 1.0)
    assert game.scale == pytest.approx(np.ptp(tables[2]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NormalFormGame([[1, 2], [3, 4]]), r"expected the shape \(P, N_1"),
        (lambda: NormalFormGame(np.zeros((3, 2, 2))), "at least two players"),
        (lambda: NormalFormGame([[[1, 2], [3]], [[1, 2], [3, 4]]]), "one shape for every player"),
        (lambda: NormalFormGame(np.ones((2, 2, 2))), "payoffs that differ"),
        (lambda: NormalFormGame(np.full((2, 2, 2), np.nan)), "finite numbers"),
        (lambda: payoff_tables(ColonelBlotto([20, 20], [1] * 5)), r"at most 200000 joint actions, got 10\^8.1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
