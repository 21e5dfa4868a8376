"""Every kernel against enumeration, golden values, and the identities of the second moment's span."""

import math

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from thrifty.solvers.games import BlottoSet, DagPathSet, ExplicitSet, MSet, SpanningTreeSet

BOW_TIE = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)]
SETS = {
    "blotto": lambda: BlottoSet(4, 4),
    "two fields": lambda: BlottoSet(5, 2),
    "one field": lambda: BlottoSet(4, 1),
    "limits": lambda: BlottoSet(6, 4, min_alloc=1, max_alloc=3),
    "at most": lambda: BlottoSet(4, 3, at_most=True),
    "subsets": lambda: MSet(7, 3),
    "routes": lambda: DagPathSet([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (0, 3)], 0, 3),
    "trees": lambda: SpanningTreeSet(nx.petersen_graph()),
    "bow tie": lambda: SpanningTreeSet(BOW_TIE),
    "parallel": lambda: SpanningTreeSet([(0, 1), (0, 1), (1, 2), (0, 2), (2, 3)]),
}
each_set = pytest.mark.parametrize("made", SETS.values(), ids=SETS)


def close(got, wanted, tolerance=1e-10):
    seen = wanted > 1e-280
    np.testing.assert_allclose(np.asarray(got)[seen], np.asarray(wanted)[seen], rtol=tolerance)
    assert (np.asarray(got)[~seen] < 1e-250).all()


@each_set
@pytest.mark.parametrize("scale", [1, 40, 300], ids=["near", "far", "log domain"])
def test_kernels_equal_enumeration(made, scale):
    actions, rng = made(), np.random.default_rng(scale)
    listed = ExplicitSet(actions.enumerate())
    theta = rng.normal(size=actions.d) * scale
    ours, theirs = actions.law(theta), listed.law(theta)
    assert ours.log_partition == pytest.approx(theirs.log_partition, rel=1e-10, abs=1e-10)
    close(ours.marginals, theirs.marginals)
    close(ours.second_moment, theirs.second_moment)
    assert actions.argmin(theta)[1] == pytest.approx(listed.argmin(theta)[1])


@each_set
def test_rank_and_coordinates(made):
    actions = made()
    listed = actions.enumerate().astype(float)
    assert len(np.unique(listed, axis=0)) == len(listed) == round(math.exp(actions.log_size))
    assert listed.sum(axis=1).max() == actions.m
    rank = np.linalg.matrix_rank(listed)
    assert actions.rank == rank == np.linalg.matrix_rank(listed[:, actions.support])
    basis = actions.span_basis()
    np.testing.assert_allclose(listed @ basis @ basis.T, listed, atol=1e-9)


@each_set
def test_the_estimate_is_unbiased_on_every_action(made):
    """E[L P⁺v] · u = loss · u, though P is singular, and on the coordinate subset alone."""
    actions, rng = made(), np.random.default_rng(3)
    listed, J = actions.enumerate().astype(float), actions.support
    loss, theta = rng.uniform(size=actions.d), rng.normal(size=actions.d)
    q = ExplicitSet(actions.enumerate()).law(theta).q
    inverse = np.linalg.inv(actions.second_moment(theta)[np.ix_(J, J)])
    mean = sum(p * (loss @ v) * (inverse @ v[J]) for p, v in zip(q, listed, strict=True))
    np.testing.assert_allclose(listed[:, J] @ mean, listed @ loss, atol=1e-9)


@each_set
def test_the_spanner_spans(made):
    actions = made()
    listed, rows, J = actions.enumerate().astype(float), actions.spanner().astype(float), actions.support
    factors = np.linalg.solve(rows[:, J].T, listed[:, J].T)
    assert np.abs(factors).max() <= 2 + 1e-9
    leverage = np.einsum("ij,ij->j", factors, factors) * actions.rank
    assert leverage.max() <= 4 * actions.rank**2 + 1e-6


@each_set
def test_samples_follow_the_law(made):
    actions, rng = made(), np.random.default_rng(5)
    listed = ExplicitSet(actions.enumerate())
    theta = rng.normal(size=actions.d)
    q = listed.law(theta).q
    index = {tuple(row[row >= 0]): i for i, row in enumerate(np.sort(listed.rows, axis=1))}
    draws = 20_000
    counts = np.zeros(len(q))
    for taken in actions.sample_compact(theta, rng, draws):
        counts[index[tuple(np.sort(taken))]] += 1
    often = q * draws >= 5
    seen, wanted = [*counts[often], counts[~often].sum()], [*q[often], q[~often].sum()]
    kept = [i for i, p in enumerate(wanted) if p > 0]
    if len(kept) > 1:
        assert stats.chisquare([seen[i] for i in kept], [draws * wanted[i] for i in kept]).pvalue > 1e-4


def test_contraction_draws_from_the_same_law():
    actions, rng = SpanningTreeSet(BOW_TIE), np.random.default_rng(7)
    law = actions.law(rng.normal(size=6))
    mean = np.mean([actions.vector(law.draw_by_contraction(rng)) for _ in range(4000)], axis=0)
    np.testing.assert_allclose(mean, law.marginals, atol=0.04)


