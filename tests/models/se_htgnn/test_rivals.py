"""Rivals: HTGNN held against its published size and a plain loop, static networks, and forecasts without a network."""

import numpy as np
import pytest
import torch
from toys import graph

from thrifty.models.se_htgnn import Edges, HeteroTemporalData
from thrifty.models.se_htgnn.evidence.contenders import RATES, network
from thrifty.models.se_htgnn.rivals import naive
from thrifty.models.se_htgnn.rivals.htgnn import HTGNN
from thrifty.models.se_htgnn.rivals.static import window_edges


def test_htgnn_has_as_many_parameters_as_its_authors_print():
    metadata = (
        ["state", "county"],
        [
            ("state", "near", "state"),
            ("county", "in", "state"),
            ("state", "has", "county"),
            ("county", "near", "county"),
        ],
    )
    net = HTGNN(metadata, {"state": 1, "county": 1}, 8, num_layers=2, window=7)
    assert sum(p.numel() for p in net.parameters()) == 7349


def htgnn_by_loops(net, data, target, T):
    """The specification's HTGNN, edge by edge and snapshot by snapshot."""
    d = net.layers[0].weight[0].shape[-1]
    h = {
        name: [net.project.linear[i](data.x[name][target - T + t]) for t in range(T)]
        for i, name in enumerate(data.num_nodes)
    }
    for layer in net.layers:
        out = {}
        for place, name in enumerate(layer.types):
            into = [i for i, t in enumerate(layer.triples) if t[2] == name]
            rows = []
            for t in range(T):
                M = []
                for i in into:
                    triple = layer.triples[i]
                    W = layer.weight[i][t]
                    src, dst = h[triple[0]][t] @ W, h[name][t] @ W
                    held = data.edges[triple]
                    m = torch.zeros(data.num_nodes[name], d)
                    for node in range(data.num_nodes[name]):
                        mine = (held.snapshot == target - T + t) & (held.index[1] == node)
                        js = held.index[0, mine]
                        if len(js):
                            score = torch.nn.functional.leaky_relu(
                                src[js] @ layer.left[i][t] + dst[node] @ layer.right[i][t], 0.2
                            )
                            m[node] = torch.softmax(score, 0) @ src[js]
                    M.append(m)
                logits = torch.stack(
                    [(torch.tanh(m @ layer.relation[t].T + layer.relation_bias[t]) @ layer.query[t]).mean() for m in M]
                )
                rows.append(sum(b * m for b, m in zip(torch.softmax(logits, 0), M, strict=True)))
            x = layer.proj[place](torch.stack(rows, 1))
            for t in range(T):
                for c in range(d):
                    angle = (t + 1) * 1e-5 ** (2 * (c // 2) / d)
                    x[:, t, c] += np.sin(angle) if c % 2 == 0 else np.cos(angle)
            q, k, v = layer.qkv[place](x).chunk(3, -1)
            mixed = torch.relu(layer.out[place](torch.softmax(q @ k.mT, -1) @ v))
            gate = torch.sigmoid(layer.gate[place])
            out[name] = [gate * mixed[:, t] + (1 - gate) * layer.residual[place](h[name][t]) for t in range(T)]
        h = out
    return {name: net.head(sum(states)) for name, states in h.items()}


def test_htgnn_is_the_loop():
    data = graph()
    torch.manual_seed(0)
    net = HTGNN(data.metadata(), data.num_features(), 4, num_layers=2, window=3)
    with torch.no_grad():
        found = net(data.windows([4, 6], 3))
        for b, target in enumerate((4, 6)):
            expected = htgnn_by_loops(net, data, target, 3)
            for name in "ab":
                assert torch.allclose(found[name][b, :, 0], expected[name], atol=1e-4), (name, target)


@pytest.mark.parametrize("name", list(RATES))
def test_every_contender_learns_from_the_same_windows_and_sees_no_target(name):
    data = graph()
    torch.manual_seed(0)
    net = network(name, data, layers=2, window=3, d=4)
    out = net(data.windows([5, 6], 3), "a")["a"]
    assert out.shape == (2, 5, 1, 1)
    out.sum().backward()
    assert sum(p.grad is not None for p in net.parameters()) > 3
    cut = data.until(5)
    net.eval()
    assert torch.allclose(net(cut.windows([5], 3), "a")["a"], net(data.windows([5], 3), "a")["a"], atol=1e-6)


def test_edges_of_a_window_are_those_of_its_snapshots():
    data = graph()
    triple = ("b", "in", "a")
    source, target = window_edges(data.windows([3, 5], 3), triple)
    held = data.edges[triple]
    for b, first in enumerate((0, 2)):
        inside = (held.snapshot >= first) & (held.snapshot < first + 3)
        expected = sorted(zip(*held.index[:, inside].tolist(), strict=True))
        here = (target // 5 == b) & (source // 4 == b)
        assert sorted(zip((source[here] % 4).tolist(), (target[here] % 5).tolist(), strict=True)) == expected


def test_forecasts_without_a_network():
    nan = np.nan
    y = np.array([[1.0, nan], [2.0, 5.0], [3.0, nan], [4.0, 7.0], [9.0, 9.0]])
    train, days = np.arange(4), np.array([4])
    assert naive.persistence(y, days, train).tolist() == [[4.0, 7.0]]
    assert naive.persistence(y, np.array([3]), train).tolist() == [[3.0, 5.0]]
    assert naive.seasonal(y, days, train, period=2).tolist() == [[3.0, 5.0]]
    assert naive.per_node_median(y, days, train).tolist() == [[2.5, 6.0]]
    assert naive.yesterday(y, days, train).tolist() == [[5.5, 5.5]]
    line = np.arange(30.0)[:, None] * [1.0, 2.0]
    found = naive.ridge(line, np.array([29]), np.arange(7, 25), np.arange(25, 28), lags=3, alphas=(1e-6, 1e6))
    assert np.allclose(found, [[29, 58]], atol=1e-3)


def test_no_future_reaches_a_forecast_without_a_network():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(40, 3))
    later = y.copy()
    later[30:] += 100
    train, validation = np.arange(7, 25), np.arange(25, 30)
    for forecast in (naive.persistence, naive.seasonal, naive.per_node_median, naive.yesterday):
        assert np.array_equal(forecast(y, np.array([30]), train), forecast(later, np.array([30]), train))
    assert np.allclose(naive.ridge(y, [30], train, validation), naive.ridge(later, [30], train, validation))


def test_a_graph_without_edges_crashes_no_rival():
    none = Edges(torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.long))
    data = graph()
    bare = HeteroTemporalData(data.num_nodes, dict.fromkeys(data.edges, none), data.x, data.y)
    for name in RATES:
        assert torch.isfinite(network(name, bare, window=3, d=4)(bare.windows([4], 3), "a")["a"]).all(), name
