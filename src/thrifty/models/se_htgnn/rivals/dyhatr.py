"""A network like DyHATR: attention over neighbours and over relations in every snapshot, then a GRU along time.

Weights do not depend on the position in the window, so that snapshots which windows share are computed once, as in the
model it is set beside. After Xue et al., "Modeling Dynamic Heterogeneous Network for Link Prediction Using Hierarchical
Attention with Temporal RNN", ECML-PKDD 2020.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from thrifty.models.se_htgnn.operations import attend
from thrifty.models.se_htgnn.rivals.common import Projection, needed_types
from thrifty.models.se_htgnn.temporal import Metadata, WindowBatch


class DyHATR(nn.Module):
    """Hierarchical attention in each snapshot, a GRU over node states.

    Args:
        metadata: Node types and edge types.
        in_channels: Features of each type.
        hidden_channels: Width d.
        out_channels: Numbers to predict a node.
        num_layers: Layers of attention.
        num_nodes: Nodes of each type without features.
    """

    def __init__(
        self,
        metadata: Metadata,
        in_channels: Mapping[str, int],
        hidden_channels: int = 32,
        out_channels: int = 1,
        num_layers: int = 1,
        num_nodes: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        d, self.metadata = hidden_channels, metadata
        self.project = Projection(metadata, in_channels, d, num_nodes)
        self.maps = nn.ModuleList(
            nn.ModuleList(nn.Linear(d, d, bias=False) for _ in metadata[1]) for _ in range(num_layers)
        )
        self.scores = nn.Parameter(torch.randn(num_layers, len(metadata[1]), 2, d) / d**0.5)
        self.relation = nn.ModuleList(nn.Linear(d, d) for _ in range(num_layers))
        self.query = nn.Parameter(torch.randn(num_layers, d) / d**0.5)
        self.time = nn.GRU(d, d, batch_first=True)
        self.head = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, out_channels))

    def encode(self, batch: WindowBatch, target_type: str | list[str] | None = None) -> dict[str, Tensor]:
        """Return (window, node, 1, d).

        Args:
            batch: The windows.
            target_type: The type or types that are wanted; all, if ``None``.
        """
        levels = needed_types(self.metadata, target_type, len(self.maps))
        h = {name: self.project(batch, name) for name in levels[0]}
        for layer, wanted in enumerate(levels[1:]):
            h = {name: self._mix(layer, name, h, batch) for name in wanted}
        found = {}
        for name in levels[-1]:
            state = h[name][batch.index]
            windows, steps, nodes, d = state.shape
            last = self.time(state.transpose(1, 2).reshape(windows * nodes, steps, d))[0][:, -1]
            found[name] = last.view(windows, nodes, 1, d)
        return found

    def forward(self, batch: WindowBatch, target_type: str | None = None) -> dict[str, Tensor]:
        """Return predictions, (window, node, 1, out).

        Args:
            batch: The windows.
            target_type: The type that is wanted; all, if ``None``.
        """
        return {name: self.head(z) for name, z in self.encode(batch, target_type).items()}

    def _mix(self, layer: int, name: str, h: Mapping[str, Tensor], batch: WindowBatch) -> Tensor:
        parts = []
        for i, triple in enumerate(self.metadata[1]):
            if triple[2] != name:
                continue
            source, target = (self.maps[layer][i](h[end]) for end in (triple[0], triple[2]))  # type: ignore[index]
            left, right = self.scores[layer, i]
            rows = batch.data.rows(triple, "gat", device=source.device)
            parts.append(functional.elu(attend(source, source @ left, target @ right, rows, batch.unique)))
        if not parts:
            return h[name]
        M = torch.stack(parts)
        logit = torch.tanh(self.relation[layer](M)) @ self.query[layer]
        beta = torch.softmax(logit.mean(-1), 0)
        return (beta[..., None, None] * M).sum(0) + h[name]
