"""The layer against the specification's golden numbers, plain loops and dense products."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional
from toys import METADATA, PRIOR, R1, R2, R3, golden, graph, model, w

from thrifty.models.se_htgnn import SEHTGNN, Edges, HeteroTemporalData, SEHTGNNConv, attention, operations
from thrifty.models.se_htgnn.conv import Frames

CORES = ["gru", "lstm", "transformer", "ssm", "projected", "self", "gate", "uniform"]


@pytest.fixture(params=["compiled", "plain"])
def path(request, monkeypatch):
    """Take the compiled passes, or the tensor code that other devices take."""
    if request.param == "plain":
        monkeypatch.setattr(operations, "_compiled", lambda x: False)
    return request.param


def test_the_golden_toy(path):
    conv, h, edges = golden()
    batch_frames = {}
    mix = conv.mix

    def spy(states, frames, name, prior):
        M, alpha = mix(states, frames, name, prior)
        batch_frames[name] = alpha
        return M, alpha

    conv.mix = spy
    out = conv(h, edges, PRIOR)
    expected = [[2.62348825, -1.08095663], [2.15395223, -0.76790874], [-0.00235784, -0.43239952]]
    assert torch.allclose(out["a"][0], torch.tensor(expected, dtype=torch.float64), atol=1e-8)
    alpha = batch_frames["a"][0, :, 0, 0]
    assert torch.allclose(alpha, torch.tensor([0.70354220, 0.70674804, 0.76563552], dtype=torch.float64), atol=1e-8)
    e1 = torch.tensor([0.66566605, 0.72750301, 0.75872433], dtype=torch.float64)
    e2 = torch.tensor([-0.19855691, -0.15213902, -0.42510437], dtype=torch.float64)
    assert torch.allclose(alpha, torch.sigmoid(e1 - e2), atol=1e-8)
    z = torch.einsum("ntd,t->nd", out["a"], w((3,), 30)) + w((1,), 31)
    expected = [[-0.32898455, 0.68525250], [1.09297175, 0.21259077], [0.36781086, 0.59380091]]
    assert torch.allclose(z, torch.tensor(expected, dtype=torch.float64), atol=1e-8)


def test_the_whole_model_gives_the_golden_embeddings(path):
    """The fused last layer and map over time, on a batch in which windows share snapshots."""
    conv, _, edges = golden()
    held = {}
    for t in (R1, R2, R3):
        held[t] = Edges(
            torch.cat([e[t] for e in edges], 1),
            torch.cat([torch.full((e[t].shape[1],), s) for s, e in enumerate(edges)]),
        )
    x = {"a": w((3, 3, 2), 0.1).transpose(0, 1), "b": w((2, 3, 1), 0.2).transpose(0, 1)}
    data = HeteroTemporalData({"a": 3, "b": 2}, held, x)
    data.x = x  # in double precision
    net = SEHTGNN(
        METADATA, {"a": 2, "b": 1}, 2, num_layers=1, window=3, prior={k: float(v) for k, v in PRIOR.items()}
    ).double()
    net.convs[0].load_state_dict(conv.state_dict())
    with torch.no_grad():
        for linear, (weight, bias) in zip(net.projections, [((2, 2), 1), ((2, 1), 3)], strict=True):
            linear.weight.copy_(w(weight, bias))
        net.projections[0].bias.copy_(w((2,), 2))
        net.projections[1].bias.copy_(w((2,), 4))
        net.temporal.weight.copy_(w((1, 3), 30))
        net.temporal.bias.copy_(w((1,), 31))
    net.prior.fixed = net.prior.fixed.double()
    net.prior.fixed[:] = torch.tensor([0.6, 0.4, 1.0], dtype=torch.float64)
    z = net.encode(data.windows([3, 3], 3), "a")["a"]
    expected = [[-0.32898455, 0.68525250], [1.09297175, 0.21259077], [0.36781086, 0.59380091]]
    assert torch.allclose(z[1, :, 0], torch.tensor(expected, dtype=torch.float64), atol=1e-8)
    assert torch.equal(z[0], z[1])
