"""Group-relative policy optimisation on a streamed head: GRPO, BNPO, Dr. GRPO, DAPO and GSPO.

Once the sums of the mask are known, the token-level losses are sums over tokens, so that each chunk's gradient is known
with its logits (arXiv 2506.03077, section 3.1). The sequence level (GSPO) couples the tokens of an answer and takes
the two passes of :func:`streamed_token_logps`. The losses: arXiv 2402.03300, 2503.14476, 2503.20783, 2507.18071.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty._common.checks import number, one_of, whole
from thrifty.training.streambp.chunks import ChunkSize, slices
from thrifty.training.streambp.gradient_sums import hand_out_once
from thrifty.training.streambp.grpo_objective import GRPOLoss, GRPOStats, Objective, kl_estimate, token_weights
from thrifty.training.streambp.inputs import (
    Rows,
    check_count,
    check_ids,
    check_shapes,
    check_tensors,
    make_head,
    masked_rows,
    take,
)
from thrifty.training.streambp.logits import Head, LogitShape, entropy, picked, softmax_, subtract_at_
from thrifty.training.streambp.replay import first_order_only
from thrifty.training.streambp.token_logps import streamed_token_logps

Level = Literal["token", "sequence"]


def streamed_grpo_loss(
    hidden: Float[Tensor, "batch length hidden"],
    weight: Float[Tensor, "vocab hidden"],
    completion_ids: Int[Tensor, "batch length"],
    mask: Tensor,
    advantages: Float[Tensor, " batch"],
    old_logps: Float[Tensor, "batch length"] | None = None,
    ref_logps: Float[Tensor, "batch length"] | None = None,
    beta: float = 0.0,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    delta: float | None = None,
    loss_type: GRPOLoss = "dapo",
    temperature: float = 1.0,
    num_items_in_batch: int | Tensor | None = None,
    level: Level = "token",
    *,
    bias: Float[Tensor, " vocab"] | None = None,
    max_completion_length: int | None = None,
    chunk_size: ChunkSize = "auto",
    logit_scale: float = 1.0,
    softcap: float | None = None,
    accum_dtype: torch.dtype = torch.float32,
    return_stats: bool = False,
) -> Tensor | tuple[Tensor, GRPOStats]:
    """Return the clipped policy-gradient loss of completions, at the memory of one chunk's logits.

    Args:
        hidden: Hidden states *that predict* the completion tokens: positions P-1 ... P+length-2 for a prompt of P.
        weight: The head's weight.
        completion_ids: The completions.
        mask: Set on the tokens that count.
        advantages: One a completion.
        old_logps: Log-probabilities when the completions were sampled; the current ones, held fixed, without.
        ref_logps: The reference model's, for the KL term; needed if ``beta`` is not 0.
        beta: Weight of the KL term.
        eps_low: The ratio is clipped below at 1 - eps_low ...
        eps_high: ... and above at 1 + eps_high.
        delta: Upper bound of the unclipped ratio.
        loss_type: How token losses are averaged: ``"grpo"`` a completion then the batch, ``"bnpo"`` over the batch's
            tokens, ``"dr_grpo"`` by batch times ``max_completion_length``, ``"dapo"`` by ``num_items_in_batch``.
        temperature: Of the sampling; divides the logits.
        num_items_in_batch: Tokens that count in the whole accumulation window (``"dapo"``; the batch's without).
        level: ``"sequence"`` weighs whole completions (GSPO).
        bias: The head's bias.
        max_completion_length: For ``"dr_grpo"``; the padded length without.
        chunk_size: Rows whose logits exist at the same time.
        logit_scale: Multiplies the logits.
        softcap: Bound of the logits.
        accum_dtype: In which gradients of 16-bit weights are summed.
        return_stats: Also return :class:`GRPOStats`.

    Returns:
        The loss (not divided by accumulation steps), and the statistics if asked for.

    Raises:
        ValueError: Shapes do not fit, a setting is unknown, or ``beta`` is set without ``ref_logps``.

    Example:
        >>> import torch
        >>> hidden, weight = torch.zeros(2, 3, 4), torch.ones(5, 4)
        >>> ids = torch.zeros(2, 3, dtype=torch.long)
        >>> streamed_grpo_loss(hidden, weight, ids, torch.ones(2, 3), torch.tensor([1.0, -0.5]))
        tensor(-0.2500)

    Source:
        arXiv 2506.03077, section 3.1.
    """
    check_shapes(hidden, weight, completion_ids, bias, "completion_ids")
    _check(completion_ids, mask, advantages, old_logps, ref_logps, beta, loss_type, level)
    _check_numbers(eps_low=eps_low, eps_high=eps_high, delta=delta)
    check_count("num_items_in_batch", num_items_in_batch)
    if max_completion_length is not None:
        whole("max_completion_length", max_completion_length)
    check_ids(completion_ids, mask.bool(), len(weight), "completion_ids")
    objective = Objective(beta, eps_low, eps_high, delta)
    weights = token_weights(mask, loss_type, num_items_in_batch, max_completion_length)
    shape = LogitShape(logit_scale, softcap, temperature)
    if level == "sequence":
        return _sequence_level(
            hidden, weight, completion_ids, mask, advantages, old_logps, ref_logps, objective, weights, shape, bias,
            chunk_size, accum_dtype, return_stats,
        )  # fmt: skip
    rows = masked_rows(completion_ids, mask)
    head = make_head(hidden, weight, bias, shape, chunk_size, len(rows), accum_dtype)

    def at_rows(values: Tensor | None) -> Tensor | None:
        return None if values is None else values.reshape(-1).index_select(0, rows.index).to(head.dtype)

    wants = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (hidden, weight, bias))
    plan = _Plan(
        head, rows, objective, wants, return_stats, at_rows(weights),
        at_rows(advantages[:, None].expand(completion_ids.shape)), at_rows(old_logps), at_rows(ref_logps),
    )  # fmt: skip
    loss, stats = _TokenLevel.apply(hidden.reshape(-1, hidden.shape[-1]), weight, bias, plan)
    return (loss, GRPOStats(*(stats / max(len(rows), 1)))) if return_stats else loss


def _check(
    ids: Tensor,
    mask: Tensor,
    advantages: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    beta: float,
    loss_type: str,
    level: str,
) -> None:
    held = {"completion_ids": ids, "mask": mask, "advantages": advantages, "old_logps": old, "ref_logps": ref}
    optional = ("old_logps", "ref_logps")
    check_tensors(**{name: given for name, given in held.items() if given is not None or name not in optional})
    for name, given in (("mask", mask), ("old_logps", old), ("ref_logps", ref)):
        if given is not None and given.shape != ids.shape:
            raise ValueError(f"{name}: expected {tuple(ids.shape)} as completion_ids, got {tuple(given.shape)}")
    if advantages.shape != ids.shape[:1]:
        raise ValueError(f"advantages: expected one a completion, [{len(ids)}], got {tuple(advantages.shape)}")
    if beta and ref is None:
        raise ValueError(f"ref_logps: beta = {beta} needs the reference model's log-probabilities, got None")
    one_of("loss_type", loss_type, ("grpo", "bnpo", "dr_grpo", "dapo"))
    one_of("level", level, ("token", "sequence"))


def _check_numbers(**bounds: float | None) -> None:
    for name, value in bounds.items():
        if value is not None:
            number(name, value, "a number that is not negative", least=0)


@dataclass
class _Plan:
    head: Head
    rows: Rows
    objective: Objective
    wants: bool
    stats: bool
    weights: Tensor | None
    advantages: Tensor | None
    old_logps: Tensor | None
    ref_logps: Tensor | None


class _TokenLevel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, plan: _Plan) -> tuple[Tensor, Tensor]:
        head, rows = plan.head, plan.rows
        kind: dict[str, Any] = {"dtype": head.dtype, "device": hidden.device}
        total, stats = torch.zeros((), **kind), torch.zeros(4, **kind)
        grad_hidden = torch.zeros_like(hidden) if plan.wants else None
        if plan.wants:
            head.want_gradients(ctx.needs_input_grad[1], ctx.needs_input_grad[2])
        assert plan.weights is not None
        assert plan.advantages is not None
        for some in slices(len(rows), head.chunk):
            h, ids = take(hidden, rows.index[some], head), rows.ids[some]
            z, tanh = head.logits(h)
            chosen = picked(z, ids)
            logps = chosen - softmax_(z)
            old = logps if plan.old_logps is None else plan.old_logps[some]
            ref = None if plan.ref_logps is None else plan.ref_logps[some]
            advantages = plan.advantages[some]
            with torch.enable_grad():
                leaf = logps.detach().requires_grad_()
                losses = plan.objective.losses(leaf, leaf - old.detach(), advantages, ref)
                loss = (losses * plan.weights[some]).sum()
                (slope,) = torch.autograd.grad(loss, leaf)
            total += loss.detach()
            if plan.stats:
                low, high = plan.objective.clipped(logps - old, advantages)
                kl = torch.zeros_like(logps) if ref is None else kl_estimate(logps, ref)
                stats += torch.stack([kl.sum(), low.sum(), high.sum(), entropy(z).sum()]).to(head.dtype)
            if grad_hidden is not None:
                z *= -slope[:, None]
                subtract_at_(z, ids, -slope)
                grad_hidden.index_copy_(0, rows.index[some], head.backward(z, tanh, h).to(hidden.dtype))
        ctx.grads = (
            grad_hidden,
            None if head.grad_weight is None else head.grad_weight.to(weight.dtype),
            None if head.grad_bias is None or bias is None else head.grad_bias.to(bias.dtype),
        )
        ctx.mark_non_differentiable(stats)
        return total, stats

    @staticmethod
    @first_order_only
    def backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        once = "the streamed GRPO loss hands out its gradients once; compute the loss again"
        return (*hand_out_once(ctx, upstream, once), None)


def _sequence_level(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor,
    mask: Tensor,
    advantages: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    objective: Objective,
    weights: Tensor,
    shape: LogitShape,
    bias: Tensor | None,
    chunk_size: ChunkSize,
    accum_dtype: torch.dtype,
    return_stats: bool,
) -> Tensor | tuple[Tensor, GRPOStats]:
    """GSPO: one ratio a completion, the geometric mean of its tokens'."""
    logps, entropies = streamed_token_logps(
        hidden, weight, ids, bias=bias, mask=mask, temperature=shape.temperature, logit_scale=shape.scale,
        softcap=shape.softcap, chunk_size=chunk_size, accum_dtype=accum_dtype, with_entropy=True,
    )  # fmt: skip
    before = logps.detach() if old is None else old
    log_ratio = ((logps - before) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    losses = objective.losses(logps, log_ratio, advantages[:, None], ref)
    loss = (losses * weights.to(logps.dtype)).sum()
    if not return_stats:
        return loss
    with torch.no_grad():
        n = mask.sum().clamp(min=1)
        low, high = objective.clipped(log_ratio, advantages[:, None])
        kl = torch.zeros_like(logps) if ref is None else kl_estimate(logps, ref)
        counted = mask.to(logps.dtype)
        means = [(values.expand(ids.shape) * counted).sum() / n for values in (kl, low, high, entropies)]
    return loss, GRPOStats(*means)
