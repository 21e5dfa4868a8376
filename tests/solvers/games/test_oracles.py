"""Other libraries' answers, other ways to the same number, and counts that are known."""

import math

import networkx as nx
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog

from thrifty.solvers.games import (
    BlottoSet,
    ColonelBlotto,
    DagPathSet,
    ExplicitSet,
    MSet,
    NetworkCongestion,
    SpanningTreeCongestion,
    SpanningTreeSet,
    cce_gap,
    cce_gaps,
)
from thrifty.solvers.games.conversion import to_pyspiel
from thrifty.solvers.games.normal_form import NormalFormGame, payoff_tables

BOW_TIE = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)]
DIAMOND = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (0, 3)]
SETS = {
    "blotto": lambda: BlottoSet(4, 3),
    "limits": lambda: BlottoSet(6, 3, min_alloc=1, max_alloc=3),
    "subsets": lambda: MSet(6, 3),
    "routes": lambda: DagPathSet(DIAMOND, 0, 3),
    "trees": lambda: SpanningTreeSet(BOW_TIE),
}
each_set = pytest.mark.parametrize("made", SETS.values(), ids=SETS)


# Kernels, by other formulas.


@each_set
def test_first_and_second_moment_by_the_papers_subtractions(made):
    actions, rng = made(), np.random.default_rng(0)
    theta = rng.normal(size=actions.d)
    law = actions.law(theta)

    def without(*coordinates):
        less = theta.copy()
        less[list(coordinates)] = -math.inf
        try:
            return math.exp(actions.log_partition(less) - law.log_partition)
        except ValueError:
            return 0.0  # nothing is left

    alone = [without(j) for j in range(actions.d)]
    np.testing.assert_allclose(law.marginals, 1 - np.array(alone), atol=1e-12)
    pairs = [[1 - alone[i] - alone[j] + without(i, j) for j in range(actions.d)] for i in range(actions.d)]
    np.testing.assert_allclose(law.second_moment, pairs, atol=1e-12)


@each_set
def test_the_chain_rule_of_kernels_gives_the_law(made):
    """The paper's generic sampler decides coordinate after coordinate by ratios of kernels; its law is ours."""
    actions, rng = made(), np.random.default_rng(1)
    theta = rng.normal(size=actions.d)
    listed = ExplicitSet(actions.enumerate())
    certain = 60.0  # a coordinate of so much more weight is in, to all digits

    def chance(action):
        given, product = theta.copy(), 1.0
        for j, has in enumerate(action):
            less = given.copy()
            less[j] = -math.inf
            try:
                stays_out = math.exp(actions.log_partition(less) - actions.log_partition(given))
            except ValueError:
                stays_out = 0.0
            product *= 1 - stays_out if has else stays_out
            given[j] = given[j] + certain if has else -math.inf
        return product

    vectors = actions.enumerate()
    np.testing.assert_allclose([chance(v) for v in vectors], listed.law(theta).q, rtol=1e-9)


@pytest.mark.parametrize("name", ["trees", "routes"])
def test_gauges_change_no_law(name):
    """Every tree has one edge fewer than nodes; potential differences sum to the same along every route."""
    actions, rng = SETS[name](), np.random.default_rng(2)
    theta = rng.normal(size=actions.d)
    if name == "trees":
        moved, shift = theta + 3.7, 3.7 * 4
    else:
        height = dict(zip(range(4), rng.normal(size=4) * 5, strict=True))
        moved = theta + np.array([height[b] - height[a] for a, b in actions.edges])
        shift = height[3] - height[0]
    assert actions.log_partition(moved) - actions.log_partition(theta) == pytest.approx(shift)
    np.testing.assert_allclose(actions.marginals(moved), actions.marginals(theta), rtol=1e-10)
    np.testing.assert_allclose(actions.second_moment(moved), actions.second_moment(theta), atol=1e-12)
    draws = [[actions.law(w).draw(np.random.default_rng(seed)).tolist() for seed in range(50)] for w in (theta, moved)]
    assert draws[0] == draws[1]


# Counts and probabilities that are known.


@pytest.mark.parametrize(
    ("nodes", "trees", "x", "adjacent", "apart"), [(4, 16, 0.5, 0.1875, 0.25), (5, 125, 0.4, 0.12, 0.16)]
)
def test_trees_of_complete_graphs(nodes, trees, x, adjacent, apart):
    actions = SpanningTreeSet(nx.complete_graph(nodes))
    law, edges = actions.uniform, actions.edges
    assert math.exp(actions.log_size) == pytest.approx(trees)
    np.testing.assert_allclose(law.marginals, x)
    for e, (a, b) in enumerate(edges):
        for f, (c, d) in enumerate(edges):
            wanted = x if e == f else adjacent if {a, b} & {c, d} else apart
            assert law.second_moment[e, f] == pytest.approx(wanted), (edges[e], edges[f])


