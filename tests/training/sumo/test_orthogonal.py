import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sumo_ground import conditioned, matrix

from thrifty.training.sumo import orthogonalize
from thrifty.training.sumo.orthogonal import newton_schulz, relative_error

EXACT = ("auto", "qr_svd", "svd", "gram64")
each_exact = pytest.mark.parametrize("method", EXACT)


@each_exact
@pytest.mark.parametrize("shape", [(8, 64), (64, 8), (16, 16), (1, 5)])
def test_is_the_orthogonal_polar_factor(method, shape, rng):
    M = matrix(rng, *shape)
    found = orthogonalize(M, method)
    expected = torch.from_numpy(scipy.linalg.polar(M.double().numpy())[0]).float()
    torch.testing.assert_close(found, expected, atol=5e-6, rtol=0)
    short = found if shape[0] <= shape[1] else found.T
    torch.testing.assert_close(short @ short.T, torch.eye(min(shape)), atol=2e-6, rtol=0)


@each_exact
def test_does_not_see_scale_and_commutes_with_rotations(method, rng):
    M = matrix(rng, 6, 20, dtype=torch.float64)
    A = torch.linalg.qr(matrix(rng, 6, 6, dtype=torch.float64)).Q
    B = torch.linalg.qr(matrix(rng, 20, 20, dtype=torch.float64)).Q
    found = orthogonalize(M, method)
    torch.testing.assert_close(orthogonalize(17.0 * M, method), found)
    torch.testing.assert_close(orthogonalize(A @ M @ B, method), A @ found @ B)


@each_exact
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_stays_zero_and_missing_rank_is_not_made_up(method, dtype, rng):
    assert not orthogonalize(torch.zeros(4, 9, dtype=dtype), method).any()
    M = matrix(rng, 5, 2, dtype=dtype) @ matrix(rng, 2, 9, dtype=dtype)
    found = orthogonalize(M, method)
    torch.testing.assert_close(found.norm() ** 2, torch.tensor(2.0, dtype=dtype), atol=1e-4, rtol=0)
    torch.testing.assert_close(found @ M.T @ found, M, atol=1e-4, rtol=1e-4)  # (M Mᵀ)^(1/2) O = M


@each_exact
def test_tiny_gradients_do_not_underflow(method, rng):
    M = matrix(rng, 4, 9)
    torch.testing.assert_close(orthogonalize(1e-30 * M, method), orthogonalize(M, method), atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [1e-36, 1e-38, 1e-40, 1e-44])
@each_exact
def test_gradients_at_the_end_of_the_range_stay_finite(method, size, rng):
    for M in (matrix(rng, 4, 9), torch.ones(4, 12)):
        found = orthogonalize(size * M, method)
        assert found.isfinite().all()
        assert found.norm() <= 2.001


@each_exact
def test_a_batch_is_its_members(method, rng):
    batch = matrix(rng, 3, 2, 5, 12)
    batch[1, 1] = 0
    found = orthogonalize(batch, method)
    for i in range(3):
        for j in range(2):
            torch.testing.assert_close(found[i, j], orthogonalize(batch[i, j], method), atol=1e-6, rtol=1e-5)


def test_newton_schulz_errs_with_the_condition_number_and_the_svd_does_not():
    muon, classical = [], []
    for condition in (1, 10, 1e2, 1e3, 1e4):
        found = []
        for seed in range(15):
            M = conditioned(torch.Generator().manual_seed(seed), 8, 64, condition)
            exact = orthogonalize(M.double(), "svd")
            slow = newton_schulz(M.double(), 5, (1.5, -0.5, 0.0), torch.float64)
            found.append((relative_error(M, "ns5").item(), ((slow - exact).norm() / 8**0.5).item()))
            for method in EXACT:
                assert relative_error(M, method) < 3e-4, (method, condition)
        muon.append(sum(a for a, _ in found) / len(found))
        classical.append(sum(b for _, b in found) / len(found))
    # One matrix in bfloat16 strays by 0.05 at the last; these are means over fifteen.
    assert muon == pytest.approx([0.072, 0.217, 0.198, 0.317, 0.518], abs=0.04)
    assert classical == pytest.approx([0.0007, 0.23, 0.57, 0.71, 0.78], abs=0.02)


def test_newton_schulz_is_torchs(rng):
    from torch.optim._muon import _zeropower_via_newtonschulz  # the rival's own iteration

    M = matrix(rng, 8, 64)
    theirs = _zeropower_via_newtonschulz(M, (3.4445, -4.7750, 2.0315), 5, 1e-7)
    torch.testing.assert_close(newton_schulz(M), theirs.float(), atol=2e-2, rtol=0)


def test_a_gram_matrix_in_float32_loses_ill_conditioned_moments(rng):
    M = conditioned(rng, 8, 64, 1e4)
    assert relative_error(M, "gram32") > 0.1
    assert relative_error(M, "gram64") < 3e-4


def test_classical_newton_schulz_stays_within_the_papers_bound(rng):
    M = conditioned(rng, 6, 30, 5, torch.float64)
    M = M / torch.linalg.matrix_norm(M, 2)
    exact = orthogonalize(M, "svd")
    X = M
    for i in range(1, 7):  # lemma 3.2: (1 - 1/κ)^(2^i), κ = 25 the condition number of M Mᵀ
        X = 1.5 * X - 0.5 * X @ X.T @ X
        assert torch.linalg.matrix_norm(X - exact, 2) <= (1 - 1 / 25) ** (2**i) + 1e-12


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**31), st.sampled_from(EXACT))
def test_it_is_the_nearest_partial_isometry(r, n, seed, method):
    rng = torch.Generator().manual_seed(seed)
    M = matrix(rng, r, n, dtype=torch.float64)
    best = (M - orthogonalize(M, method)).norm()
    U = torch.linalg.qr(matrix(rng, max(r, n), min(r, n), dtype=torch.float64)).Q
    assert best <= (M - (U.T if r < n else U)).norm() + 1e-9


def test_16_bits_are_widened_and_bad_arguments_are_named(rng):
    M = matrix(rng, 3, 7)
    assert orthogonalize(M.bfloat16()).dtype == torch.float32
    with pytest.raises(ValueError, match=r"method: expected one of 'auto'.*'polar'"):
        orthogonalize(M, "polar")
    with pytest.raises(ValueError, match="M: expected a matrix"):
        orthogonalize(M[0])
    with pytest.raises(ValueError, match="tol: expected a number"):
        orthogonalize(M, tol=1.0)
    assert orthogonalize(torch.zeros(0, 4)).shape == (0, 4)
