"""Cells: values of the authors' code, Jacobians in closed form, bounds that hold, and what is refused."""

import pytest
import torch
from lrc_cells import EVERY_CELL, fill, golden_cell, golden_input, make, random

from thrifty.models.lrcssm import DiagonalCell, LRCCell, LSTMCell, LTCCell, newton_solve
from thrifty.models.lrcssm.cells import GRUCell, MGUCell, make_cell
from thrifty.models.lrcssm.cells.base import check_diagonal, step_and_jacobian
from thrifty.models.lrcssm.cells.certified import bound

every_cell = pytest.mark.parametrize("name", EVERY_CELL)

GOLDEN = [
    [-0.02334196, 0.12362991, 0.17656106],
    [-0.022213, 0.26031406, 0.32865116],
    [-0.02353234, 0.36973809, 0.46172856],
    [-0.04741216, 0.42077062, 0.56311739],
    [-0.09665346, 0.40222808, 0.61965022],
]


def test_the_states_of_the_authors_code():
    x, info = newton_solve(golden_cell(), golden_input(200))
    assert torch.allclose(x[0, :5], torch.tensor(GOLDEN, dtype=x.dtype), atol=5e-9)
    assert torch.allclose(x[0, -1], torch.tensor([-0.14492189, 0.44813389, 0.72598641], dtype=x.dtype), atol=5e-9)
    assert x.pow(2).sum().item() == pytest.approx(139.9676112, abs=5e-8)
    assert info.n_iter.item() == 5
    single, info = newton_solve(golden_cell().float(), golden_input(200).float())
    assert info.n_iter.item() == 4
    assert (single - x).abs().max() < 1e-5


def test_the_jacobians_of_the_authors_code():
    cell, u = golden_cell(), golden_input(200)
    x, _ = newton_solve(cell, u)
    before = torch.cat((torch.zeros(1, 1, 3), x[:, :-1]), 1)
    _, J = step_and_jacobian(cell, before, cell.precompute(u))
    assert J.min().item() == pytest.approx(0.7124128, abs=1e-7)
    assert J.max().item() == pytest.approx(0.8330530, abs=1e-7)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (GRUCell, [0.40912517, 0.31382829, -0.27456599]),
        (MGUCell, [-0.27104008, -0.13583217, 0.3293843]),
        (LSTMCell, [0.4058835, 0.25434013, -0.38760455]),
    ],
)
def test_the_fifth_state_of_gated_cells(kind, state):
    cell = kind(2, 3, dtype=torch.float64)
    for gate in range(len(kind.gates)):
        fill_gate(cell.U, gate, 1 + 3 * gate)
        fill_gate(cell.w, gate, 2 + 3 * gate)
        fill_gate(cell.b, gate, 3 + 3 * gate)
    u = golden_input(5)
    x, _ = newton_solve(cell, u)
    assert torch.allclose(x[0, 4], torch.tensor(state, dtype=x.dtype), atol=5e-9)
    if kind is LSTMCell:
        h = cell.readout(x, *cell.precompute(u))[0, 4]
        assert torch.allclose(h, torch.tensor([0.15404481, 0.13024429, -0.23010164], dtype=x.dtype), atol=5e-9)


def fill_gate(parameter, gate, phase):
    rows = 3 if parameter.shape[0] % 3 == 0 and parameter.dim() == 2 and parameter.shape[1] == 2 else 1
    part = torch.nn.Parameter(parameter.data[gate * rows : (gate + 1) * rows])
    fill(part, phase)
    parameter.data[gate * rows : (gate + 1) * rows] = part.data


