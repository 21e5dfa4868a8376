"""Static networks on the collapsed window: PyTorch Geometric's GCN, GAT, RGCN and HGT, with the same head.

All edges of a window count, and features are averaged over its snapshots; the windows of a batch are one block graph.
``PerSnapshotHGT`` keeps time: HGT on every snapshot, then a GRU along the window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from thrifty._common.checks import one_of
from thrifty._common.extras import require
from thrifty.models.se_htgnn.rivals.common import Projection
from thrifty.models.se_htgnn.temporal import Metadata, Triple, WindowBatch

Kind = Literal["GCN", "GAT", "RGCN", "HGT"]


def window_edges(batch: WindowBatch, triple: Triple) -> tuple[Tensor, Tensor]:
    """Return sources and destinations of a relation's edges in all windows, nodes counted through window by window."""
    rows = batch.data.rows(triple, "gat", device=batch.index.device)
    where, sources, _ = rows.block(batch.unique[batch.index.reshape(-1)])
    steps = batch.index.shape[1]

    def in_window(node: Tensor, count: int) -> Tensor:
        return torch.div(node, count * steps, rounding_mode="floor") * count + node % count

    return in_window(sources, rows.sources), in_window(where, rows.nodes)


class Collapsed(nn.Module):
    """A static network on the union of a window's snapshots.

    Args:
        kind: ``"GCN"``, ``"GAT"`` (types forgotten), ``"RGCN"`` or ``"HGT"``.
        metadata: Node types and edge types.
        in_channels: Features of each type.
        hidden_channels: Width d.
        out_channels: Numbers to predict a node.
        num_layers: Layers.
        num_nodes: Nodes of each type without features.

    Raises:
        ImportError: PyTorch Geometric is not installed.
    """

    def __init__(
        self,
        kind: Kind,
        metadata: Metadata,
        in_channels: Mapping[str, int],
        hidden_channels: int = 32,
        out_channels: int = 1,
        num_layers: int = 2,
        num_nodes: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        one_of("kind", kind, ("GCN", "GAT", "RGCN", "HGT"))
        conv: Any = require("torch_geometric.nn", extra="graph")
        d = hidden_channels
        self.kind, self.metadata = kind, metadata
        self.project = Projection(metadata, in_channels, d, num_nodes)
        made: dict[str, Callable[[], nn.Module]] = {
            "GCN": lambda: conv.GCNConv(d, d),
            "GAT": lambda: conv.GATConv(d, d),
            "RGCN": lambda: conv.RGCNConv(d, d, len(metadata[1])),
            "HGT": lambda: conv.HGTConv(d, d, metadata, heads=1),
        }
        self.layers = nn.ModuleList(made[kind]() for _ in range(num_layers))
        self.head = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, out_channels))

    def encode(self, batch: WindowBatch, target_type: str | list[str] | None = None) -> dict[str, Tensor]:
        """Return (window, node, 1, d).

        Args:
            batch: The windows.
            target_type: The type or types that are wanted; all, if ``None``.
        """
        windows, types = len(batch.index), self.metadata[0]
        h = {name: self.project(batch, name)[batch.index].mean(1).flatten(0, 1) for name in types}
        edges = {triple: torch.stack(window_edges(batch, triple)) for triple in self.metadata[1]}
        if self.kind == "HGT":
            for layer in self.layers:
                found = layer(h, edges)
                h = {name: h[name] if found.get(name) is None else found[name] for name in types}
        else:
            h = self._homogeneous(h, edges)
        wanted = types if target_type is None else [target_type] if isinstance(target_type, str) else target_type
        return {name: h[name].view(windows, -1, 1, h[name].shape[-1]) for name in wanted}

    def forward(self, batch: WindowBatch, target_type: str | None = None) -> dict[str, Tensor]:
        """Return predictions, (window, node, 1, out).

        Args:
            batch: The windows.
            target_type: The type that is wanted; all, if ``None``.
        """
        return {name: self.head(z) for name, z in self.encode(batch, target_type).items()}

    def _homogeneous(self, h: Mapping[str, Tensor], edges: Mapping[Triple, Tensor]) -> dict[str, Tensor]:
        begins, total = {}, 0
        for name, state in h.items():
            begins[name], total = total, total + len(state)
        x = torch.cat(list(h.values()))
        index = torch.cat(
            [e + torch.tensor([[begins[t[0]]], [begins[t[2]]]], device=e.device) for t, e in edges.items()], 1
        )
        kind = torch.cat([torch.full((e.shape[1],), i, device=e.device) for i, e in enumerate(edges.values())])
        for layer in self.layers:
            x = functional.elu(layer(x, index, kind) if self.kind == "RGCN" else layer(x, index))
        return {name: x[begins[name] : begins[name] + len(state)] for name, state in h.items()}


class PerSnapshotHGT(nn.Module):
    """HGT on every snapshot, then a GRU over a node's states in the window.

    Args:
        metadata: Node types and edge types.
        in_channels: Features of each type.
        hidden_channels: Width d.
        out_channels: Numbers to predict a node.
        num_layers: Layers of HGT.
    """

    def __init__(
        self,
        metadata: Metadata,
        in_channels: Mapping[str, int],
        hidden_channels: int = 32,
        out_channels: int = 1,
        num_layers: int = 2,
    ) -> None:
        super().__init__()
        conv: Any = require("torch_geometric.nn", extra="graph")
        d = hidden_channels
        self.metadata = metadata
        self.project = Projection(metadata, in_channels, d, None)
        self.layers = nn.ModuleList(conv.HGTConv(d, d, metadata, heads=1) for _ in range(num_layers))
        self.time = nn.GRU(d, d, batch_first=True)
        self.head = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, out_channels))

    def forward(self, batch: WindowBatch, target_type: str | None = None) -> dict[str, Tensor]:
        """Return predictions, (window, node, 1, out); snapshots that windows share are computed once.

        Args:
            batch: The windows.
            target_type: The type that is wanted; all, if ``None``.
        """
        h = {name: self.project(batch, name).flatten(0, 1) for name in self.metadata[0]}
        edges = {}
        for triple in self.metadata[1]:
            where, sources, _ = batch.data.rows(triple, "gat", device=batch.index.device).block(batch.unique)
            edges[triple] = torch.stack([sources, where])
        for layer in self.layers:
            found = layer(h, edges)
            h = {name: h[name] if found.get(name) is None else found[name] for name in h}
        out = {}
        for name in self.metadata[0] if target_type is None else [target_type]:
            state = h[name].view(len(batch.unique), -1, h[name].shape[-1])[batch.index]
            windows, steps, nodes, d = state.shape
            last = self.time(state.transpose(1, 2).reshape(windows * nodes, steps, d))[0][:, -1]
            out[name] = self.head(last.view(windows, nodes, 1, d))
        return out
