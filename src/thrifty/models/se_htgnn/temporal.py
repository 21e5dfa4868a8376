"""A heterogeneous graph in snapshots over one set of nodes, and the windows that are cut out of it.

A window of T snapshots ends just before its first target snapshot: nothing of a target's time is in it. Several windows
of a batch share the snapshots that they have in common (``WindowBatch.unique``), which is what makes a batch cheap.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from thrifty._common import checks
from thrifty.models.se_htgnn.topology import Aggregation, Degree, Rows

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

Triple = tuple[str, str, str]
Metadata = tuple[list[str], list[Triple]]


@dataclass
class Edges:
    """The edges of one relation in all snapshots.

    Args:
        index: Source and destination of each edge.
        snapshot: The snapshot of each edge.
        weight: What each counts; ``None``: 1.

    Example:
        >>> Edges(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 3])).weight is None
        True
    """

    index: Int[Tensor, "2 edge"]
    snapshot: Int[Tensor, " edge"]
    weight: Float[Tensor, " edge"] | None = None


@dataclass(eq=False)
class HeteroTemporalData:
    """Snapshots of a graph with typed nodes and edges, all over the same nodes.

    Args:
        num_nodes: Nodes of each type, the same in every snapshot; who is absent has no edge and no feature.
        edges: By (source type, name, destination type).
        x: Features of a type, (snapshot, node, feature), float32; a type without any is left out.
        y: What is to be predicted of a type, (snapshot, node): as observed *in* that snapshot, NaN where it was not;
            classes are whole numbers.
        times: What the snapshots are called, in order.
        ids: What the nodes of a type are called, in order.
        source: What the snapshots were made from, as JSON can carry it: columns, period, what is forecast. A fitted
            estimator refuses a graph that says otherwise.

    Raises:
        ValueError: A shape does not fit, an edge leads out of its type, or a feature is not finite; the message names
            the type or triple and the snapshot.

    Example:
        >>> edges = {("shop", "sells", "item"): Edges(torch.tensor([[0, 1], [2, 0]]), torch.tensor([0, 1]))}
        >>> data = HeteroTemporalData({"shop": 2, "item": 3}, edges, times=["mon", "tue"])
        >>> data.metadata()[1], len(data)
        ([('shop', 'sells', 'item')], 2)

    Source:
        arXiv 2510.18467, section 3 (definition of a heterogeneous temporal graph).
    """

    num_nodes: dict[str, int]
    edges: dict[Triple, Edges]
    x: dict[str, Float[Tensor, "snapshot node feature"]] = field(default_factory=dict)
    y: dict[str, Float[Tensor, "snapshot node"]] = field(default_factory=dict)
    times: Sequence[Hashable] = ()
    ids: dict[str, Sequence[Hashable]] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    _rows: dict[Any, Rows] = field(default_factory=dict, repr=False, init=False)

    def __post_init__(self) -> None:
        self.times = list(self.times)
        if not self.times:
            counts = [len(values) for values in (*self.x.values(), *self.y.values())]
            counts += [int(e.snapshot.max()) + 1 for e in self.edges.values() if len(e.snapshot)]
            self.times = range(max(counts, default=0))
        self.x, self.y = dict(self.x), {name: values.float() for name, values in self.y.items()}
        for name, values in (*self.x.items(), *self.y.items()):
            shape = (len(self.times), self.num_nodes.get(name))
            if tuple(values.shape[:2]) != shape:
                raise ValueError(
                    f"x or y of {name!r}: expected (snapshots, nodes, ...) = {shape}, got {tuple(values.shape)}"
                )
        for name, values in self.x.items():
            self.x[name] = values.float()
            bad = ~torch.isfinite(self.x[name]).all(-1)
            if bad.any():
                s, node = (int(k) for k in bad.nonzero()[0])
                raise ValueError(
                    f"x of {name!r}: expected finite features, got {values[s, node].tolist()} at node {node} of "
                    f"snapshot {self.times[s]!r}; fill them, for example by 0 and a column that says so"
                )
            if self.x[name].ndim != 3:
                raise ValueError(f"x of {name!r}: expected (snapshots, nodes, features), got {tuple(values.shape)}")
        for name, values in self.y.items():
            if values.ndim != 2:
                raise ValueError(
                    f"y of {name!r}: expected one number a node, (snapshots, nodes), got {tuple(values.shape)}"
                )
        for triple, found in self.edges.items():
            self._check(triple, found)

    def _check(self, triple: Triple, found: Edges) -> None:
        for end, name in ((0, triple[0]), (1, triple[2])):
            if name not in self.num_nodes:
                raise ValueError(
                    f"edges of {triple}: there is no node type {name!r}; num_nodes has {list(self.num_nodes)}"
                )
            bad = (found.index[end] < 0) | (found.index[end] >= self.num_nodes[name])
            if bad.any():
                k = int(bad.nonzero()[0])
                raise ValueError(
                    f"edges of {triple}: expected {name!r} from 0 to below {self.num_nodes[name]}, got "
                    f"{int(found.index[end, k])} in snapshot {int(found.snapshot[k])}"
                )
        if len(found.snapshot) and not 0 <= int(found.snapshot.min()) <= int(found.snapshot.max()) < len(self.times):
            raise ValueError(f"edges of {triple}: expected snapshots below {len(self.times)}")
        if found.weight is not None and found.weight.shape != found.snapshot.shape:
            raise ValueError(
                f"edges of {triple}: expected {len(found.snapshot)} weights, got {tuple(found.weight.shape)}"
            )
        if found.weight is not None and not bool((torch.isfinite(found.weight) & (found.weight >= 0)).all()):
            raise ValueError(f"edges of {triple}: expected finite weights of at least 0")

    @classmethod
    def from_snapshots(cls, snapshots: Iterable[HeteroData], times: Sequence[Hashable] = ()) -> Self:
        """Join PyG snapshots; an iterator of PyTorch Geometric Temporal is one too.

        Stores may have ``x``, ``y`` and ``edge_index``, with ``edge_weight`` (or a single column of ``edge_attr``).
        A store with ``n_id`` names its nodes: snapshots may then hold different ones, and the union of all is taken.
        A type or relation that a snapshot lacks is absent there.

        Args:
            snapshots: In order of time.
            times: What they are called.

        Raises:
            ValueError: Node counts or features of a type change between snapshots and no ``n_id`` says who is who; or
                there is no snapshot.
        """
        from thrifty.models.se_htgnn.snapshots import join

        found = join(list(snapshots), times)
        return cls(**found)

    def __len__(self) -> int:
        """Return the number of snapshots."""
        return len(self.times)

    def metadata(self) -> Metadata:
        """Return node types and edge types, as ``HeteroData.metadata`` does."""
        return list(self.num_nodes), list(self.edges)

    def num_features(self) -> dict[str, int]:
        """Return the number of features of each type that has some."""
        return {name: x.shape[-1] for name, x in self.x.items()}

    @cached_property
    def present(self) -> dict[str, Bool[Tensor, "snapshot node"]]:
        """Tell who has an edge, or a feature other than 0, in each snapshot."""
        found = {name: torch.zeros(len(self), count, dtype=torch.bool) for name, count in self.num_nodes.items()}
        for name, x in self.x.items():
            found[name] |= (x != 0).any(-1)
        for (source, _, destination), held in self.edges.items():
            found[source][held.snapshot, held.index[0]] = True
            found[destination][held.snapshot, held.index[1]] = True
        return found

    def rows(self, triple: Triple, aggr: Aggregation = "mean", degree: Degree = "exact", device: Any = "cpu",
             dtype: torch.dtype = torch.float32) -> Rows:  # fmt: skip
        """Return a relation's compressed rows, built on the first call; a relation that is not there has no edges."""
        key = (triple, aggr, degree, str(device), dtype)
        if key not in self._rows:
            plain = (triple, "", "", "cpu", None)
            if plain not in self._rows:
                empty = Edges(torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.long))
                held = self.edges.get(triple, empty)
                sizes = (self.num_nodes.get(triple[0], 0), self.num_nodes.get(triple[2], 0))
                self._rows[plain] = Rows.build(held.index, held.snapshot, len(self), *sizes, held.weight)
            self._rows[key] = self._rows[plain].weighted(aggr, degree).to(device, dtype)
        return self._rows[key]

    def windows(self, targets: Iterable[int], window: int, device: Any = "cpu") -> WindowBatch:
        """Cut one window before each target snapshot.

        Args:
            targets: Numbers of the (first) target snapshots; ``len(data)`` is the one after the last.
            window: Snapshots T of a window.
            device: Where to compute.

        Raises:
            ValueError: A target has fewer than ``window`` snapshots before it, or lies beyond the next one.
        """
        window = checks.whole("window", window)
        first = torch.as_tensor(list(targets), dtype=torch.long)
        if not len(first) or int(first.min()) < window or int(first.max()) > len(self):
            raise ValueError(
                f"targets: expected snapshots from {window} (the window) to {len(self)} (the next one), got "
                f"{first.tolist()[:8]}; a window of T snapshots needs T before its target"
            )
        snapshots = first[:, None] + torch.arange(-window, 0)
        unique, index = torch.unique(snapshots, return_inverse=True)
        return WindowBatch(self, first, unique.to(device), index.to(device))

    def to_homogeneous(self) -> tuple[Edges, dict[str, int]]:
        """Return all edges as of one type, nodes counted through, and where each type begins."""
        begins, total = {}, 0
        for name, count in self.num_nodes.items():
            begins[name], total = total, total + count
        pieces = [
            (e.index + torch.tensor([[begins[t[0]]], [begins[t[2]]]]), e.snapshot, e.weight)
            for t, e in self.edges.items()
        ]
        if not pieces:
            return Edges(torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.long)), begins
        weights = [torch.ones(len(s)) if w is None else w for _, s, w in pieces]
        return Edges(
            torch.cat([p[0] for p in pieces], 1), torch.cat([p[1] for p in pieces]), torch.cat(weights)
        ), begins

    def with_reverse(self) -> HeteroTemporalData:
        """Return the graph with the reverse, ``rev_name``, of every relation that lacks one."""
        more = dict(self.edges)
        for (source, name, destination), held in self.edges.items():
            back = (destination, f"rev_{name}", source)
            if not name.startswith("rev_") and back not in more:
                more[back] = Edges(held.index.flip(0), held.snapshot, held.weight)
        return HeteroTemporalData(self.num_nodes, more, self.x, self.y, self.times, self.ids, self.source)

    def with_features(self, x: Mapping[str, Float[Tensor, "snapshot node feature"]]) -> HeteroTemporalData:
        """Return the graph with other features; who is present stays as it was."""
        made = HeteroTemporalData(self.num_nodes, self.edges, dict(x), self.y, self.times, self.ids, self.source)
        made.present, made._rows = self.present, self._rows
        return made

    def until(self, snapshots: int) -> HeteroTemporalData:
        """Return the graph as it was known after that many snapshots."""

        def cut(held: Edges) -> Edges:
            kept = held.snapshot < snapshots
            return Edges(held.index[:, kept], held.snapshot[kept], None if held.weight is None else held.weight[kept])

        return HeteroTemporalData(
            self.num_nodes, {triple: cut(held) for triple, held in self.edges.items()},
            {name: x[:snapshots] for name, x in self.x.items()}, {name: y[:snapshots] for name, y in self.y.items()},
            self.times[:snapshots], self.ids, self.source,
        )  # fmt: skip


