"""Solving in parallel gives what solving in order gives, and gradients too; and what happens without convergence."""

import warnings
from itertools import pairwise

import pytest
import torch
from lrc_cells import EVERY_CELL, in_order, make, random

from thrifty.models.lrcssm import (
    ComplexLRCCell,
    ConvergenceError,
    DiagonalRNN,
    LRCCell,
    LTCCell,
    SolveOptions,
    newton_solve,
)

every_cell = pytest.mark.parametrize("name", EVERY_CELL)
SOLVERS = ("newton", "elk", "jacobi", "sequential", "auto")


def solvers_of(name):
    return [s for s in SOLVERS if s != "elk" or name not in {"complex", "dense"}]


def start(cell, n=2, D=3):
    x0 = 0.3 * random(n, D, seed=5)
    return torch.complex(x0, 0.3 * random(n, D, seed=6)) if cell.state_dtype.is_complex else x0


@every_cell
def test_states_and_gradients_are_those_of_the_recurrence_in_order(name):
    cell = make(name, 2, 3)
    for T in (1, 2, 3, 7, 16, 41, 70):
        u, x0 = random(2, T, 2).requires_grad_(), start(cell).requires_grad_()
        inputs = [u, x0, *cell.parameters()]
        expected = in_order(cell, u, x0)
        weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        theirs = torch.autograd.grad((expected * weights).real.sum(), inputs, allow_unused=True)
        for solver in solvers_of(name):
            x, info = newton_solve(cell, u, x0, solver=solver, tol=1e-13, max_iter=200, chunk=16)
            assert info.converged.all()
            assert not info.fallback.any()
            scale = 1 + expected.abs().max().item()
            assert (x - expected).abs().max() < 1e-12 * scale, (solver, T)
            ours = torch.autograd.grad((x * weights).real.sum(), inputs, allow_unused=True)
            for a, b in zip(ours, theirs, strict=True):
                if b is not None:
                    assert (a - b).abs().max() < 1e-9 * (1 + b.abs().max()), (solver, T)


@every_cell
def test_a_thousand_steps(name):
    cell = make(name, 2, 3)
    u = random(1, 1000, 2)
    with torch.no_grad():
        expected, _ = newton_solve(cell, u, solver="sequential")
        for chunk in (1000, 64):
            x, info = newton_solve(cell, u, tol=1e-12, chunk=chunk)
            assert info.converged.all()
            assert (x - expected).abs().max() < 1e-12 * (1 + expected.abs().max())


@every_cell
@pytest.mark.parametrize("solver", ["newton", "sequential"])
def test_gradcheck(name, solver):
    cell = make(name, 2, 2)
    u, x0 = random(1, 6, 2).requires_grad_(), start(cell, 1, 2).requires_grad_()
    parameters = tuple(cell.parameters())

    def solve(u, x0, *_):
        x = newton_solve(cell, u, x0, solver=solver, tol=1e-13)[0]
        return torch.view_as_real(x) if x.is_complex() else x

    assert torch.autograd.gradcheck(solve, (u, x0, *parameters), atol=1e-6)


def test_gradients_of_the_second_order_are_refused_clearly():
    cell = make("lrc", 2, 3)
    u = random(1, 5, 2).requires_grad_()
    x, _ = newton_solve(cell, u)
    (g,) = torch.autograd.grad(x.sum(), u, create_graph=True)
    with pytest.raises(RuntimeError, match="second-order gradients do not flow"):
        g.sum().backward()


@pytest.mark.parametrize("name", ["lrc", "gru", "lstm"])
def test_after_k_iterations_k_steps_are_exact_for_any_guess(name):
    cell, u = make(name, 2, 3), random(2, 30, 2)
    with torch.no_grad():
        expected = in_order(cell, u, torch.zeros(2, 3, dtype=torch.float64))
        guess = 5 * random(2, 30, 3, seed=9)
        for k in (1, 2, 5, 10):
            found = states_after(cell, u, guess, k)
            assert (found[:, :k] - expected[:, :k]).abs().max() < 1e-13


def states_after(cell, u, guess, k):
    """The iterate after k iterations: what a bare loop over the published step gives."""
    from thrifty.models.lrcssm.scans.affine import affine_scan, shifted
    from thrifty.models.lrcssm.solvers.recurrence import Recurrence

    problem, x0, x = Recurrence(cell, cell.precompute(u), (2, 30)), torch.zeros(2, 3, dtype=torch.float64), guess
    for _ in range(k):
        xp = shifted(x, x0)
        phi, J = problem.phi_and_jacobian(xp)
        x = affine_scan(J, phi - J * xp, x0)
    return x


def test_convergence_is_quadratic():
    _, info = newton_solve(make("lrc", 2, 3), random(1, 200, 2), tol=1e-12, chunk=200)
    small = [e for e in info.errors if e < 0.1]
    assert all(b < 10 * a * a + 1e-14 for a, b in pairwise(small))


