"""Cross-entropy of a language model's head, streamed over the tokens, with its gradient computed in the forward pass.

The loss is a sum over tokens, so each chunk's gradient is known as soon as its logits are: arXiv 2506.03077, section
3.1, equation (4). Where the authors' code divides by the tokens of a chunk and shifts chunk by chunk, this shifts once
and divides by the tokens that really count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty._common.checks import number, whole
from thrifty.training.streambp.chunks import ChunkSize, slices
from thrifty.training.streambp.gradient_sums import hand_out_once
from thrifty.training.streambp.inputs import Rows, check_count, check_ids, check_shapes, make_head, shifted_rows, take
from thrifty.training.streambp.logits import Head, LogitShape, entropy, picked, softmax_, subtract_at_
from thrifty.training.streambp.replay import first_order_only
from thrifty.training.streambp.token_logps import token_statistics

Reduction = Literal["mean", "sum", "none"]


@dataclass(frozen=True)
class LossStats:
    """By-products of the loss, over the tokens that count.

    Args:
        n_tokens: How many there are.
        accuracy: Share of them that are the most likely token.
        entropy: Mean entropy of their distributions, in nats.
    """

    n_tokens: int
    accuracy: Tensor
    entropy: Tensor


def streamed_linear_cross_entropy(
    hidden: Float[Tensor, "*positions hidden"],
    weight: Float[Tensor, "vocab hidden"],
    labels: Int[Tensor, "*positions"],
    *,
    bias: Float[Tensor, " vocab"] | None = None,
    shift: bool = True,
    reduction: Reduction = "mean",
    num_items_in_batch: int | Tensor | None = None,
    chunk_size: ChunkSize = "auto",
    ignore_index: int = -100,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    temperature: float = 1.0,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    accum_dtype: torch.dtype = torch.float32,
    return_stats: bool = False,
) -> Tensor | tuple[Tensor, LossStats]:
    """Return ``cross_entropy(hidden @ weight.T, labels)`` without ever holding the logits of more than one chunk.

    Loss and gradients are those of the full logits. The gradients are computed in the forward pass, at the FLOPs of
    ordinary back-propagation; ``backward`` only hands them out (so it works once; keep the graph with
    ``reduction="none"`` if you need it twice).

    Args:
        hidden: Hidden states after the last norm, [batch, length, hidden] or [rows, hidden].
        weight: The head's weight, [vocabulary, hidden]. If it is frozen, no gradient of its size exists.
        labels: Token ids, one a position; ``ignore_index`` where none counts.
        bias: The head's bias.
        shift: Position t predicts label t + 1, as in Hugging Face models; else its own.
        reduction: ``"mean"`` over the labels that count, ``"sum"``, or ``"none"``: one loss a position, 0 where ignored
            (the backward pass then computes the logits again).
        num_items_in_batch: Divide the sum by this instead (the tokens of a whole accumulation window).
        chunk_size: Rows whose logits exist at the same time.
        ignore_index: The label that does not count.
        logit_scale: Multiplies the logits, before the soft-cap.
        softcap: Bound of the logits, ``softcap * tanh(z / softcap)``.
        temperature: Divides the logits, last.
        label_smoothing: As in :func:`torch.nn.functional.cross_entropy`.
        z_loss: Adds this times the squared log-sum-exp of each row that counts.
        accum_dtype: In which gradients of 16-bit weights are summed.
        return_stats: Also return :class:`LossStats`.

    Returns:
        The loss (float32; float64 for float64 inputs), with the statistics if asked for. No label counts: a zero that
        is still connected to its inputs.

    Raises:
        ValueError: Shapes do not fit, a label is neither a token nor ignored, or a setting is out of range.

    Example:
        >>> import torch
        >>> hidden, weight = torch.zeros(1, 5, 3, requires_grad=True), torch.ones(4, 3)
        >>> loss = streamed_linear_cross_entropy(hidden, weight, torch.tensor([[-100, -100, 1, 2, 3]]))
        >>> loss.backward()
        >>> round(loss.item(), 4)
        1.3863

    Source:
        arXiv 2506.03077, equation (4).
    """
    check_shapes(hidden, weight, labels, bias)
    if reduction not in {"mean", "sum", "none"}:
        raise ValueError(f'reduction: expected "mean", "sum" or "none", got {reduction!r}')
    number("z_loss", z_loss, "a number of at least 0", least=0)
    whole("ignore_index", ignore_index, least=None)
    if number("label_smoothing", label_smoothing, "a number in [0, 1]", least=0) > 1:
        raise ValueError(f"label_smoothing: expected a number in [0, 1], got {label_smoothing!r}")
    check_ids(labels, labels != ignore_index, len(weight))
    shape = LogitShape(logit_scale, softcap, temperature)
    rows = shifted_rows(labels, ignore_index, shift)
    if reduction == "none":
        if num_items_in_batch is not None:
            raise ValueError('num_items_in_batch: reduction="none" divides by nothing')
        return _one_a_position(
            hidden, weight, bias, rows, shape, labels, shift, label_smoothing, z_loss, chunk_size, accum_dtype,
            return_stats,
        )  # fmt: skip
    if len(rows):
        check_count("num_items_in_batch", num_items_in_batch)
    head = make_head(hidden, weight, bias, shape, chunk_size, len(rows), accum_dtype)
    items = num_items_in_batch if num_items_in_batch is not None else (len(rows) if reduction == "mean" else 1)
    wants = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (hidden, weight, bias))
    plan = _Plan(head, rows, torch.as_tensor(items, device=hidden.device), label_smoothing, z_loss, wants, return_stats)
    flat = hidden.reshape(-1, hidden.shape[-1])
    found: tuple[Tensor, Tensor, Tensor] = _FusedCrossEntropy.apply(flat, weight, bias, plan)
    loss, correct, entropies = found
    if not return_stats:
        return loss
    n = max(len(rows), 1)
    return loss, LossStats(len(rows), correct / n, entropies / n)


@dataclass
class _Plan:
    head: Head
    rows: Rows
    items: Tensor
    smoothing: float
    z_loss: float
    wants: bool
    stats: bool


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, plan: _Plan
    ) -> tuple[Tensor, Tensor, Tensor]:
        head, rows = plan.head, plan.rows
        kind: dict[str, Any] = {"dtype": head.dtype, "device": hidden.device}
        total, entropies = torch.zeros((), **kind), torch.zeros((), **kind)
        correct = torch.zeros((), dtype=torch.long, device=hidden.device)
        per_item = plan.items.to(head.dtype).reciprocal() if len(rows) else torch.ones((), **kind)
        grad_hidden = None
        if plan.wants:
            head.want_gradients(ctx.needs_input_grad[1], ctx.needs_input_grad[2])
            grad_hidden = torch.zeros_like(hidden)
        vocabulary = len(weight)
        for some in slices(len(rows), head.chunk):
            h, ids = take(hidden, rows.index[some], head), rows.ids[some]
            z, tanh = head.logits(h)
            chosen = picked(z, ids)
            if plan.smoothing:
                chosen = (1 - plan.smoothing) * chosen + plan.smoothing * z.mean(-1)
            if plan.stats:
                correct += (z.argmax(-1) == ids).sum()
            lse = softmax_(z)
            total += (lse - chosen + plan.z_loss * lse.square()).sum()
            if plan.stats:
                entropies += entropy(z).sum()
            if grad_hidden is None:
                continue
            if plan.z_loss:
                z *= (1 + 2 * plan.z_loss * lse)[:, None]
            if plan.smoothing:
                z -= plan.smoothing / vocabulary
            subtract_at_(z, ids, 1 - plan.smoothing)
            z *= per_item
            grad_hidden.index_copy_(0, rows.index[some], head.backward(z, tanh, h).to(hidden.dtype))
        ctx.grads = grad_hidden, _cast(head.grad_weight, weight), None if bias is None else _cast(head.grad_bias, bias)
        ctx.mark_non_differentiable(correct, entropies)
        ctx.set_materialize_grads(False)
        return total * per_item, correct, entropies

    @staticmethod
    @first_order_only
    def backward(ctx: Any, upstream: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        once = (
            "the streamed cross-entropy hands out its gradients once; for a second backward pass through the same "
            'graph use reduction="none" and reduce the losses yourself'
        )
        return (*hand_out_once(ctx, upstream, once), None)


def _one_a_position(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    rows: Rows,
    shape: LogitShape,
    labels: Tensor,
    shift: bool,
    smoothing: float,
    z_loss: float,
    chunk_size: ChunkSize,
    accum_dtype: torch.dtype,
    return_stats: bool,
) -> Tensor | tuple[Tensor, LossStats]:
    """One loss a position; its gradient waits for what is made of the losses."""
    found = token_statistics(
        hidden, weight, bias, rows, shape, chunk_size=chunk_size, accum_dtype=accum_dtype, with_entropy=return_stats
    )
    losses = -(1 - smoothing) * found.logps
    if smoothing:
        losses = losses - smoothing * found.mean_logps
    if z_loss:
        losses = losses + z_loss * found.lse.square()
    everywhere = losses.new_zeros(labels.numel()).index_copy(0, rows.index, losses).view(labels.shape)
    everywhere = everywhere[..., :-1] if shift else everywhere
    if not return_stats:
        return everywhere
    n = max(len(rows), 1)
    assert found.entropies is not None
    stats = LossStats(len(rows), found.is_top1.sum() / n, found.entropies.detach().sum() / n)
    return everywhere, stats


def _cast(grad: Tensor | None, like: Tensor) -> Tensor | None:
    return None if grad is None else grad.to(like.dtype)
