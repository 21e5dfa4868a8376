"""Windows of a part of the graph: seeds, and the neighbours that they reach in the window, some of them drawn.

For graphs whose activations do not fit; the graph itself stays in memory. PyTorch Geometric's ``NeighborLoader`` draws
from one static graph and needs a compiled package; here neighbours are drawn from the union of a window's snapshots, of
every relation alike, and the edges of each snapshot among the drawn nodes are kept. Means over nodes, on which the
attention rests, are then estimates; the layers keep their mean over an epoch for prediction (``SEHTGNNConv``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from thrifty._common.checks import whole
from thrifty.models.se_htgnn.temporal import Edges, HeteroTemporalData, Triple, WindowBatch


@dataclass(frozen=True)
class _Incoming:
    """A relation's edges by destination, so that those of a few nodes are found without looking at the rest."""

    ptr: Int[np.ndarray, " node+1"]
    source: Int[np.ndarray, " edge"]
    snapshot: Int[np.ndarray, " edge"]
    weight: Float[np.ndarray, " edge"] | None

    @classmethod
    def of(cls, held: Edges, nodes: int) -> _Incoming:
        source, target = held.index.numpy()
        order = np.argsort(target, kind="stable")
        ptr = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=nodes))])
        weight = None if held.weight is None else held.weight.numpy()[order]
        return cls(ptr, source[order], held.snapshot.numpy()[order], weight)

    def into(self, nodes: Int[np.ndarray, " n"], first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the edges into some nodes in the snapshots from ``first`` to before ``last``: numbers, and ends."""
        counts = self.ptr[nodes + 1] - self.ptr[nodes]
        edges = np.repeat(self.ptr[nodes] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        inside = (self.snapshot[edges] >= first) & (self.snapshot[edges] < last)
        return edges[inside], np.repeat(nodes, counts)[inside]


class NeighborSampler:
    """Cuts windows into pieces around seed nodes.

    Args:
        data: The graph.
        target_type: Type of the seeds.
        window: Snapshots T of a window.
        num_neighbors: In-neighbours to draw for each relation, one number a layer.
        batch_size: Seeds a piece.
        seed: Of what is drawn.
        horizon: Steps whose labels a piece has.

    Raises:
        ValueError: A number is not above 0, or the type unknown.

    Example:
        >>> edges = {("a", "to", "a"): Edges(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1]))}
        >>> data = HeteroTemporalData({"a": 4}, edges, {"a": torch.randn(3, 4, 2)})
        >>> [piece.nodes["a"].tolist() for piece in NeighborSampler(data, "a", 2, [5], batch_size=2)([2], epoch=None)]
        [[0, 1], [1, 2, 3]]

    Source:
        Hamilton et al., "Inductive Representation Learning on Large Graphs", NeurIPS 2017.
    """

    def __init__(
        self,
        data: HeteroTemporalData,
        target_type: str,
        window: int,
        num_neighbors: list[int],
        batch_size: int = 512,
        seed: int = 0,
        horizon: int = 1,
    ) -> None:
        if target_type not in data.num_nodes:
            raise ValueError(f"target_type: expected one of {', '.join(data.num_nodes)}, got {target_type!r}")
        self.data, self.target_type, self.window, self.seed = data, target_type, whole("window", window), seed
        self.num_neighbors = [whole("num_neighbors", n) for n in num_neighbors]
        self.batch_size, self.horizon = whole("batch_size", batch_size), whole("horizon", horizon)
        self._incoming = {t: _Incoming.of(held, data.num_nodes[t[2]]) for t, held in data.edges.items()}

    def __call__(self, targets: NDArray[np.int64] | list[int], epoch: int | None = 0) -> Iterator[WindowBatch]:
        """Yield the pieces of some windows.

        Args:
            targets: Their target snapshots.
            epoch: Changes the order and what is drawn; ``None``: seeds in order, as for prediction.
        """
        rng = np.random.default_rng([self.seed, 0 if epoch is None else epoch + 1, int(np.min(targets))])
        count = self.data.num_nodes[self.target_type]
        order = np.arange(count) if epoch is None else rng.permutation(count)
        for begin in range(0, count, self.batch_size):
            yield self.around(np.sort(order[begin : begin + self.batch_size]), targets, rng)

    def around(self, seeds: Int[np.ndarray, " seed"], targets: NDArray[np.int64] | list[int], rng: np.random.Generator
               ) -> WindowBatch:  # fmt: skip
        """Return the windows of the seeds and of what they reach.

        Args:
            seeds: Nodes of the target type; their labels alone count.
            targets: Target snapshots.
            rng: Draws neighbours.
        """
        first, last = int(np.min(targets)) - self.window, int(np.max(targets))
        kept = {name: np.empty(0, np.int64) for name in self.data.num_nodes}
        kept[self.target_type] = np.asarray(seeds)
        frontier = dict(kept)
        for number in self.num_neighbors:
            reached: dict[str, list[NDArray[np.int64]]] = {name: [np.empty(0, np.int64)] for name in kept}
            for triple in self.data.edges:
                reached[triple[0]].append(self._draw(triple, frontier[triple[2]], number, first, last, rng))
            frontier = {name: np.setdiff1d(np.concatenate(parts), kept[name]) for name, parts in reached.items()}
            kept = {name: np.union1d(kept[name], frontier[name]) for name in kept}
        return self._cut(kept, np.asarray(seeds), targets, first, last)

    def _draw(self, triple: Triple, nodes: NDArray[np.int64], number: int, first: int, last: int,
              rng: np.random.Generator) -> NDArray[np.int64]:  # fmt: skip
        """Draw at most ``number`` different in-neighbours of each node."""
        incoming = self._incoming[triple]
        edges, target = incoming.into(nodes, first, last)
        target, source = np.unique(np.stack([target, incoming.source[edges]]), axis=1)
        order = np.lexsort([rng.random(len(target)), target])
        target, source = target[order], source[order]
        begin = np.flatnonzero(np.diff(target, prepend=-1))
        rank = np.arange(len(target)) - np.repeat(begin, np.diff(np.append(begin, len(target))))
        return np.unique(source[rank < number])

    def _cut(self, kept: dict[str, NDArray[np.int64]], seeds: NDArray[np.int64], targets: NDArray[np.int64] | list[int],
             first: int, last: int) -> WindowBatch:  # fmt: skip
        """Return the windows of the kept nodes, in a graph of the windows' own snapshots."""
        data, stop = self.data, min(len(self.data), last + self.horizon)
        edges = {}
        for triple, incoming in self._incoming.items():
            number, target = incoming.into(kept[triple[2]], first, last)
            source = incoming.source[number]
            inside = np.isin(source, kept[triple[0]])
            number = number[inside]
            ends = [np.searchsorted(kept[triple[k]], end[inside]) for k, end in ((0, source), (2, target))]
            weight = None if incoming.weight is None else torch.from_numpy(incoming.weight[number])
            edges[triple] = Edges(
                torch.from_numpy(np.stack(ends)), torch.from_numpy(incoming.snapshot[number] - first), weight
            )
        nodes = {name: torch.from_numpy(some) for name, some in kept.items()}

        def of_kept(held: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: values[first:stop].index_select(1, nodes[name]) for name, values in held.items()}

        y = of_kept(data.y)
        if self.target_type in y:
            y[self.target_type][:, torch.from_numpy(~np.isin(kept[self.target_type], seeds))] = float("nan")
        counts = {name: len(some) for name, some in kept.items()}
        part = HeteroTemporalData(counts, edges, of_kept(data.x), y, data.times[first:stop])
        part.present = of_kept(data.present)
        batch = part.windows(np.asarray(targets) - first, self.window)
        return replace(batch, targets=batch.targets + first, begin=first, sampled=True, nodes=nodes, whole=data,
                       seeds=torch.from_numpy(seeds))  # fmt: skip
