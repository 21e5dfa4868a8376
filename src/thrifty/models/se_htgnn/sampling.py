"""Windows of a part of the graph: seeds, and the neighbours that they reach in the window, some of them drawn.

For graphs that do not fit. PyTorch Geometric's ``NeighborLoader`` draws from one static graph and needs a compiled
package; here neighbours are drawn from the union of a window's snapshots, of every relation alike, and the edges of
each snapshot among the drawn nodes are kept. Means over nodes, on which the attention rests, are then estimates; the
layers keep a running mean of them for prediction (``SEHTGNNConv``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from thrifty._common.checks import whole
from thrifty.models.se_htgnn.temporal import Edges, HeteroTemporalData, WindowBatch


class NeighborSampler:
    """Cuts windows into pieces around seed nodes.

    Args:
        data: The graph.
        target_type: Type of the seeds.
        window: Snapshots T of a window.
        num_neighbors: In-neighbours to draw for each relation, one number a layer.
        batch_size: Seeds a piece.
        seed: Of what is drawn.

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
    ) -> None:
        if target_type not in data.num_nodes:
            raise ValueError(f"target_type: expected one of {', '.join(data.num_nodes)}, got {target_type!r}")
        self.data, self.target_type, self.window, self.seed = data, target_type, whole("window", window), seed
        self.num_neighbors = [whole("num_neighbors", n) for n in num_neighbors]
        self.batch_size = whole("batch_size", batch_size)

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
        data, first = self.data, int(np.min(targets)) - self.window
        last = int(np.max(targets))
        kept = {name: np.empty(0, np.int64) for name in data.num_nodes}
        kept[self.target_type] = np.asarray(seeds)
        frontier = dict(kept)
        for number in self.num_neighbors:
            reached: dict[str, list[NDArray[np.int64]]] = {name: [] for name in kept}
            for triple in data.edges:
                if len(frontier[triple[2]]):
                    reached[triple[0]].append(self._draw(triple, frontier[triple[2]], number, first, last, rng))
            frontier = {
                name: np.setdiff1d(np.concatenate([[], *parts]).astype(np.int64), kept[name])
                for name, parts in reached.items()
            }
            kept = {name: np.union1d(kept[name], frontier[name]) for name in kept}
        return self._cut(
            {name: torch.from_numpy(nodes) for name, nodes in kept.items()},
            torch.from_numpy(np.asarray(seeds)),
            targets,
        )

    def _draw(self, triple: tuple[str, str, str], nodes: NDArray[np.int64], number: int, first: int, last: int,
              rng: np.random.Generator) -> NDArray[np.int64]:  # fmt: skip
        """Draw at most ``number`` different in-neighbours of each node."""
        held = self.data.edges[triple]
        inside = ((held.snapshot >= first) & (held.snapshot < last)).numpy()
        source, target = held.index[:, inside].numpy()
        wanted = np.isin(target, nodes)
        pairs = np.unique(np.stack([target[wanted], source[wanted]]), axis=1)
        order = np.lexsort([rng.random(pairs.shape[1]), pairs[0]])
        target, source = pairs[:, order]
        begin = np.r_[0, np.flatnonzero(np.diff(target)) + 1] if len(target) else np.empty(0, np.int64)
        rank = np.arange(len(target)) - np.repeat(begin, np.diff(np.r_[begin, len(target)]))
        return np.unique(source[rank < number])

    def _cut(self, kept: dict[str, Tensor], seeds: Tensor, targets: NDArray[np.int64] | list[int]) -> WindowBatch:
        data = self.data
        place = {name: torch.full((count,), -1) for name, count in data.num_nodes.items()}
        for name, nodes in kept.items():
            place[name][nodes] = torch.arange(len(nodes))
        edges = {}
        for triple, held in data.edges.items():
            index = torch.stack([place[triple[0]][held.index[0]], place[triple[2]][held.index[1]]])
            both = (index >= 0).all(0)
            edges[triple] = Edges(
                index[:, both], held.snapshot[both], None if held.weight is None else held.weight[both]
            )
        y = {name: values[:, kept[name]] for name, values in data.y.items()}
        if self.target_type in y:
            hidden = torch.ones(len(kept[self.target_type]), dtype=torch.bool)
            hidden[place[self.target_type][seeds]] = False
            y[self.target_type] = y[self.target_type].clone()
            y[self.target_type][:, hidden] = float("nan")
        x = {name: values[:, kept[name]] for name, values in data.x.items()}
        part = HeteroTemporalData({name: len(nodes) for name, nodes in kept.items()}, edges, x, y, data.times)
        batch = part.windows(targets, self.window)
        batch.sampled, batch.nodes, batch.whole, batch.seeds = True, kept, data, seeds
        return batch
