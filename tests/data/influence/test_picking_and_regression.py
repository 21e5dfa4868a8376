"""Rounds, groups, kernel ridge regression and its report."""

import time

import numpy as np
import pytest
import torch

from thrifty.data.influence.landmarks import given, spread_out
from thrifty.data.influence.picking import by_group, keep_first, round_robin, top
from thrifty.data.influence.regression import fit_kernel_ridge, quality

E5 = torch.tensor([[0.0, 0], [1, 0], [0, 2], [3, 1], [0.5, 0.5]])
P4 = torch.tensor([[1.0], [-1], [0.5], [2]])


@pytest.mark.parametrize(("n", "m", "k"), [(50, 3, 20), (50, 7, 50), (300, 2, 299), (9, 20, 5)])
def test_rounds_take_different_rows(n, m, k):
    scores = np.random.default_rng(0).standard_normal((n, m))
    chosen = round_robin(scores, k)
    assert len(set(chosen.tolist())) == k == len(chosen)
    assert chosen.tolist() == round_robin(scores, k).tolist() == round_robin(torch.from_numpy(scores), k).tolist()


def test_one_target_is_the_top_and_everything_is_a_permutation():
    scores = np.random.default_rng(1).standard_normal((40, 1))
    assert round_robin(scores, 7).tolist() == np.argsort(-scores[:, 0])[:7].tolist()
    assert top(scores[:, 0], 7).tolist() == round_robin(scores, 7).tolist()
    many = np.random.default_rng(2).standard_normal((40, 5))
    assert sorted(round_robin(many, 40)) == list(range(40))


@pytest.mark.parametrize(
    ("n", "k", "alike"),
    [(60, 45, False), (400, 60, False), (400, 200, True)],
    ids=["columns sorted whole", "only the heads of columns", "heads run dry"],
)
def test_rounds_agree_with_the_definition(n, k, alike):
    scores = np.random.default_rng(3).integers(0, n // 6, (n, 4)).astype(float)  # with ties
    if alike:
        scores[:] = scores[:, :1]  # every column then goes down as far as row k
    order, left, expected = np.random.default_rng(5), set(range(n)), []
    while len(expected) < k:
        for t in order.permutation(4):
            best = max(left, key=lambda i, t=t: (scores[i, t], -i))
            left.remove(best)
            expected.append(best)
    assert round_robin(scores, k, seed=5).tolist() == expected[:k]


def test_the_fixed_order_and_what_may_not_be_chosen():
    scores = np.array([[0.1, 0.9], [0.8, 0.7], [-np.inf, -np.inf]])
    assert round_robin(scores, 2, seed=None).tolist() == [1, 0]
    with pytest.raises(ValueError, match="k: expected 1 to 2"):
        round_robin(scores, 3)


def test_whole_numbers_are_ordered_and_what_is_no_number_is_refused():
    assert round_robin(np.array([[0], [5], [3]], dtype=np.uint8), 2).tolist() == [1, 2]
    assert round_robin(torch.tensor([[0.0], [5.0], [3.0]], dtype=torch.bfloat16), 2).tolist() == [1, 2]
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="scores: expected finite numbers"):
            round_robin(np.array([[wrong], [1.0]]), 1)
    with pytest.raises(ValueError, match="at least one column"):
        round_robin(np.zeros((3, 0)), 1)
    with pytest.raises(TypeError):
        round_robin(np.zeros((3, 1)), 1.5)


def test_many_are_chosen_quickly():
    scores = np.random.default_rng(0).standard_normal((50_000, 50), dtype=np.float32)
    began = time.perf_counter()
    assert len(np.unique(round_robin(scores, 5_000))) == 5_000
    assert time.perf_counter() - began < 60  # an argmax over n a pick would take far longer; a target, not a timing


def test_groups_average_their_columns():
    scores = torch.tensor([[1.0, 3, 5], [2, 4, 6], [-torch.inf] * 3])
    merged, names = by_group(scores, ["a", "b", "a"])
    assert names == ["a", "b"]
    assert merged[:2].tolist() == [[3, 3], [4, 4]]
    assert torch.isneginf(merged[2]).all()
    with pytest.raises(ValueError, match="one id a target"):
        by_group(scores, ["a"])


