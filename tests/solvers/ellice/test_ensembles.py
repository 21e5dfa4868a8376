"""Evaluators, metrics, the exact Rashomon check, tuning, cost."""

import numpy as np
import pytest

from thrifty._common.ledger import Resource, Workload
from thrifty.solvers.ellice import ElliCE, evaluate_recourse, make_ensemble, tune_epsilon
from thrifty.solvers.ellice.cost import predict
from thrifty.solvers.ellice.logistic import minimise, objective, with_constant
from thrifty.solvers.ellice.true_rashomon import true_worst_logit

SIGN = 1


def test_true_worst_logit_is_on_the_boundary_and_below_every_model(cancer):
    X, y, _ = cancer
    rows, l2 = with_constant(X[:, :5]), 1e-3
    theta = minimise(rows, y, l2)
    bound = objective(theta, rows, y, l2) + 0.01
    some = rows[:8]
    for sign in (1, -1):
        worst = true_worst_logit(some, sign, rows, y, l2, bound, theta)
        rng = np.random.default_rng(0)
        for _ in range(400):  # models on the boundary, found by bisection along random directions
            way = rng.normal(size=6)
            low, high = 0.0, 50.0
            for _ in range(60):
                middle = 0.5 * (low + high)
                low, high = (middle, high) if objective(theta + middle * way, rows, y, l2) <= bound else (low, middle)
            assert (sign * (some @ (theta + low * way)) >= sign * worst - 1e-8).all()
    scipy = pytest.importorskip("scipy.optimize")
    for i in range(3):
        found = scipy.minimize(
            lambda at, i=i: some[i] @ at,
            theta,
            method="trust-constr",
            constraints=scipy.NonlinearConstraint(lambda at: objective(at, rows, y, l2), -np.inf, bound),
            options={"gtol": 1e-9, "xtol": 1e-12, "maxiter": 2000},
        )
        worst = true_worst_logit(some[i : i + 1], 1, rows, y, l2, bound, theta)[0]
        assert worst == pytest.approx(found.fun, abs=1e-3)
        assert worst <= found.fun + 1e-6
    with pytest.raises(ValueError, match="start: expected .*got a larger one"):
        true_worst_logit(some, 1, rows, y, l2, bound - 0.011, theta)


@pytest.mark.parametrize(
    "kind", ["bootstrap", "subsample", "shift", "dropout", "awp", "sample", "ellipsoid", "rashomon"]
)
def test_ensembles_of_a_linear_model(cancer, kind):
    from sklearn.linear_model import LogisticRegression

    if kind in ("dropout", "awp"):
        pytest.importorskip("torch")
    X, y, _ = cancer
    X = X[:, :8]
    model = LogisticRegression().fit(X, y)
    ensemble = make_ensemble(kind, model, X, y, 0.02, n_models=12, random_state=0)
    logits = ensemble.logits(X[:7], SIGN)
    assert logits.shape == (max(1, ensemble.size), 7)
    again = make_ensemble(kind, model, X, y, 0.02, n_models=12, random_state=0).logits(X[:7], SIGN)
    np.testing.assert_allclose(again, logits)
    result = ElliCE(model, epsilon=0.02).fit(X, y).explain(X[y == 0][:5])
    scores = evaluate_recourse(result, ensemble, ElliCE(model, epsilon=0.02).fit(X, y))
    assert scores.coverage == 1
    assert 0 <= scores.robustness <= scores.agreement <= 1
    if kind in ("ellipsoid", "sample"):
        assert scores.robustness == 1
    if kind in ("dropout", "awp") and ensemble.bound is not None:
        rows = with_constant(X)
        losses = []
        for one in np.random.default_rng(0).choice(ensemble.size, 3):
            # a linear model's logits determine it
            theta = np.linalg.lstsq(rows, ensemble.logits(X, SIGN)[one], rcond=None)[0]
            losses.append(objective(theta, rows, y, 1e-3))
        assert max(losses) <= ensemble.bound + 1e-9


def test_awp_reaches_the_bound(cancer):
    pytest.importorskip("torch")
    X, y, model = cancer
    rows = with_constant(X)
    tiny = make_ensemble("awp", model, X, y, 1e-4, n_models=4)
    losses = [objective(np.linalg.lstsq(rows, z, rcond=None)[0], rows, y, 1e-3) for z in tiny.logits(X, 1)]
    base = objective(np.append(model.coef_, model.intercept_), rows, y, 1e-3)
    assert all(base < loss <= base + 1e-4 + 1e-9 for loss in losses)


@pytest.mark.slow
@pytest.mark.ci
def test_ensembles_of_networks(net):
    X, y, module = net
    for kind in ("retrain", "dropout", "awp"):
        ensemble = make_ensemble(kind, module, X, y, 0.5, n_models=3)
        assert ensemble.logits(X[:4], SIGN).shape == (ensemble.size, 4)
        assert ensemble.size >= 1
    with pytest.raises(ValueError, match="kind: expected .*got 'rashomon'"):
        make_ensemble("rashomon", module, X, y, 0.1)


def test_ensembles_that_cannot_be(cancer):
    X, y, model = cancer
    with pytest.raises(ValueError, match="the same from every seed"):
        make_ensemble("retrain", model, X, y)
    with pytest.raises(ValueError, match="kind: expected .*got 'other'"):
        make_ensemble("other", model, X, y)
    with pytest.raises(ValueError, match="epsilon_target: expected a number with kind"):
        make_ensemble("sample", model, X, y)
    with pytest.raises(ValueError, match="epsilon_target: expected .*got -1"):
        make_ensemble("sample", model, X, y, -1)


def test_missing_answers_count_against_robustness(credit):
    frame, y, model = credit
    from thrifty.solvers.ellice import Constraints

    persons = frame[model.predict(frame) == "bad"][:10]
    explainer = ElliCE(model, epsilon=0.005, target="good", constraints=Constraints(features_to_vary=["income"]))
    result = explainer.fit(frame, y).explain(persons)
    ensemble = make_ensemble("ellipsoid", model, frame, y, 0.005)
    scores = evaluate_recourse(result, ensemble, explainer)
    assert scores.robustness == scores.coverage == result.answered.mean()
    assert scores.l0 == 1
    assert scores.l2 == pytest.approx(result.distance[result.answered].mean())
    assert 0.8 < scores.outlier < 5


def test_tuning_finds_a_tolerance(cancer):
    X, y, _ = cancer
    small = X[:, :6]
    from sklearn.linear_model import LogisticRegression

    tuned = tune_epsilon(
        LogisticRegression(), small, y, robustness=0.8, folds=2, n_models=8, n_queries=10, steps=3, bounds=None
    )
    assert tuned.reached
    assert tuned.robustness >= 0.8
    assert all(epsilon >= tuned.epsilon for epsilon, robust, _ in tuned.trace if robust >= 0.8)
    with pytest.raises(ValueError, match="robustness: expected .*got 2"):
        tune_epsilon(LogisticRegression(), small, y, robustness=2)


def test_cost():
    delta = predict(Workload("tabular classification", {"queries": 1000, "features": 30, "rows": 5000}))
    assert delta.total(Resource.SECONDS) < 0
    assert not predict(Workload("language modelling")).applies
    with pytest.raises(ValueError, match="'queries'"):
        predict(Workload("tabular classification", {}))
