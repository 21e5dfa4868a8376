"""Log-partition functions of a contrastive batch: of the batch itself, and against a bank of references.

Notation of arXiv 2505.18983: A_ij = s u_i·v_j + b; Z_i = Σ_j c_ij e^{A_ij} over the texts j (and the same over images
for a text), with c_ij = κ on the diagonal and ω off it (ω = 1, or the number of ranks where only this rank's negatives
stand for all). The *mean* scale divides by N = Σ_j c_ij, so that batches of any size estimate the same number. All of
it is computed in log space and in float32 or better, a block of rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty._common.checks import number, whole
from thrifty.training.amorlip.admission import check_captions
from thrifty.training.amorlip.precision import as_number, autocast_off, wide
from thrifty.training.amorlip.ring import Group, around, size_of

#: Numbers in a block of logits when no chunk size is asked for: it stays in a processor's cache.
BLOCK, BLOCK_ON_ACCELERATOR = 1 << 20, 1 << 25

#: Up to here e^{A − bound} is a normal float32 for every |A| ≤ bound, so that rows and columns can share one
#: exponential.
SHARED_EXPONENT = 40.0


@dataclass(frozen=True)
class Coefficients:
    """c_ij of a batch.

    Args:
        positive: κ, on the diagonal: what the pair itself counts in its own partition function.
        negative: ω, off the diagonal.

    Raises:
        ValueError: κ is below 0, or ω is not above 0.

    Example:
        >>> Coefficients(positive=0.01).count(33)
        32.01

    Source:
        arXiv 2505.18983, equation 9; κ is ``pos_coef`` of the authors' code.
    """

    positive: float = 1.0
    negative: float = 1.0

    def __post_init__(self) -> None:
        number("pos_coef", self.positive, "a number of at least 0", least=0.0)
        number("neg_coef", self.negative, "a number above 0", least=1e-30)

    @property
    def log_negative(self) -> float:
        """Log ω."""
        return math.log(self.negative)

    @property
    def log_positive_beside(self) -> float:
        """Log κ − log ω; minus infinity for κ = 0."""
        return math.log(self.positive / self.negative) if self.positive else -math.inf

    def count(self, batch: int) -> float:
        """N = ω (batch − 1) + κ."""
        return self.negative * (batch - 1) + self.positive


class BatchPartition(NamedTuple):
    """log Σ_j c_ij e^{A_ij} of every image and of every text, and log N.

    Args:
        image: Of every image, (batch,), on the scale of the sum.
        text: Of every text, likewise.
        log_count: log N: a number, or one a row where equal captions are no negatives.

    Example:
        >>> import torch
        >>> found = batch_log_partition(torch.eye(2), torch.eye(2), 0.0)  # e^0 + e^0 = 2, over N = 2
        >>> found.mean_scale()[0]
        tensor([0., 0.])

    Source:
        arXiv 2505.18983, equation 9; the mean scale is ours.
    """

    image: Float[Tensor, " batch"]
    text: Float[Tensor, " batch"]
    log_count: Tensor

    def mean_scale(self) -> tuple[Tensor, Tensor]:
        """Return both, divided by N (in log space); minus infinity where a row has nothing to sum."""
        none = self.log_count == -math.inf
        image, text = (torch.where(none, -math.inf, found - self.log_count) for found in self[:2])
        return image, text


def auto_pos_coef(batch: int, num_samples: int | None) -> float:
    """Return κ = (B − 1) / (n − 1), with which the batch's sum estimates the whole data set's; 1 where n is not known.

    Raises:
        ValueError: There are fewer samples than the batch has.

    Example:
        >>> auto_pos_coef(33, 3201)
        0.01
    """
    if num_samples is None:
        return 1.0
    if num_samples < batch:
        raise ValueError(f"num_samples: expected at least the {batch} of a batch, got {num_samples}")
    return (batch - 1) / max(1, num_samples - 1)


def batch_log_partition(
    image_features: Float[Tensor, "batch dim"],
    text_features: Float[Tensor, "batch dim"],
    logit_scale: Float[Tensor, ""] | float,
    *,
    coefficients: Coefficients = Coefficients(),
    logit_bias: Float[Tensor, ""] | float = 0.0,
    caption_ids: Int[Tensor, " batch"] | None = None,
    chunk_size: int | None = None,
    group: Group = None,
) -> BatchPartition:
    """Return the batch's own partition functions, without gradient.

    Args:
        image_features: u, of unit length.
        text_features: v, likewise.
        logit_scale: s (not its logarithm).
        coefficients: κ and ω.
        logit_bias: b.
        caption_ids: Equal numbers are equal captions: such pairs are no negatives of each other.
        chunk_size: Rows of a block of logits; by default as many as a cache holds.
        group: Ranks whose batches are one; the result is of this rank's rows.

    Example:
        >>> import torch
        >>> u = torch.eye(2)
        >>> batch_log_partition(u, u, 1.0).image  # log(e + 1)
        tensor([1.3133, 1.3133])

    Source:
        arXiv 2505.18983, equation 9.
    """
    check_captions(caption_ids, len(image_features))
    with torch.no_grad(), autocast_off(image_features):
        u, v = wide(image_features.detach()), wide(text_features.detach())
        scale, bias = as_number(logit_scale, u), as_number(logit_bias, u)
        return walk(u, v, scale, bias, coefficients, caption_ids, chunk_size, group)[0]


def walk(
    u: Tensor,
    v: Tensor,
    scale: Tensor,
    bias: Tensor,
    coefficients: Coefficients,
    caption_ids: Tensor | None,
    chunk_size: int | None,
    group: Group,
    *,
    keep: bool = False,
) -> tuple[BatchPartition, Tensor | None]:
    """Walk over the blocks of logits; the arguments are those of :func:`batch_log_partition`, u and v without gradient.

    Args:
        u: Images.
        v: Texts.
        scale: s.
        bias: b.
        coefficients: κ and ω.
        caption_ids: Equal for equal captions.
        chunk_size: Rows of a block.
        group: The ranks.
        keep: Return A + log c too, where this process is alone and one block is all: whoever needs it next need not
            multiply again.
    """
    ids = torch.empty(0, dtype=torch.long, device=u.device) if caption_ids is None else caption_ids
    sums = _Sums(u, v, scale, bias, coefficients, keep=keep and size_of(group) == 1)
    equal = u.new_zeros(len(u))
    for own, (others_v, others_u, others_ids) in around((v, u, ids), group):
        for rows in blocks(len(u), len(others_v), chunk_size, u):
            same = None if caption_ids is None else ids[rows].unsqueeze(1) == others_ids
            if same is not None:
                equal[rows] += same.sum(1)
            sums.add(rows, others_v, same, own=own)
            if not own:
                sums.add_texts(rows, others_u, same)
    total = len(u) * size_of(group)
    count = coefficients.negative * (total - equal.clamp_min(1)) + coefficients.positive
    log_count = (count if caption_ids is not None else count[:1].squeeze(0)).log()
    return BatchPartition(sums.image, sums.text, log_count), sums.kept


class _Sums:
    """Running log-sums over the rows and the columns of blocks of logits."""

    def __init__(
        self, u: Tensor, v: Tensor, scale: Tensor, bias: Tensor, coefficients: Coefficients, *, keep: bool
    ) -> None:
        self.u, self.v, self.scale, self.bias, self.c, self.keep = u, v, scale, bias, coefficients, keep
        self.kept: Tensor | None = None
        self.image = u.new_full((len(u),), -math.inf)
        self.text = v.new_full((len(v),), -math.inf)
        # Known before any logit is: |A − b| ≤ s max|u| max|v|. On an accelerator asking would make the host wait.
        bound = scale * u.norm(dim=1).max() * v.norm(dim=1).max()
        self.shift = bound + bias if u.device.type == "cpu" and float(bound) <= SHARED_EXPONENT else None

    def add(self, rows: slice, others: Tensor, same: Tensor | None, *, own: bool) -> None:
        """Add texts to the images' sums; and images to the texts', if the texts are this rank's."""
        A = logits(self.u[rows], others, self.scale, self.bias)
        weigh_(A, self.c, same, rows.start if own else None)
        if self.keep and len(A) == len(self.u):
            self.kept = A
        if self.shift is None:
            self.image[rows] = torch.logaddexp(self.image[rows], A.logsumexp(1))
            if own:
                self.text = torch.logaddexp(self.text, A.logsumexp(0))
            return
        E = torch.sub(A, self.shift, out=None if self.kept is A else A).exp_()
        self.image[rows] = torch.logaddexp(self.image[rows], E.sum(1).log_().add_(self.shift))
        if own:
            self.text = torch.logaddexp(self.text, E.sum(0).log_().add_(self.shift))

    def add_texts(self, rows: slice, others: Tensor, same: Tensor | None) -> None:
        """Add another rank's images to the sums of this rank's texts."""
        A = logits(self.v[rows], others, self.scale, self.bias)
        weigh_(A, self.c, same, None)
        self.text[rows] = torch.logaddexp(self.text[rows], A.logsumexp(1))


