"""The edges of one relation over all snapshots, as compressed rows by destination, built once.

The weights of equation (4) of arXiv 2510.18467, 1/(1 + degree), and of its ablations are constants of the data; they
are computed here, so that no gradient passes through them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty._common.checks import one_of

Aggregation = Literal["mean", "none", "gcn", "gat"]
Degree = Literal["exact", "released"]


@dataclass(frozen=True)
class Rows:
    """Compressed rows of one relation; the row of node i in snapshot s is ``s * nodes + i``.

    Args:
        ptr: Where each row begins in ``col``.
        col: Source node of each edge.
        weight: What each edge counts.
        own: What a node counts in its own row.
        nodes: Destination nodes of a snapshot.
        sources: Source nodes of a snapshot.
    """

    ptr: Int[Tensor, " rows+1"]
    col: Int[Tensor, " edge"]
    weight: Float[Tensor, " edge"]
    own: Float[Tensor, " rows"]
    nodes: int
    sources: int

    @classmethod
    def build(cls, edges: Int[Tensor, "2 edge"], snapshot: Int[Tensor, " edge"], snapshots: int, sources: int,
              nodes: int, weight: Float[Tensor, " edge"] | None = None) -> Rows:  # fmt: skip
        """Sort edges by snapshot and destination.

        Args:
            edges: Source and destination of each.
            snapshot: In which snapshot it is.
            snapshots: How many there are.
            sources: Source nodes.
            nodes: Destination nodes.
            weight: What each counts; 1 if ``None``.
        """
        row = snapshot * nodes + edges[1]
        order = torch.argsort(row, stable=True)
        counts = torch.bincount(row, minlength=snapshots * nodes)
        ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        held = torch.ones(len(row), dtype=torch.float64) if weight is None else weight.double()
        return cls(
            ptr, edges[0][order].contiguous(), held[order], torch.ones(snapshots * nodes).double(), nodes, sources
        )

    def weighted(self, aggr: Aggregation = "mean", degree: Degree = "exact") -> Rows:
        """Return the rows with the weights of an aggregation.

        Args:
            aggr: ``"mean"`` over a node and its neighbours, ``"none"`` (the node alone), ``"gcn"`` (symmetric
                normalisation), ``"gat"`` (weights are learnt elsewhere).
            degree: ``"exact"`` divides by 1 + degree; ``"released"`` by 1 + max(degree, 1), as the authors' code does.

        Raises:
            ValueError: One of them is unknown.
        """
        one_of("aggr", aggr, get_args(Aggregation))
        one_of("degree", degree, get_args(Degree))
        if aggr == "none":
            empty = torch.zeros_like(self.ptr)
            return replace(self, ptr=empty, col=self.col[:0], weight=self.weight[:0])
        if aggr == "gat":
            return self
        into = torch.zeros_like(self.own).index_add(0, self.row, self.weight)
        into = into.clamp(min=1) if degree == "released" else into
        if aggr == "mean":
            return replace(self, weight=self.weight / (1 + into[self.row]), own=1 / (1 + into))
        snapshot = torch.div(self.row, self.nodes, rounding_mode="floor")
        source = snapshot * self.sources + self.col
        out = self.weight.new_zeros(len(self.own) // self.nodes * self.sources).index_add(0, source, self.weight)
        scale = torch.rsqrt(1 + into)
        return replace(self, weight=self.weight * scale[self.row] * torch.rsqrt(1 + out[source]), own=scale**2)

    @cached_property
    def row(self) -> Int[Tensor, " edge"]:
        """The row of each edge."""
        return torch.repeat_interleave(torch.arange(len(self.own), device=self.col.device), self.ptr.diff())

    @cached_property
    def _edges_before(self) -> Int[Tensor, " snapshot+1"]:
        return self.ptr[:: self.nodes] if self.nodes else self.ptr

    def offsets(self, snap: Int[Tensor, " frame"]) -> tuple[Int[Tensor, " frame"], int]:
        """Return where each frame's edges begin if frames are laid end to end, and how many there are in all."""
        counts = self._edges_before.diff()[snap]
        ends = counts.cumsum(0)
        return ends - counts, int(ends[-1]) if len(ends) else 0

    def work(self, snap: Int[Tensor, " frame"]) -> int:
        """Return about how many rows and edges the frames have (of all snapshots alike)."""
        snapshots = max(1, len(self._edges_before) - 1)
        return len(snap) * (self.nodes + len(self.col) // snapshots)

    def block(self, snap: Int[Tensor, " frame"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the edges of many frames as one graph: destinations, sources (both counted through), edge numbers."""
        before = self._edges_before
        counts = before.diff()[snap]
        ends = counts.cumsum(0)
        frame = torch.repeat_interleave(torch.arange(len(snap), device=snap.device), counts)
        place = torch.arange(len(frame), device=snap.device) - (ends - counts)[frame]
        edges = before[snap][frame] + place
        node = self.row[edges] - snap[frame] * self.nodes
        return frame * self.nodes + node, frame * self.sources + self.col[edges], edges

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Rows:
        """Return the rows on a device, weights in a precision."""
        tensors = {name: getattr(self, name).to(device) for name in ("ptr", "col")}
        tensors |= {name: getattr(self, name).to(device, dtype) for name in ("weight", "own")}
        return replace(self, **tensors)
