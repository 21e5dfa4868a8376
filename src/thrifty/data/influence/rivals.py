"""What one would pick instead, in the same terms: random, length-matched, RDS+, exact gradients (LESS), mid-perplexity.

Each takes a pool and gives a :class:`SelectionResult`. Clean-room versions from the papers: RDS+ (Ivison et al.,
"Large-Scale Data Selection for Instruction Tuning", arXiv 2503.01807), LESS (Xia et al., arXiv 2402.04333), and
perplexity filtering (Marion et al., "When Less is More", arXiv 2309.04564), the middle of the distribution.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from thrifty.data.influence.embeddings import position_weights
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.features import unit
from thrifty.data.influence.gradients import ExampleGradients, iterate_gradients
from thrifty.data.influence.losses import LossFn, call_model, default_loss, is_causal, to_device
from thrifty.data.influence.parameters import ParamFilter, backbone, select_parameters
from thrifty.data.influence.picking import by_group, round_robin, top
from thrifty.data.influence.projection import Projection
from thrifty.data.influence.replica import view
from thrifty.data.influence.results import SelectionResult


def random_selection(train: Any, k: int, *, seed: int = 0) -> SelectionResult:
    """Choose ``k`` examples at random.

    Example:
        >>> len(random_selection(range(10), 3).indices)
        3
    """
    _check_k(k, len(train))
    return _plain(np.random.default_rng(seed).permutation(len(train))[:k], np.zeros(len(train)), "random")


def length_matched_selection(train: Any, lengths: Sequence[int], k: int, *, seed: int = 0) -> SelectionResult:
    """Choose ``k`` random examples whose lengths follow ``lengths``, those of another selection.

    A control: gradients of long examples are small, so that raw scores would choose by length alone.

    Args:
        train: The pool, tokenised.
        lengths: Tokens of the examples to match, in any number.
        k: How many.
        seed: Of the draw.

    Example:
        >>> pool = [{"input_ids": [1] * length} for length in (2, 9, 3, 8)]
        >>> sorted(length_matched_selection(pool, [8, 9], 2).indices.tolist())
        [1, 3]
    """
    pool = _examples(train, None)
    _check_k(k, len(pool))
    rng = np.random.default_rng(seed)
    wanted = np.quantile(np.asarray(lengths), (np.arange(k) + 0.5) / k)
    left = rng.permutation(len(pool))
    chosen = []
    for length in rng.permutation(wanted):
        nearest = int(np.argmin(np.abs(pool.lengths[left] - length)))
        chosen.append(int(left[nearest]))
        left = np.delete(left, nearest)
    return _plain(np.array(chosen), np.zeros(len(pool)), "length-matched random")


def rds_embeddings(model: nn.Module, dataset: Any, *, batch_size: int = 16) -> Float[Tensor, "n hidden"]:
    """Embed examples as RDS+ does: the last hidden states' mean with weights 1, 2, ..., length, of unit length.

    Args:
        model: The base model.
        dataset: Examples, tokenised.
        batch_size: Examples a pass.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=2, num_attention_heads=2))
        >>> pool = [{"input_ids": [i % 7 + 1, 2 * i % 60, 5, 9]} for i in range(20)]
        >>> rds_embeddings(model, pool).shape
        torch.Size([20, 16])

    Source:
        arXiv 2503.01807.
    """
    examples = _examples(dataset, model)
    network = view(backbone(model), eager=False)
    device = next(model.parameters()).device
    out: Tensor | None = None
    with torch.no_grad():
        for chosen, batch in examples.batches(np.arange(len(examples)), batch_size):
            inputs = to_device({name: value for name, value in batch.items() if name != "labels"}, device)
            hidden = call_model(network, inputs).last_hidden_state.float()
            weights = position_weights(inputs, "weighted_mean")
            pooled = hidden.flatten(1, -2).mean(1) if weights is None else torch.einsum("bth,bt->bh", hidden, weights)
            out = torch.zeros(len(examples), pooled.shape[1]) if out is None else out
            out[torch.from_numpy(chosen)] = unit(pooled).cpu()
    assert out is not None
    return out


def rds_plus_selection(model: nn.Module, train: Any, target: Any, k: int, *, batch_size: int = 16) -> SelectionResult:
    """Choose ``k`` examples whose hidden states are nearest to the targets', which take turns in their own order.

    Args:
        model: The base model.
        train: The pool, tokenised.
        target: The target examples, tokenised.
        k: How many.
        batch_size: Examples a pass.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=2, num_attention_heads=2))
        >>> pool = [{"input_ids": [i % 7 + 1, 2 * i % 60, 5, 9]} for i in range(20)]
        >>> int(rds_plus_selection(model, pool, pool[3:4], 2).indices[0])  # nothing is nearer than itself
        3

    Source:
        arXiv 2503.01807.
    """
    _check_k(k, len(train))
    scores = (
        rds_embeddings(model, train, batch_size=batch_size) @ rds_embeddings(model, target, batch_size=batch_size).T
    )
    return _plain(round_robin(scores, k, seed=None), scores.mean(1).numpy(), "RDS+")


@dataclass(frozen=True)
class Checkpoint:
    """A state of training that LESS looks at.

    Args:
        model: The model as it was then.
        optimizer: Adam or AdamW as it was then.
        lr: Learning rate, for the checkpoint's share; ``None`` reads the optimizer's.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> Checkpoint(model, torch.optim.AdamW(model.parameters()), lr=2e-5).lr
        2e-05
    """

    model: nn.Module
    optimizer: Optimizer
    lr: float | None = None


def less_selection(
    checkpoints: Sequence[Checkpoint],
    train: Any,
    target: Any,
    k: int,
    *,
    groups: Sequence[Hashable] | None = None,
    params: ParamFilter = None,
    grad_dim: int = 8192,
    loss_fn: LossFn | None = None,
    batch_size: int = 8,
    seed: int = 0,
) -> SelectionResult:
    """Choose ``k`` examples by exact gradients, as LESS does: a backward pass of every pool example.

    The source feature is Adam's next direction m'/√(v' + ε) with both moments advanced by the example (no bias
    correction), the target feature the plain gradient; scores are cosines of projections, summed over checkpoints by
    learning rate, averaged in a subtask, and an example counts by its best subtask.

    Args:
        checkpoints: States of training, with their optimizers.
        train: The pool, tokenised.
        target: The target examples, tokenised.
        k: How many.
        groups: Subtask of each target; ``None``: all are one.
        params: Which parameters; LESS takes those of the adapter (``None``: all that are trained).
        grad_dim: Numbers in a projected gradient.
        loss_fn: One loss an example.
        batch_size: Examples a pass.
        seed: Of the projection.

    Returns:
        The choice; its report counts the backward passes.

    Raises:
        ValueError: There is no checkpoint, an optimizer has never stepped, or ``k`` does not fit.
        TypeError: An optimizer is not Adam or AdamW.

    Example:
        >>> from thrifty.data.influence import warm_up
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=2, num_attention_heads=2))
        >>> pool = [{"input_ids": [i % 7 + 1, 2 * i % 60, 5, 9]} for i in range(20)]
        >>> start = warm_up(model, pool, steps=2)
        >>> len(less_selection([Checkpoint(start.model, start.optimizer)], pool, pool[:2], 5).indices)
        5

    Source:
        arXiv 2402.04333.
    """
    if not checkpoints:
        raise ValueError("checkpoints: expected at least one, got none")
    rates = [float(c.lr if c.lr is not None else c.optimizer.param_groups[0]["lr"]) for c in checkpoints]
    total = sum(rates)
    scores: Tensor | None = None
    passes = 0
    for checkpoint, rate in zip(checkpoints, rates, strict=True):
        found, spent = _less_scores(checkpoint, train, target, params, grad_dim, loss_fn, batch_size, seed)
        passes += spent
        share = rate / total if total else 1 / len(rates)
        scores = share * found if scores is None else scores + share * found
    assert scores is not None
    by_task, _ = by_group(scores, groups if groups is not None else [0] * scores.shape[1])
    best = by_task.max(1).values
    _check_k(k, int(torch.isfinite(best).sum()))
    result = _plain(top(best, k), best.numpy(), "LESS")
    result.report["backward_passes"] = passes
    return result


def mid_perplexity_selection(
    model: nn.Module, train: Any, k: int, *, loss_fn: LossFn | None = None, batch_size: int = 16
) -> SelectionResult:
    """Choose the ``k`` examples around the median perplexity under the model.

    Args:
        model: The base model.
        train: The pool, tokenised.
        k: How many.
        loss_fn: One loss an example.
        batch_size: Examples a pass.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=2, num_attention_heads=2))
        >>> pool = [{"input_ids": [i % 7 + 1, 2 * i % 60, 5, 9]} for i in range(20)]
        >>> len(mid_perplexity_selection(model, pool, 5).indices)
        5

    Source:
        arXiv 2309.04564.
    """
    pool = _examples(train, model)
    _check_k(k, len(pool.valid))
    losses = example_losses(model, pool, loss_fn=loss_fn, batch_size=batch_size)[pool.valid]
    order = pool.valid[np.argsort(losses, kind="stable")]
    start = (len(order) - k) // 2
    scores = np.full(len(pool), -np.inf)
    scores[pool.valid] = np.exp(losses)
    return _plain(order[start : start + k], scores, "mid-perplexity")


def example_losses(
    model: nn.Module, dataset: Any, *, loss_fn: LossFn | None = None, batch_size: int = 16
) -> NDArray[np.float64]:
    """Return the loss of each example: the mean over its own label tokens (0 where it has none)."""
    examples, loss_fn = _examples(dataset, model), loss_fn or default_loss(model)
    network, device = view(model, eager=False), next(model.parameters()).device
    out = np.zeros(len(examples))
    with torch.no_grad():
        for chosen, batch in examples.batches(np.arange(len(examples)), batch_size):
            inputs = to_device(batch, device)
            out[chosen] = loss_fn(call_model(network, inputs), inputs).double().cpu().numpy()
    return out


def _less_scores(
    checkpoint: Checkpoint, train: Any, target: Any, params: ParamFilter, grad_dim: int, loss_fn: LossFn | None,
    batch_size: int, seed: int,
) -> tuple[Tensor, int]:  # fmt: skip
    model = checkpoint.model
    optimizer = getattr(checkpoint.optimizer, "optimizer", checkpoint.optimizer)
    if not isinstance(optimizer, Adam):
        raise TypeError(f"checkpoints: LESS needs Adam or AdamW, got {type(optimizer).__name__}")
    chosen = select_parameters(model, params)
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    if missing := [name for name, p in chosen.items() if "exp_avg" not in optimizer.state.get(p, {})]:
        raise ValueError(f"checkpoints: the optimizer has no state for {missing[0]} (and {len(missing) - 1} others)")
    states = [(optimizer.state[p], groups[id(p)]) for p in chosen.values()]
    first = torch.cat([state["exp_avg"].reshape(-1).float() for state, _ in states])
    second = torch.cat([state["exp_avg_sq"].reshape(-1).float() for state, _ in states])
    beta1, beta2 = (float(beta) for beta in states[0][1]["betas"])
    eps = float(states[0][1]["eps"])
    gradients = ExampleGradients(model, chosen, loss_fn or default_loss(model))
    projection = Projection(len(first), grad_dim, "srht", seed)

    def source(rows: Tensor) -> Tensor:
        moved, spread = beta1 * first + (1 - beta1) * rows, beta2 * second + (1 - beta2) * rows.square()
        return moved / (spread + eps).sqrt()

    pool, aim = _examples(train, model), _examples(target, model, "target")
    targets = torch.zeros(len(aim), projection.out)
    for indices, rows in iterate_gradients(gradients, aim, aim.valid, batch_size):
        targets[torch.from_numpy(indices)] = unit(projection(rows)).cpu()
    scores = torch.full((len(pool), len(aim)), -torch.inf)
    for indices, rows in iterate_gradients(gradients, pool, pool.valid, batch_size):
        scores[torch.from_numpy(indices)] = unit(projection(source(rows))).cpu() @ targets.T
    return scores, gradients.passes


def _examples(dataset: Any, model: nn.Module | None, name: str = "train") -> Examples:
    if isinstance(dataset, Examples):
        return dataset
    return Examples(dataset, name, model is None or is_causal(model))


def _plain(indices: NDArray[Any], scores: NDArray[Any], method: str) -> SelectionResult:
    return SelectionResult(
        np.asarray(indices, dtype=np.int64), np.ones(len(indices), dtype=np.float32),
        scores[indices].astype(np.float32), method, {},
    )  # fmt: skip


def _check_k(k: int, size: int) -> None:
    if not 1 <= k <= size:
        raise ValueError(f"k: expected 1 to {size}, got {k}")