def test_golden_blotto():
    actions = BlottoSet(3, 3)
    theta = np.array([-(h + 1) * s / 10 for h in range(3) for s in range(4)])
    law = actions.law(theta)
    assert math.exp(law.log_partition) == pytest.approx(5.570892089771317)
    np.testing.assert_allclose(law.marginals[:4], [0.34129104, 0.29652838, 0.22920040, 0.13298018], atol=1e-8)
    np.testing.assert_allclose(law.marginals[8:], [0.46069472, 0.29652838, 0.16979583, 0.07298107], atol=1e-8)
    assert law.second_moment[1, 6] == pytest.approx(0.1088749611)
    assert np.linalg.eigvalsh(law.second_moment)[3] == pytest.approx(0.0830268875)


def test_golden_trees():
    four = SpanningTreeSet(nx.complete_graph(4))
    assert math.exp(four.log_size) == pytest.approx(16)
    law = four.law(np.log([1, 2, 3, 4, 5, 6]))
    assert math.exp(law.log_partition) == pytest.approx(556)
    wanted = [0.23741007, 0.41366906, 0.56115108, 0.53956835, 0.61151079, 0.63669065]
    np.testing.assert_allclose(law.marginals, wanted, atol=1e-8)
    assert law.second_moment[0, 1] == pytest.approx(0.0503597122)
    assert law.second_moment[0, 5] == pytest.approx(0.1510791367)
    for graph, count in ((nx.petersen_graph(), 2000), (nx.florentine_families_graph(), 1208)):
        assert math.exp(SpanningTreeSet(graph).log_size) == pytest.approx(count)
    club = SpanningTreeSet(nx.karate_club_graph())
    assert math.exp(club.log_size) == pytest.approx(5_090_996_323_019_136)
    assert club.uniform.marginals.sum() == pytest.approx(33)
    bridge = SpanningTreeSet([(0, 1), (1, 2), (0, 2), (2, 3)])
    assert bridge.rank == 3
    assert bridge.uniform.marginals[3] == pytest.approx(1.0)


def test_golden_routes():
    actions = DagPathSet([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (0, 3)], 0, 3)
    weight = {(0, 1): 0.5, (0, 2): 1.0, (1, 2): 2.0, (1, 3): 0.25, (2, 3): 0.8, (0, 3): 0.1}
    law = actions.law(np.log([weight[edge] for edge in actions.edges]))
    found = dict(zip(actions.edges, law.marginals, strict=True))
    assert math.exp(law.log_partition) == pytest.approx(1.825)
    wanted = {(0, 1): 0.50684932, (0, 2): 0.43835616, (1, 2): 0.43835616, (1, 3): 0.06849315, (2, 3): 0.87671233}
    assert found == pytest.approx(wanted | {(0, 3): 0.05479452})
    grid = DagPathSet(
        nx.DiGraph(e for e in nx.grid_2d_graph(4, 4).to_directed().edges() if e[0] < e[1]), (0, 0), (3, 3)
    )
    assert (round(math.exp(grid.log_size)), grid.rank) == (20, 10)


def test_gauges_change_no_law():
    actions, rng = BlottoSet(5, 3), np.random.default_rng(1)
    theta = rng.normal(size=18)
    moved = (theta.reshape(3, 6) + rng.normal(size=(3, 1)) + 1.7 * np.arange(6)).ravel()
    np.testing.assert_allclose(actions.marginals(moved), actions.marginals(theta), rtol=1e-11)
    np.testing.assert_allclose(actions.second_moment(moved), actions.second_moment(theta), rtol=1e-10, atol=1e-14)


def test_nothing_underflows_in_a_large_game():
    actions = BlottoSet(100, 10)
    rng = np.random.default_rng(0)
    for scale in (0.1, 10.0, 1e4):
        law = actions.law(rng.uniform(-1, 0, actions.d) * scale)
        x = law.marginals.reshape(10, 101)
        assert math.isfinite(law.log_partition)
        np.testing.assert_allclose(x.sum(axis=1), 1.0)
        assert (x @ np.arange(101)).sum() == pytest.approx(100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BlottoSet(3, 3, min_alloc=2), "at least 6"),
        (lambda: BlottoSet(0, 3), "soldiers: expected"),
        (lambda: MSet(3, 4), "m: expected at most"),
        (lambda: DagPathSet([(0, 1), (1, 2), (2, 1)], 0, 2), "1 -> 2 -> 1|2 -> 1 -> 2"),
        (lambda: DagPathSet([(0, 1), (2, 3)], 0, 3), "can be reached"),
        (lambda: SpanningTreeSet([(0, 1), (2, 3)]), "in 2 parts"),
        (lambda: BlottoSet(50, 10).enumerate(), "10\\^10.1"),
        (lambda: MSet(3, 2).law([0, 0]), "shape"),
        (lambda: MSet(3, 2).law([0, 0, math.nan]), "NaN"),
        (lambda: MSet(3, 2).law([-math.inf] * 3), "some action is possible"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_loops_are_left_out_aloud():
    with pytest.warns(UserWarning, match="loop at 1"):
        assert SpanningTreeSet([(0, 1), (1, 1)]).d == 1
