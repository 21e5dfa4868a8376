"""What a client holds: its block of real layers, and in place of the others a shallower stand-in, in order.

A segment of q layers before, behind or between the parts of a block becomes ceil(q r) layers (Shen et al., NeurIPS
2025, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from thrifty.training.leff.config import LeffConfig


@dataclass(frozen=True, order=True)
class Segment:
    """Consecutive layers outside a block, and how many stand in for them.

    Args:
        start: The first layer.
        length: Layers, q.
        depth: Layers that stand in.
    """

    start: int
    length: int
    depth: int

    @property
    def sources(self) -> tuple[int, ...]:
        """The evenly spaced layers that the stand-in begins as: floor((j + 1/2) q / depth)."""
        return tuple(self.start + int((2 * j + 1) * self.length / (2 * self.depth)) for j in range(self.depth))


@dataclass(frozen=True)
class Layout:
    """The layers of a client's model, from first to last.

    Args:
        block: Layers of the global model that are trained.
        segments: What is around them, in order.
        num_layers: Of the global model.
    """

    block: tuple[int, ...]
    segments: tuple[Segment, ...]
    num_layers: int

    @property
    def places(self) -> tuple[tuple[int, Segment | None], ...]:
        """For each layer of the client's model the layer that it is or comes from, and its segment, if any."""
        parts: list[tuple[int, Segment | None]] = [(index, None) for index in self.block]
        for segment in self.segments:
            parts += [(source, segment) for source in segment.sources]
        return tuple(sorted(parts, key=lambda part: part[0]))

    @property
    def sources(self) -> tuple[int, ...]:
        """The layer that each layer of the client's model is or comes from."""
        return tuple(source for source, _ in self.places)

    @property
    def trained_places(self) -> dict[int, int]:
        """Place in the client's model to layer of the global model, for those that are trained."""
        return {place: source for place, (source, segment) in enumerate(self.places) if segment is None}


def lay_out(block: Collection[int], num_layers: int, config: LeffConfig) -> Layout:
    """Plan a client's model around a block.

    Args:
        block: Layers that are trained.
        num_layers: L.
        config: Compression, rate, and how segments are rounded.
    """
    runs = _runs([index for index in range(num_layers) if index not in block])
    lengths = [length for _, length in runs]
    rate = 1.0 if config.compression == "none" else config.compression_rate
    depths = (
        [student_depth(length, rate) for length in lengths]
        if config.segments == "separate"
        else _share(student_depth(sum(lengths), rate), lengths)
    )
    segments = [Segment(start, length, depth) for (start, length), depth in zip(runs, depths, strict=True) if depth]
    return Layout(tuple(sorted(block)), tuple(segments), num_layers)


def student_depth(length: int, rate: float) -> int:
    """Return ceil(q r), at least 1 if there is a layer; 0.2 times 15 is 3, though not in floating point.

    Args:
        length: q.
        rate: r, the share that is kept.
    """
    return max(1, math.ceil(length * rate - 1e-9)) if length else 0


def _share(total: int, lengths: Sequence[int]) -> list[int]:
    """Split a total by largest remainder; each segment gets one layer at least, while there are any."""
    if not lengths:
        return []
    quotas = [total * length / sum(lengths) for length in lengths]
    depths = [int(quota + 1e-9) for quota in quotas]
    for index in sorted(range(len(quotas)), key=lambda i: (depths[i] - quotas[i], i))[: total - sum(depths)]:
        depths[index] += 1
    for index in [i for i, depth in enumerate(depths) if not depth][: max(0, total - len(lengths) + depths.count(0))]:
        richest = max(range(len(depths)), key=lambda i: depths[i])
        if depths[richest] > 1:
            depths[richest], depths[index] = depths[richest] - 1, 1
    return depths


def _runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and index == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs
