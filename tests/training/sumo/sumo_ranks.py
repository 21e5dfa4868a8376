"""What each rank of the distributed tests runs; ``python sumo_ranks.py SCENARIO FOLDER`` under torchrun's variables."""

import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

from thrifty.training.sumo import SUMO, attach_layerwise, optimizer_state_bytes, sumo_param_groups

OPTIONS = {"lr": 0.02, "update_proj_gap": 3, "weight_decay": 0.1, "aux_lr": 0.01}


def model():
    torch.manual_seed(0)
    # Tall, wide, uneven on two ranks, and square.
    return nn.Sequential(
        nn.Linear(24, 64),
        nn.Tanh(),
        nn.Linear(64, 33),
        nn.LayerNorm(33),
        nn.Linear(33, 33),
        nn.Tanh(),
        nn.Linear(33, 24),
    )


def optimizer_of(net, **options):
    merged = OPTIONS | options
    groups = sumo_param_groups(net, rank=6, aux_lr=merged.pop("aux_lr"))
    return SUMO(groups, **merged)


def batch(step, rows=slice(None)):
    X = torch.randn(32, 24, generator=torch.Generator().manual_seed(step))
    return X[rows]


def train(net, optimizer, steps, first=0, rows=slice(None)):
    for step in range(first, first + steps):
        X = batch(step, rows)
        optimizer.zero_grad()
        (net(X) - X).pow(2).mean().backward()
        optimizer.step()


def single(**options):
    net = model()
    optimizer = optimizer_of(net, **options)
    train(net, optimizer, 7)
    return net, optimizer


class Collectives:
    """Counts what is sent while SUMO steps, by wrapping the functions that send."""

    def __init__(self):
        self.calls, self.numbers = 0, 0

    def __enter__(self):
        self.kept = {
            name: getattr(dist, name) for name in ("all_reduce", "all_gather_into_tensor", "all_gather", "broadcast")
        }
        for name, function in self.kept.items():
            setattr(dist, name, self._counted(name, function))
        return self

    def __exit__(self, *_):
        for name, function in self.kept.items():
            setattr(dist, name, function)

    def _counted(self, name, function):
        def counted(tensor, *args, **kwargs):
            assert name == "all_reduce", f"the sharded step gathers nothing, but called {name}"
            self.calls += 1
            self.numbers += tensor.numel()
            return function(tensor, *args, **kwargs)

        return counted