@every_cell
def test_the_jacobian_is_that_of_autograd_and_zero_off_the_diagonal(name):
    cell = make(name, 3, 4)
    u = random(1, 1, 3)
    x = torch.randn(1, 1, 4, generator=torch.Generator().manual_seed(1), dtype=cell.state_dtype)
    pre = cell.precompute(u)
    new, J = step_and_jacobian(cell, x, pre)
    assert torch.equal(new, cell.step(x, *pre))
    columns = [
        torch.func.jvp(lambda v: cell.step(v, *pre), (x,), (torch.eye(4, dtype=x.dtype)[i].reshape(1, 1, 4),))[1]
        for i in range(4)
    ]
    full = torch.stack(columns, -1)[0, 0]
    ours = J[0, 0] if cell.structure == "dense" else torch.diag(J[0, 0])
    assert (full - ours).abs().max() < 1e-14
    if cell.structure == "diagonal":
        assert (full - torch.diag(full.diagonal())).abs().max() == 0
        if not x.is_complex():
            check_diagonal(cell, x, pre)


def test_a_cell_that_mixes_its_states_is_found_out():
    cell = make("dense", 3, 4)
    u = random(2, 5, 3)
    with pytest.raises(ValueError, match="DenseLRCCell.step is not diagonal"):
        check_diagonal(cell, random(2, 5, 4), cell.precompute(u))


def test_a_state_that_is_one_row_expanded_has_a_jacobian():
    cell = make("gru", 3, 4)
    pre = cell.precompute(random(2, 5, 3))
    state = random(1, 1, 4).expand(2, 5, 4)  # as the first guess of a sequence is
    check_diagonal(cell, state, pre)


def test_the_number_of_parameters():
    n, D = 5, 7
    symmetric = sum(p.numel() for p in LRCCell(n, D, elastance="symmetric").parameters())
    assert symmetric == 2 * n + 2 * D * n + 9 * D
    assert sum(p.numel() for p in LRCCell(n, D).parameters()) == symmetric - D  # κ has no part in the asymmetric one


def test_a_symmetric_elastance_is_positive_unless_free():
    torch.manual_seed(0)
    for sign, positive in (("positive", True), ("free", False)):
        cell = LRCCell(3, 64, elastance="symmetric", elastance_sign=sign)
        assert bool((cell.parameter_rows()[7] > 0).all()) is positive


@pytest.mark.parametrize("factor", [1, 4, 12, 40, 120])
@pytest.mark.parametrize("size", [1.0, 1e3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"elastance": "symmetric"},
        {"elastance_input": True},
        {"input_synapse": "pre"},
        {"elastance": "constant"},
        {"state_dependent_A": False},
    ],
    ids=lambda options: "-".join(map(str, options)) or "plain",
)
def test_certified_jacobians_and_states_keep_their_bounds(factor, size, options):
    torch.manual_seed(0)
    for rho in (1.0, 0.9):
        cell = LRCCell(4, 64, rho=rho, dtype=torch.float64, **options)
        with torch.no_grad():
            for parameter in cell.parameters():
                parameter.mul_(factor)
        limit = bound(cell).state
        u = random(2, 50, 4) * size
        pre = cell.precompute(u)
        x = (2 * torch.rand(2, 50, 64, dtype=torch.float64) - 1) * limit
        for dt in (1.0, 0.3):
            new, J = step_and_jacobian(cell, x, pre)
            new, J = rho * (x + dt * (new - x)), rho * (1 + dt * (J - 1))
            assert J.max() <= rho + 1e-12
            assert J.min() >= rho * (1 - 2 * dt) - 1e-12
            assert (new.abs() <= limit * (1 + 1e-12)).all()


def test_an_elastance_that_alone_would_break_the_bound_is_reduced():
    torch.manual_seed(0)
    free, certified = LRCCell(2, 64, dtype=torch.float64), LRCCell(2, 64, rho=1.0, dtype=torch.float64)
    with torch.no_grad():
        free.w.zero_()
        free.k.zero_()
        free.alpha.mul_(300)
    certified.load_state_dict(free.state_dict())
    limit, largest = bound(free).state, []
    for cell in (free, certified):
        pre = cell.precompute(random(1, 400, 2))
        x = torch.linspace(-1, 1, 400, dtype=torch.float64)[None, :, None] * limit
        largest.append(step_and_jacobian(cell, x, pre)[1].abs().max().item())
    assert largest[0] > 1.5
    assert largest[1] <= 1 + 1e-12