@dataclass(eq=False)
class WindowBatch:
    """Windows of one graph: what a model reads.

    Args:
        data: The graph.
        targets: The first snapshot after each window.
        unique: The snapshots that some window holds, each once.
        index: Where in ``unique`` each window's snapshots are, in order of time.
        sampled: Nodes are a sample; means over nodes are then estimates (see ``sampling.py``).
        nodes: Which nodes of the whole graph the sampled ones are, by type.
        whole: The graph that they are a sample of.
        seeds: The nodes that a sample was drawn around, as the whole graph counts them.
        begin: The number of the graph's first snapshot, as targets are counted.

    Example:
        >>> edges = {("a", "to", "a"): Edges(torch.tensor([[0], [1]]), torch.tensor([0]))}
        >>> data = HeteroTemporalData({"a": 2}, edges, times=range(5))
        >>> batch = data.windows([3, 4], window=3)
        >>> batch.unique.tolist(), batch.index.tolist()
        ([0, 1, 2, 3], [[0, 1, 2], [1, 2, 3]])
    """

    data: HeteroTemporalData
    targets: Int[Tensor, " window"]
    unique: Int[Tensor, " frame"]
    index: Int[Tensor, "window time"]
    sampled: bool = False
    nodes: dict[str, Int[Tensor, " node"]] | None = None
    whole: HeteroTemporalData | None = None
    seeds: Int[Tensor, " seed"] | None = None
    begin: int = 0

    def to(self, device: Any) -> WindowBatch:
        """Return the windows for a device."""
        return replace(self, unique=self.unique.to(device), index=self.index.to(device))

    def x(self, name: str) -> Float[Tensor, "frame node feature"] | None:
        """Return a type's features in the unique snapshots; ``None`` if it has none."""
        found = self.data.x.get(name)
        return None if found is None else found[self.unique.cpu()].to(self.unique.device)

    def share(
        self, name: str, snap: Int[Tensor, " frame"], mask_absent: bool, dtype: torch.dtype
    ) -> Float[Tensor, "frame node"]:
        """Return each node's weight in the mean over a type's nodes: over all, or over those that are present."""
        count = self.data.num_nodes.get(name, 0)
        if not (mask_absent and count):
            return torch.full((len(snap), count), 1 / max(1, count), dtype=dtype, device=snap.device)
        there = self.data.present[name][snap.cpu()].to(snap.device, dtype)
        total = there.sum(1, keepdim=True)
        return torch.where(total > 0, there / total.clamp(min=1), 1 / max(1, count))

    def y(self, name: str, horizon: int = 1) -> Float[Tensor, "window node horizon"]:
        """Return what is to be predicted, NaN beyond the last snapshot."""
        held = self.data.y[name]
        when = self.targets[:, None] - self.begin + torch.arange(horizon)
        padded = torch.cat([held, held.new_full((horizon, held.shape[1]), np.nan)])
        return padded[when].transpose(1, 2).to(self.unique.device)
