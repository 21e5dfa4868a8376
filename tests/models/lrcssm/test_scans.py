"""Scans: sums and products, in reverse, associativity, gradients, depth; the Kalman filter; the GPU kernels."""

import math
import os
import subprocess
import sys

import pytest
import torch
from lrc_cells import random

from thrifty.models.lrcssm import Levels, affine_scan, associative_scan
from thrifty.models.lrcssm.scans.tree import combine_affine, combine_matrix_affine
from thrifty.models.lrcssm.solvers import damped
from thrifty.models.lrcssm.solvers.recurrence import linear_scan

BACKENDS = ("cpu", "blocked", "tree", "torch")
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 64, 70, 1000)
each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_kind = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])


def by_hand(a, b, x0):
    x, states = x0, []
    for t in range(b.shape[1]):
        x = a[:, t] * x + b[:, t]
        states.append(x)
    return torch.stack(states, 1)


@each_backend
@each_kind
def test_it_is_the_recurrence_for_any_length_and_in_both_directions(backend, dtype):
    for T in LENGTHS:
        a = random(2, T, 3, dtype=dtype) * 0.7
        b, x0 = random(2, T, 3, seed=1, dtype=dtype), random(2, 3, seed=2, dtype=dtype)
        found = affine_scan(a, b, x0, backend=backend)
        assert (found - by_hand(a, b, x0)).abs().max() < 1e-12, T
        backwards = affine_scan(a, b, x0, reverse=True, backend=backend)
        assert (backwards - affine_scan(a.flip(1), b.flip(1), x0, backend=backend).flip(1)).abs().max() < 1e-12, T


@each_backend
def test_ones_sum_and_zeros_multiply(backend):
    x = random(2, 50, 3)
    assert (affine_scan(torch.ones_like(x), x, backend=backend) - x.cumsum(1)).abs().max() < 1e-12
    one = torch.ones(2, 3, dtype=x.dtype)
    assert (affine_scan(x, torch.zeros_like(x), one, backend=backend) - x.cumprod(1)).abs().max() < 1e-12


@pytest.mark.parametrize("backend", ["cpu", "blocked", "tree"])
@each_kind
def test_gradients_of_first_and_second_order(backend, dtype):
    a, b, x0 = (random(2, 5, 3, dtype=dtype), random(2, 5, 3, seed=1, dtype=dtype), random(2, 3, seed=2, dtype=dtype))
    inputs = tuple(x.requires_grad_() for x in (a, b, x0))
    for reverse in (False, True):
        scan = lambda a, b, x0: affine_scan(a, b, x0, reverse=reverse, backend=backend)  # noqa: B023, E731
        assert torch.autograd.gradcheck(scan, inputs)
        assert torch.autograd.gradgradcheck(scan, inputs)


def test_one_factor_for_all_time_broadcasts_and_gets_its_gradient():
    a, b = random(3).mul(0.5).requires_grad_(), random(2, 6, 3, seed=1).requires_grad_()
    assert torch.equal(affine_scan(a, b), affine_scan(a.detach().expand(2, 6, 3), b.detach()))
    assert torch.autograd.gradcheck(affine_scan, (a, b))


def test_factors_broadcast_as_torch_broadcasts():
    b = random(4, 4, 4)
    for shape in ((4, 4), (4,), (1, 4, 1), (4, 1, 1)):
        a = random(*shape, seed=1)
        for dim in (0, 1, 2):
            assert torch.equal(affine_scan(a, b, dim=dim), affine_scan(a.expand(4, 4, 4).clone(), b, dim=dim))
    assert affine_scan(random(4, 3), random(2, 4, 3)).shape == (2, 4, 3)
    with pytest.raises(ValueError, match="broadcasts to b's"):
        affine_scan(random(2, 3), random(2, 4, 3))


