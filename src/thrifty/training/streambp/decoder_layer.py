"""A Hugging Face decoder layer as a body that runs on chunks, through two protocols that every family follows.

Cache protocol: attention hands its keys and values to ``cache.update`` and attends to what that returns; so keys and
values can be captured, and earlier ones put in front. Mask protocol: attention gets whatever the mask registry made
(`masks`). No family's layer is written again here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from thrifty.training.streambp.masks import IMPLEMENTATION, ChunkMask, MaskRule, mask_rows
from thrifty.training.streambp.streaming import ChunkOutput, Pair

#: What the cache argument is called, from the newest transformers to GPT-NeoX.
CACHE_NAMES = ("cache", "past_key_values", "past_key_value", "layer_past")


class _Captured(Exception):  # noqa: N818 - not an error: it leaves a layer once its keys and values are known
    """Keys and values are known; the rest of the layer is not wanted."""


class UnstreamableError(ValueError):
    """The layer cannot be streamed exactly."""


class ChunkCache:
    """What attention takes for its cache.

    Args:
        start: Positions before the chunk.
        prefix: Their keys and values, to be put in front.
        mask: Told which tensors attention was handed.
        capture_only: Leave the layer as soon as keys and values are known.
    """

    def __init__(self, start: int, prefix: Pair | None, mask: ChunkMask | None, capture_only: bool = False) -> None:
        self._start, self._prefix, self._mask, self._capture_only = start, prefix, mask, capture_only
        self.found: Pair | None = None

    def update(self, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Pair:
        """Take the chunk's keys and values; return those to attend to."""
        if self.found is not None:
            raise UnstreamableError("it writes its cache twice in one call")
        self.found = key, value
        if self._capture_only:
            raise _Captured
        if self._prefix is not None:
            key, value = (torch.cat(pair, dim=2) for pair in zip(self._prefix, (key, value), strict=True))
        if self._mask is not None:
            self._mask.given = key
        return key, value

    def get_seq_length(self, *_: Any) -> int:
        """Return the positions before the chunk."""
        return self._start


@cache
def _parameter_names(forward: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(forward).parameters)[1:]


def bind(call: partial[Any], args: tuple[Any, ...]) -> tuple[nn.Module, Tensor, dict[str, Any]]:
    """Return the layer, its hidden states and its other arguments by name, from what a checkpoint function is given.

    Raises:
        UnstreamableError: The layer's first argument is no tensor.
    """
    layer, names = call.args[0], _parameter_names(call.func)
    arguments = {**call.keywords, **dict(zip(names, args, strict=False))}
    hidden = arguments.pop(names[0], None)
    if not isinstance(hidden, Tensor) or hidden.ndim != 3:
        raise UnstreamableError(f"{type(layer).__name__} cannot be streamed: it is not called with hidden states")
    return layer, hidden, arguments


def recorder() -> Any:
    """Return the variable in which transformers records layers' outputs during a call (router logits)."""
    from transformers.utils import output_capturing

    return output_capturing._active_collector


@contextmanager
def attn_implementation(config: Any, name: str | None) -> Iterator[None]:
    """Let a model's configuration name another attention inside the block."""
    before = config._attn_implementation
    if before == name:
        yield
        return
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


