"""The ellipsoid's closed forms against sampling, autograd, hand calculation and golden values."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from thrifty.solvers.ellice import ElliCE, EpsilonTooLargeError, RashomonEllipsoid
from thrifty.solvers.ellice.geometry import Ellipsoid
from thrifty.solvers.ellice.logistic import hessian, mean_log_loss, minimise, objective, with_constant
from thrifty.solvers.ellice.projection import Projector

HAND = Ellipsoid(np.array([2.0, -1.0]), np.linalg.cholesky(np.diag([4.0, 1.0])), 0.5)


def test_one_dimension_by_hand():
    x = np.linspace(-3, 3, 13)
    np.testing.assert_allclose(HAND.robust(with_constant(x[:, None]), 1), 2 * x - 1 - np.sqrt(x**2 / 4 + 1), rtol=1e-14)
    projector = Projector.build(HAND, 1, np.ones(1), np.zeros(1, bool))
    found, feasible = projector.project(np.zeros((1, 1)), 1, 0.0, 0.0)
    assert feasible.all()
    assert found[0, 0] == pytest.approx(16 / 15, abs=1e-14)


def test_worst_case_is_below_all_samples_and_attained(cancer):
    X, y, model = cancer
    near = RashomonEllipsoid(0.01).fit(model, X, y)
    ellipsoid = near.ellipsoid_
    surface = near.sample(100_000, on_surface=True, random_state=0)
    rows = with_constant(X[:5])
    for sign, target in ((1, 1), (-1, 0)):
        logits = surface @ rows.T
        worst = near.robust_logit(X[:5], target)
        assert (sign * logits >= sign * worst - 1e-12).all()
        for i in range(5):
            theta = near.worst_case_model(X[i], target)
            assert theta @ rows[i] == pytest.approx(worst[i], abs=1e-12)
            assert ellipsoid.excess(theta)[0] == pytest.approx(0.01, abs=1e-12)
    assert near.contains(surface).all()
    assert not near.contains(ellipsoid.theta + 1.001 * (surface[:100] - ellipsoid.theta)).any()
    assert near.contains(near.sample(1000, random_state=1)).all()


def test_golden_values(cancer):
    X, y, model = cancer
    near = RashomonEllipsoid(0.01).fit(model, X, y)
    theta, rows = near.ellipsoid_.theta, with_constant(X)
    assert mean_log_loss(theta, rows, y) == pytest.approx(0.049490, abs=1e-6)
    of_weights = mean_log_loss(theta, rows, y) + 0.5e-3 * theta[:-1] @ theta[:-1]
    assert of_weights == pytest.approx(0.059828, abs=1e-6)
    assert ((rows @ theta > 0) != y).sum() == 7
    assert np.linalg.norm(theta[:-1]) == pytest.approx(4.5471, abs=1e-4)
    assert theta[-1] == pytest.approx(0.0594, abs=1e-4)
    H = hessian(theta, rows, 1e-3)
    assert np.linalg.cond(H) == pytest.approx(140, abs=1)
    assert np.linalg.slogdet(H)[1] == pytest.approx(-172.08, abs=0.01)
    assert (near.robust_logit(X, 1) >= 0).sum() == 272
    assert (near.robust_logit(X, 0) <= 0).sum() == 164
    assert near.robust_logit(X[[20, 0]], 1) == pytest.approx([2.7256, -38.4200], abs=1e-4)
    assert near.nominal_logit(X[[20, 0]]) == pytest.approx([7.4566, -23.5068], abs=1e-4)
    assert near.max_epsilon() == pytest.approx(0.0591, abs=1e-4)
    assert near.max_epsilon() == pytest.approx(theta @ H @ theta / 2, rel=1e-10)
    other = RashomonEllipsoid(0.01, l2=1e-4).fit(model, X, y)
    assert [(other.robust_logit(X, 1) >= 0).sum(), (other.robust_logit(X, 0) <= 0).sum()] == [232, 129]
    smaller = RashomonEllipsoid(0.005).fit(model, X, y)
    assert [(smaller.robust_logit(X, 1) >= 0).sum(), (smaller.robust_logit(X, 0) <= 0).sum()] == [316, 183]


def test_radius_is_where_the_certificate_ends(cancer):
    X, y, model = cancer
    near = RashomonEllipsoid(0.01).fit(model, X, y)
    for target, threshold in ((1, 0.5), (0, 0.5), (1, 0.8)):
        t = np.log(threshold / (1 - threshold))
        sign = 1 if target else -1
        radius = near.robustness_radius(X, target, threshold)
        for i in np.flatnonzero(radius > 0)[:20]:
            at = near.ellipsoid_.with_epsilon(radius[i]).robust(with_constant(X[i : i + 1]), sign)[0]
            assert at == pytest.approx(t, abs=1e-9)
        assert ((radius >= 0.01) == (sign * (near.robust_logit(X, target) - t) >= 0)).all()


@pytest.mark.parametrize(("sign", "threshold"), [(1, 0.0), (-1, 0.0), (1, 1.5), (-1, -0.7)])
def test_max_epsilon_is_exact_for_each_class(sign, threshold):
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5))
    base = Ellipsoid(rng.normal(size=5), np.linalg.cholesky(root @ root.T + 0.1 * np.eye(5)), 1.0)
    most = base.max_epsilon(sign, threshold)
    for factor, possible in ((1 - 1e-6, True), (1 + 1e-6, False)):
        projector = Projector.build(base.with_epsilon(factor * most), sign, np.ones(4), np.zeros(4, bool))
        assert projector.project(np.zeros((1, 4)), sign, threshold, 0.0)[1][0] == possible


def test_squared_loss_makes_the_ellipsoid_the_rashomon_set():
    rng = np.random.default_rng(0)
    rows, l2 = with_constant(rng.normal(size=(200, 6))), 1e-3
    y = rng.normal(size=200)
    H = rows.T @ rows / 200 + l2 * np.eye(7)
    theta = np.linalg.solve(H, rows.T @ y / 200)
    surface = Ellipsoid(theta, np.linalg.cholesky(H), 0.05).sample(500, rng, on_surface=True)

    def loss(at):
        return 0.5 * np.mean((rows @ at - y) ** 2) + 0.5 * l2 * at @ at

    np.testing.assert_allclose([loss(at) for at in surface], loss(theta) + 0.05, rtol=1e-12)


def test_hessian_is_the_second_derivative(cancer):
    X, y, _ = cancer
    rows, theta = with_constant(X[:, :4]), np.array([0.3, -0.2, 0.5, 0.1, 0.2])
    step, e = 1e-4, np.eye(5)

    def value(at):
        return objective(at, rows, y, 0.01)

    numeric = [
        [
            (
                value(theta + step * (a + b)) - value(theta + step * (a - b))
                - value(theta - step * (a - b)) + value(theta - step * (a + b))
            ) / (4 * step**2)
            for a in e
        ]
        for b in e
    ]  # fmt: skip
    np.testing.assert_allclose(hessian(theta, rows, 0.01), numeric, atol=1e-6)


def test_refit_minimises_the_objective(cancer):
    X, y, model = cancer
    rows = with_constant(X)
    theta = minimise(rows, y, 1e-3)
    nudges = np.random.default_rng(0).normal(size=(20, len(theta))) * 1e-3
    assert all(objective(theta + nudge, rows, y, 1e-3) > objective(theta, rows, y, 1e-3) for nudge in nudges)
    near = RashomonEllipsoid(0.01, center="refit").fit(model, X, y)
    np.testing.assert_allclose(near.ellipsoid_.theta, theta, atol=1e-7)


def test_relative_epsilon_coverage_and_parameters(cancer):
    X, y, model = cancer
    near = RashomonEllipsoid(0.1, epsilon_mode="relative").fit(model, X, y)
    assert near.epsilon_ == pytest.approx(0.1 * near.objective_)
    same = RashomonEllipsoid.from_parameters(near.ellipsoid_.theta, X, y, epsilon=near.epsilon_)
    np.testing.assert_allclose(same.robust_logit(X), near.robust_logit(X), rtol=1e-12)
    assert RashomonEllipsoid(1e-9).fit(model, X, y).coverage(200, on_surface=True, random_state=0) > 0
    tight = RashomonEllipsoid(1e-5, center="refit").fit(model, X, y).coverage(300, random_state=0)
    assert 0.95 <= tight <= 1.0
    assert near.coverage(300, on_surface=True, random_state=0) < tight


def test_another_tolerance_is_the_same_ellipsoid_scaled(cancer):
    X, y, model = cancer
    near = RashomonEllipsoid(0.01).fit(model, X, y)
    other, again = near.with_epsilon(0.004), RashomonEllipsoid(0.004).fit(model, X, y)
    np.testing.assert_array_equal(other.robust_logit(X), again.robust_logit(X))
    assert other.coverage(50, random_state=0) == again.coverage(50, random_state=0)
    assert near.epsilon_ == 0.01
    with pytest.raises(ValueError, match="epsilon: expected .*got -1"):
        near.with_epsilon(-1)


def test_torch_parameters_are_taken(cancer):
    torch = pytest.importorskip("torch")
    X, y, model = cancer
    theta = torch.tensor(np.append(model.coef_, model.intercept_), requires_grad=True)
    near = RashomonEllipsoid.from_parameters(theta, torch.tensor(X), torch.tensor(y))
    np.testing.assert_allclose(near.robust_logit(X), RashomonEllipsoid().fit(model, X, y).robust_logit(X), rtol=1e-10)


def test_saved_and_loaded(cancer, tmp_path):
    X, y, model = cancer
    near = RashomonEllipsoid(0.01).fit(model, X, y)
    path = near.save(tmp_path / "near.npz")
    again = RashomonEllipsoid.load(path)
    np.testing.assert_array_equal(again.robust_logit(X), near.robust_logit(X))
    with pytest.raises(FileExistsError):
        near.save(path)
    with pytest.raises(ValueError, match="a saved or sharded ellipsoid does not hold them"):
        again.coverage()
    (tmp_path / "no.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="expected a file that was saved here"):
        RashomonEllipsoid.load(tmp_path / "no.npz")


def test_too_large_a_tolerance_names_the_largest(cancer):
    X, y, model = cancer
    with pytest.raises(EpsilonTooLargeError, match=r"epsilon: expected a tolerance below 0\.0591") as error:
        ElliCE(model, epsilon=0.1).fit(X, y)
    assert error.value.max_epsilon == pytest.approx(0.0591, abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"epsilon": -1.0}, "epsilon: expected .*got -1.0"),
        ({"epsilon": float("nan")}, "epsilon: expected .*got nan"),
        ({"l2": -1.0}, "l2: expected .*got -1.0"),
        ({"epsilon_mode": "other"}, "epsilon_mode: expected .*got 'other'"),
        ({"center": "mean"}, "center: expected .*got 'mean'"),
    ],
)
def test_bad_settings(cancer, settings, says):
    X, y, model = cancer
    with pytest.raises(ValueError, match=says):
        RashomonEllipsoid(**settings).fit(model, X, y)


def test_singular_hessian_suggests_a_penalty(cancer):
    X, y, _ = cancer
    doubled = np.column_stack([X[:, :3], X[:, 0]])
    model = LogisticRegression().fit(doubled, y)
    with pytest.raises(ValueError, match="l2: expected a larger one"):
        RashomonEllipsoid(l2=0.0).fit(model, doubled, y)


def test_labels_of_any_kind(cancer):
    X, y, _ = cancer
    expected = RashomonEllipsoid().fit(LogisticRegression().fit(X, y), X, y).robust_logit(X)
    for labels in (np.where(y == 1, 1, -1), y.astype(bool), np.where(y == 1, "well", "ill")):
        near = RashomonEllipsoid().fit(LogisticRegression().fit(X, labels), X, labels)
        np.testing.assert_allclose(near.robust_logit(X, target=np.unique(labels)[1]), expected, rtol=1e-10)
    with pytest.raises(ValueError, match="y: expected the labels"):
        RashomonEllipsoid().fit(LogisticRegression().fit(X, y), X, np.arange(len(y)))
    with pytest.raises(TypeError, match="model: expected two classes .*got 3"):
        RashomonEllipsoid().fit(LogisticRegression().fit(X, np.arange(len(y)) % 3), X, y)
    with pytest.raises(ValueError, match="y: expected two classes .*got 3"):
        RashomonEllipsoid.from_parameters(np.zeros(31), X, np.arange(len(y)) % 3)
    with pytest.raises(ValueError, match="target: expected .*got 'maybe'"):
        near.robust_logit(X, target="maybe")


def test_separable_data_is_warned_about():
    X = (
        np.vstack([np.full((50, 2), -5.0), np.full((50, 2), 5.0)])
        + np.random.default_rng(0).normal(size=(100, 2)) * 0.1
    )
    y = np.repeat([0, 1], 50)
    with pytest.warns(UserWarning, match="set by l2"):
        RashomonEllipsoid().fit(LogisticRegression(C=1e6).fit(X, y), X, y)


def test_a_huge_last_layer_is_refused(monkeypatch, cancer):
    X, y, model = cancer
    monkeypatch.setattr("thrifty.solvers.ellice.ellipsoid.LARGEST", 10)
    with pytest.raises(ValueError, match="got 31, whose Hessian would take"):
        RashomonEllipsoid().fit(model, X, y)
