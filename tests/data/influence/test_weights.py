"""Weights: closed form, second order, brute force, and what moves them."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from thrifty.data.influence import sparse_simplex_weights
from thrifty.data.influence.weights import Quadratic, simplex_projection, simplex_weights


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_golden_closed_form():
    w, lam = sparse_simplex_weights(tensor(3, 2, 1, 0), 2)
    assert lam == pytest.approx(0.75)
    assert w.tolist() == pytest.approx([8 / 3, 4 / 3, 0, 0])
    w, lam = sparse_simplex_weights(tensor(0.9, 0.5, 0.4, -0.2, -0.7), 3)
    assert lam == pytest.approx(0.48)
    assert w.tolist() == pytest.approx([2.2916667, 1.4583333, 1.25, 0, 0])


@pytest.mark.parametrize(
    ("lam", "expected"), [(0.25, [4, 0, 0, 0]), (1.5, [2, 4 / 3, 2 / 3, 0]), (10, [1.15, 1.05, 0.95, 0.85])]
)
def test_golden_at_a_given_lambda(lam, expected):
    assert simplex_weights(tensor(3, 2, 1, 0), lam).tolist() == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30), st.floats(0.01, 20), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_weights_sum_to_n_and_do_not_expand_errors(values, lam, seed):
    p = torch.tensor(values, dtype=torch.float64)
    noisy = p + torch.randn(len(p), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    w, v = simplex_weights(p, lam), simplex_weights(noisy, lam)
    assert float(w.sum()) == pytest.approx(len(p))
    assert float((w - v).norm()) <= float((p - noisy).norm()) / lam + 1e-9
    assert float(w.min()) >= 0


def test_the_support_is_the_best_of_all():
    p = torch.randn(12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = sparse_simplex_weights(p, 3)

    def best_on(support):
        rows = list(support)
        w = simplex_projection(p[rows] / found.lam, 12.0)
        return float(-(p[rows] @ w) + found.lam / 2 * w.square().sum())

    best = min(combinations(range(12), 3), key=best_on)
    assert set(found.indices.tolist()) == set(best) == set(np.flatnonzero(found.w.numpy()))


def random_quadratic(n, seed=0, rank=None):
    g = torch.Generator().manual_seed(seed)
    A = torch.randn(n, rank or n, generator=g, dtype=torch.float64)
    return A @ A.T / n, torch.randn(n, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("lam", [0.03, 0.5, 4.0])
def test_second_order_solves_the_quadratic_programme(lam):
    Q, p = random_quadratic(8)
    w = simplex_weights(p, lam, Quadratic(Q))
    answer = minimize(
        lambda x: -p.numpy() @ x + x @ Q.numpy() @ x / 2 + lam / 2 * x @ x, np.ones(8),
        jac=lambda x: -p.numpy() + Q.numpy() @ x + lam * x, method="SLSQP", bounds=[(0, None)] * 8,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 8}, options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert w.numpy() == pytest.approx(answer.x, abs=1e-5)


def test_second_order_keeps_exactly_k_and_tends_to_first_order():
    Q, p = random_quadratic(30)
    first = sparse_simplex_weights(p, 6)
    for eta, near in ((0.0, 1e-12), (1e-9, 1e-6), (1e-6, 1e-3)):
        found = sparse_simplex_weights(p, 6, Q, eta)
        assert int((found.w > 0).sum()) == 6
        assert found.w.numpy() == pytest.approx(first.w.numpy(), abs=near * 30)
    assert sparse_simplex_weights(p, 6, torch.zeros(30, 30), 0.1).w.equal(first.w)
    strong = sparse_simplex_weights(p, 6, Q, 0.2)
    assert int((strong.w > 0).sum()) == 6
    assert float(strong.w.sum()) == pytest.approx(30)
    assert strong.w.numpy() != pytest.approx(first.w.numpy(), abs=1e-2)


def test_a_factored_quadratic_is_the_matrix():
    g = torch.Generator().manual_seed(0)
    core, C = torch.randn(4, 4, generator=g).double(), torch.randn(20, 4, generator=g).double()
    core = core @ core.T
    p = torch.randn(20, generator=g).double()
    factored, whole = Quadratic(core, C), Quadratic(C @ core @ C.T)
    assert factored.extremes() == pytest.approx(whole.extremes(), abs=1e-8)
    assert sparse_simplex_weights(p, 5, factored).w.numpy() == pytest.approx(
        sparse_simplex_weights(p, 5, whole).w.numpy(), abs=1e-5
    )


def test_an_indefinite_quadratic_raises_lambda_and_says_so():
    Q, p = random_quadratic(12)
    found = sparse_simplex_weights(p, 3, Q - 3 * torch.eye(12), 1.0)
    assert found.raised
    assert found.lam >= -found.curvature[0] - 1e-9
    assert int((found.w > 0).sum()) == 3


def test_ties_go_to_the_lower_index_and_are_reported():
    found = sparse_simplex_weights(tensor(1, 5, 1, 1), 2)
    assert found.tied
    assert found.indices.tolist() == [1, 0]
    assert int((found.w > 0).sum()) == 2
    assert not sparse_simplex_weights(tensor(1, 5, 2, 0), 2).tied
    equal = sparse_simplex_weights(tensor(2, 2, 2), 2)
    assert equal.w.tolist() == pytest.approx([1.5, 1.5, 0])


def test_all_kept_and_excluded():
    assert int((sparse_simplex_weights(tensor(3, 1, 2), 3).w > 0).sum()) == 3
    p = tensor(3, -torch.inf, 2, 1, 0)
    found = sparse_simplex_weights(p, 2)
    assert found.w[1] == 0
    assert float(found.w.sum()) == pytest.approx(5)
    # λ and τ are those of the problem without the excluded one, at the pool's n
    assert found.w[0] / found.w[2] == pytest.approx(2.0)
    Q, _ = random_quadratic(5)
    second = sparse_simplex_weights(p, 2, Q, 1e-9)
    assert second.w.numpy() == pytest.approx(found.w.numpy(), abs=1e-5)
    assert second.lam == pytest.approx(found.lam, rel=1e-5)


def test_bad_input():
    with pytest.raises(ValueError, match="k: expected 1 to 2"):
        sparse_simplex_weights(tensor(1, 2), 3)
    with pytest.raises(ValueError, match="k: expected 1 to 2.*got 0"):
        sparse_simplex_weights(tensor(1, 2), 0)
    with pytest.raises(ValueError, match="p: expected finite"):
        sparse_simplex_weights(tensor(1, torch.nan), 1)
    with pytest.raises(ValueError, match="eta"):
        sparse_simplex_weights(tensor(1, 2), 1, torch.eye(2))
    with pytest.raises(ValueError, match="eta"):
        sparse_simplex_weights(tensor(1, 2), 1, torch.eye(2), -0.1)
    with pytest.raises(ValueError, match="Q: expected a finite matrix, 2 × 2"):
        sparse_simplex_weights(tensor(1, 2), 1, torch.full((2, 2), torch.nan), 0.1)


def test_only_the_symmetric_part_of_a_quadratic_counts():
    Q, p = random_quadratic(8)
    A = torch.triu(torch.ones(8, 8, dtype=torch.float64), 1)
    lopsided = sparse_simplex_weights(p, 3, Q + A - A.T, 0.3)
    assert lopsided.w.numpy() == pytest.approx(sparse_simplex_weights(p, 3, Q, 0.3).w.numpy(), abs=1e-9)
