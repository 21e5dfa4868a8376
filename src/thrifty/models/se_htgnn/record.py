"""What a graph was made from, kept with a fitted model: forecasts on a graph that was made otherwise are refused."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from thrifty.models.se_htgnn.model import SEHTGNN
from thrifty.models.se_htgnn.temporal import HeteroTemporalData, Triple


@dataclass(frozen=True)
class GraphRecord:
    """Types, widths and origin of a graph.

    Args:
        edge_types: Edge types.
        widths: Features of each type that has some.
        source: What the graph says of itself (``HeteroTemporalData.source``).
        named: Nodes of the types without features, in order: a network knows them by their place.
        last: The last snapshot that a fit, or its end, was decided by.
    """

    edge_types: tuple[Triple, ...]
    widths: Mapping[str, int]
    source: Mapping[str, Any]
    named: Mapping[str, Sequence[str]]
    last: str

    @classmethod
    def of(cls, data: HeteroTemporalData, last: int) -> Self:
        """Return a graph's record.

        Args:
            data: The graph.
            last: The number of the last snapshot that a fit, or its end, is decided by.
        """
        named = {name: [str(k) for k in ids] for name, ids in data.ids.items() if name not in data.x}
        return cls(tuple(data.edges), data.num_features(), dict(data.source), named, str(data.times[last]))

    def seen(self, data: HeteroTemporalData, targets: Sequence[int]) -> int:
        """Return how many target snapshots a fit, or its end, was decided by."""
        times = [str(time) for time in data.times]
        return sum(t <= times.index(self.last) for t in targets) if self.last in times else 0

    def check(self, data: HeteroTemporalData) -> None:
        """Refuse a graph that was made otherwise; a relation without an edge need not be there, which is warned of.

        Args:
            data: The graph.

        Raises:
            ValueError: It was; the message names the first difference.
        """
        for name, was in self.source.items():
            now = data.source.get(name)
            if now is not None and now != was:
                raise ValueError(f"data: the model was fitted to a graph with {name} {was!r}, got {now!r}")
        if unknown := [triple for triple in data.edges if triple not in self.edge_types]:
            raise ValueError(f"data: the model was fitted to the edge types {list(self.edge_types)}, got {unknown[0]}")
        for name, width in data.num_features().items():
            if width != self.widths.get(name):
                was = self.widths.get(name, "no")
                raise ValueError(f"data: the model was fitted to {was} features of {name!r}, got {width}")
        for name, was in self.named.items():
            now = [str(k) for k in data.ids.get(name, was)]
            if now[: len(was)] != was:
                raise ValueError(
                    f"data: the model knows nodes of {name!r} by their order, which is another here; put new ones last"
                )
        if missing := [triple for triple in self.edge_types if triple not in data.edges]:
            warnings.warn(f"data: there are no edges of {', '.join(map(str, missing))}", stacklevel=3)

    def to_json(self) -> dict[str, Any]:
        """Return what JSON can carry."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` gave."""
        triples = tuple((a, b, c) for a, b, c in found["edge_types"])
        return cls(triples, found["widths"], found["source"], found["named"], found["last"])


def contents(data: HeteroTemporalData, model: SEHTGNN, *more: NDArray[np.int64]) -> str:
    """Return what a graph, a model's settings and some arrays hash to."""
    held = hashlib.sha256(model.config.to_json().encode())
    held.update(repr([str(t) for t in data.times]).encode())
    arrays = [
        *more,
        *(v.numpy() for v in (*data.x.values(), *data.y.values(), *(b.cpu() for b in model.prior.buffers()))),
    ]
    for edges in data.edges.values():
        arrays += [v.numpy() for v in (edges.index, edges.snapshot, edges.weight) if v is not None]
    for array in arrays:
        held.update(np.ascontiguousarray(array).data)
    return held.hexdigest()[:16]
