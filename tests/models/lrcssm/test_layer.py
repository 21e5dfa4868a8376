"""The layer in the manners of nn.GRU: streams, masks, step sizes, directions, precision, hosts; and what is refused."""

import copy
import io
import warnings

import pytest
import torch
from lrc_cells import random
from torch import nn

from thrifty.models.lrcssm import (
    ConvergenceError,
    DiagonalCell,
    DiagonalRNN,
    LrcSSMBlock,
    certificate,
)

CELLS = ("lrc", "stc", "ltc", "gru", "mgu", "lstm", "lrc-complex", "lrc-linear", "lrc-dense")
each_cell = pytest.mark.parametrize("cell", CELLS)


def layer(cell="lrc", n=3, D=8, seed=0, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = DiagonalRNN(cell, n, D, **options)
    if cell == "ltc":
        with torch.no_grad():
            made.cell.g.abs_().add_(0.3)
    return made


def u32(*shape, seed=0):
    return random(*shape, seed=seed, dtype=torch.float32)


@each_cell
def test_a_stream_step_by_step_and_in_chunks_gives_the_full_run(cell):
    rnn, u = layer(cell, dt=0.7), u32(2, 40, 3)
    with torch.no_grad():
        y, h = rnn(u)
        close = 1e-5 * (1 + 10 * y.abs().max())
        state, outputs = rnn.initial_state(2), []
        for t in range(40):
            out, state = rnn.step(u[:, t], state)
            outputs.append(out)
        assert (torch.stack(outputs, 1) - y).abs().max() < close
        assert (state - h).abs().max() < close
        first, state = rnn(u[:, :13])
        rest, last = rnn(u[:, 13:], state)
        assert (torch.cat((first, rest), 1) - y).abs().max() < close
        assert (last - h).abs().max() < close


@each_cell
def test_masked_steps_hold_the_state(cell):
    rnn, u = layer(cell), u32(3, 40, 3)
    mask = torch.rand(3, 40, generator=torch.Generator().manual_seed(0)) > 0.3
    with torch.no_grad():
        y, h = rnn(u, mask=mask)
        for i in range(3):
            alone, last = rnn(u[i : i + 1, mask[i]])
            assert (alone[0] - y[i, mask[i]]).abs().max() < 1e-5
            assert (last[0] - h[i]).abs().max() < 1e-5
            garbage = u.clone()
            garbage[i, ~mask[i]] = 1e4
        y_other, _ = rnn(garbage, mask=mask)
        assert (y_other[2, mask[2]] - y[2, mask[2]]).abs().max() < 1e-6


def test_lengths_from_both_ends():
    rnn, u, lengths = layer("gru", bidirectional=True), u32(3, 30, 3), torch.tensor([30, 11, 1])
    y, h = rnn(u, lengths=lengths)
    assert y.shape == (3, 30, 16)
    assert h.shape == (2, 3, 8)
    for i, T in enumerate(lengths.tolist()):
        alone, last = rnn(u[i : i + 1, :T])
        assert (alone[0] - y[i, :T]).abs().max() < 1e-6
        assert (last[:, 0] - h[:, i]).abs().max() < 1e-6
    started, _ = rnn(u, torch.ones(2, 3, 8))
    assert not torch.allclose(started, y)


def test_irregular_steps_of_a_leaky_cell_are_those_of_its_differential_equation():
    class Leaky(DiagonalCell):
        def __init__(self):
            super().__init__(1, 1)
            self.scale = nn.Parameter(torch.ones(1, dtype=torch.float64))

        def precompute(self, u):
            return (u * self.scale,)

        def step(self, x, drive):
            return drive.expand_as(x)

    dt = torch.full((1, 20), 0.1, dtype=torch.float64)
    dt[0, 5:9] = 0.5
    _, h = DiagonalRNN(Leaky())(torch.ones(1, 20, 1), dt=dt)
    assert h.item() == pytest.approx(1 - (1 - dt).prod().item(), abs=1e-12)


@pytest.mark.parametrize("shape", [(), (2, 40), (2, 40, 1)])
def test_step_sizes_of_any_shape(shape):
    rnn, u = layer("lrc", rho=0.95), u32(2, 40, 3)
    given = 0.3 if shape == () else torch.full(shape, 0.3)
    y, _ = rnn(u, dt=given)
    other = layer("lrc", rho=0.95, dt=0.3)
    other.load_state_dict(rnn.state_dict())
    assert (other(u)[0] - y).abs().max() < 1e-5
    for solver in ("newton", "sequential"):
        rnn.options = type(rnn.options)(solver)
        assert (rnn(u, dt=given)[0] - y).abs().max() < 1e-4


def test_one_thousandth_of_a_step_moves_a_thousandth_as_far():
    rnn, u = layer("lrc"), u32(1, 1, 3)
    far, near = rnn(u)[0], rnn(u, dt=1e-3)[0]
    assert torch.allclose(near, 1e-3 * far, rtol=1e-3)


@pytest.mark.parametrize("cell", ["lrc", "gru"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_solved_in_single(cell, dtype):
    rnn, u = layer(cell), u32(2, 30, 3)
    y, h, info = rnn(u.to(dtype), return_info=True)
    assert y.dtype == dtype
    assert h.dtype == torch.float32
    assert info.converged.all()
    assert (y.float() - rnn(u)[0]).abs().max() < 0.02
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(rnn(u)[0], rnn(u)[0])
    halved = copy.deepcopy(rnn).to(torch.bfloat16)
    out, _ = halved(u.bfloat16())
    out.float().sum().backward()
    assert (out.float() - rnn(u)[0]).abs().max() < 0.05
    assert all(p.grad.dtype == torch.bfloat16 for p in halved.parameters())


def test_views_copies_pickles_frozen_weights_and_inference_mode():
    rnn, u = layer("gru"), u32(4, 60, 6)
    view = u[:2, ::2, ::2]
    expected, _ = rnn(view.contiguous())
    assert torch.allclose(rnn(view)[0], expected, atol=1e-5)
    assert torch.allclose(rnn(u[:1, ::2, ::2].expand(2, -1, -1))[0][1], rnn(u[:1, ::2, ::2])[0][0], atol=1e-5)
    assert torch.allclose(copy.deepcopy(rnn)(view)[0], expected)
    saved = io.BytesIO()
    torch.save(rnn.state_dict(), saved)
    saved.seek(0)
    other = layer("gru", seed=1)
    other.load_state_dict(torch.load(saved, weights_only=True))
    assert torch.allclose(other(view)[0], expected)
    with torch.inference_mode():
        assert torch.allclose(rnn(view)[0], expected)
    for p in rnn.parameters():
        p.requires_grad_(False)
    rnn(view.clone().requires_grad_())[0].sum().backward()


def test_inference_mode_of_a_cell_without_closed_form():
    class Own(DiagonalCell):
        def __init__(self):
            super().__init__(3, 4)
            self.mix = nn.Linear(3, 4)

        def precompute(self, u):
            return (self.mix(u),)

        def step(self, x, drive):
            return torch.tanh(0.5 * x + drive)

    rnn = DiagonalRNN(Own(), verify=True)
    with torch.inference_mode():
        assert rnn(u32(2, 30, 3))[0].shape == (2, 30, 4)


def test_a_warm_start_saves_iterations_and_changes_nothing():
    rnn, u = layer("gru", warm_start=True), u32(2, 100, 3)
    y, _, cold = rnn(u, return_info=True)
    again, _, warm = rnn(u, return_info=True)
    assert warm.n_iter.max() < cold.n_iter.max()
    assert (again - y).abs().max() < 1e-5
    assert rnn(u[:1, :50])[0].shape == (1, 50, 8)
    assert not any("last" in name for name in rnn.state_dict())


def test_auto_takes_the_compiled_recurrence_or_newton_and_says_so():
    u = u32(2, 100, 3)
    assert layer("lrc")(u, return_info=True)[2].solver == "sequential (compiled)"
    assert layer("gru")(u, return_info=True)[2].solver == "newton"
    assert layer("lrc", solver="newton")(u, return_info=True)[2].n_iter.max() >= 2


def test_same_seed_same_layer_same_result():
    a, b, u = layer("lrc", seed=3), layer("lrc", seed=3), u32(2, 50, 3)
    assert torch.equal(a(u)[0], b(u)[0])


def test_the_certificate_says_what_holds_and_what_was_seen():
    found = certificate(layer("lrc", rho=0.9), u32(2, 50, 3))
    assert found.jacobian == (-0.9, 0.9)
    assert found.stable
    assert found.observed.jacobian[1] <= 0.9
    assert found.observed.log_product <= 0
    assert found.observed.state <= 1
    assert "certified: every step's Jacobian lies in [-0.9, 0.9]" in found.describe()
    wild = layer("lrc")
    with torch.no_grad():
        for p in wild.parameters():
            p.mul_(40)
    found = certificate(wild)
    assert not found.stable
    assert "not certified: 8 of 8 channels exceed the bound" in found.describe()
    with pytest.raises(ValueError, match="layer: expected an LRC cell in one direction, got GRUCell"):
        certificate(layer("gru"))


def test_a_first_state_is_clipped_to_the_bound_of_a_certified_cell():
    rnn, u = layer("lrc", rho=1.0), u32(2, 50, 3)
    y, _ = rnn(u, torch.full((2, 8), 1e6))
    assert (y.abs() <= certificate(rnn).state * (1 + 1e-6)).all()


def test_a_certified_stream_begins_within_the_bound_as_the_full_run_does():
    rnn, u, state = layer("lrc", rho=0.9), u32(2, 20, 3), torch.full((2, 8), 50.0)
    y, _ = rnn(u, state)
    assert torch.allclose(rnn.cell(u[:, 0], state), y[:, 0], atol=1e-5)
    for t in range(20):
        out, state = rnn.step(u[:, t], state)
        assert torch.allclose(out, y[:, t], atol=1e-5)


def test_a_step_size_means_the_same_in_a_stream():
    rnn, u = layer("lrc", dt=0.5), u32(2, 1, 3)
    y, _ = rnn(u, dt=0.4)
    assert torch.allclose(rnn.step(u[:, 0], rnn.initial_state(2), dt=0.4)[0], y[:, 0], atol=1e-6)


def test_gradients_of_a_certified_layer_cannot_grow():
    for factor in (1, 40, 120):
        rnn = layer("lrc", 3, 16, rho=0.99)
        with torch.no_grad():
            for p in rnn.parameters():
                p.mul_(factor)
        u, h0 = u32(1, 200, 3), torch.zeros(1, 16, requires_grad=True)
        y, _ = rnn(u, h0)
        (g,) = torch.autograd.grad(y[:, -1].sum(), h0)
        assert g.norm() <= 0.99**200 * 4 * (1 + 1e-4)


@pytest.mark.slow
def test_a_block_compiles():
    block, u = LrcSSMBlock(16, 8), u32(2, 50, 16)
    compiled = torch.compile(block)
    y, _ = compiled(u)
    expected, _ = block(u)
    assert (y - expected).abs().max() < 1e-5
    y.sum().backward()
    assert all(p.grad is not None for p in block.parameters())


class OneStep(nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn

    def forward(self, u, h):
        return self.rnn.step(u, h)


@pytest.mark.parametrize("cell", ["lrc", "lstm"])
def test_the_step_exports(cell):
    rnn = layer(cell, rho=0.9 if cell == "lrc" else None) if cell == "lrc" else layer(cell)
    arguments = (u32(2, 3), rnn.initial_state(2))
    program = torch.export.export(OneStep(rnn), arguments)
    for ours, theirs in zip(program.module()(*arguments), rnn.step(*arguments), strict=True):
        assert torch.allclose(ours, theirs)


@pytest.mark.slow
def test_the_step_exports_to_onnx(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    rnn = layer("lrc")
    arguments = (u32(2, 3), u32(2, 8))
    torch.onnx.export(OneStep(rnn), arguments, tmp_path / "step.onnx", dynamo=True)
    session = runtime.InferenceSession(tmp_path / "step.onnx")
    names = [entry.name for entry in session.get_inputs()]
    found = session.run(None, {name: x.numpy() for name, x in zip(names, arguments, strict=True)})
    for ours, theirs in zip(found, rnn.step(*arguments), strict=True):
        assert torch.allclose(torch.from_numpy(ours), theirs, atol=1e-5)


def test_unscaled_inputs_are_warned_of_once():
    rnn, u = layer("lrc"), 1e4 * u32(2, 30, 3)
    with pytest.warns(RuntimeWarning, match=r"median absolute input is .* standardize=True"):
        rnn(u)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rnn(u)


BAD = {
    "rank": (lambda r, u: r(u[0]), r"u: expected shape \(batch, time, 3\), got \(20, 3\)"),
    "width": (lambda r, u: r(u[..., :2]), r"u: expected shape \(batch, time, 3\), got \(2, 20, 2\)"),
    "integers": (lambda r, u: r(u.long()), "u: expected floating-point numbers, got torch.int64"),
    "complex": (lambda r, u: r(u.to(torch.complex64)), "u: expected floating-point numbers, got torch.complex64"),
    "no step": (lambda r, u: r(u[:, :0]), r"at least one sequence and one step, got shape \(2, 0, 3\)"),
    "no sequence": (lambda r, u: r(u[:0]), r"at least one sequence and one step, got shape \(0, 20, 3\)"),
    "NaN": (lambda r, u: r(put(u, float("nan"))), r"finite in torch.float32, got nan at index \(1, 7, 2\)"),
    "Inf": (lambda r, u: r(put(u, float("inf"))), r"finite in torch.float32, got inf at index \(1, 7, 2\)"),
    "too large for float32": (lambda r, u: r(put(u.double(), 1e300)), r"got 1e\+300 at index \(1, 7, 2\)"),
    "NaN in h0": (lambda r, u: r(u, torch.full((2, 8), float("nan"))), r"h0: expected numbers that are finite"),
    "complex guess": (lambda r, u: r(u, guess=torch.zeros(2, 20, 8).cfloat()), "guess: expected real states"),
    "NaN in a stream": (lambda r, u: r.step(put(u, float("nan"))[:, 7], r.initial_state(2)), r"nan at index \(1, 2\)"),
    "dt of a stream": (lambda r, u: r.step(u[:, 0], r.initial_state(2), dt=5.0), r"dt: expected a step in \(0, 1\]"),
    "states of a stream": (lambda r, u: r.step(u[:, 0], r.initial_state(3)), r"got \(2, 3\) and \(3, 8\)"),
    "dt of 0": (lambda r, u: r(u, dt=0.0), r"dt: expected steps in \(0, 1\], got 0"),
    "dt above 1": (lambda r, u: r(u, dt=2.0), "got 2; larger ones need allow_large_dt=True"),
    "one dt too many": (lambda r, u: r(u, dt=torch.ones(2, 21)), r"dt: expected a number, \(2, 20\) or \(2, 20, 1\)"),
    "dt is NaN": (lambda r, u: r(u, dt=torch.full((2, 20), float("nan"))), "dt: expected steps"),
    "dt to be learned": (lambda r, u: r(u, dt=torch.ones(2, 20, requires_grad=True)), "no gradient flows to the step"),
    "too long": (lambda r, u: r(u, lengths=torch.tensor([20, 21])), r"expected numbers in 1 … 20, got \[20, 21\]"),
    "length 0": (lambda r, u: r(u, lengths=torch.tensor([20, 0])), r"expected numbers in 1 … 20, got \[20, 0\]"),
    "lengths of others": (lambda r, u: r(u, lengths=torch.tensor([20])), "lengths: expected 2 whole numbers"),
    "lengths of booleans": (lambda r, u: r(u, lengths=torch.tensor([True, True])), "lengths: expected 2 whole numbers"),
    "mask of numbers": (lambda r, u: r(u, mask=torch.ones(2, 20)), r"mask: expected booleans of shape \(2, 20\)"),
    "an empty mask": (lambda r, u: r(u, mask=torch.arange(2)[:, None].expand(2, 20) > 0), "got none in sequence 0"),
    "both": (lambda r, u: r(u, lengths=torch.tensor([1, 1]), mask=torch.ones(2, 20).bool()), "or mask, not both"),
    "h0": (lambda r, u: r(u, torch.zeros(3, 8)), r"h0: expected shape \(2, 8\), got \(3, 8\)"),
    "complex h0": (lambda r, u: r(u, torch.zeros(2, 8, dtype=torch.complex64)), "h0: expected a real state"),
    "guess": (lambda r, u: r(u, guess=torch.zeros(2, 19, 8)), "guess: expected shape"),
    "vmap": (lambda r, u: torch.vmap(r)(u[None]), "torch.vmap is not supported"),
    "stream": (lambda r, u: r.step(u, torch.zeros(2, 8)), r"u, h: expected \(batch, 3\) and \(batch, 8\)"),
}  # fmt: skip


def put(u, value):
    u = u.clone()
    u[1, 7, 2] = value
    return u


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call(layer(), u32(2, 20, 3))


@pytest.mark.parametrize(
    ("make_it", "kind", "message"),
    [
        (lambda: DiagonalRNN("lrc"), ValueError, "input_size, hidden_size: expected both"),
        (lambda: DiagonalRNN("lru", 3, 3), ValueError, "cell: expected one of lrc"),
        (lambda: DiagonalRNN(nn.Linear(3, 3)), TypeError, "without input_size, hidden_size, precompute, step"),
        (lambda: DiagonalRNN(layer().cell, 4), ValueError, "input_size: the cell has 3, got 4"),
        (lambda: DiagonalRNN(layer().cell, rho=1.0), ValueError, "rho: options belong to named cells"),
        (lambda: DiagonalRNN(layer().cell, bidirectional=True), ValueError, "bidirectional: needs a second cell"),
        (lambda: layer()([1.0]), TypeError, "u: expected a tensor"),
        (lambda: layer()(u32(2, 5, 3), [0.0]), TypeError, "h0: expected a tensor"),
        (lambda: layer()(u32(2, 5, 3), guess=[1]), TypeError, "guess: expected a tensor"),
        (lambda: layer()(u32(2, 5, 3), dt="fast"), TypeError, "dt: expected a number or a tensor, got str"),
        (lambda: layer(max_iter="many"), ValueError, "max_iter: expected a whole number of at least 1, got 'many'"),
        (lambda: layer(rho="high"), ValueError, "rho: expected a bound"),
        (lambda: layer(bidirectional=True).step(u32(2, 3), u32(2, 8)), ValueError, "cannot stream"),
    ],
)
def test_settings_without_a_meaning_are_refused(make_it, kind, message):
    with pytest.raises(kind, match=message):
        make_it()


def test_large_steps_are_allowed_on_request():
    y, _ = layer(allow_large_dt=True)(u32(2, 20, 3), dt=2.0)
    assert torch.isfinite(y).all()


def test_strict_layers_raise():
    rnn = layer("lrc", solver="newton", strict=True, max_iter=1)
    with pytest.raises(ConvergenceError):
        rnn(u32(2, 30, 3))


def test_a_text_is_no_flag_and_a_number_no_layer():
    for name in ("bidirectional", "strict"):
        with pytest.raises(ValueError, match=f"^{name}: expected True or False, got 'no'"):
            DiagonalRNN("lrc", 3, 4, **{name: "no"})
    with pytest.raises(TypeError, match="^layer: expected a DiagonalRNN, got NoneType"):
        certificate(None)