@dataclass
class DecoderLayerBody:
    """One call of a decoder layer.

    Args:
        layer: The layer.
        forward: Its plain forward function.
        arguments: Everything that it was called with beside the hidden states, by name.
        length: Tokens of the sequence.
        config: The model's configuration.
        own_attention: The attention that the user chose, ``"sdpa"`` or ``"eager"``.
        joined: Attention itself joins earlier and own keys, instead of the cache; found out in the first chunk.
    """

    layer: nn.Module
    forward: Callable[..., Any]
    arguments: Mapping[str, Any]
    length: int
    config: Any
    own_attention: str
    joined: bool = True
    keys: tuple[str, ...] = ()
    tupled: int = 0
    _collected: dict[str, list[Any]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        names = _parameter_names(self.forward)
        self._cache_name = next((name for name in CACHE_NAMES if name in names), None)
        if self._cache_name is None:
            raise UnstreamableError(f"{self._name} cannot be streamed: it takes no cache ({', '.join(names)})")
        self.joined = self.joined and self.own_attention == "sdpa"
        for name, value in self.arguments.items():
            if isinstance(value, Tensor) and value.requires_grad and name != "attention_mask":
                raise UnstreamableError(
                    f"{self._name} cannot be streamed: its argument {name!r} needs a gradient, and only the hidden "
                    "states may"
                )
        if self.arguments.get("output_attentions"):
            raise ValueError("output_attentions: streamed layers never hold attention weights; set it to False")

    @property
    def _name(self) -> str:
        return type(self.layer).__name__

    def parameters(self) -> list[Tensor]:
        """Return what is trained, as it is now (FSDP exchanges parameters between passes)."""
        return [parameter for parameter in self.layer.parameters() if parameter.requires_grad]

    def keys_and_values(self, hidden: Tensor, start: int, stop: int) -> Pair:
        """Run the layer until its keys and values are known."""
        store = ChunkCache(start, None, None, capture_only=True)
        try:
            self._call(hidden, start, stop, store, self._mask(hidden, start, stop, None))
        except _Captured:
            assert store.found is not None
            return store.found
        raise UnstreamableError(f"{self._name} cannot be streamed: it ignores its cache")

    def run(self, hidden: Tensor, start: int, stop: int, prefix: Pair | None) -> ChunkOutput:
        """Run the layer on a chunk."""
        mask = self._mask(hidden, start, stop, prefix if self.joined else None)
        watched = mask if isinstance(mask, ChunkMask) else None
        store = ChunkCache(start, None if self.joined else prefix, watched)
        with self._collecting() as collected:
            output = self._call(hidden, start, stop, store, mask)
        if store.found is None:
            raise UnstreamableError(f"{self._name} cannot be streamed: it ignores its cache")
        if watched is not None and watched.changed:
            joined, self.joined = self.joined, False  # it transforms keys after the cache: join them there
            if joined and prefix is not None:
                return self.run(hidden, start, stop, prefix)
        if isinstance(output, tuple):
            if any(other is not None for other in output[1:]):
                raise UnstreamableError(f"{self._name} cannot be streamed: it returns more than hidden states")
            self.tupled, output = len(output), output[0]
        extras = tuple(self._by_position(value, hidden) for key in self.keys for value in collected[key])
        return ChunkOutput(output, *store.found, extras)

    def whole(self, hidden: Tensor) -> Any:
        """Run the layer as if nothing were streamed, on the mask that it would have had."""
        rule = self.arguments.get("attention_mask")
        mask = rule
        if isinstance(rule, MaskRule):
            eager = self.own_attention == "eager"
            if eager:
                mask = rule.additive_rows(0, self.length, hidden.dtype)
            else:
                mask = None if rule.plain else rule.rows(0, self.length)
        with attn_implementation(self.config, self.own_attention):
            return self.forward(self.layer, hidden, **{**self.arguments, "attention_mask": mask})

    def _call(self, hidden: Tensor, start: int, stop: int, store: ChunkCache, mask: Any) -> Any:
        arguments = {name: _slice(name, value, start, stop, self.length) for name, value in self.arguments.items()}
        arguments |= {"attention_mask": mask, str(self._cache_name): store}
        name = IMPLEMENTATION if self.own_attention == "sdpa" else self.own_attention
        try:
            with attn_implementation(self.config, name):
                return self.forward(self.layer, hidden, **arguments)
        except UnstreamableError as error:
            raise UnstreamableError(f"{self._name} cannot be streamed: {error}") from error
        except AttributeError as error:
            if ChunkCache.__name__ not in str(error):
                raise
            raise UnstreamableError(
                f"{self._name} cannot be streamed: its cache holds more than keys and values ({error})"
            ) from error

    def _mask(self, hidden: Tensor, start: int, stop: int, prefix: Pair | None) -> Any:
        rule = self.arguments.get("attention_mask")
        if rule is None:  # the family leaves causality to the attention
            rule = MaskRule(len(hidden), self.length, device=hidden.device)
        if self.own_attention == "sdpa":
            return ChunkMask(rule, start, stop, prefix)
        if isinstance(rule, MaskRule):
            return rule.additive_rows(start, stop, hidden.dtype)
        return mask_rows(rule, start, stop)

    @contextmanager
    def _collecting(self) -> Iterator[dict[str, list[Any]]]:
        """Catch what transformers records inside the layer (router logits), chunk by chunk."""
        if not self.keys:
            yield {}
            return
        collected: dict[str, list[Any]] = {key: [] for key in self.keys}
        token = recorder().set(collected)
        try:
            yield collected
        finally:
            recorder().reset(token)

    def _by_position(self, value: Tensor, hidden: Tensor) -> Tensor:
        """Return something recorded as [batch, chunk, ...]."""
        batch, chunk = hidden.shape[:2]
        if value.shape[:2] == (batch, chunk):
            return value
        if len(value) == batch * chunk:
            return value.view(batch, chunk, *value.shape[1:])
        raise UnstreamableError(
            f"{self._name} cannot be streamed: it records {tuple(value.shape)} for {batch} x {chunk} positions"
        )


def _slice(name: str, value: Any, start: int, stop: int, length: int) -> Any:
    """Cut an argument to a chunk if it has one entry a position."""
    if isinstance(value, tuple | list):
        return type(value)(_slice(name, part, start, stop, length) for part in value)
    if isinstance(value, dict):
        return {key: _slice(name, part, start, stop, length) for key, part in value.items()}
    if not isinstance(value, Tensor):
        return value
    dim = {"position_ids": -1, "cache_position": -1, "position_embeddings": -2}.get(name, 1)
    if value.ndim < (1 if dim == -1 else 2) or value.shape[dim] != length:
        return value
    return value.narrow(dim, start, stop - start)