@pytest.mark.parametrize("factor", [1, 4, 12, 40, 120])
def test_states_keep_their_bound_without_a_certificate(factor):
    torch.manual_seed(0)
    cell = LRCCell(4, 32, dtype=torch.float64)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.mul_(factor)
    x, _ = newton_solve(cell, random(2, 200, 4) * 100, solver="sequential")
    assert (x.abs() <= bound(cell).state * (1 + 1e-12)).all()


def test_weights_that_need_no_reduction_are_left_alone():
    torch.manual_seed(0)
    free = LRCCell(4, 16, init="reference")
    certified = LRCCell(4, 16, rho=1.0)
    certified.load_state_dict(free.state_dict())
    assert bound(free).excess.max() < 1
    assert torch.equal(free.parameter_rows(), certified.parameter_rows())


def test_the_certificate_is_differentiable_at_any_scale():
    for factor in (1, 120):
        cell = LRCCell(4, 64, rho=0.99)
        with torch.no_grad():
            for parameter in cell.parameters():
                parameter.mul_(factor)
        x, _ = newton_solve(cell, random(2, 30, 4, dtype=torch.float32))
        x.sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in cell.parameters())


class Scalar(DiagonalCell):
    """A user's cell: no closed form."""

    def __init__(self):
        super().__init__(2, 3)
        self.mix, self.loop = torch.nn.Linear(2, 3, dtype=torch.float64), torch.nn.Parameter(torch.ones(3).double())

    def precompute(self, u):
        return (self.mix(u),)

    def step(self, x, drive):
        return torch.tanh(self.loop * x + drive)


def test_a_cell_of_ones_own_needs_no_closed_form():
    cell, u = Scalar(), random(2, 30, 2)
    x, info = newton_solve(cell, u)
    assert info.converged.all()
    x.sum().backward()
    assert cell.loop.grad is not None  # it was read inside `step`, and gets its gradient all the same
    states, held = [], torch.zeros(2, 3, dtype=torch.float64)
    for t in range(30):
        held = cell.step(held, cell.mix(u[:, t]))
        states.append(held)
    ours = cell.loop.grad.clone()
    cell.loop.grad = None
    expected = torch.stack(states, 1)
    assert (x - expected).abs().max() < 1e-12
    expected.sum().backward()
    assert (ours - cell.loop.grad).abs().max() < 1e-9


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: LRCCell(0, 3), "input_size: expected a whole number of at least 1, got 0"),
        (lambda: LRCCell(3, 3, dt=0.0), r"dt: expected a step in \(0, 1\], got 0.0"),
        (lambda: LRCCell(3, 3, dt=1.5), r"dt: expected a step in \(0, 1\], got 1.5"),
        (lambda: LRCCell(3, 3, rho=1.2), r"rho: expected a bound in \(0, 1\]"),
        (lambda: LRCCell(3, 3, elastance="round"), "elastance: expected one of 'asymmetric'"),
        (lambda: LRCCell(3, 3, state_dependent_b=False), "state_dependent_b: False needs"),
        (lambda: LRCCell(3, 3, elastance="symmetric", elastance_sign="free", rho=1.0), "negative elastance"),
        (lambda: LTCCell(3, 3, rho=0.9), "cell without saturation cannot be certified"),
        (lambda: LRCCell(3, 3, dtype=torch.complex64), "complex states: ComplexLRCCell"),
        (lambda: make_cell("lru", 3, 3), "cell: expected one of lrc"),
        (lambda: make_cell("gru", 3, 3, rho=0.9), "cell: 'gru' does not take"),
    ],
)
def test_settings_without_a_meaning_are_refused(make_it, message):
    with pytest.raises(ValueError, match=message):
        make_it()