def rows_of(rank, world):
    return slice(rank * 32 // world, (rank + 1) * 32 // world)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.detach()


def fsdp(rank, world, folder):
    """Sharded training is single-process training, with few and small messages."""
    for options in ({}, {"residual": "fira", "limit_target": "update", "projector": "exact"}, {"rounding": "kahan"}):
        expected, reference = single(**options)
        net = model()
        mesh = init_device_mesh("cpu", (world,))
        for layer in net:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        optimizer = optimizer_of(net, **options)
        train(net, optimizer, 7, rows=rows_of(rank, world))
        for a, b in zip(expected.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(whole(b), a, atol=2e-5, rtol=1e-4)
        share = optimizer_state_bytes(optimizer)["total"] / optimizer_state_bytes(reference)["total"]
        assert share < 0.8, share

    # Between refreshes: two messages of numbers (flags; Ĝ of tall and Gram matrices of wide weights, in their dtypes).
    X = batch(7, rows_of(rank, world))
    optimizer.zero_grad()
    (net(X) - X).pow(2).mean().backward()
    with Collectives() as sent:
        optimizer.step()
    shapes = [p.shape for p in optimizer.param_groups[0]["params"]]
    rank_ = 6
    needed = sum(rank_ * n if m >= n else rank_ * rank_ for m, n in shapes)
    assert 1 <= sent.calls <= 8, sent.calls
    assert sent.numbers <= needed + 8 * len(list(net.parameters())), (sent.numbers, needed)
    assert sent.numbers < 0.25 * sum(m * n for m, n in shapes)

    # A NaN on one rank is a skipped step on both.
    optimizer.nonfinite = "skip"
    before = [whole(p).clone() for p in net.parameters()]
    bias = optimizer.param_groups[-1]["params"][0]
    for p in (optimizer.param_groups[0]["params"][0], optimizer.param_groups[0]["params"][1], bias):
        if rank == 1:
            p.grad.to_local().view(-1)[0] = float("nan")
    optimizer.step()
    assert sorted(optimizer.skipped.values()) == [1, 1, 1], optimizer.skipped
    same = [torch.equal(whole(p), b) for p, b in zip(net.parameters(), before, strict=True)]
    assert sum(same) == 3, same


def hsdp(rank, world, folder):
    """Shards within a node and replicas across nodes: two ranks hold each piece, and both take the same steps."""
    expected, _ = single()
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    net = model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = optimizer_of(net)
    train(net, optimizer, 7, rows=rows_of(rank, world))
    for a, b in zip(expected.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(whole(b), a, atol=2e-5, rtol=1e-4)
    weight = net[0].weight
    assert weight.placements == (Replicate(), Shard(0))
    assert optimizer.state[weight]["basis"].placements == (Replicate(), Shard(0))
    for tensor in (weight.to_local().detach(), optimizer.state[weight]["basis"].to_local()):
        twins = [torch.empty_like(tensor) for _ in range(2)]
        dist.all_gather(twins, tensor, group=mesh.get_group("replicate"))
        assert torch.equal(*twins)
    checkpoint(rank, world, folder, mesh)


def checkpoint(rank, world, folder, mesh=None):
    """A distributed checkpoint brings back the exact state."""

    def sharded():
        net = model()
        fully_shard(net, mesh=mesh or init_device_mesh("cpu", (world,)))
        return net, optimizer_of(net)

    net, optimizer = sharded()
    train(net, optimizer, 7, rows=rows_of(rank, world))
    kept = {"model": net.state_dict(), "optimizer": get_optimizer_state_dict(net, optimizer)}
    dcp.save(kept, checkpoint_id=folder)
    train(net, optimizer, 5, first=7, rows=rows_of(rank, world))
    again, resumed = sharded()
    loaded = {"model": again.state_dict(), "optimizer": get_optimizer_state_dict(again, resumed)}
    dcp.load(loaded, checkpoint_id=folder)
    again.load_state_dict(loaded["model"])
    set_optimizer_state_dict(again, resumed, loaded["optimizer"])
    train(again, resumed, 5, first=7, rows=rows_of(rank, world))
    for a, b in zip(net.parameters(), again.parameters(), strict=True):
        assert torch.equal(whole(a), whole(b))


def ddp(rank, world, folder):
    """Every rank takes the same step, and it is the step of one process."""
    expected, _ = single()
    net = model()
    wrapped = nn.parallel.DistributedDataParallel(net)
    optimizer = optimizer_of(net)
    torch.manual_seed(rank)  # the ranks' own generators differ
    train(wrapped, optimizer, 7, rows=rows_of(rank, world))
    for a, b in zip(expected.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(b.detach(), a.detach(), atol=2e-5, rtol=1e-4)
        others = [torch.empty_like(b) for _ in range(world)]
        dist.all_gather(others, b.detach())
        assert all(torch.equal(other, b) for other in others)
    net = model()
    handle = attach_layerwise(net, SUMO, rank=6)
    wrapped = nn.parallel.DistributedDataParallel(net)
    with pytest.raises(ValueError, match="model: DistributedDataParallel reduces gradients"):
        wrapped(batch(0))
    handle.remove()
    wrapped(batch(0))


def shapes(rank, world, folder):
    """Any cut of rows or columns, uneven and empty pieces included; what has no sharded update is refused."""
    mesh = init_device_mesh("cpu", (world,))
    for shape in ((17, 9), (9, 17), (4, 30), (30, 4), (12, 12)):
        for dim in (0, 1):
            gradients = [torch.randn(shape, generator=torch.Generator().manual_seed(i)) for i in range(7)]
            options = {"lr": 0.1, "rank": 3, "update_proj_gap": 3, "diagnostics": True}
            plain = nn.Parameter(torch.zeros(shape))
            cut = nn.Parameter(distribute_tensor(torch.zeros(shape), mesh, [Shard(dim)]))
            ours, reference = SUMO([cut], **options), SUMO([plain], **options)
            for G in gradients:
                cut.grad = distribute_tensor(G, mesh, [Shard(dim)])
                plain.grad = G.clone()
                ours.step()
                reference.step()
            torch.testing.assert_close(cut.full_tensor(), plain.detach(), atol=1e-5, rtol=1e-4)
    for shape, scale in (((4, 12), 1e-40), ((4, 12), 1.0), ((12, 4), 1.0), ((40, 33), 1.0)):
        # Of rank one: the other directions of each basis are noise, which must differ between ranks.
        plain = nn.Parameter(torch.zeros(shape))
        cut = nn.Parameter(distribute_tensor(torch.zeros(shape), mesh, [Shard(0)]))
        plain.grad = torch.ones(shape)
        cut.grad = distribute_tensor(scale * torch.ones(shape), mesh, [Shard(0)])
        for weight in (plain, cut):
            SUMO([weight], lr=0.1, rank=3, residual="none").step()
        torch.testing.assert_close(cut.full_tensor(), plain.detach(), atol=1e-5, rtol=1e-4)
    replicated = nn.Parameter(distribute_tensor(torch.zeros(8, 6), mesh, [Replicate()]))
    replicated.grad = distribute_tensor(torch.ones(8, 6), mesh, [Replicate()])
    SUMO([replicated], rank=2).step()
    cut = nn.Parameter(distribute_tensor(torch.zeros(8, 4, 3), mesh, [Shard(1)]))
    cut.grad = distribute_tensor(torch.ones(8, 4, 3), mesh, [Shard(1)])
    with pytest.raises(RuntimeError, match="placed as"):
        SUMO([cut], rank=2).step()
    plane = init_device_mesh("cpu", (world, 1))
    cut = nn.Parameter(distribute_tensor(torch.zeros(9, 6), plane, [Shard(0), Shard(1)]))
    cut.grad = distribute_tensor(torch.ones(9, 6), plane, [Shard(0), Shard(1)])
    with pytest.raises(RuntimeError, match=r"placed as .*one dimension of the mesh"):
        SUMO([cut], rank=2).step()
    wide = nn.Parameter(distribute_tensor(torch.zeros(6, 9), mesh, [Shard(0)]))
    wide.grad = distribute_tensor(torch.ones(6, 9), mesh, [Shard(0)])
    with pytest.raises(RuntimeError, match="orthogonalizer: the moment .* got 'ns5'"):
        SUMO([wide], rank=2, orthogonalizer="ns5").step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        globals()[sys.argv[1]](int(os.environ["RANK"]), dist.get_world_size(), Path(sys.argv[2]))
    finally:
        dist.destroy_process_group()