def test_a_complex_start_makes_a_complex_solution():
    ones = torch.ones(1, 4, 1)
    x = affine_scan(ones, ones, 1j * torch.ones(1, 1))
    assert torch.equal(x.flatten(), torch.tensor([1, 2, 3, 4]) + 1j)
    with pytest.raises(TypeError, match="x0: expected a tensor, got list"):
        affine_scan(ones, ones, [1.0])
    with pytest.raises(TypeError, match="a: expected a tensor, got ndarray"):
        affine_scan(ones.numpy(), ones)


def test_other_dimensions_and_types():
    a, b = random(6, 2, 3).mul(0.5), random(6, 2, 3, seed=1)
    assert torch.allclose(affine_scan(a, b, dim=0), affine_scan(a.transpose(0, 1), b.transpose(0, 1)).transpose(0, 1))
    assert affine_scan(a.bfloat16(), b.bfloat16()).dtype == torch.bfloat16
    assert affine_scan(a[:, 0, 0], b[:, 0, 0], dim=0).shape == (6,)


def test_products_that_underflow_do_no_harm():
    a = torch.full((1, 5000, 2), 1e-3)
    b = torch.ones(1, 5000, 2)
    for backend in BACKENDS:
        assert torch.isfinite(affine_scan(a, b, backend=backend)).all()


@pytest.mark.parametrize("T", [1, 2, 3, 8, 100, 1000, 1024])
def test_the_tree_is_of_logarithmic_depth(T):
    levels = Levels()
    affine_scan(random(1, T, 1), random(1, T, 1), backend="tree", levels=levels)
    assert levels.count <= 2 * math.ceil(math.log2(T)) if T > 1 else levels.count == 0


def test_composing_is_associative():
    x = [(random(4, 1, 3, seed=i), random(4, 1, 3, seed=9 + i)) for i in range(3)]
    left, right = combine_affine(combine_affine(x[0], x[1]), x[2]), combine_affine(x[0], combine_affine(x[1], x[2]))
    assert all((a - b).abs().max() < 1e-14 for a, b in zip(left, right, strict=True))
    y = [tuple(random(4, 1, 3, seed=10 * i + j).abs() for j in range(5)) for i in range(3)]
    left = damped.combine(damped.combine(y[0], y[1]), y[2])
    right = damped.combine(y[0], damped.combine(y[1], y[2]))
    assert all(((a - b) / (1 + b.abs())).abs().max() < 1e-14 for a, b in zip(left, right, strict=True))


def test_the_damped_step_is_the_textbook_filter():
    J, c, y, x0 = random(2, 40, 3) * 0.8, random(2, 40, 3, seed=1), random(2, 40, 3, seed=2), random(2, 3, seed=3)
    for sigma2 in (0.1, 1.0, 50.0):
        mean, variance, means = x0, torch.zeros(2, 3, dtype=x0.dtype), []
        for t in range(40):
            predicted = J[:, t] * mean + c[:, t]
            variance = J[:, t] ** 2 * variance + 1.0
            gain = variance / (variance + sigma2)
            mean, variance = predicted + gain * (y[:, t] - predicted), (1 - gain) * variance
            means.append(mean)
        assert (damped.filtered_means(J, c, y, x0, sigma2) - torch.stack(means, 1)).abs().max() < 1e-12
    undamped = damped.filtered_means(J, c, y, x0, 1e12)
    assert (undamped - affine_scan(J, c, x0)).abs().max() < 1e-9


def test_matrices_scan_as_diagonals_do():
    A, b, x0 = random(2, 9, 3, 3) * 0.5, random(2, 9, 3, seed=1), random(2, 3, seed=2)
    x, states = x0, []
    for t in range(9):
        x = (A[:, t] @ x[..., None])[..., 0] + b[:, t]
        states.append(x)
    assert (linear_scan(A, b, x0) - torch.stack(states, 1)).abs().max() < 1e-12
    first = b[:, :1] + (A[:, :1] @ x0[:, None, :, None])[..., 0]
    tree = associative_scan(combine_matrix_affine, (A, torch.cat((first, b[:, 1:]), 1)))[1]
    assert (tree - torch.stack(states, 1)).abs().max() < 1e-12