@pytest.mark.parametrize(
    ("actions", "rank", "d"),
    [
        (BlottoSet(3, 3), 9, 12),
        (BlottoSet(4, 4), 16, 20),
        (BlottoSet(5, 2), 6, 12),
        (BlottoSet(4, 1), 1, 5),
        (SpanningTreeSet(BOW_TIE), 5, 6),
        (SpanningTreeSet([(0, 1), (1, 2), (0, 2), (2, 3)]), 3, 4),
        (DagPathSet(DIAMOND, 0, 3), 4, 6),
        (MSet(6, 2), 6, 6),
    ],
)
def test_ranks_that_are_known(actions, rank, d):
    assert (actions.rank, actions.d) == (rank, d)
    assert np.linalg.matrix_rank(actions.uniform.second_moment, tol=1e-9) == rank


@pytest.mark.parametrize(("n", "k", "most"), [(3, 3, 10), (5, 3, 21), (4, 4, 35), (3, 6, 56)])
def test_leverages_under_uniform_exploration(n, k, most):
    actions = BlottoSet(n, k)
    J = actions.support
    vectors = actions.enumerate()[:, J].astype(float)
    solved = np.linalg.solve(actions.uniform.second_moment[np.ix_(J, J)], vectors.T)
    assert np.einsum("ij,ji->i", vectors, solved).max() == pytest.approx(most)


# Samples: 10^5 of each.


def chi_square(actions, theta, draws):
    """Return the p-value of the drawn coordinates against the listed law."""
    listed = ExplicitSet(actions.enumerate())
    q = listed.law(theta).q
    index = {tuple(row[row >= 0]): i for i, row in enumerate(np.sort(listed.rows, axis=1))}
    counts = np.zeros(len(q))
    for taken in draws:
        counts[index[tuple(np.sort(taken))]] += 1
    often = q * len(draws) >= 5
    seen, wanted = [*counts[often], counts[~often].sum()], np.array([*q[often], q[~often].sum()]) * len(draws)
    kept = wanted > 0
    return stats.chisquare(np.array(seen)[kept], wanted[kept]).pvalue


@pytest.mark.slow
@each_set
def test_a_hundred_thousand_samples(made):
    actions, rng = made(), np.random.default_rng(5)
    theta = rng.normal(size=actions.d)
    assert chi_square(actions, theta, actions.sample_compact(theta, rng, 100_000)) > 1e-4


@pytest.mark.slow
def test_a_hundred_thousand_samples_in_the_log_domain():
    actions, rng = BlottoSet(4, 3), np.random.default_rng(6)
    theta = rng.normal(size=actions.d)
    theta[7] = -2000.0  # beyond the linear domain
    law = actions.law(theta)
    assert not law.linear
    assert chi_square(actions, theta, [law.draw(rng) for _ in range(100_000)]) > 1e-4


@pytest.mark.slow
def test_twenty_thousand_samples_by_contraction():
    actions, rng = SpanningTreeSet([(0, 1), (0, 1), (1, 2), (0, 2), (2, 3), (1, 3)]), np.random.default_rng(7)
    theta = rng.normal(size=actions.d)
    law = actions.law(theta)
    assert chi_square(actions, theta, [law.draw_by_contraction(rng) for _ in range(20_000)]) > 1e-4


# Other libraries.


def openspiels_gaps(game, plays):
    """Return what ``pyspiel.cce_dist`` has of rounds of play: each player's incentive, and the distance."""
    pyspiel = pytest.importorskip("pyspiel")
    there = pyspiel.convert_to_turn_based(to_pyspiel(game))
    index = [
        {tuple(sorted(row[row >= 0].tolist())): a for a, row in enumerate(actions.enumerate_compact())}
        for actions in game.sets
    ]
    device = []
    for joint in plays:
        state, policy = there.new_initial_state(), {}
        for i, taken in enumerate(joint):
            a = index[i][tuple(sorted(np.asarray(taken).tolist()))]
            policy[state.information_state_string(i)] = [(b, float(b == a)) for b in state.legal_actions()]
            state.apply_action(a)
        device.append((1 / len(plays), pyspiel.TabularPolicy(policy)))
    found = pyspiel.cce_dist(there, device)
    return found.deviation_incentives, found.dist_value


def random_plays(game, rounds, seed):
    rng = np.random.default_rng(seed)
    return [[actions.uniform.draw(rng) for actions in game.sets] for _ in range(rounds)]


ROADS = nx.DiGraph([(0, 1), (1, 3), (0, 2), (2, 3), (1, 2), (0, 3)])
GAMES = {
    "blotto": ColonelBlotto([3, 3], [1, 2, 3]),
    "uneven blotto": ColonelBlotto([4, 2], [[1, 2, 3], [3, 1, 2]], tie="lose"),
    "three": ColonelBlotto([2, 2, 1], [1, 2], contest="ratio"),
    "trees": SpanningTreeCongestion(nx.complete_graph(4), 2),
    "roads": NetworkCongestion(ROADS, [(0, 3)] * 3),
    "table": NormalFormGame(np.random.default_rng(0).normal(size=(2, 5, 4))),
}
each_game = pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)


