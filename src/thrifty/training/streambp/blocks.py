"""Layers that a user writes as two functions: the protocol for decoder stacks outside Hugging Face."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty.training.streambp.config import StreamBPConfig
from thrifty.training.streambp.masks import ChunkMask, MaskRule
from thrifty.training.streambp.streaming import ChunkOutput, Pair, stream_layer

KeysAndValues = Callable[[Tensor, Tensor], Pair]
Block = Callable[[Tensor, Tensor, Tensor, ChunkMask, Tensor], Tensor]


@dataclass
class _PlainBody:
    kv: KeysAndValues
    block: Block
    trained: list[Tensor]
    rule: MaskRule
    positions: Tensor

    def parameters(self) -> list[Tensor]:
        return self.trained

    def keys_and_values(self, hidden: Tensor, start: int, stop: int) -> Pair:
        key, value = self.kv(hidden, self.positions[start:stop])
        for name, found in (("keys", key), ("values", value)):
            if found.ndim != 4 or (len(found), found.shape[2]) != hidden.shape[:2]:
                wanted = f"[{len(hidden)}, kv heads, {stop - start}, dim]"
                raise ValueError(f"kv: expected {name} of shape {wanted}, got {tuple(found.shape)}")
        return key, value

    def run(self, hidden: Tensor, start: int, stop: int, prefix: Pair | None) -> ChunkOutput:
        key, value = self.keys_and_values(hidden, start, stop)
        keys, values = (
            (key, value) if prefix is None else (torch.cat(both, 2) for both in zip(prefix, (key, value), strict=True))
        )
        output = self.block(hidden, keys, values, ChunkMask(self.rule, start, stop), self.positions[start:stop])
        if output.shape[:2] != hidden.shape[:2]:
            raise ValueError(
                f"block: expected [{len(hidden)}, {stop - start}, hidden] for a chunk, got {tuple(output.shape)}"
            )
        return ChunkOutput(output, key, value)


def stream_block(
    kv: KeysAndValues,
    block: Block,
    hidden: Float[Tensor, "batch length hidden"],
    parameters: Iterable[Tensor],
    *,
    padding_mask: Tensor | None = None,
    window: int | None = None,
    positions: Int[Tensor, " length"] | None = None,
    config: StreamBPConfig | None = None,
) -> Float[Tensor, "batch length hidden"]:
    """Run a decoder layer of your own so that its backward pass needs the memory of a chunk.

    Args:
        kv: ``kv(h, positions) -> (keys, values)`` of a chunk, [batch, kv heads, chunk, dim] each.
        block: ``block(h, keys, values, mask, positions) -> h``: the whole layer on a chunk, given the keys and values
            of all positions up to its end. ``mask`` goes to :func:`attention`; ``mask.rows()`` is the dense one.
        hidden: The layer's input.
        parameters: What both functions use; those that require a gradient get one.
        padding_mask: [batch, length], 0 where there is padding.
        window: Keys that a query sees at most, its own included.
        positions: Given to both functions, a slice at a time; 0, 1, 2 ... by default.
        config: The settings.

    Returns:
        What the layer makes of ``hidden``.

    Raises:
        ValueError: The mask does not fit, or one of the functions returns something of another shape.

    Example:
        >>> import torch
        >>> from thrifty.training.streambp import attention
        >>> weight = torch.eye(4, requires_grad=True)
        >>> def kv(h, positions):
        ...     return (h @ weight)[:, None], h[:, None]
        >>> def block(h, keys, values, mask, positions):
        ...     return h + attention(h[:, None], keys, values, mask)[:, 0]
        >>> stream_block(kv, block, torch.ones(1, 6, 4), [weight]).shape
        torch.Size([1, 6, 4])

    Source:
        arXiv 2506.03077, algorithm 1.
    """
    if hidden.ndim != 3:
        raise ValueError(f"hidden: expected [batch, length, hidden], got {tuple(hidden.shape)}")
    batch, length = hidden.shape[:2]
    if positions is not None and positions.shape != (length,):
        raise ValueError(f"positions: expected [{length}], got {tuple(positions.shape)}")
    if padding_mask is not None and padding_mask.shape != hidden.shape[:2]:
        raise ValueError(f"padding_mask: expected {(batch, length)}, got {tuple(padding_mask.shape)}")
    if window is not None and window < 1:
        raise ValueError(f"window: expected a positive number of keys, got {window!r}")
    sees = None
    if window is not None and window < length:
        from transformers.masking_utils import sliding_window_causal_mask_function

        sees = sliding_window_causal_mask_function(window)
    padding = None if padding_mask is None or bool(padding_mask.all()) else padding_mask.bool()
    rule = MaskRule(batch, length, sees, padding, sees is None and padding is None, device=hidden.device)
    if positions is None:
        positions = torch.arange(length, device=hidden.device)
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    return stream_layer(_PlainBody(kv, block, trained, rule, positions), hidden, config or StreamBPConfig())[0]