@pytest.mark.parametrize("name", ["lrc, linear", "linear, tanh", "linear, softplus"])
def test_an_affine_step_is_solved_by_the_first_iteration(name):
    cell, u = make(name, 2, 3), random(2, 300, 2)
    with torch.no_grad():
        expected, _ = newton_solve(cell, u, solver="sequential")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            x, info = newton_solve(cell, u, 0 * expected[:, 0], guess=5 * random(2, 300, 3), max_iter=2, chunk=300)
        assert info.n_iter.tolist() == [2, 2]  # the second one confirms
        assert info.errors[1] < 1e-13
        assert (x - expected).abs().max() < 1e-12


def test_iterations_do_not_grow_with_the_length():
    cell = LRCCell(4, 16)
    counts = [
        int(newton_solve(cell, random(1, T, 4, dtype=torch.float32), chunk=T)[1].n_iter.max()) for T in (64, 512, 4096)
    ]
    assert max(counts) <= min(counts) + 1


def test_a_sequence_does_not_depend_on_its_neighbours():
    cell, u = make("lrc", 2, 3), random(3, 50, 2)
    u[1] *= 30
    together, info = newton_solve(cell, u)
    for i in range(3):
        alone, single = newton_solve(cell, u[i : i + 1])
        assert torch.equal(alone[0], together[i])
        assert single.n_iter[0] == info.n_iter[i]


def stiff(factor=40.0):
    torch.manual_seed(0)
    cell = LRCCell(3, 16, init="reference", dtype=torch.float64)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.mul_(factor)
    return cell, random(2, 120, 3)


def test_what_does_not_converge_is_computed_in_order_and_said():
    cell, u = stiff()
    expected, _ = newton_solve(cell, u, solver="sequential")
    with pytest.warns(RuntimeWarning, match=r"2 of 2 sequences did not converge within 2 iterations"):
        x, info = newton_solve(cell, u, max_iter=2)
    assert info.fallback.all()
    assert not info.converged.any()
    assert (info.residual < 1e-13).all()
    assert (x - expected).abs().max() < 1e-9
    with pytest.warns(RuntimeWarning, match="did not converge"):
        x, _ = newton_solve(cell, u, max_iter=2, tol=1e-13)
    assert (x - expected).abs().max() < 1e-9


def test_strict_raises_in_place_of_going_on():
    cell, u = stiff()
    with pytest.raises(ConvergenceError, match=r"2 of 2 sequences .* max_iter=2 .* a cell with rho"):
        newton_solve(cell, u, max_iter=2, strict=True)


def test_a_recurrence_that_diverges_by_itself_is_said_to():
    torch.manual_seed(0)
    cell = LTCCell(3, 8)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.mul_(30)
    with pytest.warns(RuntimeWarning, match="the recurrence itself diverges"):
        _, info = newton_solve(cell, random(2, 300, 3, dtype=torch.float32), solver="sequential")
    assert not info.converged.all()


def test_a_tolerance_below_the_precision_ends_at_a_standstill():
    cell = LRCCell(3, 16)
    _, info = newton_solve(cell, random(2, 300, 3, dtype=torch.float32), tol=1e-12)
    assert info.converged.all()
    assert info.n_iter.max() < 20


def test_damping_holds_a_stiff_cell_and_keeps_the_fixed_point():
    cell, u = stiff(12.0)
    expected, _ = newton_solve(cell, u, solver="sequential")
    for sigma2 in (10.0, 1e8):
        x, info = newton_solve(cell, u, solver="elk", sigma2=sigma2, tol=1e-12, max_iter=300)
        assert info.converged.all()
        assert (x - expected).abs().max() < 1e-9