@each_game
def test_gaps_are_those_of_openspiel(game):
    plays = random_plays(game, 6, 3)
    incentives, distance = openspiels_gaps(game, plays)
    ours = cce_gaps(game, plays)
    np.testing.assert_allclose(np.maximum(ours, 0), incentives, atol=1e-9)
    assert cce_gap(game, plays) == pytest.approx(max(incentives))
    assert distance == pytest.approx(sum(incentives)), "OpenSpiel sums over players, the paper takes the largest"


def test_the_worked_example_in_openspiel():
    game = GAMES["blotto"]
    rounds = [((0, 0, 3), (1, 1, 1)), ((1, 1, 1), (0, 1, 2)), ((0, 1, 2), (0, 0, 3)), ((3, 0, 0), (1, 1, 1))]
    plays = [[[h * 4 + s for h, s in enumerate(a)] for a in pair] for pair in rounds]
    incentives, _ = openspiels_gaps(game, plays)
    assert incentives == pytest.approx([0.4166667, 0.0], abs=1e-7)
    paid = np.mean([[loss[taken].sum() for loss, taken in zip(game.loss_vectors(p), p, strict=True)] for p in plays], 0)
    assert paid == pytest.approx([1.2916667, 0.7083333], abs=1e-7)
    totals = [sum(game.loss_vectors(p)[i] for p in plays) / 4 for i in range(2)]
    best = [actions.argmin(total) for actions, total in zip(game.sets, totals, strict=True)]
    assert [value for _, value in best] == pytest.approx([0.875, 0.7916667], abs=1e-7)
    assert game.sets[0].describe(np.flatnonzero(best[0][0])) == "0-1-2"


def equilibrium_of_highs(tables):
    """Return the coarse correlated equilibrium that pays all players most, by a linear programme over joint actions."""
    shape = tables.shape[1:]
    rows = []
    for i, table in enumerate(tables):
        first = np.moveaxis(table, i, 0)
        for a in range(shape[i]):
            gain = np.moveaxis(np.broadcast_to(first[a], first.shape), 0, i) - table
            rows.append(gain.ravel())
    found = linprog(
        -tables.sum(axis=0).ravel(), A_ub=rows, b_ub=np.zeros(len(rows)), A_eq=np.ones((1, np.prod(shape))),
        b_eq=[1.0], method="highs",
    )  # fmt: skip
    assert found.status == 0
    return np.maximum(found.x, 0).reshape(shape)


@each_game
def test_the_equilibrium_of_a_linear_programme_has_no_gap(game):
    tables = payoff_tables(game)
    sigma = equilibrium_of_highs(tables)
    listed = [[row[row >= 0] for row in actions.enumerate_compact()] for actions in game.sets]
    paid, totals = np.zeros(len(listed)), [np.zeros(actions.d) for actions in game.sets]
    for at in zip(*np.nonzero(sigma), strict=True):
        joint = [rows[a] for rows, a in zip(listed, at, strict=True)]
        for i, loss in enumerate(game.loss_vectors(joint)):
            paid[i] += sigma[at] * loss[joint[i]].sum()
            totals[i] += sigma[at] * loss
    best = [actions.argmin(total)[1] for actions, total in zip(game.sets, totals, strict=True)]
    assert (paid - best).max() <= 1e-9


@pytest.mark.parametrize("game", [ColonelBlotto([5, 5], [1, 2, 3]), ColonelBlotto([6, 4], [1, 2, 3, 4])])
def test_the_value_of_a_zero_sum_game_is_that_of_highs(game):
    """Against an optimal strategy of HiGHS the oracle of the kernels does exactly as well as the value."""
    assert game.zero_sum
    loss = -payoff_tables(game)[0]

    def optimal(table):
        """Return the mix of rows whose worst column is least, and its value."""
        rows, columns = table.shape
        found = linprog(
            [*np.zeros(rows), 1.0], A_ub=np.c_[table.T, -np.ones(columns)], b_ub=np.zeros(columns),
            A_eq=[[*np.ones(rows), 0.0]], b_eq=[1.0], bounds=[(0, None)] * rows + [(None, None)], method="highs",
        )  # fmt: skip
        return found.x[:-1], found.x[-1]

    mine, value = optimal(loss)
    theirs, least = optimal(-loss.T)
    assert value == pytest.approx(-least, abs=1e-9)
    for mix, i in ((theirs, 0), (mine, 1)):
        listed = [row[row >= 0] for row in game.sets[1 - i].enumerate_compact()]
        mean = sum(
            q * game.loss_vectors([[0], row] if i == 0 else [row, [0]])[i]
            for q, row in zip(mix, listed, strict=True)
            if q > 0
        )
        total = game.loss_vectors([listed_row(game, 0), listed_row(game, 1)])
        constant = sum(float(loss_[listed_row(game, j)].sum()) for j, loss_ in enumerate(total))
        assert game.sets[i].argmin(mean)[1] == pytest.approx(value if i == 0 else constant - value, abs=1e-9)


def listed_row(game, i):
    return game.sets[i].enumerate_compact()[0]
