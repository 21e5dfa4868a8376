"""The specification's golden toy, and small random graphs."""

import torch

from thrifty.models.se_htgnn import SEHTGNN, Edges, HeteroTemporalData, SEHTGNNConv

R1, R2, R3 = ("a", "r1", "a"), ("b", "r2", "a"), ("a", "r3", "b")
METADATA = (["a", "b"], [R1, R2, R3])
EDGES = [
    {R1: [(0, 1), (1, 2)], R2: [(0, 0)], R3: [(0, 0), (1, 0), (2, 1)]},
    {R1: [(0, 1)], R2: [(1, 0), (0, 2)], R3: [(0, 1)]},
    {R1: [(2, 0), (1, 0), (0, 1)], R2: [], R3: [(1, 1), (2, 1)]},
]
PRIOR = {R1: torch.tensor(0.6), R2: torch.tensor(0.4), R3: torch.tensor(1.0)}


def w(shape, q):
    """Numbers that anyone can make: sin(1 + q + j/2)."""
    n = torch.Size(shape).numel()
    return torch.sin(1 + q + 0.5 * torch.arange(n, dtype=torch.float64)).view(shape)


def golden():
    """Return (layer, its input (node, time, channel), edges a snapshot)."""
    X = {"a": w((3, 3, 2), 0.1), "b": w((2, 3, 1), 0.2)}
    h = {"a": X["a"] @ w((2, 2), 1).T + w((2,), 2), "b": X["b"] @ w((2, 1), 3).T + w((2,), 4)}
    conv = SEHTGNNConv(METADATA, 2).double()
    numbers = {"a": [0, 1], "b": [2]}
    with torch.no_grad():
        for core, name in zip(conv.cores, conv.relations, strict=True):
            for place, i in enumerate(numbers[name]):
                core.weight_ih[place] = w((3, 2), 10 + 4 * i)
                core.weight_hh[place] = w((3, 1), 11 + 4 * i)
                core.bias_ih[place] = w((3,), 12 + 4 * i)
                core.bias_hh[place] = w((3,), 13 + 4 * i)
    edges = [{t: torch.tensor(e, dtype=torch.long).view(-1, 2).T for t, e in step.items()} for step in EDGES]
    return conv, h, edges


def graph(seed=0, snapshots=8, counts=(5, 4), weights=False, widths=(3, 2), edges=12):
    """Return a random graph of types a and b, with relations within a and both ways between them."""
    g = torch.Generator().manual_seed(seed)
    nodes = dict(zip("ab", counts, strict=True))
    triples = [("a", "near", "a"), ("b", "in", "a"), ("a", "rev_in", "b")]
    held = {}
    for triple in triples:
        index = torch.stack([torch.randint(nodes[triple[end]], (edges,), generator=g) for end in (0, 2)])
        weight = torch.rand(edges, generator=g) + 0.1 if weights else None
        held[triple] = Edges(index, torch.randint(snapshots, (edges,), generator=g), weight)
    x = {name: torch.randn(snapshots, nodes[name], p, generator=g) for name, p in zip("ab", widths, strict=True)}
    y = {"a": torch.randn(snapshots, nodes["a"], generator=g)}
    return HeteroTemporalData(nodes, held, x, y)


def model(data, seed=0, dtype=torch.float64, **settings):
    """Return a small model for a graph."""
    settings = {"hidden_channels": 4, "num_layers": 2, "window": 3} | settings
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return SEHTGNN(data.metadata(), data.num_features(), **settings).to(dtype).eval()