@pytest.mark.parametrize(
    ("solver", "sigma2", "dt"), [("elk", 1e-4, 1.0), ("elk", 1.0, 1.0), ("elk", 1e8, 1e-3), ("jacobi", 1e8, 1e-3)]
)
def test_a_small_update_alone_is_not_convergence(solver, sigma2, dt):
    cell = make("gru", 3, 4, dtype=torch.float32)
    cell.dt = dt  # slow: each update of a bare fixed-point iteration is tiny
    rnn = DiagonalRNN(cell, solver=solver, sigma2=sigma2, chunk=2000)
    u = random(2, 2000 if dt < 1 else 300, 3, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        y, _, info = rnn(u, return_info=True)
    expected, _ = DiagonalRNN(cell, solver="sequential")(u)
    assert (y - expected).abs().max() < 5e-4 * max(1.0, expected.abs().max().item())
    assert (info.converged ^ info.fallback).all()


def test_a_solve_in_many_chunks_warns_once():
    cell, u = stiff()
    with pytest.warns(RuntimeWarning, match="did not converge") as told:
        newton_solve(cell, u, max_iter=2, chunk=20)
    assert len(told) == 1


def test_poles_of_a_complex_cell_end_in_order_and_are_reported():
    torch.manual_seed(0)
    cell = ComplexLRCCell(3, 8, dtype=torch.float64)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.mul_(12)  # states leave the strip in which the sigmoid has no pole
    u = 3 * random(2, 60, 3)
    expected, _ = newton_solve(cell, u, solver="sequential")
    with pytest.warns(RuntimeWarning, match="did not converge"):
        x, info = newton_solve(cell, u, max_iter=30)
    assert info.fallback.all()
    assert not info.converged.any()
    assert (x - expected).abs().max() < 1e-6 * (1 + expected.abs().max())
    with pytest.raises(ConvergenceError):
        newton_solve(cell, u, max_iter=30, strict=True)


def test_an_iterate_beyond_a_pole_is_not_taken_for_a_solution():
    for seed in range(12):
        torch.manual_seed(seed)
        rnn, u = DiagonalRNN("lrc-complex", 3, 8), torch.randn(2, 300, 3)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            for parameter in rnn.parameters():
                parameter.mul_(3)
            y, _, info = rnn(u, return_info=True)
            rnn.options = SolveOptions("sequential")
            expected, _ = rnn(u)
        good = expected.isfinite().all(2).all(1)
        assert torch.equal(good, info.residual.isfinite())
        assert ((y - expected).abs()[good] < 1e-2 * (1 + expected.abs()[good].max())).all()


@pytest.mark.parametrize("name", ["lrc", "gru", "mgu", "lstm", "ltc", "linear, tanh", "dense"])
@pytest.mark.parametrize("solver", ["newton", "sequential"])
def test_weights_that_are_not_numbers_give_no_numbers(name, solver):
    cell = make(name, 3, 4)
    with torch.no_grad():
        next(cell.parameters())[0] = float("nan")
    with pytest.warns(RuntimeWarning):
        x, info = newton_solve(cell, random(2, 20, 3), solver=solver, max_iter=5)
    assert x.isnan().any()
    assert not info.converged.any()


def test_a_good_guess_saves_iterations():
    cell, u = make("lrc", 2, 3), random(2, 100, 2)
    x, cold = newton_solve(cell, u)
    _, warm = newton_solve(cell, u, guess=x.detach())
    assert warm.n_iter.max() == 1 < cold.n_iter.max()


def test_quasi_newton_reaches_the_same_states_of_the_dense_cell():
    exact, quasi = make("dense", 2, 4), make("dense", 2, 4)
    quasi.quasi = True
    u = random(2, 40, 2).requires_grad_()
    (x, full), (y, diagonal) = newton_solve(exact, u, tol=1e-13), newton_solve(quasi, u, tol=1e-13)
    assert (x - y).abs().max() < 1e-11
    assert diagonal.n_iter.max() >= full.n_iter.max()
    gx, gy = torch.autograd.grad(x.sum(), u), torch.autograd.grad(y.sum(), u)
    assert (gx[0] - gy[0]).abs().max() < 1e-10


def test_only_inputs_and_states_are_kept_for_the_backward_pass():
    cell = LRCCell(8, 64)
    u = random(1, 512, 8, dtype=torch.float32)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append((t.data_ptr(), t.nbytes)) or t, lambda t: t):
        newton_solve(cell, u, solver="newton")
    state = 512 * 64 * 4
    assert sum(dict(sizes).values()) < 4 * state  # F and Z, the states, and small ones


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"solver": "magic"}, "solver: expected one of auto, newton"),
        ({"tol": 0.0}, "tol: expected a finite number above 0"),
        ({"tol": float("inf")}, "tol: expected a finite number above 0"),
        ({"max_iter": 0}, "max_iter: expected a whole number of at least 1"),
        ({"chunk": 0}, "chunk: expected a whole number of at least 1"),
        ({"sigma2": -1.0}, "sigma2: expected a finite number above 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SolveOptions(**settings)


@pytest.mark.parametrize("name", ["dense", "complex"])
def test_damping_is_refused_where_it_has_no_meaning(name):
    with pytest.raises(ValueError, match="solver: 'elk'"):
        newton_solve(make(name, 2, 3), random(1, 10, 2), solver="elk")


def test_an_iterate_that_was_cut_off_is_not_taken_for_a_solution():
    torch.manual_seed(0)
    cell = LTCCell(3, 4, dtype=torch.float64)
    with torch.no_grad():
        cell.g.copy_(torch.tensor([0.5, 0.5, -0.5, 0.5]))  # the third channel grows by a half a step
    u = random(1, 200, 3)
    expected, _ = newton_solve(cell, u, solver="sequential")
    assert expected.abs().max() > 1e20
    with pytest.warns(RuntimeWarning, match="did not converge"):
        x, info = newton_solve(cell, u)
    assert info.fallback.all()
    assert (x / expected - 1).abs().max() < 1e-3
