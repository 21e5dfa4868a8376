"""The whole model: projection of features, layers, a linear map over time, and a head.

Source: arXiv 2510.18467, section 4. Layers are computed on the snapshots that the windows of a batch have in common;
the last one is never spread out over windows: the map over time is linear, so that its weights and the attention are
multiplied first, and one matrix product gives what every window sees (no norm).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from thrifty._common.extras import require
from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.weights import load_tensors
from thrifty.models.se_htgnn.attention import Core
from thrifty.models.se_htgnn.config import Norm, SEHTGNNConfig
from thrifty.models.se_htgnn.conv import Frames, SEHTGNNConv
from thrifty.models.se_htgnn.prior import PriorMode, TypePrior
from thrifty.models.se_htgnn.temporal import HeteroTemporalData, Metadata, Triple, WindowBatch
from thrifty.models.se_htgnn.topology import Aggregation, Degree

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

CONFIG, WEIGHTS = "config.json", "model.safetensors"


class SEHTGNN(nn.Module):
    """Forecast node values, classes or states from a window of snapshots with a few hundred parameters.

    Args:
        metadata: Node types and edge types, as ``HeteroData.metadata()`` gives them.
        in_channels: Features, one number for all types or one a type; -1: found out at the first call.
        hidden_channels: Width d.
        out_channels: Numbers to predict a node and step.
        num_layers: Layers L.
        window: Snapshots T of a window.
        horizon: Steps β to predict.
        heads: Attention weights a relation, each for a group of channels.
        attention: ``"gru"`` (the paper's), ``"lstm"``, ``"transformer"``, ``"ssm"``, ``"projected"``, ``"self"``,
            ``"gate"`` or ``"uniform"``.
        aggr: ``"mean"``, ``"none"``, ``"gcn"`` or ``"gat"``.
        degree: ``"exact"``, or ``"released"`` as in the authors' code.
        norm: ``None`` (residual), ``"node"`` or ``"graph"`` (layer norm, no residual).
        dropout: Of input features, while training.
        prior: Initial attention: a mode of :class:`TypePrior`, or a number for every edge type; ``None``:
            ``"projected"`` if type embeddings are given, else ``"uniform"``.
        type_embeddings: A language model's vector for every node type; see :func:`build_type_embeddings`.
        num_nodes: Nodes of each type *without* features, which gets a learnable table; nodes that a later graph has
            more of get the table's mean.
        mask_absent: Let means over nodes leave out those without an edge or feature.

    Raises:
        ValueError: A setting is unknown or out of its range.

    Example:
        >>> model = SEHTGNN((["a"], [("a", "to", "a")]), 2, hidden_channels=4, num_layers=1, window=3)
        >>> from thrifty.models.se_htgnn import Edges, HeteroTemporalData
        >>> edges = {("a", "to", "a"): Edges(torch.tensor([[0], [1]]), torch.tensor([2]))}
        >>> data = HeteroTemporalData({"a": 5}, edges, {"a": torch.randn(4, 5, 2)})
        >>> model(data.windows([3, 4], 3))["a"].shape  # windows, nodes, horizon, out
        torch.Size([2, 5, 1, 1])

    Source:
        arXiv 2510.18467, section 4.
    """

    def __init__(
        self,
        metadata: Metadata,
        in_channels: int | Mapping[str, int] = -1,
        hidden_channels: int = 32,
        out_channels: int = 1,
        *,
        num_layers: int = 2,
        window: int = 7,
        horizon: int = 1,
        heads: int = 1,
        attention: Core = "gru",
        aggr: Aggregation = "mean",
        degree: Degree = "exact",
        norm: Norm | None = None,
        dropout: float = 0.0,
        prior: PriorMode | Mapping[Triple, float] | None = None,
        type_embeddings: Mapping[str, Float[Tensor, " width"]] | None = None,
        num_nodes: Mapping[str, int] | None = None,
        mask_absent: bool = True,
    ) -> None:
        super().__init__()
        if prior is None:
            prior = "uniform" if type_embeddings is None else "projected"
        widths = in_channels if isinstance(in_channels, Mapping) else dict.fromkeys(metadata[0], in_channels)
        tables = dict(num_nodes or {})
        featured = {name: int(widths.get(name, -1)) for name in metadata[0] if name not in tables}
        self.config = config = SEHTGNNConfig(
            tuple(metadata[0]), tuple(metadata[1]), featured, tables or None, hidden_channels, out_channels, num_layers,
            window, horizon, heads, attention, aggr, degree, norm, dropout,
            prior if isinstance(prior, str) else "given", mask_absent,
        )  # fmt: skip
        d = config.hidden_channels
        self.projections = nn.ModuleList(
            nn.LazyLinear(d) if width < 0 else nn.Linear(width, d) for width in featured.values()
        )
        self.tables = nn.ParameterList(torch.randn(count, d) / d**0.5 for count in tables.values())
        self.convs = nn.ModuleList(
            SEHTGNNConv(metadata, d, heads, attention, aggr, degree, norm, mask_absent) for _ in range(num_layers)
        )
        self.prior = TypePrior(metadata, type_embeddings, prior, d)
        self.temporal = nn.Linear(window, horizon)
        self.head = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, out_channels))
        self.attention_weights: dict[tuple[int, Triple], Float[Tensor, "time head"]] = {}

    def forward(
        self, snapshots: Sequence[HeteroData] | WindowBatch, target_type: str | None = None
    ) -> dict[str, Tensor]:
        """Return predictions: (node, horizon, out) for a list of snapshots, (window, node, horizon, out) for a batch.

        Args:
            snapshots: T snapshots, or a batch of windows.
            target_type: The one type that is wanted; nothing is computed that it does not need. All, if ``None``.

        Raises:
            ValueError: The window has another length than the model's, or data do not fit.
        """
        return {name: self.head(z) for name, z in self.encode(snapshots, target_type).items()}

    def encode(
        self, snapshots: Sequence[HeteroData] | WindowBatch, target_type: str | Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """Return embeddings of the next steps, shaped as :meth:`forward`'s predictions, with d in place of out.

        Args:
            snapshots: T snapshots, or a batch of windows.
            target_type: The type or types that are wanted; all, if ``None``.

        Raises:
            ValueError: The window has another length than the model's, or data do not fit.
        """
        if isinstance(snapshots, WindowBatch):
            return self._encode(snapshots, target_type)
        data = HeteroTemporalData.from_snapshots(snapshots)
        batch = data.windows([len(data)], len(data), self.temporal.weight.device)
        return {name: z[0] for name, z in self._encode(batch, target_type).items()}

    def _encode(self, batch: WindowBatch, target_type: str | Sequence[str] | None) -> dict[str, Tensor]:
        config = self.config
        if batch.index.shape[1] != config.window:
            raise ValueError(
                f"snapshots: the model was made for windows of {config.window} snapshots, got {batch.index.shape[1]}"
            )
        wanted = list(
            config.node_types if target_type is None else [target_type] if isinstance(target_type, str) else target_type
        )
        needed = self._needed(wanted)
        frames = Frames(batch, batch.unique, batch.index)
        h = {name: self._project(batch, name) for name in needed[0]}
        prior = self.prior()
        self.attention_weights = {}
        for number, conv in enumerate(self.convs[:-1]):
            kept = {name: h[name] for name in needed[number]}
            states, frames, weights = cast(SEHTGNNConv, conv).propagate(kept, frames, prior, needed[number + 1])
            h = states
            self._remember(number, weights)
        return {name: self._last(h, frames, name, prior) for name in wanted}

    def _last(self, h: Mapping[str, Tensor], frames: Frames, name: str, prior: Mapping[Triple, Tensor]) -> Tensor:
        """Return (window, node, horizon, d): the last layer and the map over time in one."""
        conv = cast(SEHTGNNConv, self.convs[-1])
        windows, steps = frames.index.shape
        W, b = self.temporal.weight, self.temporal.bias
        alone = W.mT[:, None, :].expand(windows, steps, 1, -1)
        if name not in conv.relations:
            return _over_time(h[name].unsqueeze(0), alone, frames, 1) + b[:, None]
        M, alpha = conv.mix(h, frames, name, prior)
        self._remember(len(self.convs) - 1, dict(zip(conv.relations[name], alpha.unbind(2), strict=True)))
        if conv.norm is None:
            weights = alpha.unsqueeze(-1) * W.mT[:, None, None, :]  # window time relation head horizon
            z = _over_time(M, weights.flatten(3), frames, conv.heads)
            return z + _over_time(h[name].unsqueeze(0), alone, frames, 1) + b[:, None]
        y = conv.fuse(name, M, alpha, frames).view(windows, steps, M.shape[2], conv.channels)
        return torch.einsum("btnd,ht->bnhd", y, W) + b[:, None]

    def _project(self, batch: WindowBatch, name: str) -> Tensor:
        config, x = self.config, batch.x(name)
        if config.num_nodes and name in config.num_nodes:
            table = self.tables[list(config.num_nodes).index(name)]
            count = (batch.whole or batch.data).num_nodes.get(name, 0)
            if len(table) > count:
                raise ValueError(f"num_nodes: the model has {len(table)} nodes of {name!r}, got {count}")
            held = torch.cat([table, table.mean(0, keepdim=True).expand(count - len(table), -1)])  # who is new
            held = held[batch.nodes[name].to(held.device)] if batch.nodes is not None else held
            return held.expand(len(batch.unique), -1, -1)
        if x is None and config.in_channels[name] > 0:  # nobody of this type is in any of the snapshots
            x = self.temporal.weight.new_zeros(
                len(batch.unique), batch.data.num_nodes.get(name, 0), config.in_channels[name]
            )
        if x is None:
            raise ValueError(
                f"x of {name!r}: expected features, got none; give num_nodes={{{name!r}: ...}} for a learnable table"
            )
        linear = self.projections[list(config.in_channels).index(name)]
        width = getattr(linear, "in_features", 0)
        if width and x.shape[-1] != width:
            raise ValueError(f"x of {name!r}: expected {width} features, got {x.shape[-1]}")
        found: Tensor = linear(functional.dropout(x.to(self.temporal.weight.dtype), config.dropout, self.training))
        if config.in_channels[name] < 0:
            self.config = replace(config, in_channels={**config.in_channels, name: x.shape[-1]})
        return found

    def _needed(self, wanted: Sequence[str]) -> list[list[str]]:
        """Return, for the input of every layer, the types on which the wanted ones depend."""
        for name in wanted:
            if name not in self.config.node_types:
                raise ValueError(f"target_type: expected one of {', '.join(self.config.node_types)}, got {name!r}")
        levels = [set(wanted)]
        for _ in self.convs:
            levels.append(levels[-1] | {t[0] for t in self.config.edge_types if t[2] in levels[-1]})
        order = list(self.config.node_types)
        return [sorted(level, key=order.index) for level in reversed(levels)]

    def _remember(self, layer: int, weights: Mapping[Triple, Tensor]) -> None:
        for triple, alpha in weights.items():
            found = alpha.detach()
            self.attention_weights[(layer, triple)] = found[0] if len(found) == 1 else found

    def attention(self, batch: WindowBatch) -> dict[tuple[int, Triple], Float[Tensor, "window time head"]]:
        """Return the weight of every relation in every snapshot of a batch of windows, by layer.

        Args:
            batch: The windows.
        """
        training = self.training
        with torch.no_grad():
            self.eval()._encode(batch, None)
        self.train(training)
        return {key: w if w.ndim == 3 else w.unsqueeze(0) for key, w in self.attention_weights.items()}

    def num_parameters(self, *, prior: bool = True) -> int:
        """Return the number of trained parameters.

        Args:
            prior: Count the language prior's projections too.
        """
        total = sum(p.numel() for p in self.parameters())
        return total if prior else total - sum(p.numel() for p in self.prior.parameters())

    def save_pretrained(self, folder: str | Path, *, force: bool = False) -> None:
        """Save settings (JSON) and weights (safetensors), the language prior's vectors among them.

        Args:
            folder: Made if it is missing.
            force: Replace a model that is there.

        Raises:
            FileExistsError: The folder holds a model, and ``force`` is off.
        """
        refuse_existing(Path(folder, CONFIG), force)
        save = require("safetensors.torch", extra="graph").save
        tensors = {name: value.contiguous() for name, value in self.state_dict().items()}
        write_whole(Path(folder, WEIGHTS), save(tensors), force=True)
        write_whole(Path(folder, CONFIG), self.config.to_json(), force=True)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Load what :meth:`save_pretrained` saved.

        Args:
            folder: Where.

        Raises:
            ValueError: The files do not fit together.
            OSError: One is missing.
        """
        config = SEHTGNNConfig.from_json(Path(folder, CONFIG).read_text())
        weights = load_tensors(Path(folder, WEIGHTS), name="folder", extra="graph")
        model = cls.from_config(config, weights)
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError(
                f"folder: weights and settings in {folder} do not fit: {str(error).splitlines()[-1].strip()}"
            ) from None
        return model.eval()

    @classmethod
    def from_config(cls, config: SEHTGNNConfig, weights: Mapping[str, Tensor] | None = None) -> Self:
        """Return a model with the given settings.

        Args:
            config: The settings.
            weights: Of a saved model, where its prior holds vectors or numbers.

        Raises:
            ValueError: The settings need what only weights hold.
        """
        settings = json.loads(config.to_json())
        mode, weights = config.prior, weights or {}
        prior: Any = mode
        embeddings = None
        if mode == "given":
            held = weights.get("prior.fixed", torch.zeros(len(config.edge_types)))
            prior = dict(zip(config.edge_types, held.tolist(), strict=True))
        elif mode in ("projected", "similarity"):
            if "prior.vectors" not in weights:
                raise ValueError(f"config: the prior {mode!r} needs vectors, which only a saved model's weights hold")
            ends = [n for n in config.node_types if any(n in (t[0], t[2]) for t in config.edge_types)]
            embeddings = dict(zip(ends, weights["prior.vectors"], strict=True))
        for name in ("schema", "version", "node_types", "edge_types", "prior"):
            settings.pop(name)
        return cls(config.metadata, **settings, prior=prior, type_embeddings=embeddings)


def _over_time(
    M: Float[Tensor, "relation frame node d"],
    weights: Float[Tensor, "window time relation headhorizon"],
    frames: Frames,
    heads: int,
) -> Float[Tensor, "window node horizon d"]:
    """Return sum over time and relation of weights times states, for every window, head and step of the horizon.

    Where windows share frames, their weights become rows of one matrix over all frames.
    """
    relations, count, nodes, d = M.shape
    windows, steps = frames.index.shape
    horizon = weights.shape[-1] // heads
    split = M.view(relations, count, nodes, heads, d // heads)
    weights = weights.reshape(windows, steps, relations, heads, horizon)
    out = []
    for k in range(heads):
        part = split[:, :, :, k].reshape(relations * count, nodes * (d // heads))
        w = weights[:, :, :, k].permute(0, 3, 2, 1)  # window horizon relation time
        if frames.shared:
            where = frames.index[:, None, None, :].expand_as(w)
            spread = w.new_zeros(*w.shape[:3], count).scatter_add(3, where, w)
            out.append((spread.reshape(windows * horizon, -1) @ part).view(windows, horizon, nodes, d // heads))
        else:
            held = part.view(relations, windows, steps, nodes * (d // heads))
            found = sum(torch.bmm(w[:, :, r], held[r]) for r in range(relations))
            out.append(cast(Tensor, found).view(windows, horizon, nodes, d // heads))
    return torch.cat(out, -1).transpose(1, 2)
