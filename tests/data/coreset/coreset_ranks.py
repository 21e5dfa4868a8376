"""What each of several processes checks; run by torchrun from ``test_hosts.py``."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from thrifty.data.coreset import CoresetLoader, RepresentativenessMonitor


def data(n=121, classes=4):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % classes
    return TensorDataset(torch.randn(n, 6, generator=generator) + labels[:, None] / 2, labels)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def run(model, epochs=3):
    monitor = RepresentativenessMonitor(threshold=5.0, every=2)
    loader = CoresetLoader(data(), model, budget=25, batch_size=4, monitor=monitor)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for _ in range(epochs):
        seen.append([])
        for (x, y), weights in loader:
            loss = (weights * functional.cross_entropy(model(x), y, reduction="none")).mean()
            optimizer.zero_grad()
            loss.backward()
            if dist.is_initialized():
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
                    parameter.grad /= dist.get_world_size()
            optimizer.step()
            seen[-1].append(x)
    return loader, seen


if __name__ == "__main__":
    alone, _ = run(network(), epochs=1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    first, _ = run(network(), epochs=1)
    assert first.coreset.subset.indices.tolist() == alone.coreset.subset.indices.tolist()
    torch.testing.assert_close(first.coreset.subset.weights, alone.coreset.subset.weights, rtol=1e-5, atol=1e-5)

    loader, seen = run(network())
    states = [None] * size
    held = loader.state_dict()["coreset"]
    for row in held["history"]:
        for name in ("seconds_check", "seconds_select", "seconds_train"):
            row[name] = 0.0
    dist.all_gather_object(states, repr(held))
    assert states == [states[0]] * size, "every process has the same subset, ratios and decisions"
    assert [row.updated for row in loader.history] == [True, True, False]
    rows = [None] * size
    dist.all_gather_object(rows, torch.cat(seen[0]))
    together = torch.cat(rows)
    assert all(len(part) == -(-25 // size) for part in rows)
    assert len(together.unique(dim=0)) == 25, "the shares cover the subset"
    dist.destroy_process_group()
