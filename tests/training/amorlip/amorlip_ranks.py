"""What each rank of the distributed tests runs: ``python amorlip_ranks.py SCENARIO`` under torchrun's variables."""

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent))

from amorlip_ground import coefficients, gradients, pairs, plain_loss

from thrifty.training.amorlip import AmorLIPLoss, batch_log_partition
from thrifty.training.amorlip.partition import Coefficients

BATCH, DIM, STEPS = 12, 8, 12
OPTIONS = {
    "num_samples": 200, "steps_per_epoch": 4, "beta_epochs": 2, "ema_decay": 0.5, "amor_every": 4, "chunk_size": 5
}  # fmt: skip


class Towers(nn.Module):
    """Two linear towers, and what a CLIP model returns."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.image, self.text = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.logit_scale = nn.Parameter(torch.tensor(2.3))
        self.logit_bias = nn.Parameter(torch.tensor(-1.0))
        self.double()

    def forward(self, x, y):
        u, v = functional.normalize(self.image(x), dim=1), functional.normalize(self.text(y), dim=1)
        return u, v, self.logit_scale.exp(), self.logit_bias


def data(step, world, rank=None):
    x, y = (z.detach() for z in pairs(step, batch=BATCH * world, dim=DIM, dtype=torch.float64))
    ids = torch.arange(BATCH * world) % (BATCH * world - 3)  # three captions stand twice, on different ranks
    rows = slice(None) if rank is None else slice(rank * BATCH, (rank + 1) * BATCH)
    return x[rows], y[rows], ids[rows]


def train(model, loss, steps, world, rank=None, duplicates=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    values = []
    for step in range(steps):
        x, y, ids = data(step, world, rank)
        optimizer.zero_grad()
        value = loss(*model(x, y), caption_ids=ids if duplicates else None)
        value.backward()
        optimizer.step()
        values.append(value.detach())
    return torch.stack(values)


def flat(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def global_is_one_big_batch():
    rank, world = dist.get_rank(), dist.get_world_size()
    for options in (
        {}, {"encoder_lambda": "target"}, {"negatives_only": True}, {"rho": 2.0, "adaptive_tau": True},
        {"network": "prototypes", "prototypes": BATCH, "objective": "neuclip"},
    ):  # fmt: skip
        # The first rank's networks are broadcast, so that the seeds of others do not matter.
        own = options | ({"seed": 5} if rank else {})
        # Repeated captions with sums of the batch, and with (and without) those of the networks.
        for duplicates in (False, True) if options.get("encoder_lambda") else (not options,):
            single = Towers()
            # In float64: Adam's first steps are signs, which rounding turns round.
            alone = AmorLIPLoss(DIM, **OPTIONS, **options).double()
            expected = train(single, alone, STEPS, world, duplicates=duplicates)
            towers = Towers()
            model = DistributedDataParallel(towers)
            loss = AmorLIPLoss(DIM, **OPTIONS, **own, rank=rank, world_size=world, check_every=5).double()
            found = train(model, loss, STEPS, world, rank, duplicates)
            dist.all_reduce(found)
            if "prototypes" not in options:  # they begin as the first rank's batch, not as everybody's
                torch.testing.assert_close(found / world, expected, atol=1e-9, rtol=1e-9)
                torch.testing.assert_close(flat(towers), flat(single), atol=1e-9, rtol=1e-9)
            everybody = [torch.empty_like(flat(loss.amortizer)) for _ in range(world)]
            dist.all_gather(everybody, flat(loss.amortizer))
            assert all(torch.equal(other, everybody[0]) for other in everybody)


@contextmanager
def counted():
    """Count what is sent, by every way there is."""
    calls, kept = [], {}
    for name in ("all_reduce", "all_gather", "broadcast", "batch_isend_irecv", "all_gather_into_tensor"):
        kept[name] = getattr(dist, name)

        def wrapped(*arguments, _name=name, **options):
            calls.append(_name)
            return kept[_name](*arguments, **options)

        setattr(dist, name, wrapped)
    try:
        yield calls
    finally:
        for name, function in kept.items():
            setattr(dist, name, function)


def local_needs_no_communication_in_stage_two():
    rank, world = dist.get_rank(), dist.get_world_size()
    for which in ("combined", "target"):
        loss = AmorLIPLoss(
            DIM,
            **OPTIONS | {"steps_per_epoch": None},
            encoder_lambda=which,
            gather="local",
            rank=rank,
            world_size=world,
        )
        loss.set_epoch(0)
        towers = Towers()
        for step in range(12):
            x, y, _ = data(step, world, rank)
            with counted() as calls:
                loss(*towers(x, y)).backward()
            assert bool(calls) == (step % 4 == 0), (step, calls)
        towers = Towers()
        loss.eval()
        with counted() as calls:
            loss(*towers(x, y))
        assert not calls


def local_negatives_stand_for_all():
    """On a Stage-I step the networks see everybody; the towers see W times their own negatives."""
    rank, world = dist.get_rank(), dist.get_world_size()
    loss = AmorLIPLoss(DIM, **OPTIONS, gather="local", rank=rank, world_size=world, objective="gkl").double()
    x, y, _ = data(0, world, rank)
    u, v, s, b = Towers()(x, y)
    kappa = (BATCH * world - 1) / 199
    c = Coefficients(kappa, float(world))
    Z = batch_log_partition(u, v, s, coefficients=c, logit_bias=b)
    u, v, s, b = (z.detach().requires_grad_() for z in (u, v, s, b))
    matrix = coefficients(BATCH, kappa, float(world))
    expected = plain_loss(u, v, s, Z.image, Z.text, matrix, b)
    found = loss(u, v, s, b)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(gradients(found, u, v, s), gradients(expected, u, v, s), strict=True):
        torch.testing.assert_close(ours, theirs)  # the value alone would not see ω: each row of weights adds up to 1
    alone = AmorLIPLoss(DIM, **OPTIONS, objective="gkl").double()
    alone(*Towers()(*data(0, world)[:2]))
    torch.testing.assert_close(flat(loss.amortizer.online), flat(alone.amortizer.online), atol=1e-9, rtol=1e-9)


def ranks_that_came_apart_are_noticed():
    rank, world = dist.get_rank(), dist.get_world_size()
    loss = AmorLIPLoss(DIM, **OPTIONS, rank=rank, world_size=world, check_every=1)
    x, y, _ = data(0, world, rank)
    loss(*Towers()(x, y))
    if rank:
        next(iter(loss.amortizer.online.parameters())).add_(1.0)
    with pytest.raises(RuntimeError, match="the networks of its ranks have come apart"):
        loss(*Towers()(x, y))


def memory_does_not_grow_with_ranks():
    """No rank ever holds more than two blocks of others: what is received has the size of one."""
    sizes, kept = [], dist.batch_isend_irecv
    rank, world = dist.get_rank(), dist.get_world_size()

    def seen(operations):
        sizes.append(sum(operation.tensor.numel() for operation in operations))
        return kept(operations)

    loss = AmorLIPLoss(DIM, **OPTIONS, rank=rank, world_size=world)
    x, y, _ = data(0, world, rank)
    dist.batch_isend_irecv = seen
    loss(*Towers()(x, y))
    dist.batch_isend_irecv = kept
    assert len(sizes) == 2 * (world - 1)  # once around for log Z, once for the weights
    assert max(sizes) <= 2 * (2 * BATCH * DIM + 2 * BATCH)  # sent and received: two blocks, two numbers a row


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