def estimate_log_partition(
    features: Float[Tensor, "n dim"],
    bank: Float[Tensor, "m dim"],
    logit_scale: Float[Tensor, ""] | float,
    *,
    logit_bias: Float[Tensor, ""] | float = 0.0,
    chunk_size: int | None = None,
) -> Float[Tensor, " n"]:
    """Return log mean_k e^{s x·r_k + b} against a bank of reference features: exact, in chunks, on the mean scale.

    With the features of the whole data set as the bank this is what the networks are to predict.

    Args:
        features: x, of unit length.
        bank: r, of the other modality.
        logit_scale: s.
        logit_bias: b.
        chunk_size: Rows of a block; by default as many as a cache holds.

    Raises:
        ValueError: The bank is empty, or of another width.

    Example:
        >>> import torch
        >>> estimate_log_partition(torch.eye(2), torch.eye(2), 0.0)
        tensor([0., 0.])

    Source:
        arXiv 2505.18983, equation 5: Z(u) = E_v[exp(s u·v)].
    """
    if bank.ndim != 2 or not len(bank) or bank.shape[1] != features.shape[1]:
        raise ValueError(f"bank: expected rows of {features.shape[1]} numbers, got {tuple(bank.shape)}")
    with torch.no_grad(), autocast_off(features):
        x, r = wide(features.detach()), wide(bank.detach())
        scale, bias = as_number(logit_scale, x), as_number(logit_bias, x)
        found = [logits(x[rows], r, scale, bias).logsumexp(1) for rows in blocks(len(x), len(r), chunk_size, x)]
        return torch.cat(found) - math.log(len(r)) if found else x.new_zeros(0)


