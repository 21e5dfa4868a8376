import subprocess
import sys

import pytest
import torch
from sumo_ground import matrix

from thrifty.training.sumo import randomized_range
from thrifty.training.sumo.scaling import limit_growth, shape_scale
from thrifty.training.sumo.subspace import (
    exact_range,
    gaussian,
    mixed_seed,
    orthonormal,
    sketched_range,
    transport,
)


def decaying(rng, m, n, power=1.0):
    U = torch.linalg.qr(matrix(rng, m, n)).Q
    V = torch.linalg.qr(matrix(rng, n, n)).Q
    return U * torch.arange(1, n + 1).float().pow(-power) @ V.T


def lost(G, Q):
    return (G - Q @ (Q.mT @ G)).norm()


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_captures_nearly_what_the_best_subspace_does(power, rng):
    G = decaying(rng, 300, 200, power)
    for seed in range(5):
        Q = randomized_range(G, 10, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(Q.T @ Q, torch.eye(10), atol=1e-5, rtol=0)
        assert lost(G, Q) <= 1.05 * lost(G, exact_range(G, 10))


def test_finds_the_exact_subspace_behind_a_gap_in_order(rng):
    G = decaying(rng, 300, 200)
    U, sigma, Vh = torch.linalg.svd(G, full_matrices=False)
    sigma[:6] += torch.arange(60, 0, -10)
    G = U * sigma @ Vh
    Q = randomized_range(G, 6)
    cosines = torch.linalg.svdvals(Q.T @ U[:, :6])
    assert (1 - cosines).max() < 1e-5
    torch.testing.assert_close((Q * U[:, :6]).sum(0).abs(), torch.ones(6), atol=1e-4, rtol=0)


def test_truncating_the_sketch_without_the_small_svd_would_be_wrong(rng):
    """What the published re-implementations do."""
    G = decaying(rng, 300, 200, 0.7)
    omega = gaussian(200, 18, torch.Generator().manual_seed(0), "cpu")
    naive = torch.linalg.qr(G @ omega).Q[:, :10]
    assert lost(G, sketched_range(G, 10, omega, 0)) < 0.99 * lost(G, naive)


def test_small_or_thick_sketches_are_exact_and_batches_are_their_members(rng):
    G = matrix(rng, 3, 20, 12)
    torch.testing.assert_close(lost(G, randomized_range(G, 6)), lost(G, exact_range(G, 6)))
    G = matrix(rng, 3, 90, 80)
    for one, whole in zip(G, randomized_range(G, 4), strict=True):
        torch.testing.assert_close(one @ one.T @ whole, one @ one.T @ randomized_range(one, 4), atol=1e-2, rtol=1e-3)
    assert randomized_range(G.bfloat16(), 4).dtype == torch.float32
    assert randomized_range(matrix(rng, 5, 3), 8).shape == (5, 3)
    torch.testing.assert_close(lost(G, randomized_range(1e-30 * G, 4)), lost(G, randomized_range(G, 4)))


@pytest.mark.parametrize("argument", ["rank", "oversample", "power_iters"])
def test_bad_arguments_are_named(argument, rng):
    with pytest.raises(ValueError, match=f"^{argument}: expected a whole number of at least"):
        randomized_range(matrix(rng, 4, 4), **{"rank": 2, argument: -1})


def test_two_processes_with_one_seed_find_the_same_basis():
    script = (
        "import torch; from thrifty.training.sumo import randomized_range; torch.set_num_threads(1);"
        "G = torch.randn(200, 150, generator=torch.Generator().manual_seed(1));"
        "print(randomized_range(G, 5, generator=torch.Generator().manual_seed(2)).numpy().tobytes().hex())"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout for _ in range(2)
    )
    assert first == second


def test_rows_or_columns_in_pieces_give_the_same_subspace(rng):
    """Pretend that two ranks each hold a piece, by summing over the pieces in place."""
    G = decaying(rng, 120, 80)
    omega = gaussian(80, 14, torch.Generator().manual_seed(0), "cpu")
    whole = sketched_range(G, 6, omega, 2)

    def padded(X):  # a rank whose sum is the whole, because the other rank has nothing
        return X

    rows = sketched_range(G, 6, omega, 2, sum_rows=padded)
    columns = sketched_range(G, 6, omega, 2, sum_columns=padded)
    for found in (rows, columns):
        torch.testing.assert_close(torch.linalg.svdvals(found.T @ whole), torch.ones(6), atol=1e-5, rtol=0)
        torch.testing.assert_close(found.T @ found, torch.eye(6), atol=1e-5, rtol=0)


def test_cholesky_qr_completes_a_basis_where_directions_are_missing(rng):
    for m, k in ((50, 8), (64, 64), (400, 400)):
        X = matrix(rng, m, 3) @ matrix(rng, 3, k)
        Q = orthonormal(X, lambda tensor: tensor)
        torch.testing.assert_close(Q.T @ Q, torch.eye(k), atol=1e-5, rtol=0)
        assert lost(X, Q) < 1e-4 * X.norm()


def test_transport_keeps_a_moment_that_the_new_basis_can_hold(rng):
    old = torch.linalg.qr(matrix(rng, 30, 5, dtype=torch.float64)).Q
    M = matrix(rng, 5, 12, dtype=torch.float64)
    rotated = old @ torch.linalg.qr(matrix(rng, 5, 5, dtype=torch.float64)).Q
    torch.testing.assert_close(rotated @ transport(M, rotated.T @ old), old @ M)
    other = torch.linalg.qr(matrix(rng, 30, 5, dtype=torch.float64)).Q
    torch.testing.assert_close(other @ transport(M, other.T @ old), other @ other.T @ old @ M)


def test_scales():
    assert shape_scale("sqrt_max", 16, 9, 2) == 4
    assert shape_scale("match_rms_adamw", 9, 16, 2) == pytest.approx(0.8)
    assert shape_scale("original", 16, 4, 2) == 2
    assert shape_scale("original", 4, 16, 2) == 1
    assert shape_scale("none", 4, 16, 2) == 1
    update = torch.linalg.qr(torch.randn(64, 4)).Q @ torch.linalg.qr(torch.randn(48, 4)).Q.T
    assert (shape_scale("rank_rms", 64, 48, 4) * update).square().mean().sqrt() == pytest.approx(0.2, rel=1e-5)
    with pytest.raises(ValueError, match="adjust_lr_fn"):
        shape_scale("spectral", 4, 4, 2)


def test_growth_is_limited_and_zero_is_never_remembered():
    norm, previous = torch.tensor(3.0), torch.tensor(2.0)
    factor, kept = limit_growth(norm, previous, 1.1)
    assert (factor * norm).item() == pytest.approx(2.2)
    assert kept.item() == pytest.approx(2.2)
    assert limit_growth(norm, torch.tensor(0.0), 1.1) == (1.0, 3.0)
    assert limit_growth(torch.tensor(0.0), previous, 1.1) == (1.0, 2.0)
    assert limit_growth(torch.tensor(1.0), previous, 1.1) == (1.0, 1.0)


def test_seeds_are_mixed():
    seeds = {mixed_seed(a, b, c) for a in range(10) for b in range(10) for c in range(10)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**63 for seed in seeds)
