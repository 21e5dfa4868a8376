"""Log-probabilities of given tokens, with gradients, without the logits of the whole sequence.

For every objective whose gradient with respect to the log-probabilities is not known in the forward pass (arXiv
2506.03077, section 3.1, for DPO; any function of log-probabilities and entropies here). The forward pass keeps one
number a token; the backward pass computes the logits of each chunk again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty.training.streambp.chunks import ChunkSize, slices
from thrifty.training.streambp.inputs import Rows, check_ids, check_shapes, check_tensors, make_head, masked_rows, take
from thrifty.training.streambp.logits import COLUMNS, Head, LogitShape, entropy, picked, softmax_, subtract_at_
from thrifty.training.streambp.replay import first_order_only


@dataclass(frozen=True)
class TokenStatistics:
    """What the head says of each row.

    Args:
        logps: Log-probability of the row's token.
        entropies: Entropy of the row's distribution, in nats; ``None`` if it was not asked for.
        mean_logps: Mean of the log-probabilities over the vocabulary (label smoothing needs it).
        lse: Log-sum-exp of the logits (the z-loss needs it).
        is_top1: Whether the token is the most likely one; no gradient.
        mean_logits: Mean of the logits over the vocabulary; no gradient.
        log_sum_sq: ``log(sum p^2)``; no gradient.
    """

    logps: Float[Tensor, " rows"]
    entropies: Float[Tensor, " rows"] | None
    mean_logps: Float[Tensor, " rows"]
    lse: Float[Tensor, " rows"]
    is_top1: Tensor
    mean_logits: Float[Tensor, " rows"]
    log_sum_sq: Float[Tensor, " rows"] | None


def streamed_token_logps(
    hidden: Float[Tensor, "batch length hidden"],
    weight: Float[Tensor, "vocab hidden"],
    ids: Int[Tensor, "batch length"],
    *,
    bias: Float[Tensor, " vocab"] | None = None,
    mask: Tensor | None = None,
    temperature: float = 1.0,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    chunk_size: ChunkSize = "auto",
    accum_dtype: torch.dtype = torch.float32,
    with_entropy: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the log-probability that the head gives each token, at the memory of one chunk's logits.

    ``hidden[b, t]`` predicts ``ids[b, t]``: shifting is the caller's. Costs one more product with the head than
    ordinary back-propagation (8 instead of 6 FLOPs a row, hidden unit and token).

    Args:
        hidden: Hidden states after the last norm, [batch, length, hidden].
        weight: The head's weight, [vocabulary, hidden].
        ids: Tokens to score, [batch, length].
        bias: The head's bias, [vocabulary].
        mask: Positions to score; the others give 0 and cost nothing.
        temperature: Divides the logits.
        logit_scale: Multiplies the logits, before the soft-cap.
        softcap: Bound of the logits, ``softcap * tanh(z / softcap)``.
        chunk_size: Rows whose logits exist at the same time.
        accum_dtype: In which gradients of 16-bit weights are summed.
        with_entropy: Also return the entropies (nats), with gradients.

    Returns:
        Log-probabilities [batch, length], float32 (float64 for float64 inputs), or the pair with the entropies.

    Raises:
        ValueError: Shapes do not fit, or an id is not in the vocabulary.

    Example:
        >>> import torch
        >>> hidden, weight = torch.zeros(1, 2, 3, requires_grad=True), torch.ones(4, 3)
        >>> streamed_token_logps(hidden, weight, torch.tensor([[0, 3]])).exp()
        tensor([[0.2500, 0.2500]], grad_fn=<ExpBackward0>)

    Source:
        arXiv 2506.03077, section 3.1.
    """
    check_shapes(hidden, weight, ids, bias, "ids")
    if mask is not None:
        check_tensors(ids=ids, mask=mask)
    if mask is not None and mask.shape != ids.shape:
        raise ValueError(f"mask: expected {tuple(ids.shape)} as ids, got {tuple(mask.shape)}")
    check_ids(ids, torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool(), len(weight), "ids")
    shape = LogitShape(logit_scale, softcap, temperature)
    rows = masked_rows(ids, mask)
    found = token_statistics(
        hidden, weight, bias, rows, shape, chunk_size=chunk_size, accum_dtype=accum_dtype, with_entropy=with_entropy
    )
    logps = spread(found.logps, rows, ids.shape)
    return (logps, spread(found.entropies, rows, ids.shape)) if found.entropies is not None else logps


