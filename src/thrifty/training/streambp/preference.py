"""Direct preference optimisation on a streamed head: two exact schedules.

The log-sigmoid couples the tokens of a pair, but only through one number: the gradient is a scalar a pair times the
gradient of summed log-probabilities (arXiv 2506.03077, section 3.1 and appendix A). ``"two_pass"`` finds that scalar
with a first pass over the head; ``"one_pass"`` sums the uncorrected gradients of a pair and multiplies them when the
scalar is known, which saves the pass and costs one more buffer of the head's size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from thrifty._common.checks import number, one_of, positive
from thrifty.training.streambp.chunks import ChunkSize, slices
from thrifty.training.streambp.gradient_sums import hand_out_once
from thrifty.training.streambp.inputs import Rows, check_ids, check_shapes, check_tensors, make_head, masked_rows, take
from thrifty.training.streambp.logits import Head, LogitShape, picked, softmax_, subtract_at_
from thrifty.training.streambp.replay import first_order_only
from thrifty.training.streambp.token_logps import streamed_token_logps

PreferenceLoss = Literal["sigmoid", "hinge", "ipo"]
Schedule = Literal["two_pass", "one_pass"]


@dataclass(frozen=True)
class PreferenceStats:
    """What is usually logged beside the loss, one number a pair."""

    chosen_rewards: Tensor
    rejected_rewards: Tensor

    @property
    def accuracy(self) -> Tensor:
        """Share of pairs whose chosen answer has the higher reward."""
        return (self.chosen_rewards > self.rejected_rewards).float().mean()


def streamed_dpo_loss(
    policy_hidden: Float[Tensor, "two_pairs length hidden"],
    weight: Float[Tensor, "vocab hidden"],
    ids: Int[Tensor, "two_pairs length"],
    mask: Tensor,
    ref_logps: Float[Tensor, " two_pairs"],
    beta: float = 0.1,
    loss_type: PreferenceLoss = "sigmoid",
    label_smoothing: float = 0.0,
    schedule: Schedule = "two_pass",
    *,
    bias: Float[Tensor, " vocab"] | None = None,
    length_normalised: bool = False,
    chunk_size: ChunkSize = "auto",
    logit_scale: float = 1.0,
    softcap: float | None = None,
    accum_dtype: torch.dtype = torch.float32,
    return_stats: bool = False,
) -> Tensor | tuple[Tensor, PreferenceStats]:
    """Return the mean preference loss of pairs, at the memory of one chunk's logits.

    Args:
        policy_hidden: The policy's hidden states after the last norm: first all chosen answers, then all rejected ones,
            padded to one length. ``policy_hidden[b, t]`` predicts ``ids[b, t]``.
        weight: The head's weight.
        ids: Tokens.
        mask: Set on the tokens of the answers.
        ref_logps: The *reference model's* summed (with ``length_normalised``: mean) log-probability of each answer.
        beta: Strength of the pull towards the reference.
        loss_type: ``"sigmoid"`` (DPO), ``"hinge"`` (SLiC) or ``"ipo"``.
        label_smoothing: Probability that a label is flipped (conservative DPO); for ``"sigmoid"``.
        schedule: ``"two_pass"`` or ``"one_pass"``; both exact.
        bias: The head's bias.
        length_normalised: Use mean instead of summed log-probabilities.
        chunk_size: Rows whose logits exist at the same time.
        logit_scale: Multiplies the logits.
        softcap: Bound of the logits.
        accum_dtype: In which gradients of 16-bit weights are summed.
        return_stats: Also return :class:`PreferenceStats`.

    Returns:
        The loss, and the statistics if asked for.

    Raises:
        ValueError: An odd number of answers, shapes that do not fit, or an unknown loss or schedule.

    Example:
        >>> import torch
        >>> hidden, weight = torch.zeros(2, 3, 4), torch.ones(5, 4)
        >>> ids, mask = torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3)
        >>> streamed_dpo_loss(hidden, weight, ids, mask, torch.zeros(2))
        tensor(0.6931)

    Source:
        arXiv 2506.03077, section 3.1; the losses: arXiv 2305.18290, 2305.10425, 2310.12036.
    """
    check_shapes(policy_hidden, weight, ids, bias, "ids")
    _check(ids, mask, ref_logps, beta, loss_type, schedule, label_smoothing)
    check_ids(ids, mask.bool(), len(weight), "ids")
    counts = mask.sum(-1).clamp(min=1) if length_normalised else torch.ones_like(mask.sum(-1))

    def pair_losses(chosen: Tensor, rejected: Tensor) -> Tensor:
        return _pair_loss(chosen - rejected, beta, loss_type, label_smoothing)

    shape = LogitShape(logit_scale, softcap)
    if schedule == "two_pass":
        logps = streamed_token_logps(
            policy_hidden, weight, ids, bias=bias, mask=mask, logit_scale=logit_scale, softcap=softcap,
            chunk_size=chunk_size, accum_dtype=accum_dtype,
        )  # fmt: skip
        assert isinstance(logps, Tensor)
        ratios = logps.sum(-1) / counts - ref_logps
        loss = pair_losses(*ratios.chunk(2)).mean()
    else:
        rows = [masked_rows(ids[b : b + 1], mask[b : b + 1]) for b in range(len(ids))]
        length = ids.shape[1]
        rows = [Rows(row.index + b * length, row.ids) for b, row in enumerate(rows)]
        longest = max(len(row) for row in rows)
        head = make_head(policy_hidden, weight, bias, shape, chunk_size, longest, accum_dtype)
        wants = torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in (policy_hidden, weight, bias)
        )
        plan = _Plan(head, rows, counts, ref_logps, pair_losses, wants)
        flat = policy_hidden.reshape(-1, policy_hidden.shape[-1])
        loss, ratios = _OnePass.apply(flat, weight, bias, plan)
    if not return_stats:
        return loss
    chosen, rejected = (beta * ratios.detach()).chunk(2)
    return loss, PreferenceStats(chosen, rejected)


def _check(
    ids: Tensor, mask: Tensor, ref_logps: Tensor, beta: float, loss_type: str, schedule: str, smoothing: float
) -> None:
    check_tensors(ids=ids, mask=mask, ref_logps=ref_logps)
    if ids.ndim != 2 or len(ids) % 2 or not len(ids):
        raise ValueError(f"ids: expected [2 * pairs, length], chosen first, got {tuple(ids.shape)}")
    if mask.shape != ids.shape:
        raise ValueError(f"mask: expected {tuple(ids.shape)} as ids, got {tuple(mask.shape)}")
    if ref_logps.shape != ids.shape[:1]:
        raise ValueError(f"ref_logps: expected one an answer, [{len(ids)}], got {tuple(ref_logps.shape)}")
    positive("beta", beta)
    one_of("loss_type", loss_type, ("sigmoid", "hinge", "ipo"))
    one_of("schedule", schedule, ("two_pass", "one_pass"))
    number("label_smoothing", smoothing, "a number in [0, 0.5)", least=0, below=0.5)


def _pair_loss(delta: Tensor, beta: float, loss_type: str, smoothing: float) -> Tensor:
    if loss_type == "hinge":
        return torch.relu(1 - beta * delta)
    if loss_type == "ipo":
        return (delta - 1 / (2 * beta)).square()
    return -(1 - smoothing) * logsigmoid(beta * delta) - smoothing * logsigmoid(-beta * delta)


@dataclass
class _Plan:
    head: Head
    rows: list[Rows]
    counts: Tensor
    ref_logps: Tensor
    pair_losses: Callable[[Tensor, Tensor], Tensor]
    wants: bool


class _OnePass(torch.autograd.Function):
    """One pass over the head a pair; its gradients are corrected when the pair's scalar is known."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, plan: _Plan) -> tuple[Tensor, Tensor]:
        pairs = len(plan.rows) // 2
        kind: dict[str, Any] = {"dtype": plan.head.dtype, "device": hidden.device}
        ratios, total = torch.zeros(2 * pairs, **kind), torch.zeros((), **kind)
        grad_hidden = torch.zeros_like(hidden) if plan.wants else None
        sums: tuple[Tensor | None, Tensor | None] = (None, None)
        head = plan.head
        for pair in range(pairs):
            if plan.wants:
                head.want_gradients(ctx.needs_input_grad[1], ctx.needs_input_grad[2])
            for answer, sign in ((pair, 1.0), (pair + pairs, -1.0)):
                weight_of_row = sign / float(plan.counts[answer])
                logp = _uncorrected(hidden, head, plan.rows[answer], weight_of_row, grad_hidden)
                ratios[answer] = logp / plan.counts[answer] - plan.ref_logps[answer]
            with torch.enable_grad():
                chosen = ratios[pair].detach().requires_grad_()
                loss = plan.pair_losses(chosen, ratios[pair + pairs].detach()) / pairs
                (scalar,) = torch.autograd.grad(loss, chosen)
            total += loss.detach()
            if grad_hidden is not None:
                for answer in (pair, pair + pairs):
                    index = plan.rows[answer].index
                    corrected = grad_hidden.index_select(0, index) * scalar.to(hidden.dtype)
                    grad_hidden.index_copy_(0, index, corrected)
                sums = _axpy(sums[0], head.grad_weight, scalar), _axpy(sums[1], head.grad_bias, scalar)
        dtypes = weight.dtype, weight.dtype if bias is None else bias.dtype
        casts = [None if g is None else g.to(dtype) for g, dtype in zip(sums, dtypes, strict=True)]
        ctx.grads = grad_hidden, *casts
        ctx.mark_non_differentiable(ratios)
        return total, ratios

    @staticmethod
    @first_order_only
    def backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        once = 'schedule="one_pass" hands out its gradients once; use "two_pass" to keep the graph'
        return (*hand_out_once(ctx, upstream, once), None)


def _uncorrected(hidden: Tensor, head: Head, rows: Rows, row_weight: float, grad_hidden: Tensor | None) -> Tensor:
    """Sum the log-probabilities of an answer, and the gradient of that sum times ``row_weight``."""
    total = torch.zeros((), dtype=head.dtype, device=hidden.device)
    for some in slices(len(rows), head.chunk):
        h, ids = take(hidden, rows.index[some], head), rows.ids[some]
        z, tanh = head.logits(h)
        chosen = picked(z, ids)
        total += (chosen - softmax_(z)).sum()
        if grad_hidden is not None:
            subtract_at_(z.mul_(-row_weight), ids, -row_weight)
            grad_hidden.index_copy_(0, rows.index[some], head.backward(z, tanh, h).to(hidden.dtype))
    return total


def _axpy(total: Tensor | None, grad: Tensor | None, scalar: Tensor) -> Tensor | None:
    if grad is None:
        return total
    factor = scalar.to(grad.dtype)
    return grad.mul_(factor) if total is None else total.add_(grad.mul_(factor))
