"""Attention masks as rules, made rows at a time, so that no (length x length) mask ever exists.

Hugging Face models build their masks through a registry. Under the name :data:`IMPLEMENTATION` it holds a builder that
keeps the rule (causal, sliding window, padding, packed documents, whatever the family combines) instead of applying it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

#: Under this name masks and attention are registered with transformers. Only models that stream ever use it.
IMPLEMENTATION = "thrifty_streambp"
#: In a mask of numbers, what is no more than this hides a key.
HIDDEN = -1e4
SEES_AHEAD = (
    "attention_mask: some positions see later ones (a prefix or an image that is read as a whole); only causal "
    "attention can be streamed exactly"
)


@dataclass(frozen=True)
class MaskRule:
    """Which keys each query sees, over a whole sequence.

    Args:
        batch: Batch size.
        length: Tokens of the sequence.
        sees: Function of (batch, head, query, key) indices: whether the query sees the key.
        padding: [batch, length], False where there is padding; ``None`` for none.
        plain: It is causal and nothing else, so that kernels need no mask.
        by_vmap: ``sees`` is not elementwise and must be mapped.
        device: Where masks are made.
    """

    batch: int
    length: int
    sees: Callable[..., Any] | None = None
    padding: Bool[Tensor, "batch length"] | None = None
    plain: bool = True
    by_vmap: bool = False
    device: torch.device | str = "cpu"

    def rows(self, start: int, stop: int) -> Bool[Tensor, "batch 1 queries keys"]:
        """Return the mask of queries ``start ... stop - 1`` over keys ``0 ... stop - 1``."""
        from transformers.masking_utils import causal_mask_function, sdpa_mask

        mask = sdpa_mask(
            batch_size=self.batch,
            q_length=stop - start,
            kv_length=stop,
            q_offset=start,
            kv_offset=0,
            mask_function=self.sees or causal_mask_function,
            attention_mask=None if self.padding is None else self.padding[:, :stop],
            allow_is_causal_skip=False,
            use_vmap=self.by_vmap,
            device=self.device,
        )
        assert mask is not None
        return mask

    def additive_rows(self, start: int, stop: int, dtype: torch.dtype) -> Float[Tensor, "batch 1 queries keys"]:
        """Return the same as numbers to add to the scores: 0, or the lowest that there is (for eager attention)."""
        mask = self.rows(start, stop)
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


@dataclass
class ChunkMask:
    """What a chunk's attention is given in place of a mask: the rule, its rows, and the keys of earlier chunks.

    Args:
        rule: The rule, or a mask [batch, 1 or heads, length, length] of the user's own.
        start: First query of the chunk.
        stop: One behind the last query.
        prefix: Keys and values of earlier chunks, if the attention is to join them itself.
        given: The very tensors that the cache handed back; attention that changes them cannot be split.
        changed: Set when the attention saw other keys than ``given``.
    """

    rule: MaskRule | Tensor
    start: int
    stop: int
    prefix: tuple[Tensor, Tensor] | None = None
    given: Tensor | None = field(default=None, repr=False)
    changed: bool = False

    @property
    def plain(self) -> bool:
        """Whether the chunk is causal and nothing else."""
        return isinstance(self.rule, MaskRule) and self.rule.plain

    def rows(self) -> Tensor:
        """Return the chunk's mask."""
        return mask_rows(self.rule, self.start, self.stop)


def mask_rows(rule: MaskRule | Tensor, start: int, stop: int) -> Tensor:
    """Return the rows of a rule or of a given mask."""
    if isinstance(rule, MaskRule):
        return rule.rows(start, stop)
    if rule.ndim != 4 or rule.shape[-2] < stop or rule.shape[-1] < stop:
        raise ValueError(
            f"attention_mask: expected [batch, length] or [batch, 1, length, length], got {tuple(rule.shape)}"
        )
    later = rule[:, :, start:stop, stop:]
    if bool((later if later.dtype == torch.bool else later > HIDDEN).any()):
        raise ValueError(SEES_AHEAD)
    return rule[:, :, start:stop, :stop]


def keep_rule(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **others: Any,
) -> MaskRule:
    """Be transformers' mask builder that builds nothing (signature of ``transformers.masking_utils.sdpa_mask``).

    Raises:
        ValueError: There are keys before the sequence (prefix tuning, a filled cache), or queries see later keys.
    """
    if others.get("allow_is_bidirectional_skip"):
        raise ValueError("attention_mask: the attention is bidirectional")
    if int(q_offset) or int(kv_offset) or kv_length != q_length:
        raise ValueError(
            f"past_key_values: streaming needs the whole sequence in one call, got {q_length} queries and {kv_length} "
            "keys (prefix tuning and filled caches cannot be streamed)"
        )
    full = attention_mask is None or bool(attention_mask.all())
    plain = full and allow_is_causal_skip and (local_size is None or q_length <= local_size)
    rule = MaskRule(batch_size, q_length, mask_function, None if full else attention_mask, plain, use_vmap, device)
    if sees_ahead(rule):
        raise ValueError(SEES_AHEAD)
    return rule


def sees_ahead(rule: MaskRule) -> bool:
    """Tell whether some query sees the key right after it, as in every span that is read in both directions."""
    if rule.sees is None or rule.plain or rule.length < 2:
        return False
    batches, queries = (torch.arange(n, device=rule.device) for n in (rule.batch, rule.length - 1))
    head = torch.zeros((), dtype=torch.long, device=rule.device)
    if not rule.by_vmap:
        queries = queries[None, :]
        return bool(torch.as_tensor(rule.sees(batches[:, None], head, queries, queries + 1)).any())
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    def ahead(batch: Tensor, query: Tensor) -> Any:
        assert rule.sees is not None
        return rule.sees(batch, head, query, query + 1)

    with TransformGetItemToIndex():
        by_query = torch.vmap(ahead, in_dims=(None, 0))
        return bool(torch.vmap(by_query, in_dims=(0, None))(batches, queries).any())