def spread(values: Float[Tensor, " rows"], rows: Rows, shape: tuple[int, ...]) -> Tensor:
    """Put one number a row back to its position; 0 elsewhere."""
    size = torch.Size(shape)
    return values.new_zeros(size.numel()).index_copy(0, rows.index, values).view(size)


def token_statistics(
    hidden: Float[Tensor, "*positions hidden"],
    weight: Float[Tensor, "vocab hidden"],
    bias: Tensor | None,
    rows: Rows,
    shape: LogitShape,
    *,
    chunk_size: ChunkSize = "auto",
    accum_dtype: torch.dtype = torch.float32,
    with_entropy: bool = False,
    with_squares: bool = False,
    foresee_uniform: bool = False,
) -> TokenStatistics:
    """Score rows of flattened hidden states; the primitive behind every objective here.

    Args:
        hidden: Hidden states; their leading dimensions are flattened.
        weight: The head's weight.
        bias: The head's bias.
        rows: Which rows, and the token of each.
        shape: What follows the product.
        chunk_size: Rows at a time.
        accum_dtype: In which gradients of 16-bit weights are summed.
        with_entropy: Fill ``entropies``.
        with_squares: Fill ``log_sum_sq``.
        foresee_uniform: Compute the gradient of the *sum* of the log-probabilities in the forward pass already. If the
            backward pass turns out to need that, up to one factor (as for the cross-entropy), the logits are not
            computed again; otherwise they are, and nothing is lost but the time.
    """
    head = make_head(hidden, weight, bias, shape, chunk_size, len(rows), accum_dtype)
    wants = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (hidden, weight, bias))
    plan = _Plan(head, rows, with_entropy, with_squares, foresee_uniform and wants)
    flat = hidden.reshape(-1, hidden.shape[-1])
    logps, entropies, mean_logps, lse, top1, mean_logits, squares = _TokenStatistics.apply(flat, weight, bias, plan)
    return TokenStatistics(
        logps,
        entropies if with_entropy else None,
        mean_logps,
        lse,
        top1,
        mean_logits,
        squares if with_squares else None,
    )


@dataclass
class _Plan:
    head: Head
    rows: Rows
    with_entropy: bool
    with_squares: bool
    foresee: bool


