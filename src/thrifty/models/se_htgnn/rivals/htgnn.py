"""HTGNN, as its authors' code computes it, over all windows and snapshots at once.

Every relation and every position in the window has attention weights of its own; then relations are weighed, and every
node attends over time. Source: Fan et al., "Heterogeneous Temporal Graph Neural Network", SDM 2022, and its code, in
whose published set-up (d = 8, two layers, one head, four relations, T = 7) it has 7 349 parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty.models.se_htgnn.operations import attend
from thrifty.models.se_htgnn.rivals.common import Projection, needed_types
from thrifty.models.se_htgnn.temporal import Metadata, Triple, WindowBatch


def _glorot(*shape: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_normal_(torch.empty(*shape), gain=2**0.5))


class HTGNNLayer(nn.Module):
    """Attention over neighbours, over relations, and over time, in this order, behind a gate.

    Args:
        metadata: Node types and edge types.
        d: Width.
        window: Snapshots T.
    """

    def __init__(self, metadata: Metadata, d: int, window: int) -> None:
        super().__init__()
        types, triples = metadata
        self.types, self.triples = list(types), list(triples)
        self.weight = nn.ParameterList(_glorot(window, d, d) for _ in triples)
        self.left = nn.ParameterList(_glorot(window, d) for _ in triples)
        self.right = nn.ParameterList(_glorot(window, d) for _ in triples)
        bound = d**-0.5
        self.relation = nn.Parameter(torch.empty(window, d, d).uniform_(-bound, bound))
        self.relation_bias = nn.Parameter(torch.empty(window, d).uniform_(-bound, bound))
        self.query = _glorot(window, d)
        self.proj = nn.ModuleList(nn.Linear(d, d) for _ in types)
        self.qkv = nn.ModuleList(nn.Linear(d, 3 * d, bias=False) for _ in types)
        self.out = nn.ModuleList(nn.Linear(d, d) for _ in types)
        self.residual = nn.ModuleList(nn.Linear(d, d) for _ in types)
        self.gate = nn.Parameter(torch.ones(len(types)))
        place = torch.arange(1, window + 1).unsqueeze(1) * 1e-5 ** (torch.arange(0, d, 2) / d)
        self.register_buffer("positions", torch.stack([torch.sin(place), torch.cos(place)], -1).flatten(1)[:, :d])

    def forward(self, h: Mapping[str, Float[Tensor, "time window node d"]], batch: WindowBatch, wanted: list[str]
                ) -> dict[str, Float[Tensor, "time window node d"]]:  # fmt: skip
        """Return the wanted types' states after this layer."""
        steps, windows = batch.index.shape[1], len(batch.index)
        snap = batch.unique[batch.index.T.reshape(-1)]
        found: dict[str, Tensor] = {}
        for name in wanted:
            into = [i for i, t in enumerate(self.triples) if t[2] == name]
            if not into:
                found[name] = h[name]
                continue
            M = torch.stack([self._neighbours(i, self.triples[i], h, batch, snap) for i in into])
            r, nodes, d = len(into), M.shape[-2], M.shape[-1]
            M = M.view(r, steps, windows * nodes, d)
            logit = torch.tanh(M @ self.relation.mT + self.relation_bias[:, None]) @ self.query.unsqueeze(-1)
            beta = torch.softmax(logit.view(r, steps, windows, nodes).mean(-1), 0)
            fused = (beta[..., None, None] * M.view(r, steps, windows, nodes, d)).sum(0)
            found[name] = self._time(self.types.index(name), fused, h[name])
        return found

    def _neighbours(self, i: int, triple: Triple, h: Mapping[str, Tensor], batch: WindowBatch, snap: Tensor) -> Tensor:
        def mapped(x: Tensor) -> Tensor:
            steps, windows, nodes, d = x.shape
            return cast(Tensor, x.reshape(steps, windows * nodes, d) @ self.weight[i]).view(steps, windows, nodes, d)

        source = mapped(h[triple[0]])
        target = source if triple[0] == triple[2] else mapped(h[triple[2]])
        left = torch.einsum("tbnd,td->tbn", source, self.left[i]).flatten(0, 1)
        right = torch.einsum("tbnd,td->tbn", target, self.right[i]).flatten(0, 1)
        rows = batch.data.rows(triple, "gat", device=source.device)
        return attend(source.flatten(0, 1), left, right, rows, snap)

    def _time(self, place: int, x: Tensor, before: Tensor) -> Tensor:
        """Attend over a node's snapshots (without scaling, as the code does), and mix with the layer's input."""
        h = self.proj[place](x) + cast(Tensor, self.positions)[:, None, None]
        q, k, v = self.qkv[place](h.permute(1, 2, 0, 3)).chunk(3, -1)
        mixed = torch.relu(self.out[place](torch.softmax(q @ k.mT, -1) @ v)).permute(2, 0, 1, 3)
        gate = torch.sigmoid(self.gate[place])
        return gate * mixed + (1 - gate) * cast(Tensor, self.residual[place](before))


class HTGNN(nn.Module):
    """Heterogeneous temporal graph neural network of Fan et al.

    Args:
        metadata: Node types and edge types.
        in_channels: Features of each type.
        hidden_channels: Width d.
        out_channels: Numbers to predict a node.
        num_layers: Layers.
        window: Snapshots T of a window.
        num_nodes: Nodes of each type without features.

    Example:
        >>> from thrifty.models.se_htgnn import HeteroTemporalData, Edges
        >>> edges = {("a", "to", "a"): Edges(torch.tensor([[0], [1]]), torch.tensor([2]))}
        >>> data = HeteroTemporalData({"a": 5}, edges, {"a": torch.randn(4, 5, 2)})
        >>> HTGNN(data.metadata(), {"a": 2}, 8, window=3)(data.windows([3], 3))["a"].shape
        torch.Size([1, 5, 1, 1])

    Source:
        Fan et al., SDM 2022; github.com/YesLab-Code/HTGNN.
    """

    def __init__(
        self,
        metadata: Metadata,
        in_channels: Mapping[str, int],
        hidden_channels: int = 32,
        out_channels: int = 1,
        num_layers: int = 2,
        window: int = 7,
        num_nodes: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.metadata = metadata
        self.project = Projection(metadata, in_channels, hidden_channels, num_nodes)
        self.layers = nn.ModuleList(HTGNNLayer(metadata, hidden_channels, window) for _ in range(num_layers))
        self.head = nn.Sequential(
            nn.Linear(hidden_channels, hidden_channels), nn.ReLU(), nn.Linear(hidden_channels, out_channels)
        )

    def encode(self, batch: WindowBatch, target_type: str | list[str] | None = None) -> dict[str, Tensor]:
        """Return (window, node, 1, d): the sum over a window's snapshots.

        Args:
            batch: The windows.
            target_type: The type or types that are wanted; all, if ``None``.
        """
        levels = needed_types(self.metadata, target_type, len(self.layers))
        order = batch.index.T
        h = {name: self.project(batch, name)[order] for name in levels[0]}
        for layer, wanted in zip(self.layers, levels[1:], strict=True):
            h = layer(h, batch, wanted)
        return {name: h[name].sum(0).unsqueeze(2) for name in levels[-1]}

    def forward(self, batch: WindowBatch, target_type: str | None = None) -> dict[str, Tensor]:
        """Return predictions, (window, node, 1, out).

        Args:
            batch: The windows.
            target_type: The type that is wanted; all, if ``None``.
        """
        return {name: self.head(z) for name, z in self.encode(batch, target_type).items()}