def test_repetitions_are_found():
    assert keep_first([b"a", b"b", b"a"]).tolist() == [True, True, False]


def test_golden_kernel_ridge():
    fit = fit_kernel_ridge(E5[:4], P4)
    assert fit.bandwidth == pytest.approx(2.236068, abs=1e-5)
    expected = [0.811019, -0.778084, 0.520625, 1.908254, 0.050515]
    assert fit.predict(E5)[:, 0].tolist() == pytest.approx(expected, abs=2e-5)


def test_no_damping_interpolates():
    fit = fit_kernel_ridge(E5, torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), damp=0.0)
    scores = fit.predict(E5)
    assert torch.allclose(scores, torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), atol=1e-3)


def test_the_linear_kernel_is_ridge_regression():
    g = torch.Generator().manual_seed(0)
    E, P, new = torch.randn(12, 4, generator=g), torch.randn(12, 2, generator=g), torch.randn(5, 4, generator=g)
    ridge = 1e-2 * float((E @ E.T).diagonal().mean())
    primal = new @ torch.linalg.solve(E.T @ E + ridge * torch.eye(4), E.T @ P)
    assert torch.allclose(fit_kernel_ridge(E, P, kernel="linear").predict(new), primal, atol=1e-3)


def test_leaving_one_out_is_what_a_second_fit_says():
    g = torch.Generator().manual_seed(0)
    E, P = torch.randn(15, 3, generator=g), torch.randn(15, 2, generator=g)
    fit = fit_kernel_ridge(E, P, bandwidth=1.5)
    for i in (0, 7):
        rest = [j for j in range(15) if j != i]
        again = fit_kernel_ridge(E[rest], P[rest], bandwidth=1.5).predict(E[i : i + 1])[0]
        assert torch.allclose(fit.leave_one_out[i], again, atol=1e-4)


def test_distances_survive_large_offsets():
    far = E5 + 1e4
    assert fit_kernel_ridge(far[:4], P4).predict(far)[:, 0].tolist() == pytest.approx(
        fit_kernel_ridge(E5[:4], P4).predict(E5)[:, 0].tolist(), abs=1e-2
    )


def test_repeated_landmarks_are_damped(caplog):
    E = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).repeat(3, 1)
    fit = fit_kernel_ridge(E, torch.ones(18, 1), damp=0.0)
    assert fit.damp > 0
    assert "damp was raised" in caplog.text
    assert torch.isfinite(fit.predict(E)).all()


def test_quality_of_a_perfect_and_a_useless_prediction():
    truth = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    assert quality(truth, truth, "held out").correlation == pytest.approx(1)
    assert quality(truth, truth, "held out").r2 == pytest.approx(1)
    flat = quality(truth, torch.zeros(50, 3), "held out")
    assert flat.correlation == 0
    assert flat.verdict.startswith("poor")


def test_landmarks_far_apart():
    points = torch.cat([torch.zeros(50, 2), torch.tensor([[9.0, 0], [0, 9.0]])])
    points += 1e-3 * torch.randn(points.shape, generator=torch.Generator().manual_seed(0))
    chosen = spread_out(points, np.arange(52), 3, np.random.default_rng(0))
    assert {50, 51} <= set(chosen.tolist())
    same = spread_out(torch.zeros(8, 2), np.arange(8), 4, np.random.default_rng(0))
    assert len(set(same.tolist())) == 4


def test_bad_input():
    with pytest.raises(ValueError, match="bandwidth is 0"):
        fit_kernel_ridge(torch.ones(5, 3), torch.ones(5, 1))
    with pytest.raises(ValueError, match="finite"):
        fit_kernel_ridge(torch.full((5, 3), torch.nan), torch.ones(5, 1))
    with pytest.raises(ValueError, match="one row a landmark"):
        fit_kernel_ridge(torch.ones(5, 3), torch.ones(4, 1))
    with pytest.raises(ValueError, match="between 0 and 4, got 7"):
        given([7], np.arange(5), 5)
    with pytest.raises(ValueError, match="whole numbers"):
        given([0.9, 1.7], np.arange(5), 5)
    with pytest.raises(ValueError, match="1 repetitions"):
        given([1, 1], np.arange(5), 5)
    with pytest.raises(ValueError, match="examples at 2 have no label token"):
        given([1, 2], np.array([0, 1, 3]), 5)
