"""How a sequence is cut: chunk bounds, and the sizes that ``"auto"`` stands for.

The defaults are those of arXiv 2506.03077, section 4: a third of the sequence for the layers; for the head, so many
tokens that the logits of a chunk weigh about as much as the hidden states of the whole sequence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

ChunkSize = int | Literal["auto"]

#: The head's chunk is a power of two between these. A floor of 128 would cost 20 % of peak where V is much above d.
SMALLEST_HEAD_CHUNK, LARGEST_HEAD_CHUNK = 16, 4096


def check_chunk_size(name: str, value: object) -> None:
    """Accept ``"auto"`` or a positive integer.

    Raises:
        ValueError: It is neither.
    """
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return
    raise ValueError(f'{name}: expected "auto" or a positive number of tokens, got {value!r}')


def bounds(length: int, size: int) -> list[tuple[int, int]]:
    """Return the (start, stop) of each chunk; the last one may be shorter."""
    return [(start, min(start + size, length)) for start in range(0, length, size)]


def slices(length: int, size: int) -> Iterator[slice]:
    """Yield the chunks as slices."""
    return (slice(start, stop) for start, stop in bounds(length, size))


def layer_chunk(size: ChunkSize, length: int) -> int:
    """Return the tokens of a layer's chunk for a sequence of ``length``: ``"auto"`` is a third of it."""
    return max(1, math.ceil(length / 3)) if size == "auto" else size


def head_chunk(size: ChunkSize, rows: int, hidden_size: int, vocabulary: int) -> int:
    """Return the rows of the head's chunk: ``"auto"`` gives its logits the bytes of all hidden states."""
    if size != "auto":
        return size
    balanced = max(1, math.ceil(hidden_size * rows / vocabulary))
    return min(max(1 << math.ceil(math.log2(balanced)), SMALLEST_HEAD_CHUNK), LARGEST_HEAD_CHUNK)
