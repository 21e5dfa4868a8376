"""Learners on kernels equal those on a list of all actions; resuming is exact; wrong feedback is refused."""

import networkx as nx
import numpy as np
import pytest

from thrifty.solvers.games import (
    BlottoSet,
    DagPathSet,
    ExplicitSet,
    KernelizedExp3IX,
    KernelizedGeometricHedge,
    KernelizedOMWU,
    MSet,
    SpanningTreeSet,
)

SETS = {
    "blotto": lambda: BlottoSet(3, 3),
    "subsets": lambda: MSet(5, 2),
    "routes": lambda: DagPathSet([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (0, 3)], 0, 3),
    "trees": lambda: SpanningTreeSet([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)]),
}
KINDS = {"full": KernelizedOMWU, "semi-bandit": KernelizedExp3IX, "bandit": KernelizedGeometricHedge}


def tell(learner, losses, chosen):
    """Give a learner its kind of feedback."""
    if isinstance(learner, KernelizedOMWU):
        learner.observe(losses)
    elif isinstance(learner, KernelizedExp3IX):
        learner.observe(dict(zip(chosen.tolist(), losses[chosen], strict=True)))
    else:
        learner.observe(float(losses[chosen].sum()))


def play(learner, rounds, rng):
    for _ in range(rounds):
        chosen = learner.act(rng)
        tell(learner, rng.uniform(size=learner.actions.d), chosen)


@pytest.mark.parametrize("made", SETS.values(), ids=SETS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_law_is_that_of_the_enumerated_learner(made, kind):
    actions, rng = made(), np.random.default_rng(2)
    listed = ExplicitSet(actions.enumerate())
    listed.support = actions.support
    options = {}
    if kind is KernelizedGeometricHedge:  # at large steps rounding grows from round to round
        options = {"exploration": actions.spanner(), "eta_scale": 0.1}
    ours, theirs = kind(actions, 500, **options), kind(listed, 500, **options)
    for _ in range(500):
        chosen = ours.act(rng)
        theirs.act(np.random.default_rng(0))
        theirs._played = chosen
        losses = rng.uniform(size=actions.d)
        tell(ours, losses, chosen)
        tell(theirs, losses, chosen)
    np.testing.assert_allclose(ours.theta, theirs.theta, atol=1e-8)
    np.testing.assert_allclose(ours.law().marginals, theirs.law().marginals, atol=1e-8)


@pytest.mark.parametrize("horizon", [300, None], ids=["horizon", "anytime"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_resuming_is_exact(kind, horizon):
    one, rng = kind(BlottoSet(4, 3), horizon), np.random.default_rng(1)
    play(one, 100, rng)
    state, where = one.state_dict(), rng.bit_generator.state
    play(one, 100, rng)
    other, again = kind(BlottoSet(4, 3), horizon), np.random.default_rng(9)
    other.load_state_dict(state)
    again.bit_generator.state = where
    play(other, 100, again)
    assert (one.theta == other.theta).all()
    assert one.round == other.round == 200
    assert (one.epoch > 0) == (horizon is None)


def test_implicit_exploration_has_the_mean_of_the_theorem():
    actions, rng = BlottoSet(3, 3), np.random.default_rng(0)
    listed, losses = ExplicitSet(actions.enumerate()), rng.uniform(size=12)
    mean, law = np.zeros(12), listed.law(np.zeros(12))
    for p, row in zip(law.q, listed.rows, strict=True):
        learner = KernelizedExp3IX(actions, 100)
        learner._played = row.astype(np.int64)
        learner.observe(losses[row])
        mean += p * learner.cumulated
    np.testing.assert_allclose(mean, losses * law.marginals / (law.marginals + learner.gamma), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_is_best_is_learned(kind):
    actions, rng = BlottoSet(4, 3), np.random.default_rng(4)
    losses = rng.uniform(size=actions.d)
    learner = kind(actions, 3000)
    paid = 0.0
    for _ in range(3000):
        chosen = learner.act(rng)
        paid += losses[chosen].sum()
        tell(learner, losses, chosen)
    best, uniform = actions.argmin(losses)[1], actions.uniform.marginals @ losses
    assert paid / 3000 - best < 0.5 * (uniform - best)


def test_wrong_use_is_refused():
    rng = np.random.default_rng(0)
    learner = KernelizedExp3IX(MSet(4, 2), 10)
    with pytest.raises(RuntimeError, match=r"expected act\(\) first"):
        learner.observe([0.0, 0.0])
    chosen = learner.act(rng)
    with pytest.raises(RuntimeError, match="got act"):
        learner.act(rng)
    with pytest.raises(ValueError, match=r"got \[0, 3\]; divide by 3"):
        learner.observe([0.0, 3.0])
    with pytest.raises(ValueError, match="add 1, then divide by 2"):
        learner.observe([-1.0, 1.0])
    with pytest.raises(ValueError, match="expected the losses of"):
        learner.observe({9: 1.0})
    with pytest.raises(TypeError, match="expected a vector"):
        learner.observe(0.5)
    learner.observe({int(j): 0.5 for j in chosen})
    one = KernelizedGeometricHedge(MSet(4, 2), 10)
    one.act(rng)
    for feedback in ([0.1, 0.2], {0: 0.1}):
        with pytest.raises(TypeError, match="expected one number"):
            one.observe(feedback)
    with pytest.raises(ValueError, match=r"losses in \[0, 2\]"):
        one.observe(2.5)
    with pytest.raises(ValueError, match="eta: expected"):
        KernelizedOMWU(MSet(4, 2), 10, eta=-1)
    with pytest.raises(ValueError, match="span the set, rank 4"):
        KernelizedGeometricHedge(MSet(4, 2), 10, exploration=[[1, 1, 0, 0]])
    with pytest.warns(UserWarning, match="8 r² m = 256"):
        KernelizedGeometricHedge(MSet(4, 2), 10, eta="theory")


def test_trees_of_a_real_network_are_learned():
    club = nx.karate_club_graph()
    learner, rng = KernelizedExp3IX(SpanningTreeSet(club), 200), np.random.default_rng(0)
    play(learner, 20, rng)
    assert learner.law().marginals.sum() == pytest.approx(33)