def logits(u: Tensor, v: Tensor, scale: Tensor, bias: Tensor) -> Float[Tensor, "rows columns"]:
    """Return A = s u vᵀ + b."""
    A: Tensor = (u * scale) @ v.mT
    return A.add_(bias)


def weigh_(A: Tensor, coefficients: Coefficients, same: Tensor | None, first: int | None) -> None:
    """Add log c_ij to a block of logits in place.

    Args:
        A: The block.
        coefficients: κ and ω.
        same: True where two different samples have one caption; ``None``: nowhere.
        first: The column of the first row's own partner; ``None``: the block is another rank's.
    """
    diagonal = None if first is None else A.diagonal(first)[: len(A)]
    kept = diagonal.clone() if same is not None and diagonal is not None else None
    if same is not None:
        A.masked_fill_(same, -math.inf)
        if diagonal is not None and kept is not None:
            diagonal.copy_(kept)
    if coefficients.negative != 1.0:
        A.add_(coefficients.log_negative)
    if diagonal is not None and coefficients.positive != coefficients.negative:
        diagonal.add_(coefficients.log_positive_beside)


def blocks(rows: int, columns: int, chunk_size: int | None, like: Tensor) -> Iterator[slice]:
    """Cut rows into blocks of ``chunk_size``, or of what a cache holds."""
    if chunk_size is None:
        size = BLOCK if like.device.type == "cpu" else BLOCK_ON_ACCELERATOR
        chunk_size = max(1, size // max(1, columns))
    for low in range(0, rows, chunk_size):
        yield slice(low, min(low + chunk_size, rows))


def check_chunk_size(chunk_size: int | None) -> None:
    """Refuse what is no number of rows."""
    if chunk_size is not None:
        whole("chunk_size", chunk_size, what="a number of rows")
