"""The clean-room rivals do what their papers say: against brute force, closed forms, and one another."""

import numpy as np
import pytest
from scipy.optimize import nnls

torch = pytest.importorskip("torch")

from thrifty.solvers.ellice.rivals import (  # noqa: E402
    local_weights,
    margin,
    proplace,
    roar,
    robust_neighbours,
    trex,
    worst_logit_in_box,
)


@pytest.fixture(scope="module")
def linear(cancer):
    X, _, model = cancer
    theta = np.append(model.coef_, model.intercept_)
    return X, theta, X[model.decision_function(X) < 0][:6]


@pytest.mark.parametrize("depth", [1, 2])
def test_the_worst_logit_in_a_box_is_below_all_corners_and_attained(depth):
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=(3, 2)), rng.normal(size=3))] * (depth - 1)
    layers += [(rng.normal(size=(1, 3 if depth == 2 else 2)), rng.normal(size=1))]
    rows, delta = rng.normal(size=(4, 2)), 0.1
    worst = worst_logit_in_box(rows, layers, delta)
    sizes = [part.shape for layer in layers for part in layer]
    count = sum(int(np.prod(size)) for size in sizes)
    lowest = np.full(4, np.inf)
    for corner in range(2**count):
        signs = np.array([1 if corner >> bit & 1 else -1 for bit in range(count)])
        at, moved = 0, []
        for part in (part for layer in layers for part in layer):
            moved.append(part + delta * signs[at : at + part.size].reshape(part.shape))
            at += part.size
        hidden = np.maximum(rows @ moved[0].T + moved[1], 0) if depth == 2 else rows
        lowest = np.minimum(lowest, (hidden @ moved[-2].T + moved[-1])[:, 0])
    assert (worst <= lowest + 1e-12).all()
    np.testing.assert_allclose(worst, lowest, atol=0.02 if depth == 2 else 1e-12)


def test_deeper_networks_are_refused():
    layer = (np.eye(2), np.zeros(2))
    with pytest.raises(ValueError, match="layers: expected one or two, .*got 3"):
        worst_logit_in_box(np.zeros((1, 2)), [layer, layer, layer], 0.1)


def test_robust_neighbours_are_on_the_way_to_the_nearest_robust_row(linear):
    X, theta, rows = linear
    layers, delta = [(theta[None, :-1], theta[-1:])], 0.05
    whole = robust_neighbours(rows, X, layers, delta, halvings=0)
    robust = X[worst_logit_in_box(X, layers, delta) >= 0]
    far = np.linalg.norm(rows[:, None] - robust[None], axis=2)
    np.testing.assert_allclose(np.linalg.norm(rows - whole, axis=1), far.min(axis=1))
    walked = robust_neighbours(rows, X, layers, delta)
    np.testing.assert_allclose(worst_logit_in_box(walked, layers, delta), 0.0, atol=1e-5)
    share = np.linalg.norm(walked - rows, axis=1) / np.linalg.norm(whole - rows, axis=1)
    np.testing.assert_allclose(walked, rows + share[:, None] * (whole - rows), atol=1e-9)
    assert np.isnan(robust_neighbours(rows, X, layers, 1e3)).all()


def test_proplace_is_robust_within_the_hull_and_nearer_than_a_neighbour(linear):
    X, theta, rows = linear
    layers, delta = [(theta[None, :-1], theta[-1:])], 0.05
    few, many = (proplace(rows, X, theta, delta, k=k) for k in (1, 10))
    assert (worst_logit_in_box(many, layers, delta) >= -1e-7).all()
    lengths = [np.abs(found - rows).sum(axis=1) for found in (many, few)]
    assert (lengths[0] <= lengths[1] + 1e-7).all()
    robust = X[worst_logit_in_box(X, layers, delta) >= 0]
    for row, found in zip(rows, many, strict=True):
        near = robust[np.linalg.norm(robust - row, axis=1).argsort()[:10]]
        corners = np.vstack([row, near])
        _, residual = nnls(np.vstack([corners.T, np.ones(len(corners))]), np.append(found, 1.0))
        assert residual < 1e-6
    assert np.isnan(proplace(rows, X, theta, 1e3)).all()


def test_descents_reach_what_they_ask_for(linear):
    X, theta, rows = linear

    def logit(x):
        return x @ torch.as_tensor(theta[:-1]) + float(theta[-1])

    np.testing.assert_allclose(margin(rows, theta, 1.0) @ theta[:-1] + theta[-1], 1.0)
    fitted = local_weights(rows, logit)
    np.testing.assert_allclose(fitted, np.tile(theta, (len(rows), 1)), atol=1e-6)
    np.testing.assert_allclose(roar(rows, fitted, 0.02), roar(rows, theta, 0.02), atol=1e-6)
    found = trex(rows, logit, 0.7, k=50, steps=1000)
    score = 1 / (1 + np.exp(-(found @ theta[:-1] + theta[-1])))
    assert (score > 0.7).all()
    assert np.isfinite(found).all()
    assert X.shape[1] == found.shape[1]
