"""The towers' loss: the contrastive gradient with denominators that are known beforehand (arXiv 2505.18983, Eq. 11).

    L = −2 mean_i A_ii + mean_i Σ_j w^I_ij + mean_j Σ_i w^T_ij,    w^I_ij = c_ij e^{A_ij} / λ^I_i,   λ fixed

Since λ does not depend on the rest of the batch, loss and gradient are sums over blocks of rows: with
G = (w^I + w^T)/B, dL/du = s (G v − 2 v/B), dL/dv = s (Gᵀ u − 2 u/B), dL/ds = Σ G∘cos − 2 mean cos_ii. Each block of
logits is made once, turned into G and forgotten: three products with a matrix of features where the softmax loss of two
directions needs six, and memory for one block instead of B² logits and their gradients. Where one block is all, the
logits that the batch's own denominators were summed from are taken again.

Over several ranks each one works out the gradient of its own rows against everybody's: features and one log λ a row go
around without gradient, and nothing comes back. Averaged over ranks (as DDP does) that is exactly the gradient of one
big batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from thrifty.training.amorlip.admission import check_captions, check_pair, check_scale
from thrifty.training.amorlip.partition import (
    Coefficients,
    blocks,
    check_chunk_size,
    logits,
    weigh_,
)
from thrifty.training.amorlip.precision import as_number, autocast_off, wide, within
from thrifty.training.amorlip.ring import Group, around


class Contrast(NamedTuple):
    """The loss, and what is worth knowing of its weights.

    Args:
        loss: L, with gradient.
        image_weight: Σ_j w_ij of every image: 1 under a softmax.
        text_weight: Likewise of every text.
        limited: How many weights were above the limit.
    """

    loss: Float[Tensor, ""]
    image_weight: Float[Tensor, " batch"]
    text_weight: Float[Tensor, " batch"]
    limited: Float[Tensor, ""]


def amortized_clip_loss(
    image_features: Float[Tensor, "batch dim"],
    text_features: Float[Tensor, "batch dim"],
    logit_scale: Float[Tensor, ""] | float,
    log_lambda_image: Float[Tensor, " batch"],
    log_lambda_text: Float[Tensor, " batch"],
    *,
    pos_coef: float = 1.0,
    neg_coef: float = 1.0,
    logit_bias: Float[Tensor, ""] | float = 0.0,
    caption_ids: Int[Tensor, " batch"] | None = None,
    chunk_size: int | None = None,
    max_log_weight: float | None = None,
    group: Group = None,
) -> Float[Tensor, ""]:
    """Return the contrastive loss with given denominators.

    With λ the batch's own sums its gradient is twice that of ``open_clip.ClipLoss``.

    Args:
        image_features: u, of unit length; 16-bit features are computed with in float32.
        text_features: v, likewise.
        logit_scale: s (not its logarithm).
        log_lambda_image: log λ of every image, on the scale of the sum Σ_j c_ij e^{A_ij}; no gradient flows into it.
        log_lambda_text: Likewise of every text.
        pos_coef: κ, the weight of the pair itself.
        neg_coef: ω, the weight of every other.
        logit_bias: b.
        caption_ids: Equal numbers are equal captions: such pairs are no negatives of each other.
        chunk_size: Rows of a block of logits; by default as many as a cache holds.
        max_log_weight: Above it e^x goes on as its tangent, so that a λ that is far too small cannot blow up a step.
        group: Ranks whose batches are one; each gets the gradient of its own rows, for DDP to average.

    Raises:
        ValueError: Shapes do not fit together, or a coefficient is out of range.

    Example:
        >>> import torch
        >>> from thrifty.training.amorlip import batch_log_partition
        >>> u = torch.nn.functional.normalize(torch.randn(8, 4), dim=1).requires_grad_()
        >>> Z = batch_log_partition(u, u, 10.0)
        >>> amortized_clip_loss(u, u, 10.0, Z.image, Z.text).backward()
        >>> u.grad.shape
        torch.Size([8, 4])

    Source:
        arXiv 2505.18983, equations 10 and 11.
    """
    coefficients = Coefficients(pos_coef, neg_coef)
    check_pair(image_features, text_features)
    check_captions(caption_ids, len(image_features))
    # On an accelerator looking at a number makes the host wait.
    if not torch.compiler.is_compiling() and (not isinstance(logit_scale, Tensor) or logit_scale.device.type == "cpu"):
        check_scale(logit_scale)
    for name, values in (("log_lambda_image", log_lambda_image), ("log_lambda_text", log_lambda_text)):
        if values.shape != image_features.shape[:1]:
            raise ValueError(f"{name}: expected {len(image_features)} numbers, got shape {tuple(values.shape)}")
    return contrast(
        image_features, text_features, logit_scale, log_lambda_image, log_lambda_text, coefficients,
        logit_bias=logit_bias, caption_ids=caption_ids, chunk_size=chunk_size, max_log_weight=max_log_weight,
        group=group,
    ).loss  # fmt: skip


def contrast(
    image_features: Tensor,
    text_features: Tensor,
    logit_scale: Tensor | float,
    log_lambda_image: Tensor,
    log_lambda_text: Tensor,
    coefficients: Coefficients,
    *,
    logit_bias: Tensor | float = 0.0,
    caption_ids: Tensor | None = None,
    chunk_size: int | None = None,
    max_log_weight: float | None = None,
    group: Group = None,
    kept: Tensor | None = None,
) -> Contrast:
    """Return the loss and its weights; the arguments are those of :func:`amortized_clip_loss`.

    ``kept`` are the batch's weighed logits A + log c, of one process, where somebody has worked them out already.
    """
    check_chunk_size(chunk_size)
    scale, bias = (
        value if isinstance(value, Tensor) else as_number(value, wide(image_features[:0]))
        for value in (logit_scale, logit_bias)
    )
    with autocast_off(image_features):
        loss, image, text, limited = _Contrast.apply(
            image_features, text_features, scale, bias, log_lambda_image, log_lambda_text, caption_ids, coefficients,
            chunk_size, max_log_weight, group, kept, torch.is_grad_enabled(),
        )  # fmt: skip
    return Contrast(loss, image, text, limited)


class _Contrast(torch.autograd.Function):
    """Loss and gradients in one walk over the blocks; the backward pass only scales what was found."""

    @staticmethod
    def forward(
        ctx: Any,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor,
        logit_bias: Tensor,
        log_lambda_image: Tensor,
        log_lambda_text: Tensor,
        caption_ids: Tensor | None,
        coefficients: Coefficients,
        chunk_size: int | None,
        limit: float | None,
        group: Group,
        kept: Tensor | None,
        grad: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        u, v = wide(image_features), wide(text_features)
        walk = _Walk(
            u, v, as_number(logit_scale, u), as_number(logit_bias, u), log_lambda_image.detach().to(u),
            log_lambda_text.detach().to(u), caption_ids, coefficients, chunk_size, limit, kept,
        )  # fmt: skip
        want = [need and grad for need in ctx.needs_input_grad[:4]]
        walk.go(group, image=want[0] or want[2], text=want[1])
        loss, gradients = walk.result(want)
        ctx.like = [(x.shape, x.dtype) for x in (image_features, text_features, logit_scale, logit_bias)]
        ctx.save_for_backward(*(within(slope, dtype) for slope, (_, dtype) in zip(gradients, ctx.like, strict=True)))
        ctx.mark_non_differentiable(walk.image_weight, walk.text_weight, walk.limited)
        return loss, walk.image_weight, walk.text_weight, walk.limited

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Any, ...]:
        found = [
            (held * grad).to(dtype).reshape(shape) if held.numel() else None
            for held, (shape, dtype) in zip(ctx.saved_tensors, ctx.like, strict=True)
        ]
        return (*found, *[None] * 9)


class _Walk:
    """The walk over blocks, and what it adds up."""

    def __init__(
        self,
        u: Tensor,
        v: Tensor,
        scale: Tensor,
        bias: Tensor,
        log_lambda_image: Tensor,
        log_lambda_text: Tensor,
        caption_ids: Tensor | None,
        coefficients: Coefficients,
        chunk_size: int | None,
        limit: float | None,
        kept: Tensor | None,
    ) -> None:
        self.u, self.v, self.scale, self.bias, self.kept = u, v, scale, bias, kept
        self.log_lambda = (log_lambda_image, log_lambda_text)
        self.ids, self.c, self.chunk_size, self.limit = caption_ids, coefficients, chunk_size, limit
        self.image_weight, self.text_weight = u.new_zeros(len(u)), v.new_zeros(len(v))
        self.total, self.slope, self.limited = (u.new_zeros(()) for _ in range(3))
        self.du: Tensor | None = None
        self.dv: Tensor | None = None

    def go(self, group: Group, *, image: bool, text: bool) -> None:
        """Walk over this rank's rows against everybody's.

        Args:
            group: The ranks.
            image: Whether the gradient of images is wanted.
            text: Likewise of texts.
        """
        u, v, (of_images, of_texts) = self.u, self.v, self.log_lambda
        self.du = torch.zeros_like(u) if image else None
        self.dv = torch.zeros_like(v) if text else None
        ids = self.ids if self.ids is not None else torch.empty(0, dtype=torch.long, device=u.device)
        for own, (others_v, others_u, others_texts, others_images, others_ids) in around(
            (v, u, of_texts, of_images, ids), group
        ):
            chunk_size = self.chunk_size if self.kept is None else len(u)
            for rows in blocks(len(u), len(others_v), chunk_size, u):
                same = None if self.ids is None else ids[rows].unsqueeze(1) == others_ids
                self._meet_texts(rows, others_v, others_texts, same, own=own)
                if not own:
                    self._meet_images(rows, others_u, others_images, same)

    def _meet_texts(self, rows: slice, others: Tensor, of_others: Tensor, same: Tensor | None, *, own: bool) -> None:
        """Take some of this rank's images against the texts of one rank; its own get their gradient, too."""
        x = self.u[rows]
        w, w_text, beyond = self._weights(
            x, others, self.log_lambda[0][rows], of_others, same, rows.start if own else None
        )
        of_rows, of_columns = w.sum(1), w_text.sum(0)
        self.image_weight[rows] += of_rows
        if own:
            self.text_weight += of_columns
        slope = of_rows.sum() + of_columns.sum()
        self.slope += slope
        self.total += slope + beyond
        G = w.add_(w_text)
        if self.du is not None:
            self.du[rows] += G @ others
        if own and self.dv is not None:
            self.dv.addmm_(G.mT, x)

    def _meet_images(self, rows: slice, others: Tensor, of_others: Tensor, same: Tensor | None) -> None:
        """Take some of this rank's texts against another's images, whose own rank counts the value."""
        w_text, w, _ = self._weights(self.v[rows], others, self.log_lambda[1][rows], of_others, same, None)
        self.text_weight[rows] += w_text.sum(1)
        if self.dv is not None:
            self.dv[rows] += w_text.add_(w) @ others

    def _weights(
        self, x: Tensor, others: Tensor, of_rows: Tensor, of_columns: Tensor, same: Tensor | None, first: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return c e^A / λ of the rows and of the columns, and what their tangents add beyond the limit."""
        if self.kept is None:
            A = logits(x, others, self.scale, self.bias)
            weigh_(A, self.c, same, first)
        else:
            A = self.kept
        columns = A - of_columns
        rows = A - of_rows.unsqueeze(1) if self.kept is not None else A.sub_(of_rows.unsqueeze(1))
        if self.limit is None:
            return rows.exp_(), columns.exp_(), self.total.new_zeros(())
        over = [(part - self.limit).clamp_(min=0) for part in (rows, columns)]
        rows.clamp_(max=self.limit).exp_()
        columns.clamp_(max=self.limit).exp_()
        self.limited += sum(part.count_nonzero() for part in over)
        return rows, columns, (over[0] * rows).sum() + (over[1] * columns).sum()

    def result(self, want: list[bool]) -> tuple[Tensor, list[Tensor]]:
        """Return the loss, and the gradients of u, v, s and b; empty where none is wanted."""
        u, v, batch = self.u, self.v, len(self.u)
        cosine = (u * v).sum() / batch
        loss = self.total / batch - 2 * (self.scale * cosine + self.bias)
        none = u.new_zeros(0)
        gradients = [none] * 4
        if want[2] and self.du is not None:
            gradients[2] = (self.du * u).sum() / batch - 2 * cosine
        if want[0] and self.du is not None:
            gradients[0] = self.du.sub_(v, alpha=2).mul_(self.scale / batch)
        if want[1] and self.dv is not None:
            gradients[1] = self.dv.sub_(u, alpha=2).mul_(self.scale / batch)
        if want[3]:
            gradients[3] = self.slope / batch - 2
        return loss, gradients
