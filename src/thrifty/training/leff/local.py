"""What a client does in a round: some steps of AdamW on what it was given to train, and nothing else.

Dropout and the order of the data come from the client's own stream of the round, so that a client computes the same
wherever it runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.importance import Batch, LossFn, model_loss
from thrifty.training.leff.layers import on_device
from thrifty.training.leff.streams import torch_stream

#: A client's data: columns of examples, or batches, or what gives an epoch's batches for a generator.
Data = Mapping[str, Tensor] | Sequence[Batch] | Callable[[torch.Generator], Iterable[Batch]]


@dataclass
class LocalRun:
    """What local training measured.

    Args:
        losses: Of every step.
        seconds: Of every step.
        kept_bytes: That the first step kept for its backward pass.
        gradient_bytes: Of the gradients.
        optimizer_bytes: Of the optimiser's state.
    """

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    kept_bytes: int = 0
    gradient_bytes: int = 0
    optimizer_bytes: int = 0


def count_examples(data: Data) -> int | None:
    """Return how many examples there are; ``None`` where only drawing them would tell."""
    if callable(data):
        return None
    if isinstance(data, Mapping):
        return len(next(iter(data.values()))) if data else 0
    return sum(len(next(v for v in batch.values() if isinstance(v, Tensor))) for batch in data)


def epoch(data: Data, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
    """Yield the batches of one pass, in an order that the generator draws."""
    if callable(data):
        yield from data(generator)
    elif isinstance(data, Mapping):
        count = count_examples(data) or 0
        order = torch.randperm(count, generator=generator)
        for at in range(0, count, batch_size):
            rows = order[at : at + batch_size]
            yield {key: column[rows] for key, column in data.items()}
    else:
        for index in torch.randperm(len(data), generator=generator).tolist():
            yield data[index]


def train_locally(
    model: nn.Module,
    trained: Mapping[str, Tensor],
    data: Data,
    config: LeffConfig,
    *,
    round_: int,
    client: str,
    loss_fn: LossFn | None = None,
    extras: Collection[str] = (),
) -> LocalRun:
    """Train some tensors of a model, in place.

    The model's modes are left as they are set; the random numbers of its dropout are the client's.

    Args:
        model: Whose loss is minimised.
        trained: Name to what is trained; those that require gradients.
        data: The client's.
        config: Epochs, steps, optimiser and proximal term.
        round_: This one.
        client: Its name; with the round and the seed it determines every random number.
        loss_fn: ``loss_fn(model, batch)``; the model's own by default.
        extras: Names of what learns at ``extras_lr``.
    """
    loss_fn = loss_fn or model_loss
    named = {name: t for name, t in trained.items() if t.requires_grad}
    parameters = list(named.values())
    start = [p.detach().clone() for p in parameters] if config.proximal else []
    optimizer = make_optimizer(named, config, extras)
    run = LocalRun()
    order = torch_stream(config.seed, "order", round_, client)
    device = parameters[0].device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(torch_stream(config.seed, "dropout", round_, client).initial_seed())
        for batch in _limited(data, config, order):
            began = time.perf_counter()
            with _counting(run, model) if not run.losses else nullcontext():
                loss = loss_fn(model, on_device(batch, device))
            for p, origin in zip(parameters, start, strict=False):
                loss = loss + 0.5 * config.proximal * (p - origin).square().sum()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            run.losses.append(float(loss.detach()))
            run.seconds.append(time.perf_counter() - began)
    run.gradient_bytes = sum(p.grad.numel() * p.grad.element_size() for p in parameters if p.grad is not None)
    run.optimizer_bytes = sum(
        t.numel() * t.element_size()
        for held in optimizer.state.values()
        for t in held.values()
        if isinstance(t, Tensor)
    )
    return run


def make_optimizer(
    trained: Mapping[str, Tensor], config: LeffConfig, extras: Collection[str] = ()
) -> torch.optim.Optimizer:
    """Return a fresh optimiser: a block changes from round to round, so that no state is kept."""
    rates = {name: (name in extras and config.extras_lr) or config.lr for name in trained}
    groups = [
        {"params": [t for name, t in trained.items() if rates[name] == lr], "lr": lr}
        for lr in sorted({*rates.values()})
    ]
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, weight_decay=config.weight_decay)
    return torch.optim.AdamW(groups, weight_decay=config.weight_decay, fused=True)  # a third of the time a parameter


def privatise(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    config: LeffConfig,
    *,
    round_: int,
    client: str,
    secret: int | None = None,
) -> dict[str, Tensor]:
    """Clip what a client changed to a norm, and add Gaussian noise.

    Args:
        before: What it received.
        after: What it trained.
        config: ``clip_norm`` and ``noise_multiplier``.
        round_: This one.
        client: Its name.
        secret: What the noise is drawn from; ``None``: the federation's seed, which everybody knows, and which is
            therefore for simulations alone.

    Returns:
        The tensors that may be sent; buffers (of batch norm) are left as they are.
    """
    if config.clip_norm is None:
        return dict(after)
    generator = torch_stream(config.seed, "noise", round_, client)
    if secret is not None:
        generator.manual_seed(secret)
    kept = {name: tensor for name, tensor in after.items() if name not in before}
    change = {name: tensor.float() - before[name].float() for name, tensor in after.items() if name in before}
    norm = math.sqrt(sum(float(c.square().sum()) for c in change.values()))
    scale = min(1.0, config.clip_norm / norm) if norm else 1.0
    spread = config.noise_multiplier * config.clip_norm
    return kept | {
        name: (
            before[name].float()
            + scale * c
            + (spread * torch.randn(c.shape, generator=generator).to(c.device) if spread else 0.0)
        ).to(after[name].dtype)
        for name, c in change.items()
    }


def _limited(data: Data, config: LeffConfig, generator: torch.Generator) -> Iterator[Batch]:
    taken = 0
    for _ in range(config.local_epochs):
        for batch in epoch(data, config.batch_size, generator):
            if config.max_steps is not None and taken == config.max_steps:
                return
            taken += 1
            yield batch


@contextmanager
def _counting(run: LocalRun, model: nn.Module) -> Iterator[None]:
    """Count the bytes that autograd keeps beside the weights."""
    seen = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            run.kept_bytes += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield
