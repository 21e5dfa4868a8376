"""The text that everything is measured on, and batches of it: the standard library's source, or a file of the user's.

Bytes are the tokens of small vocabularies, hashed pairs of bytes those of large ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from thrifty._common.texts import documents
from thrifty.bench.data import stdlib_text

#: A batch repeats a text that is shorter than itself; below this much of it, nothing would be left to learn.
SHORTEST = 1024


@dataclass(frozen=True)
class Batch:
    """Token ids, what is padding, and what counts."""

    ids: Tensor
    mask: Tensor | None
    labels: Tensor


def read_text(data: Path | None) -> Tensor:
    """Return the bytes of the standard library's source, or of a text file, a ``.jsonl`` or a folder in its place.

    Raises:
        ValueError: There is hardly any text.
    """
    if data is None:
        return torch.from_numpy(stdlib_text.load().test.copy())
    text = "\n".join(documents(data)).encode()
    if len(text) < SHORTEST:
        raise ValueError(f"--data: expected at least {SHORTEST} bytes of text in {data}, got {len(text)}")
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def make_batch(
    text: Tensor, vocabulary: int, length: int, *, batch: int = 1, padded: bool = False, device: str = "cpu"
) -> Batch:
    """Cut a batch from the beginning of a text; ``padded`` leaves out the last eighth of each sequence."""
    need = batch * length + 1
    text = text[:need].long().repeat(-(-need // len(text)))[:need]
    ids = text[:-1] if vocabulary <= 256 else (text[:-1] * 257 + text[1:] * 8191) % vocabulary
    ids = ids.view(batch, length).to(device)
    if not padded:
        return Batch(ids, None, ids)
    mask = torch.ones_like(ids)
    mask[:, length - length // 8 :] = 0
    return Batch(ids, mask, ids.masked_fill(mask == 0, -100))