class _TokenStatistics(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, plan: _Plan) -> tuple[Tensor, ...]:
        head, rows = plan.head, plan.rows
        n = len(rows)
        kind: dict[str, Any] = {"dtype": head.dtype, "device": hidden.device}
        logps, entropies, mean_logps, lse, mean_logits, squares = (torch.zeros(n, **kind) for _ in range(6))
        top1 = torch.zeros(n, dtype=torch.bool, device=hidden.device)
        foreseen = torch.zeros_like(hidden) if plan.foresee and ctx.needs_input_grad[0] else None
        if plan.foresee:
            head.want_gradients(ctx.needs_input_grad[1], ctx.needs_input_grad[2])
        for some in slices(n, head.chunk):
            h, ids = take(hidden, rows.index[some], head), rows.ids[some]
            z, tanh = head.logits(h)
            chosen = picked(z, ids)
            top1[some] = z.argmax(-1) == ids
            mean_logits[some] = z.mean(-1)
            lse[some] = softmax_(z)
            logps[some] = chosen - lse[some]
            mean_logps[some] = mean_logits[some] - lse[some]
            if plan.with_entropy:
                entropies[some] = entropy(z)
            if plan.with_squares:
                squares[some] = torch.linalg.vector_norm(z, dim=-1).square().log()
            if plan.foresee:
                subtract_at_(z.neg_(), ids, -1.0)  # onehot - p
                grad = head.backward(z, tanh, h)
                if foreseen is not None:
                    foreseen.index_copy_(0, rows.index[some], grad.to(foreseen.dtype))
        ctx.plan, ctx.foreseen = plan, (foreseen, head.grad_weight, head.grad_bias) if plan.foresee else None
        head._buffer = head.grad_weight = head.grad_bias = None
        ctx.dtypes = hidden.dtype, weight.dtype, None if bias is None else bias.dtype
        ctx.save_for_backward(hidden, weight, lse, entropies if plan.with_entropy else None)
        ctx.mark_non_differentiable(top1, mean_logits, squares)
        ctx.set_materialize_grads(False)
        return logps, entropies, mean_logps, lse.clone(), top1, mean_logits, squares

    @staticmethod
    @first_order_only
    def backward(
        ctx: Any,
        u_logp: Tensor | None,
        u_entropy: Tensor | None,
        u_mean: Tensor | None,
        u_lse: Tensor | None,
        *_: Any,
    ) -> tuple[Tensor | None, ...]:
        hidden, _, lse, entropies = ctx.saved_tensors
        if ctx.foreseen is not None:
            others = (u_entropy, u_mean, u_lse)
            if u_logp is not None and all(u is None for u in others) and bool((u_logp == u_logp[:1]).all()):
                foreseen, ctx.foreseen = ctx.foreseen, None
                factor = u_logp[0] if len(u_logp) else 0.0
                scaled = [g if g is None else g.mul_(factor) for g in foreseen]
                return (*(_cast(g, dtype) for g, dtype in zip(scaled, ctx.dtypes, strict=True)), None)
            ctx.foreseen = None
        plan = ctx.plan
        head, rows = plan.head, plan.rows
        head.want_gradients(ctx.needs_input_grad[1], ctx.needs_input_grad[2])
        grad_hidden = torch.zeros_like(hidden) if ctx.needs_input_grad[0] else None
        for some in slices(len(rows), head.chunk):
            h, ids = take(hidden, rows.index[some], head), rows.ids[some]
            z, tanh = head.logits(h)
            p = z.sub_(lse[some, None]).exp_()
            grad = _row_gradient(
                p,
                ids,
                *(None if u is None else u[some] for u in (u_logp, u_entropy, u_mean, u_lse)),
                entropies=None if entropies is None else entropies[some],
            )
            rows_grad = head.backward(grad, tanh, h)
            if grad_hidden is not None:
                grad_hidden.index_copy_(0, rows.index[some], rows_grad.to(grad_hidden.dtype))
        grads = grad_hidden, head.grad_weight, head.grad_bias
        head._buffer = head.grad_weight = head.grad_bias = None
        return (*(_cast(g, dtype) for g, dtype in zip(grads, ctx.dtypes, strict=True)), None)


def _row_gradient(
    p: Float[Tensor, "rows vocab"],
    ids: Int[Tensor, " rows"],
    u_logp: Tensor | None,
    u_entropy: Tensor | None,
    u_mean: Tensor | None,
    u_lse: Tensor | None,
    *,
    entropies: Tensor | None,
) -> Float[Tensor, "rows vocab"]:
    """Gradient with respect to the logits, written over the probabilities.

    ``u_logp (onehot - p) - u_entropy p (log p + S) + u_mean (1/V - p) + u_lse p``.
    """
    share = torch.zeros_like(p[:, :1])
    for u, sign in ((u_logp, -1), (u_mean, -1), (u_lse, 1)):
        if u is not None:
            share += sign * u[:, None]
    if u_entropy is None:
        p *= share
    else:
        assert entropies is not None
        for columns in torch.split(p, COLUMNS, dim=1):
            pull = torch.special.xlogy(columns, columns).addcmul_(columns, entropies[:, None])
            columns.mul_(share).sub_(pull.mul_(u_entropy[:, None]))
    if u_mean is not None:
        p += (u_mean / p.shape[1])[:, None]
    if u_logp is not None:
        subtract_at_(p, ids, -u_logp)
    return p


def _cast(grad: Tensor | None, dtype: torch.dtype | None) -> Tensor | None:
    return grad if grad is None or dtype is None else grad.to(dtype)
