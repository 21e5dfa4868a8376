"""The layer against the specification's golden numbers, plain loops and dense products."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional
from toys import METADATA, PRIOR, R1, R2, R3, golden, graph, model, w

from thrifty.models.se_htgnn import SEHTGNN, Edges, HeteroTemporalData, SEHTGNNConv, operations
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


def dense_mean(h, data, triple, s):
    """(A + I) / (1 + degree), as a dense product."""
    N, M = data.num_nodes[triple[2]], data.num_nodes[triple[0]]
    A = torch.zeros(N, M, dtype=torch.float64)
    held = data.edges[triple]
    weight = torch.ones(len(held.snapshot)) if held.weight is None else held.weight
    for k in range(len(held.snapshot)):
        if held.snapshot[k] == s:
            A[held.index[1, k], held.index[0, k]] += weight[k].double()
    total = h[triple[2]] + A @ h[triple[0]]
    return functional.elu(total / (1 + A.sum(1, keepdim=True)))


def naive_encode(net, data, target, window):
    """The model of the paper, snapshot by snapshot and relation by relation, with ``torch.nn.GRU``."""
    T = window
    h = {
        name: [net.projections[i](data.x[name][target - T + t].double()) for t in range(T)]
        for i, name in enumerate(net.config.in_channels)
    }
    prior, alphas = net.prior(), {}
    for number, conv in enumerate(net.convs):
        new = {name: list(states) for name, states in h.items()}
        for core, (name, triples) in zip(conv.cores, conv.relations.items(), strict=True):
            M, means = {}, {}
            for place, triple in enumerate(triples):
                M[triple] = torch.stack(
                    [dense_mean({k: v[t] for k, v in h.items()}, data, triple, target - T + t) for t in range(T)]
                )
                k = core.weight_hh.shape[2]
                gru = torch.nn.GRU(M[triple].shape[2], k, dtype=torch.float64)
                gru.weight_ih_l0.data, gru.weight_hh_l0.data = core.weight_ih[place].data, core.weight_hh[place].data
                gru.bias_ih_l0.data, gru.bias_hh_l0.data = core.bias_ih[place].data, core.bias_hh[place].data
                start = prior[triple].double().expand(1, data.num_nodes[name], k).contiguous()
                e, _ = gru(M[triple], start)
                there = data.present[name][target - T : target]
                for t in range(T):
                    chosen = there[t] if there[t].any() and conv.mask_absent else torch.ones_like(there[t])
                    means[triple, t] = e[t][chosen].mean(0)
            for t in range(T):
                alpha = torch.softmax(torch.stack([means[triple, t] for triple in triples]), 0)
                alphas[number, name, t] = alpha
                d = M[triples[0]].shape[2]
                wide = alpha.repeat_interleave(d // alpha.shape[1], 1)
                new[name][t] = h[name][t] + sum(wide[i] * M[triple][t] for i, triple in enumerate(triples))
        h = new
    out = {}
    for name, states in h.items():
        z = torch.einsum("tnd,ht->nhd", torch.stack(states), net.temporal.weight) + net.temporal.bias[:, None]
        out[name] = z
    return out, alphas


@pytest.mark.parametrize(
    ("layers", "heads", "horizon", "weights"), [(1, 1, 1, False), (2, 2, 3, True), (3, 1, 2, False)]
)
def test_vectorised_is_the_loop_with_torch_gru(path, layers, heads, horizon, weights):
    data = graph(seed=layers, weights=weights)
    net = model(data, num_layers=layers, heads=heads, horizon=horizon)
    with torch.no_grad():
        z = net.encode(data.windows([3, 4, 6, 8], 3))
        for b, target in enumerate([3, 4, 6, 8]):
            expected, _ = naive_encode(net, data, target, 3)
            for name in "ab":
                assert torch.allclose(z[name][b], expected[name], atol=1e-10), (name, target)


def test_gradients_are_those_of_the_loop(path):
    data = graph(seed=5)
    net = model(data, num_layers=2, heads=2)
    z = net.encode(data.windows([4, 5], 3), "a")["a"]
    (z**2).sum().backward()
    found = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    net.zero_grad()
    sum((naive_encode_tracked(net, data, t)["a"] ** 2).sum() for t in (4, 5)).backward()
    for name, p in net.named_parameters():
        if p.grad is not None and p.grad.abs().max() > 1e-12:
            assert torch.allclose(found[name], p.grad, atol=1e-9), name


def naive_encode_tracked(net, data, target):
    """As ``naive_encode`` without the norm and with gradients, written with the tensor code's own recurrence."""
    batch = data.windows([target], 3)
    h = {name: net.projections[i](data.x[name].double()) for i, name in enumerate(net.config.in_channels)}
    prior = net.prior()
    states = {name: [v[target - 3 + t] for t in range(3)] for name, v in h.items()}
    for conv in net.convs:
        new = {}
        for core, (name, triples) in zip(conv.cores, conv.relations.items(), strict=True):
            e = [prior[t].double().expand(data.num_nodes[name], conv.heads) for t in triples]
            new[name] = []
            for t in range(3):
                logits, M = [], []
                for i, triple in enumerate(triples):
                    m = dense_mean({k: v[t] for k, v in states.items()}, data, triple, target - 3 + t)
                    gi, gh = m @ core.weight_ih[i].T + core.bias_ih[i], e[i] @ core.weight_hh[i].T + core.bias_hh[i]
                    (ri, zi, ni), (rh, zh, nh) = gi.chunk(3, 1), gh.chunk(3, 1)
                    z, n = torch.sigmoid(zi + zh), torch.tanh(ni + torch.sigmoid(ri + rh) * nh)
                    e[i] = (1 - z) * n + z * e[i]
                    share = batch.share(name, batch.unique[t : t + 1], conv.mask_absent, torch.float64)[0]
                    logits.append(share @ e[i])
                    M.append(m)
                alpha = torch.softmax(torch.stack(logits), 0).repeat_interleave(conv.channels // conv.heads, 1)
                new[name].append(states[name][t] + sum(a * m for a, m in zip(alpha, M, strict=True)))
        states = new
    return {
        name: torch.einsum("tnd,ht->nhd", torch.stack(v), net.temporal.weight) + net.temporal.bias[:, None]
        for name, v in states.items()
    }


def test_the_operations_pass_gradcheck(path):
    g = torch.Generator().manual_seed(0)
    data = graph(edges=6, snapshots=3)
    rows = data.rows(("b", "in", "a"), dtype=torch.float64)
    snap = torch.tensor([0, 2, 1, 2])
    dst, src = (torch.randn(4, n, 2, generator=g, dtype=torch.float64, requires_grad=True) for n in (5, 4))
    assert gradcheck(lambda a, b: operations.average(a, b, rows, snap), (dst, src))
    left, right = (torch.randn(4, n, generator=g, dtype=torch.float64, requires_grad=True) for n in (4, 5))
    assert gradcheck(lambda h, a, b: operations.attend(h, a, b, rows, snap), (src, left, right))
    drive = torch.randn(2, 4, 6, 3, generator=g, dtype=torch.float64, requires_grad=True)
    U, c, start = (
        torch.randn(*s, generator=g, dtype=torch.float64, requires_grad=True) for s in ((2, 6, 2), (2, 6), (2, 2))
    )
    index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    share = torch.rand(4, 3, generator=g, dtype=torch.float64)
    assert gradcheck(lambda *a: operations.carry(a[0], index, *a[1:], share), (drive, U, c, start))


def test_a_window_given_twice_counts_twice():
    data = graph()
    net = model(data)
    grads = []
    for targets in ([5], [5, 5]):
        net.zero_grad()
        net(data.windows(targets, 3), "a")["a"].sum().backward()
        grads.append(net.projections[0].weight.grad.clone())
    assert torch.allclose(2 * grads[0], grads[1])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("attention", CORES)
def test_no_snapshot_is_seen_before_its_time(attention, layers):
    """Changing the last snapshot of a window leaves attention and states at earlier ones as they were."""
    data = graph()
    net = model(data, attention=attention, num_layers=layers)
    batch = data.windows([6], 3)
    before = net.attention(batch)
    changed = replace_x(data, 5)
    after = net.attention(changed.windows([6], 3))
    for key, was in before.items():
        assert torch.allclose(was[:, :2], after[key][:, :2]), key
    if attention != "uniform":
        assert any(not torch.allclose(was[:, 2], after[key][:, 2]) for key, was in before.items())


def replace_x(data, snapshot):
    x = {name: v.clone() for name, v in data.x.items()}
    for v in x.values():
        v[snapshot] += 1.0
    return HeteroTemporalData(data.num_nodes, data.edges, x, data.y)


@pytest.mark.parametrize("attention", CORES)
def test_every_core_gives_weights_that_sum_to_one(attention):
    data = graph()
    net = model(data, attention=attention, heads=2)
    found = net.attention(data.windows([4, 5], 3))
    into_a = [w for (layer, triple), w in found.items() if triple[2] == "a" and layer == 0]
    assert len(into_a) == 2
    assert torch.allclose(sum(into_a), torch.ones(2, 3, 2, dtype=torch.float64))
    into_b = next(w for (_, triple), w in found.items() if triple[2] == "b")
    assert torch.equal(into_b, torch.ones_like(into_b))  # one relation: exactly 1
    net.train()
    net(data.windows([4, 5], 3), "a")["a"].sum().backward()
    used = [p for name, p in net.named_parameters() if name.startswith("convs.0.cores.0")]
    assert all(p.grad is not None for p in used)


def test_attention_of_two_relations_stays_within_its_bounds():
    data = graph()
    net = model(data)
    with torch.no_grad():
        for p in net.convs.parameters():
            p.mul_(50)
    for (_, triple), alpha in net.attention(data.windows([4], 3)).items():
        if triple[2] == "a":
            assert 1 / (1 + np.exp(2)) <= float(alpha.min()) <= float(alpha.max()) <= 1 / (1 + np.exp(-2))


def test_a_state_is_at_most_one(path):
    """A gate that is open, and an input that says all: the state is the tanh's largest value."""
    drive = torch.tensor([0.0, -60.0, 60.0], dtype=torch.float64).view(1, 1, 3, 1).expand(1, 2, 3, 4)
    nothing = torch.zeros(1, 3, dtype=torch.float64)
    share = torch.full((2, 4), 0.25, dtype=torch.float64)
    found = operations.carry(drive, torch.tensor([[0, 1]]), nothing[..., None], nothing, nothing[:, :1], share)
    assert torch.allclose(found, torch.ones_like(found))


def test_running_means_are_those_of_an_epoch():
    conv = SEHTGNNConv(METADATA, 2)
    for epoch in (0.0, 10.0):
        conv.train()
        for value in (1.0, 2.0, 6.0):
            conv._estimated(torch.full((4, 3, 2, 1), epoch + value), 0)
        assert torch.allclose(conv.running_0, torch.full((3, 2, 1), epoch + 3))


def test_zero_weights_and_equal_priors_give_a_plain_mean():
    data = graph()
    net = model(data, num_layers=1, window=1, prior="uniform")
    with torch.no_grad():
        for p in net.convs.parameters():
            p.zero_()
        batch = data.windows([4], 1)
        found = net.encode(batch, "a")["a"][0, :, 0]
        h = {name: net.projections[i](data.x[name][3].double()) for i, name in enumerate("ab")}
        mean = (dense_mean(h, data, ("a", "near", "a"), 3) + dense_mean(h, data, ("b", "in", "a"), 3)) / 2
        expected = (mean + h["a"]) * net.temporal.weight[0, 0] + net.temporal.bias[0]
    assert torch.allclose(found, expected)


def test_nodes_edges_and_relations_may_come_in_any_order():
    data = graph()
    net = model(data)
    base = net(data.windows([5, 6], 3))
    shuffle = torch.randperm(12)
    edges = {t: Edges(e.index[:, shuffle], e.snapshot[shuffle]) for t, e in reversed(list(data.edges.items()))}
    other = HeteroTemporalData(data.num_nodes, edges, data.x, data.y)
    assert torch.allclose(net(other.windows([5, 6], 3))["a"], base["a"])
    p = torch.randperm(5)
    back = torch.argsort(p)
    moved = {
        t: Edges(torch.stack([back[e.index[k]] if t[2 * k] == "a" else e.index[k] for k in (0, 1)]), e.snapshot)
        for t, e in data.edges.items()
    }
    permuted = HeteroTemporalData(data.num_nodes, moved, {"a": data.x["a"][:, p], "b": data.x["b"]}, data.y)
    assert torch.allclose(net(permuted.windows([5, 6], 3))["a"], base["a"][:, p])
    reordered = SEHTGNN(permuted_metadata(data), data.num_features(), 4, window=3).double().eval()
    state = net.state_dict()
    for i in range(2):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            state[f"convs.{i}.cores.0.{name}"] = state[f"convs.{i}.cores.0.{name}"].flip(0)
    reordered.load_state_dict(state)
    assert torch.allclose(reordered(data.windows([5, 6], 3))["a"], base["a"])


def permuted_metadata(data):
    near, inside, rev = data.metadata()[1]
    return (["a", "b"], [inside, near, rev])


def test_unit_weights_are_no_weights_and_a_still_graph_is_like_any_other():
    data = graph()
    weighted = {t: Edges(e.index, e.snapshot, torch.ones(12)) for t, e in data.edges.items()}
    net = model(data)
    other = HeteroTemporalData(data.num_nodes, weighted, data.x, data.y)
    assert torch.equal(net(other.windows([5], 3))["a"], net(data.windows([5], 3))["a"])


@pytest.mark.parametrize("aggr", ["none", "gcn", "gat"])
def test_other_aggregations_are_what_they_say(aggr, path):
    data = graph()
    conv = SEHTGNNConv(data.metadata(), 2, aggr=aggr).double()
    h = {name: torch.randn(8, n, 2, dtype=torch.float64) for name, n in data.num_nodes.items()}
    batch = data.windows([8], 8)
    triple = ("b", "in", "a")
    found = conv._aggregate(h, Frames(batch, batch.unique, batch.index), triple)
    held = data.edges[triple]
    for s in range(8):
        A = torch.zeros(5, 4, dtype=torch.float64)
        for k in torch.where(held.snapshot == s)[0]:
            A[held.index[1, k], held.index[0, k]] += 1
        if aggr == "none":
            expected = functional.elu(h["a"][s])
        elif aggr == "gcn":
            left, right = (1 + A.sum(1)).rsqrt(), (1 + A.sum(0)).rsqrt()
            expected = functional.elu(
                left[:, None] ** 2 * h["a"][s] + left[:, None] * (A @ (right[:, None] * h["b"][s]))
            )
        else:
            a, b = conv.scores[1]
            score = functional.leaky_relu((h["b"][s] @ a)[None] + (h["a"][s] @ b)[:, None], 0.2)
            w_ = A * score.exp()
            total = w_.sum(1, keepdim=True)
            attended = torch.where(total > 0, w_ @ h["b"][s] / total.clamp(min=1e-300), 0.0)
            expected = functional.elu(h["a"][s] + attended)
        assert torch.allclose(found[s], expected, atol=1e-10), s


def test_the_released_degree_halves_nodes_without_neighbours():
    edges = {("a", "to", "a"): Edges(torch.tensor([[0], [1]]), torch.tensor([0]))}
    data = HeteroTemporalData({"a": 3}, edges, {"a": torch.ones(1, 3, 1)})
    batch = data.windows([1], 1)
    h = torch.ones(1, 3, 1)
    exact = operations.average(h, h, data.rows(("a", "to", "a")), batch.unique)
    released = operations.average(h, h, data.rows(("a", "to", "a"), degree="released"), batch.unique)
    assert exact.flatten().tolist() == [1.0, 1.0, 1.0]
    assert released.flatten().tolist() == [0.5, 1.0, 0.5]


@pytest.mark.parametrize("norm", ["node", "graph"])
def test_norms_take_the_statistics_that_they_say(norm):
    data = graph()
    net = model(data, norm=norm, num_layers=1)
    y = torch.randn(6, 5, 4, dtype=torch.float64)
    found = net.convs[0].normalise("a", y, torch.full((6, 5), 0.2, dtype=torch.float64))
    axes = (2,) if norm == "node" else (1, 2)
    expected = (y - y.mean(axes, keepdim=True)) / y.std(axes, unbiased=False, keepdim=True)
    assert torch.allclose(found, expected, atol=1e-3)
    assert net(data.windows([4, 5], 3))["b"].shape == (2, 4, 1, 1)
    share = torch.tensor([0.5, 0.5, 0, 0, 0], dtype=torch.float64).expand(6, 5)
    other = torch.cat([y[:, :2], 100 + y[:, 2:]], 1)  # who is absent changes nothing for the others
    assert torch.allclose(
        net.convs[0].normalise("a", y, share)[:, :2], net.convs[0].normalise("a", other, share)[:, :2]
    )


def test_parameters_are_as_many_as_the_formula_says():
    metadata = (
        ["state", "county"],
        [
            ("state", "near", "state"),
            ("county", "in", "state"),
            ("state", "has", "county"),
            ("county", "near", "county"),
        ],
    )
    net = SEHTGNN(metadata, 1, 8, num_layers=1, window=7)
    assert net.num_parameters(prior=False) == 32 + 132 + 8 + 81 == 253
    assert sum(p.numel() for p in net.convs.parameters()) == 132


def test_means_leave_out_who_is_absent_unless_told_otherwise():
    edges = {t: Edges(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1, 1])) for t in graph().edges}
    x = {"a": torch.randn(3, 4, 3), "b": torch.randn(3, 4, 2)}
    x["a"][:, 2:] = 0  # two nodes of type a are never there
    data = HeteroTemporalData({"a": 4, "b": 4}, edges, x)
    assert data.present["a"].tolist() == [[True, True, False, False]] * 3
    bare = HeteroTemporalData({"a": 4, "b": 4}, edges, {"b": x["b"]})  # without features: who has an edge then
    assert bare.present["a"].tolist() == [[False] * 4, [True, True, False, False], [False] * 4]
    assert data.windows([3], 3).share("a", torch.tensor([1]), True, torch.float32).tolist() == [[0.5, 0.5, 0.0, 0.0]]
    one, other = (
        model(data, mask_absent=on).attention(data.windows([3], 3))[0, ("b", "in", "a")] for on in (True, False)
    )
    assert not torch.allclose(one, other)


def test_presence_and_frames():
    data = graph()
    batch = data.windows([3, 4, 6], 3)
    assert batch.unique.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.index.tolist() == [[0, 1, 2], [1, 2, 3], [3, 4, 5]]
    own = Frames(batch, batch.unique, batch.index).own()
    assert own.snap.tolist() == [0, 1, 2, 1, 2, 3, 3, 4, 5]
    assert replace(batch, sampled=True).sampled
