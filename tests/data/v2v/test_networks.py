"""Networks: parameter counts, which are oracles, shapes, state, gradients."""

import pytest
import torch

from thrifty.data.v2v.networks import ARCHITECTURES, build_model, register_architecture
from thrifty.data.v2v.networks.eraft import carried
from thrifty.data.v2v.networks.firenet import FireNet
from thrifty.data.v2v.networks.hypere2vid import fourier_bessel, multiscale_bases
from thrifty.data.v2v.networks.layers import ConvGRU, ConvLSTM, padded

PARAMETERS = {
    "e2vid": 10_710_401, "firenet": 37_777, "hypere2vid": 10_149_881, "etnet": 22_175_361, "evflownet": 14_125_346,
    "eraft": 5_270_080,
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts_are_those_of_the_published_networks(name):
    assert sum(p.numel() for p in build_model(name).parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_sequence_runs_and_a_new_state_begins_anew(name):
    torch.manual_seed(0)
    model = build_model(name, **({"updates": 2} if name == "eraft" else {})).eval()
    x = torch.randn(3, 1, 5, 37, 43)
    with torch.no_grad():
        runs = []
        for _ in range(2):
            state, outputs = None, []
            for grid in x:
                output, state = model(grid, state)
                outputs.append(output)
            runs.append(torch.stack(outputs))
        alone, _ = model(x[2])
    assert runs[0].shape == (3, 1, 1 if model.task == "reconstruction" else 2, 37, 43)
    assert torch.equal(*runs)
    if name != "evflownet":
        assert not torch.allclose(alone, runs[0][2]), "what came before is remembered"


def test_padding_is_at_the_right_and_at_the_bottom():
    x = padded(torch.ones(1, 1, 5, 9), 8)
    assert x.shape == (1, 1, 8, 16)
    assert x[0, 0, :5, :9].all()
    assert x.sum() == 45


def test_recurrent_cells_are_those_of_their_equations():
    torch.manual_seed(0)
    x, h, c = (torch.randn(1, 2, 4, 4) for _ in range(3))
    lstm = ConvLSTM(2)
    i, r, o, g = lstm.gates(torch.cat([x, h], 1)).chunk(4, 1)
    cell = torch.sigmoid(r) * c + torch.sigmoid(i) * torch.tanh(g)
    hidden, (_, kept) = lstm(x, (h, c))
    assert torch.allclose(kept, cell)
    assert torch.allclose(hidden, torch.sigmoid(o) * torch.tanh(cell))
    gru = ConvGRU(2)
    u, reset = (torch.sigmoid(gate(torch.cat([x, h], 1))) for gate in (gru.update, gru.reset))
    assert torch.allclose(gru(x, h), h * (1 - u) + torch.tanh(gru.new(torch.cat([x, h * reset], 1))) * u)
    weight = gru.update.weight.flatten(1)
    assert torch.allclose(weight @ weight.T, torch.eye(2), atol=1e-5), "orthogonal at first"


def test_fourier_bessel_bases():
    """A disc's modes: the first has no sign change, pairs are a quarter turn apart, all are nearly orthogonal."""
    bases = fourier_bessel(2, 6)
    assert bases.shape == (6, 5, 5)
    assert (bases[0][1:-1, 1:-1] > 0).all()
    assert bases[1] == pytest.approx(bases[2].T, abs=1e-9)
    gram = bases.reshape(6, -1) @ bases.reshape(6, -1).T
    assert gram.trace() == pytest.approx(6)
    assert abs(gram[0, 1:5]).max() < 1e-9
    assert multiscale_bases(5).shape == (12, 25)
    assert (multiscale_bases(5)[:6].view(6, 5, 5)[:, 0] == 0).all(), "the smaller scale is padded"


def test_flow_is_carried_to_where_it_points():
    flow = torch.zeros(1, 2, 4, 6)
    flow[0, :, 1, 1] = torch.tensor([2.0, 1.0])
    flow[0, :, 3, 5] = torch.tensor([4.0, 0.0])  # leaves the picture
    moved = carried(flow)
    assert moved[0, :, 2, 3].tolist() == [1.0, 0.5]  # meets a vector that stays
    assert moved[0, :, 3, 5].tolist() == [0.0, 0.0]
    assert moved[0, :, 1, 1].tolist() == [0.0, 0.0]


def test_gradients_reach_every_weight():
    for name in ("e2vid", "firenet", "evflownet", "hypere2vid", "etnet"):
        model = build_model(name)
        state, total = None, 0
        for grid in torch.randn(2, 2, 5, 16, 16):
            output, state = model(grid, state)
            total = total + output.square().mean()
        total.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters()), name


def test_networks_of_ones_own():
    register_architecture("mine", lambda base=4: FireNet(base=base))
    try:
        assert build_model("mine", base=8).predict.in_channels == 8
        with pytest.raises(ValueError, match="not taken, got 'mine'"):
            register_architecture("mine", FireNet)
    finally:
        del ARCHITECTURES["mine"]
    with pytest.raises(ValueError, match="expected one of e2vid"):
        build_model("mine")
