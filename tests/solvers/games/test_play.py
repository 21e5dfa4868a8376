"""Play: the compiled loop equals the plain one, the certificate is exact, runs go on exactly, gaps fall."""

import itertools
import json
import time

import networkx as nx
import numpy as np
import pytest

from thrifty.solvers.games import (
    CCEResult,
    ColonelBlotto,
    ExplicitSet,
    KernelizedExp3IX,
    KernelizedOMWU,
    NetworkCongestion,
    NormalFormGame,
    SpanningTreeCongestion,
    cce_gaps,
    exploitability,
    nash_gaps,
    solve_cce,
    solve_cce_seeds,
    solve_nash,
)
from thrifty.solvers.games.rivals import Enumerated
from thrifty.solvers.games.rounds import compilable, shown

ROADS = nx.DiGraph([("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("b", "d")])
PENNIES = [[[1, -1], [-1, 1]], [[-1, 1], [1, -1]]]
GAMES = {
    "blotto": lambda: ColonelBlotto([5, 4], [1, 2, 3]),
    "three": lambda: ColonelBlotto([3, 2, 4], [[1, 2], [2, 1], [3, 3]], tie="share"),
    "ratio": lambda: ColonelBlotto([3, 3], [1, 2, 3], contest="ratio", at_most=True),
    "limits": lambda: ColonelBlotto([6, 5], [1, 2, 3], min_alloc=1, max_alloc=3, tie="lose"),
    "routes": lambda: NetworkCongestion(ROADS, [("a", "d"), ("a", "d"), ("b", "d")]),
}
each_game = pytest.mark.parametrize("made", GAMES.values(), ids=GAMES)
FEEDBACK = ("full", "semi-bandit", "expected")


def same(one, other):
    assert (one.history == other.history).all()
    assert (one.trace.rounds == other.trace.rounds).all()
    assert (one.trace.gaps == other.trace.gaps).all()
    assert (one.trace.expected_gaps == other.trace.expected_gaps).all()
    for ours, theirs in zip(one.marginals + one.losses, other.marginals + other.losses, strict=True):
        assert (ours == theirs).all()


@each_game
@pytest.mark.parametrize("feedback", FEEDBACK)
def test_the_compiled_loop_gives_the_same_numbers(made, feedback):
    game = made()
    kinds = ["full", "semi-bandit", "semi-bandit"][: len(game.sets)] if feedback == "full" else feedback  # mixed, too
    same(*(solve_cce(game, kinds, 150, seed=1, compiled=compiled) for compiled in (True, False)))


def stop_after(rounds):
    """Return a listener that ends a run there."""

    def listen(reached, *_):
        if reached >= rounds:
            raise StopIteration

    return listen


@each_game
def test_the_compiled_loop_gives_the_same_numbers_through_epochs(made, tmp_path):
    game, runs = made(), []
    for compiled in (True, False):
        path = tmp_path / f"{compiled}.npz"
        with pytest.raises(StopIteration):
            solve_cce(
                game, "full", eps=0.0, eval_every=70, compiled=compiled, checkpoint=path, progress=stop_after(210),
                optimistic=True,
            )  # fmt: skip
        runs.append(CCEResult.load(path))
    same(*runs)
    assert runs[0].state["learners"][0]["epoch"] == 2  # the third epoch begins after 64 + 128 rounds


@each_game
def test_the_gap_is_that_of_what_was_played(made):
    game = made()
    result = solve_cce(game, "semi-bandit", 200, eval_every=50)
    plays = list(result.plays())
    assert len(plays) == 200
    np.testing.assert_allclose(result.gaps, cce_gaps(game, plays), atol=1e-12)
    np.testing.assert_allclose(result.trace.gaps[1], cce_gaps(game, plays[:100]), atol=1e-12)
    for i, actions in enumerate(game.sets):
        paid = np.mean([game.loss_vectors(joint)[i][joint[i]].sum() for joint in plays])
        assert result.average_loss[i] == pytest.approx(paid)
        vectors = np.mean([actions.vector(joint[i]) for joint in plays], axis=0)
        np.testing.assert_allclose(result.frequencies[i], vectors, atol=1e-12)


def test_the_expected_gap_is_that_of_the_laws():
    game = ColonelBlotto([4, 4], [1, 2, 3])
    rngs = np.random.SeedSequence(3).spawn(3)
    learner = KernelizedExp3IX(game.sets[0], 100)
    other = KernelizedExp3IX(game.sets[1], 100)
    first, second = (np.random.default_rng(s) for s in rngs[:2])
    mean, total, x = 0.0, np.zeros(learner.actions.d), np.zeros(learner.actions.d)
    for _ in range(100):
        law = learner.law().marginals
        joint = [learner.act(first), other.act(second)]
        losses = game.loss_vectors(joint)
        mean, total, x = mean + losses[0] @ law, total + losses[0], x + law
        learner.observe(losses[0][joint[0]])
        other.observe(losses[1][joint[1]])
    result = solve_cce(game, "semi-bandit", 100, seed=3)
    assert result.expected_gaps[0] == pytest.approx((mean - game.sets[0].argmin(total)[1]) / 100)
    np.testing.assert_allclose(result.marginals[0], x / 100)


@pytest.mark.parametrize("made", [*GAMES.values(), lambda: SpanningTreeCongestion(nx.complete_graph(4), 3),
                                  lambda: NormalFormGame(np.random.default_rng(0).normal(size=(3, 2, 3, 2)))],
                         ids=[*GAMES, "trees", "normal form"])  # fmt: skip
def test_expected_losses_are_means_over_joint_actions(made):
    game, rng = made(), np.random.default_rng(1)
    thetas = [rng.normal(size=actions.d) for actions in game.sets]
    rows = [[row[row >= 0].astype(int) for row in actions.enumerate_compact()] for actions in game.sets]
    laws = [ExplicitSet(a.enumerate()).law(theta).q for a, theta in zip(game.sets, thetas, strict=True)]
    wanted = [np.zeros(actions.d) for actions in game.sets]
    for at in itertools.product(*(range(len(held)) for held in rows)):
        chance = np.prod([law[a] for law, a in zip(laws, at, strict=True)])
        losses = game.loss_vectors([held[a] for held, a in zip(rows, at, strict=True)])
        wanted = [total + chance * loss for total, loss in zip(wanted, losses, strict=True)]
    found = game.expected_losses([a.marginals(theta) for a, theta in zip(game.sets, thetas, strict=True)])
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def interrupt_after(rounds):
    """Return a listener that interrupts a run as Ctrl-C would."""

    def listen(reached, *_):
        if reached >= rounds:
            raise KeyboardInterrupt

    return listen


@pytest.mark.parametrize("horizon", [400, None], ids=["horizon", "anytime"])
@pytest.mark.parametrize("feedback", [*FEEDBACK, "bandit"])
def test_an_interrupted_run_goes_on_exactly(feedback, horizon, tmp_path):
    game, path, options = ColonelBlotto([4, 3], [1, 2]), tmp_path / "run.npz", {"seed": 5, "eval_every": 40, "eps": 0.0}
    options["noise"] = 0.5 if feedback == "bandit" else 0.0
    whole, parts = tmp_path / "whole.npz", path
    for where, stops in ((whole, [400]), (parts, [120, 240, 400])):
        for stop in stops:
            with pytest.raises(KeyboardInterrupt):
                solve_cce(game, feedback, horizon, checkpoint=where, progress=interrupt_after(stop), **options)
    one, other = CCEResult.load(whole), CCEResult.load(parts, game)
    assert one.rounds == other.rounds == 400
    same(one, other)
    assert one.state["generators"] == other.state["generators"]
    assert (np.diff(other.trace.seconds) >= 0).all()
    assert not list(tmp_path.glob(".*")), "nothing half written is left"


def test_an_interrupt_amid_rounds_costs_them_alone(tmp_path):
    """Learners that have acted and not yet seen are no state to keep; the last whole chunk is."""
    game, path = ColonelBlotto([4, 3], [1, 2]), tmp_path / "run.npz"
    wrapped, calls = game.loss_vectors, []

    def failing(joint):
        calls.append(1)
        if len(calls) == 150:
            raise KeyboardInterrupt
        return wrapped(joint)

    game.loss_vectors = failing
    with pytest.raises(KeyboardInterrupt):
        solve_cce(game, "bandit", 300, checkpoint=path, eval_every=20)
    kept = CCEResult.load(path)
    assert 0 < kept.rounds < 150
    del game.loss_vectors
    same(solve_cce(game, "bandit", 300, checkpoint=path, eval_every=20), solve_cce(game, "bandit", 300, eval_every=20))


def test_gaps_fall_in_the_order_of_what_is_seen():
    game = ColonelBlotto([5, 5], [1, 2, 3])
    gaps = {kind: solve_cce(game, kind, 3000).gap for kind in ("expected", "full", "semi-bandit")}
    gaps["bandit"] = solve_cce(ColonelBlotto([5, 5], [1, 2, 3]), "bandit", 1000).gap
    assert gaps["expected"] < gaps["full"] < gaps["semi-bandit"] < gaps["bandit"] < 0.6
    longer = solve_cce(game, "expected", 12_000).gap
    assert longer < gaps["expected"] / 3, "expected losses: one over the rounds"


def test_it_stops_at_a_gap_and_at_a_time():
    game = ColonelBlotto([5, 5], [1, 2, 3])
    told = []
    result = solve_cce(game, "full", eps=0.1, eval_every=25, progress=lambda *said: told.append(said))
    assert result.gap <= 0.1
    assert result.rounds % 25 == 0
    assert all(gap > 0.1 for _, gap, _ in told[:-1])
    assert told[-1][:2] == (result.rounds, result.gap)
    begun = time.perf_counter()
    limited = solve_cce(game, "semi-bandit", time_limit=0.2)
    assert time.perf_counter() - begun < 20
    assert limited.rounds > 0
    assert limited.trace.rounds[-1] == limited.rounds


def test_zero_sum_play_comes_to_the_value():
    game = ColonelBlotto([4, 4], [1, 2, 3])
    result = solve_nash(game, 4000)
    assert result.exploitability < 0.005
    assert result.average_loss[0] + result.average_loss[1] == pytest.approx(2.0)
    drawn = result.sample(4000, np.random.default_rng(0), independent=True)
    mean = np.mean([game.sets[0].vector(joint[0]) for joint in drawn], axis=0)
    np.testing.assert_allclose(mean, result.marginals[0], atol=0.05)
    played = solve_cce(game, "full", 30)
    rounds = {tuple(map(tuple, joint)) for joint in played.plays()}
    apart = played.sample(200, np.random.default_rng(0), independent=True)
    assert {tuple(map(tuple, joint)) for joint in apart} - rounds, "players' rounds differ"
    with pytest.raises(ValueError, match="zero|constant"):
        solve_nash(ColonelBlotto([4, 4, 4], [1, 2]))


def test_nash_gaps():
    game = NormalFormGame(PENNIES)
    np.testing.assert_allclose(nash_gaps(game, [[1, 0], [1, 0]]), [0.0, 1.0])
    assert exploitability(game, [[0.5, 0.5], [0.5, 0.5]]) == pytest.approx(0.0)
    for wrong in ([[1, 0]], [[1, 0, 0], [1, 0]], [[2, 0], [1, 0]]):
        with pytest.raises(ValueError, match="marginals: expected"):
            nash_gaps(game, wrong)


def test_samples_are_rounds_of_play():
    game = ColonelBlotto([3, 3], [1, 2])
    result = solve_cce(game, "full", 50)
    played = {tuple(map(tuple, joint)) for joint in result.plays()}
    assert {tuple(map(tuple, joint)) for joint in result.sample(200, np.random.default_rng(0))} <= played
    (taken, share), *_ = result.top(0, 3)
    assert share == max(sum(tuple(a) == tuple(taken) for a, _ in result.plays()) / 50, share)
    assert len(result.top(0, 2)) == 2


def test_seeds_run_beside_each_other_with_the_results_of_each_alone():
    game = ColonelBlotto([4, 4], [1, 2])
    for feedback in ("semi-bandit", "bandit"):
        alone = [solve_cce(game, feedback, 60, seed=seed) for seed in (3, 4)]
        for threads in (1, 2):
            for one, other in zip(
                alone, solve_cce_seeds(game, [3, 4], threads=threads, feedback=feedback, horizon=60), strict=True
            ):
                same(one, other)
    assert (alone[0].history != alone[1].history).any()
    with pytest.raises(ValueError, match="checkpoint"):
        solve_cce_seeds(game, [0], horizon=5, checkpoint="x.npz")


def test_players_on_a_list_play_in_the_plain_loop():
    listed = Enumerated(ColonelBlotto([4, 4], [1, 2, 3]))
    assert solve_cce(listed, "full", 60).rounds == 60
    assert not compilable(listed, [KernelizedOMWU(actions, 10) for actions in listed.sets])


def test_learners_of_ones_own():
    game = ColonelBlotto([4, 3], [1, 2])
    learners = [KernelizedOMWU(game.sets[0], 80, optimistic=False), KernelizedExp3IX(game.sets[1], 80, eta=0.05)]
    result = solve_cce(game, horizon=80, learners=learners)
    assert result.feedback == ("full", "semi-bandit")
    assert learners[0].round == 80
    with pytest.raises(ValueError, match="one a player"):
        solve_cce(game, horizon=80, learners=learners[:1])


@pytest.mark.parametrize("feedback", ["full", "semi-bandit", "bandit"])
def test_noise_has_the_mean_and_the_range(feedback):
    rng, losses, chosen = np.random.default_rng(0), np.array([0.1, 0.5, 0.9, 0.3]), np.array([1, 2])
    seen = np.array([shown(feedback, losses, chosen, 2, 0.7, rng) for _ in range(20_000)])
    wanted = {"full": losses, "semi-bandit": losses[chosen], "bandit": 1.4}[feedback]
    np.testing.assert_allclose(seen.mean(axis=0), wanted, atol=0.02)
    assert seen.std() > 0.1
    assert seen.min() >= 0
    assert seen.max() <= (2 if feedback == "bandit" else 1)
    np.testing.assert_array_equal(shown(feedback, losses, chosen, 2, 0.0, rng), wanted)


def test_noisy_play_still_learns():
    game = ColonelBlotto([4, 4], [1, 2, 3])
    trace = solve_cce(game, "full", 1000, noise=1.0).trace
    assert trace.gap[-1] < 0.5 * trace.gap[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feedback": "none", "horizon": 5}, "feedback: expected one of"),
        ({"feedback": ["full"], "horizon": 5}, "one a player, 2, got 1"),
        ({"feedback": ["full", "expected"], "horizon": 5}, "for all players or for none"),
        ({}, "horizon: expected a number of rounds, or else eps or time_limit"),
        ({"horizon": 0}, "horizon: expected a whole number"),
        ({"horizon": 2.5}, "horizon: expected a whole number"),
        ({"horizon": 5, "eps": -1}, "eps: expected"),
        ({"horizon": 5, "time_limit": "long"}, "time_limit: expected"),
        ({"horizon": 5, "eval_every": 0}, "eval_every: expected"),
        ({"horizon": 5, "noise": 1.5}, "noise: expected"),
        ({"horizon": 5, "noise": 0.5, "feedback": "expected"}, "noise: expected 0"),
        ({"horizon": 5, "seed": -1}, "seed: expected"),
        ({"horizon": 5, "eta": "large"}, "eta: expected"),
        ({"horizon": 5, "eta_scale": 0}, "eta_scale: expected"),
        ({"horizon": 5, "gamma": -1}, "gamma: expected"),
        ({"horizon": 5, "feedback": "bandit", "exploration": "some"}, "exploration: expected"),
        ({"horizon": 5, "save_every": -1}, "save_every: expected"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        solve_cce(ColonelBlotto([3, 3], [1, 2]), **options)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("compiled", [True, False])
def test_weights_that_are_no_longer_finite_name_the_round(compiled):
    game = ColonelBlotto([3, 3], [1, 2])
    with pytest.raises(ArithmeticError, match=r"round \d+: the log weights are no longer finite"):
        solve_cce(game, "full", 50, eta=1e308, compiled=compiled)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("feedback", ["full", "semi-bandit", "expected"])
def test_huge_steps_neither_overflow_nor_give_nan(feedback, compiled):
    result = solve_cce(ColonelBlotto([6, 6], [1, 2, 3]), feedback, 100, eta=1e5, compiled=compiled)
    assert np.isfinite(result.gaps).all()
    assert all(np.isfinite(x).all() for x in result.marginals)


class TestFiles:
    """What a run is kept in."""

    def run(self, path, **options):
        return solve_cce(ColonelBlotto([3, 3], [1, 2]), **({"horizon": 40, "checkpoint": path, "seed": 1} | options))

    def test_a_file_of_other_settings_is_refused(self, tmp_path):
        path = tmp_path / "run.npz"
        self.run(path)
        for name, value in {"seed": 2, "horizon": 80, "eta": 0.1, "gamma": 0.1, "noise": 0.5, "history": False}.items():
            with pytest.raises(ValueError, match=f"{name}: the run in .* got {value!r}"):
                self.run(path, **{name: value})
        with pytest.raises(ValueError, match="of another game"):
            solve_cce(ColonelBlotto([3, 3], [1, 3]), horizon=40, seed=1, checkpoint=path)

    def test_a_whole_run_is_not_played_again(self, tmp_path):
        first = self.run(tmp_path / "run.npz")
        again = self.run(tmp_path / "run.npz")
        same(first, again)
        assert again.seconds == first.seconds

    def test_saving_refuses_what_is_there(self, tmp_path):
        result = self.run(None)
        result.save(tmp_path / "r.npz")
        with pytest.raises(FileExistsError):
            result.save(tmp_path / "r.npz")
        same(CCEResult.load(result.save(tmp_path / "r.npz", force=True)), result)

    def test_games_of_networks_come_back_with_their_coordinates(self, tmp_path):
        roads, wires = nx.MultiDiGraph(), nx.MultiGraph()
        roads.add_nodes_from([3, 2, "a"])
        roads.add_weighted_edges_from([("a", 2, 0.3), (3, "a", 1), (3, "a", 1.7), ("a", 3, 1), (3, 2, 2.5)])
        wires.add_nodes_from([5, 4])
        wires.add_weighted_edges_from([(1, 5, 1), (5, 1, 2.1), (4, 1, 3), (5, 4, 1 / 3)])
        pairs = [(3, 2), ("a", 2)]
        for game in (NetworkCongestion(roads, pairs, orient=True), SpanningTreeCongestion(wires, 2)):
            loaded = CCEResult.load(solve_cce(game, horizon=10).save(tmp_path / "r.npz", force=True)).game
            assert [actions.edges for actions in loaded.sets] == [actions.edges for actions in game.sets]
            assert (loaded.costs == game.costs).all()

    def test_games_that_no_file_can_describe(self, tmp_path):
        with pytest.raises(ValueError, match="that a file can describe"):
            solve_cce(Enumerated(ColonelBlotto([3, 3], [1, 2])), "full", 10).save(tmp_path / "r.npz")

    def test_damaged_files_are_refused(self, tmp_path):
        path = self.run(None).save(tmp_path / "r.npz")
        with np.load(path) as held:
            arrays = dict(held)
        facts = json.loads(str(arrays["facts"]))

        def write(**changed):
            np.savez(tmp_path / "bad.npz", **{**arrays, **changed})
            return tmp_path / "bad.npz"

        def said(**changed):
            return np.array(json.dumps({**facts, **changed}))

        for changed in (
            {"facts": said(round=0)}, {"facts": said(schema="other")}, {"facts": said(game={"game": "chess"})},
            {"facts": said(generators=facts["generators"][:1])}, {"facts": np.array("{")}, {"facts": said(more=1)},
            {"history": arrays["history"] + 100}, {"history": arrays["history"][:-1]},
            {"book_losses": arrays["book_losses"] * np.nan}, {"book_paid": arrays["book_paid"][:1]},
            {"learner_0_cumulated": arrays["learner_0_cumulated"][:2]}, {"trace": arrays["trace"][:, 1:]},
            {"book_plays": np.array([None, "x"], dtype=object)},
        ):  # fmt: skip
            with pytest.raises(ValueError, match="expected a run of play that was saved here"):
                CCEResult.load(write(**changed))
        (tmp_path / "text.npz").write_text("no run")
        (tmp_path / "cut.npz").write_bytes(path.read_bytes()[:-300])
        for name in ("text.npz", "cut.npz"):
            with pytest.raises(ValueError, match="expected a run of play that was saved here"):
                CCEResult.load(tmp_path / name)

    def test_without_a_history_nothing_is_sampled(self, tmp_path):
        result = self.run(tmp_path / "r.npz", history=False)
        assert CCEResult.load(tmp_path / "r.npz").gap == result.gap
        for call in (
            lambda: result.sample(1, np.random.default_rng(0)),
            lambda: result.top(0),
            lambda: list(result.plays()),
        ):
            with pytest.raises(ValueError, match="history: expected"):
                call()
