"""LESS: exact gradients of every pool example, at several checkpoints (Xia et al., arXiv 2402.04333), clean-room."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from thrifty.data.influence.features import unit
from thrifty.data.influence.gradients import ExampleGradients, iterate_gradients
from thrifty.data.influence.losses import LossFn, default_loss
from thrifty.data.influence.parameters import ParamFilter, select_parameters
from thrifty.data.influence.picking import by_group, top
from thrifty.data.influence.projection import Projection
from thrifty.data.influence.results import SelectionResult
from thrifty.data.influence.rivals import as_examples, check_k, plain_result


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

    Source:
        arXiv 2402.04333: the rates of the checkpoints weigh their similarities.
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
    check_k(k, int(torch.isfinite(best).sum()))
    result = plain_result(top(best, k), best.numpy(), "LESS")
    result.report["backward_passes"] = passes
    return result


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

    pool, aim = as_examples(train, model), as_examples(target, model, "target")
    targets = torch.zeros(len(aim), projection.out)
    for indices, rows in iterate_gradients(gradients, aim, aim.valid, batch_size):
        targets[torch.from_numpy(indices)] = unit(projection(rows)).cpu()
    scores = torch.full((len(pool), len(aim)), -torch.inf)
    for indices, rows in iterate_gradients(gradients, pool, pool.valid, batch_size):
        scores[torch.from_numpy(indices)] = unit(projection(source(rows))).cpu() @ targets.T
    return scores, gradients.passes
