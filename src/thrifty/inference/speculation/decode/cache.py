"""A cache of keys and values in which a token's slot is its position.

Rows of a batch accept different numbers of draft tokens. Rolling all of them back to the shortest wastes what the
others accepted; leaving holes needs a mask of them and now and then a compaction. Here each row writes its new entries
at its *own* positions, into buffers that were allocated once: what was rejected is overwritten by the next round,
before any query may look at it. There are no holes, nothing is ever moved, and sliding windows stay exact.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer


class SlotCache(Cache):
    """Keys and values of a batch whose rows are of different lengths.

    Args:
        layers: Layers of the model.
        capacity: Positions that every row may fill.

    :meth:`place` comes before each pass.
    """

    def __init__(self, layers: int, capacity: int) -> None:
        self.positions: Int[Tensor, "batch tokens"] | None = None
        self.together: int | None = None
        self.width = 0
        self.capacity = capacity
        self.slots = [_SlotLayer(self) for _ in range(layers)]
        super().__init__(layers=list(self.slots))

    def place(self, positions: Int[Tensor, "batch tokens"], width: int, together: int | None) -> None:
        """Say where the next pass's tokens go.

        Args:
            positions: The slots that they take.
            width: Slots that any of them may see.
            together: Where they begin, if all rows are at the same positions.
        """
        self.positions, self.width, self.together = positions, width, together

    @property
    def filled(self) -> bool:
        """Whether anything was ever read."""
        return self.slots[-1].is_initialized

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Drop all other rows."""
        for layer in self.slots:
            layer.keep(rows)


class _SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's buffers, [batch, heads, capacity, head size]."""

    is_croppable = True
    is_sliding = False

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the buffers, once the shapes are known."""

        def buffer(like: Tensor) -> Tensor:
            batch, heads, _, size = like.shape
            return like.new_zeros(batch, heads, self._cache.capacity, size)

        self._hold(buffer(key_states), buffer(value_states))
        self.is_initialized = True

    def _hold(self, keys: Tensor, values: Tensor) -> None:
        """Keep buffers, at addresses that a CUDA graph may rely on."""
        for tensor in (keys, values):
            torch._dynamo.mark_static_address(tensor)
        self.keys, self.values = keys, values

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write a pass's keys and values at its positions; return every slot that a query may see."""
        if self.keys is None or self.values is None:
            self.lazy_initialization(key_states, value_states)
        places, width = self._cache.positions, self._cache.width
        assert places is not None, "SlotCache.place comes before a pass"
        assert self.keys is not None
        assert self.values is not None
        start, tokens = self._cache.together, key_states.shape[2]
        for buffer, new in ((self.keys, key_states), (self.values, value_states)):
            if start is None:
                buffer.scatter_(2, places[:, None, :, None].expand(new.shape), new)
            else:
                buffer[:, :, start : start + tokens] = new
        return self.keys[:, :, :width], self.values[:, :, :width]

    def keep(self, rows: Tensor) -> None:
        """Drop all other rows."""
        if self.keys is not None and self.values is not None:
            self._hold(self.keys[rows], self.values[rows])

    def get_seq_length(self) -> int:
        """Return the slots that were filled before the present pass."""
        places = self._cache.positions
        return self._cache.width - (0 if places is None else places.shape[1])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length and offset of what a mask has to cover."""
        return self._cache.width, 0

    def get_max_length(self) -> int:
        """Return the capacity."""
        return self._cache.capacity


def check_cacheable(model: Any) -> None:
    """Refuse a model whose state is more than keys and values by position.

    Raises:
        ValueError: Linear attention, state spaces, indexed attention, an encoder, or an attention implementation that
            takes no mask of its own.
    """
    config = model.config.get_text_config()
    name = type(model).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"model: {name} has an encoder; decoders only can be speculated with")
    if not {"cache", "past_key_values"} & set(inspect.signature(type(model).forward).parameters):
        raise ValueError(f"model: {name} takes no cache of keys and values; expected a model that does")
    kinds = {type(layer) for layer in DynamicCache(config=config).layers} or {DynamicLayer}
    if other := kinds - {DynamicLayer, DynamicSlidingWindowLayer}:
        names = ", ".join(sorted(kind.__name__ for kind in other))
        raise ValueError(
            f"model: {name} keeps state that cannot be overwritten by position ({names}); "
            "that of full and sliding attention can"
        )
    if config._attn_implementation not in ("sdpa", "eager"):
        raise ValueError(
            f"model: {name} attends with {config._attn_implementation!r}, which takes no mask a row; "
            "load it with attn_implementation='sdpa'"
        )
    if getattr(config, "alibi", config.model_type == "bloom"):
        raise ValueError(f"model: {name} computes ALiBi from a mask of one row a request, which positions do not fit")
    if "local" in (getattr(config, "attention_layers", None) or ()):
        raise ValueError(f"model: {name} attends locally by slot, not by position; full and sliding attention do")
    if "chunked_attention" in (getattr(config, "layer_types", None) or ()):
        raise ValueError(f"model: {name} attends in chunks, which is not supported; full and sliding attention are")


def check_positions(model: Any, length: int) -> None:
    """Refuse texts so long that the rotary embedding depends on the longest row, and so on the batch.

    Raises:
        ValueError: The model has such an embedding, and the text outgrows its first length.
    """
    config = model.config.get_text_config()
    parameters = getattr(config, "rope_parameters", None) or {}
    for one in (parameters, *(value for value in parameters.values() if isinstance(value, dict))):
        if one.get("rope_type") in ("dynamic", "longrope"):
            limit = one.get("original_max_position_embeddings") or config.max_position_embeddings
            if length > limit:
                raise ValueError(
                    f"max_new_tokens: {type(model).__name__} rotates ({one['rope_type']}) by the longest text beyond "
                    f"{limit} tokens, so that rows would change each other; expected prompt and new tokens within "
                    f"that, got {length}"
                )


def attention_mask(
    config: Any, positions: Int[Tensor, "batch tokens"], width: int, dtype: torch.dtype, *, together: bool = False
) -> Tensor | dict[str, Tensor] | None:
    """Return what each query may see: the slots up to its own position, for sliding layers the last few of them.

    Args:
        config: The (text) config of the model.
        positions: Of the queries.
        width: Slots in all.
        dtype: Of the model, for implementations whose masks are added.
        together: All rows are at the same positions.

    Returns:
        One mask [batch, 1, tokens, width], or one for each kind of layer where a model has several; none where every
        query sees every slot.
    """
    slots = torch.arange(width, device=positions.device)
    own = positions[:, None, :, None]
    full = slots <= own
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    if not kinds:
        kinds = {"sliding_attention"} if window is not None else {"full_attention"}
    if together and positions.shape[1] == 1 and kinds == {"full_attention"}:
        return None  # a plain step of rows that are equally long: attention is fastest without a mask
    made: dict[str, Tensor] = {}
    for kind in kinds:
        seen: Bool[Tensor, "batch 1 tokens width"] = full
        if kind == "sliding_attention" and window is not None:
            seen = full & (slots > own - window)
        made[kind] = _in_form(config, seen, dtype)
    return next(iter(made.values())) if len(made) == 1 else made


def _in_form(config: Any, seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask in the form that the implementation of attention takes: of booleans, or to be added."""
    if config._attn_implementation == "sdpa":
        return seen
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)
