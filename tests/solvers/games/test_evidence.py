"""What the bench rests on: its games are the ones it names, and its contenders are given the same."""

import networkx as nx
import numpy as np
import pytest

from thrifty.solvers.games import ExplicitSet
from thrifty.solvers.games.evidence import CLAIMS, edges, laws, roads, speed
from thrifty.solvers.games.rivals import Enumerated


def test_claims_name_what_is_measured():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert {claim.id for claim in CLAIMS} >= {
        "law-equals-enumeration", "time-to-gap", "per-round-cost", "vs-edgecb", "gap-order", "omwu-rate", "huge",
        "real-networks",
    }  # fmt: skip


def test_large_games_are_large():
    for name, made in speed.LARGE.items():
        assert np.exp(made().sets[0].log_size) >= 1e5, name


def test_sioux_falls_is_the_one_of_openspiel():
    pytest.importorskip("pyspiel")
    game = roads.sioux_falls()
    far = {pair: game.sets[i * roads.PLAYERS] for i, pair in enumerate(roads.PAIRS)}
    for pair, facts in {(1, 20): (36, 24, 9, 14), (2, 23): (37, 32, 10, 15)}.items():
        actions = far[pair]
        assert (actions.d, round(np.exp(actions.log_size)), actions.m, actions.rank) == facts
    assert len(game.sets) == 20


def test_the_karate_club_has_its_trees():
    game = roads.karate_club()
    assert np.exp(game.sets[0].log_size) == pytest.approx(5_090_996_323_019_136)
    assert game.scale == 3 * max(w for *_, w in nx.karate_club_graph().edges(data="weight"))


def test_a_power_law_has_its_power():
    assert speed.slope([1, 10, 100], [5.0, 0.5, 0.05]) == pytest.approx(-1)


def test_a_race_ends_at_its_gap():
    games = {"kernels": speed.blotto(5, 3), "list": Enumerated(speed.blotto(5, 3))}
    for who in games:
        found = speed.race(games, 2000, 0.3, 10, who, 0)
        assert found["gap"] <= 0.3
        assert found["rounds"] < 2000


def test_a_law_that_is_off_is_seen(monkeypatch):
    actions = laws.sets()["allocations"]
    assert laws.difference(actions, "semi-bandit", 0) < 1e-8
    true = ExplicitSet.law
    monkeypatch.setattr(ExplicitSet, "law", lambda self, theta: true(self, np.asarray(theta) * 1.001))
    assert laws.difference(actions, "semi-bandit", 0) > 1e-6


@pytest.mark.parametrize("who", [edges.OURS, edges.EDGES])
def test_both_bandits_regret_less_than_uniform_play(who):
    rng = np.random.default_rng(0)
    drops = rng.multinomial(3, edges.VALUES / edges.VALUES.sum(), size=4000)
    units = np.arange(4)
    losses = np.mean(
        [(edges.VALUES[:, None] * (1 - (units > s[:, None]) - 0.5 * (units == s[:, None]))).ravel() for s in drops], 0
    )
    actions = edges.BlottoSet(3, 6)
    uniform = 3000 * (actions.uniform.marginals @ losses - actions.argmin(losses)[1])
    found = edges.regret(3000, "eta 0.03, gamma 0.05", who, 0)
    assert 0 < found["regret"] < 0.8 * uniform