def test_several_threads_give_what_one_gives(monkeypatch):
    from thrifty.models.lrcssm.scans import threads

    a, b = random(5, 20, 3) * 0.5, random(5, 20, 3, seed=1)
    alone = affine_scan(a, b)
    monkeypatch.setattr(threads, "WORTH_SHARING", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(affine_scan(a, b), alone)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda x: (x, x[:, :0]), "at least one step"),
        (lambda x: (x[:, :2], x), "broadcasts to b's"),
        (lambda x: (x, x, x), r"x0: expected shape \(2, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        affine_scan(*arguments(random(2, 5, 3)))


def test_unknown_backends_and_dimensions_are_refused():
    x = random(2, 5, 3)
    with pytest.raises(ValueError, match="backend: expected one of auto, cpu"):
        affine_scan(x, x, backend="fast")
    with pytest.raises(ValueError, match="no dimension 3"):
        affine_scan(x, x, dim=3)


INTERPRETED = """
import torch
from thrifty.models.lrcssm import LRCCell, affine_scan
from thrifty.models.lrcssm.inputs import blend
from thrifty.models.lrcssm.scans import gpu
from thrifty.models.lrcssm.solvers.recurrence import Recurrence
gpu.TILE, gpu.CHANNELS = 8, 4
torch.manual_seed(0)
a, b, x0 = torch.rand(2, 11, 5) - 0.5, torch.randn(2, 11, 5), torch.randn(2, 5)
for reverse in (False, True):
    found = affine_scan(a, b, x0, reverse=reverse, backend="triton")
    assert (found - affine_scan(a, b, x0, reverse=reverse)).abs().max() < 1e-6
for options in ({}, {"elastance": "symmetric", "elastance_input": True}, {"elastance": "constant", "rho": 0.9}):
    cell = LRCCell(3, 5, dtype=torch.float64, **options)
    with torch.no_grad():
        for p in cell.parameters():
            p.mul_(6)
    u, valid = torch.randn(2, 11, 3, dtype=torch.float64), torch.rand(2, 11) > 0.2
    dt = torch.rand(2, 11, 1, dtype=torch.float64)
    problem = Recurrence(cell, cell.precompute(u), (2, 11), *blend(u, valid, dt, cell.rho))
    x0 = torch.randn(2, 5, dtype=torch.float64) / 10
    inputs = problem.kernel_inputs(x0)
    x = problem.run_compiled(x0, cell.kernel)
    found, n_iter, good = gpu.run_lrc(*inputs, x0, cell.kernel, 1e-10, 50)
    assert good.all() and n_iter.max() < 20 and (found - x).abs().max() < 1e-9
    g = torch.randn_like(x)
    for ours, theirs in zip(gpu.pull_lrc(*inputs, x0, x, g, cell.kernel), problem.pull_fused(x, x0, g)):
        assert (ours - theirs).abs().max() < 1e-9
"""


@pytest.mark.slow
@pytest.mark.ci
def test_the_gpu_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_the_gpu_kernels_on_a_gpu():
    a, b, x0 = (random(4, 1000, 70, dtype=torch.float32).mul(0.5), random(4, 1000, 70, dtype=torch.float32), None)
    found = affine_scan(a.cuda(), b.cuda(), x0, backend="triton")
    assert (found.cpu() - affine_scan(a, b)).abs().max() < 1e-4
    from thrifty.models.lrcssm import DiagonalRNN

    rnn = DiagonalRNN("lrc", 8, 70)
    u = random(4, 1000, 8, dtype=torch.float32)
    here, _ = rnn(u)
    there, _, info = rnn.cuda()(u.cuda(), return_info=True)
    assert info.solver == "newton (tiled)"
    assert (there.cpu() - here).abs().max() < 1e-4
