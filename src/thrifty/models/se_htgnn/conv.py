"""One layer: parameter-free aggregation along each relation, and one attention weight a relation and snapshot.

Source: arXiv 2510.18467, equations (4) to (9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from thrifty._common.checks import one_of
from thrifty.models.se_htgnn.attention import Core, GRUCore, make_core
from thrifty.models.se_htgnn.config import Norm
from thrifty.models.se_htgnn.operations import attend, average
from thrifty.models.se_htgnn.temporal import Edges, HeteroTemporalData, Metadata, Triple, WindowBatch
from thrifty.models.se_htgnn.topology import Aggregation, Degree


@dataclass
class Frames:
    """What a layer works on: copies of snapshots, and which of them make up each window.

    Args:
        batch: The windows.
        snap: The snapshot of each frame.
        index: The frames of each window, in order of time.
    """

    batch: WindowBatch
    snap: Int[Tensor, " frame"]
    index: Int[Tensor, "window time"]

    @property
    def shared(self) -> bool:
        """Whether windows share frames: in the first layer they do, afterwards each has its own."""
        return len(self.snap) < self.index.numel() or len(self.index) == 1

    def own(self) -> Frames:
        """Return frames that no two windows share."""
        windows, steps = self.index.shape
        snap = self.snap[self.index].reshape(-1)
        return Frames(self.batch, snap, torch.arange(len(snap), device=snap.device).view(windows, steps))


class SEHTGNNConv(nn.Module):
    """One SE-HTGNN layer.

    Args:
        metadata: Node types and edge types.
        channels: Width d.
        heads: Attention weights a relation.
        attention: The core; see ``attention.py``.
        aggr: ``"mean"``, ``"none"``, ``"gcn"`` or ``"gat"``.
        degree: ``"exact"`` or ``"released"``.
        norm: ``None`` (residual), ``"node"`` or ``"graph"``.
        mask_absent: Let means over nodes leave out those without an edge or feature.

    Raises:
        ValueError: A setting is unknown.

    Example:
        >>> conv = SEHTGNNConv((["a"], [("a", "to", "a")]), 4)
        >>> edges = {("a", "to", "a"): torch.tensor([[0], [1]])}
        >>> conv({"a": torch.randn(2, 3, 4)}, [edges] * 3)["a"].shape  # nodes, snapshots, channels
        torch.Size([2, 3, 4])

    Source:
        arXiv 2510.18467, section 4.
    """

    def __init__(
        self,
        metadata: Metadata,
        channels: int,
        heads: int = 1,
        attention: Core = "gru",
        aggr: Aggregation = "mean",
        degree: Degree = "exact",
        norm: Norm | None = None,
        mask_absent: bool = True,
    ) -> None:
        super().__init__()
        one_of("norm", norm, (None, "node", "graph"))
        self.metadata, self.channels, self.heads = metadata, channels, heads
        self.aggr, self.degree, self.norm, self.mask_absent = aggr, degree, norm, mask_absent
        self.relations: dict[str, list[Triple]] = {}
        for triple in metadata[1]:
            self.relations.setdefault(triple[2], []).append(triple)
        self.cores = nn.ModuleList(make_core(attention, len(r), channels, heads) for r in self.relations.values())
        if aggr == "gat":
            self.scores = nn.Parameter(torch.randn(len(metadata[1]), 2, channels) / channels**0.5)
        if norm is not None:
            self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in self.relations)
        for i, triples in enumerate(self.relations.values()):
            self.register_buffer(f"running_{i}", torch.zeros(0, len(triples), heads))
        self._seen = [0] * len(self.relations)  # sampled batches of this epoch

    def forward(
        self,
        x_dict: Mapping[str, Float[Tensor, "node time d"]],
        edge_index_dicts: Sequence[Mapping[Triple, Int[Tensor, "2 edge"]]],
        prior: Mapping[Triple, Tensor] | None = None,
        edge_weight_dicts: Sequence[Mapping[Triple, Tensor]] | None = None,
    ) -> dict[str, Float[Tensor, "node time d"]]:
        """Return the states after this layer, for one window.

        Args:
            x_dict: States of each node type.
            edge_index_dicts: The edges of each snapshot.
            prior: Initial logit of each relation; 1 over their number, if ``None``.
            edge_weight_dicts: What edges count; 1 if ``None``.
        """
        frames = Frames(*_one_window(x_dict, edge_index_dicts, edge_weight_dicts))
        h = {name: x.transpose(0, 1).contiguous() for name, x in x_dict.items()}
        found, _, _ = self.propagate(h, frames, prior, list(h))
        return {name: state.transpose(0, 1) for name, state in found.items()}

    def mix(self, h: Mapping[str, Tensor], frames: Frames, name: str, prior: Mapping[Triple, Tensor] | None
            ) -> tuple[Float[Tensor, "relation frame node d"], Float[Tensor, "window time relation head"]]:  # fmt: skip
        """Return, for one node type, the aggregated states of the relations into it, and the relations' weights."""
        triples = self.relations[name]
        M = torch.stack([self._aggregate(h, frames, triple) for triple in triples])
        batch = frames.batch
        share = batch.share(name, frames.snap, self.mask_absent, M.dtype)
        start = torch.stack(
            [M.new_tensor(1 / len(triples)) if prior is None else torch.as_tensor(prior[t]).to(M) for t in triples]
        )
        place = list(self.relations).index(name)
        core = self.cores[place]
        if isinstance(core, GRUCore) and batch.sampled:
            return M, torch.softmax(self._estimated(core.logits(M, frames.index, share, start), place), 2)
        return M, core(M, frames.index, share, start)

    def propagate(
        self, h: Mapping[str, Tensor], frames: Frames, prior: Mapping[Triple, Tensor] | None, wanted: Sequence[str]
    ) -> tuple[dict[str, Tensor], Frames, dict[Triple, Float[Tensor, "window time head"]]]:
        """Return the wanted types' states in every window after this layer, their frames, and the weights."""
        own, out = frames.own(), {}
        weights: dict[Triple, Tensor] = {}
        for name in wanted:
            state = h[name]
            if name not in self.relations:
                out[name] = state[frames.index].flatten(0, 1)
                continue
            M, alpha = self.mix(h, frames, name, prior)
            weights |= dict(zip(self.relations[name], alpha.unbind(2), strict=True))
            fused = self.fuse(name, M, alpha, frames)
            out[name] = fused + state[frames.index].flatten(0, 1) if self.norm is None else fused
        return out, own, weights

    def fuse(
        self,
        name: str,
        M: Float[Tensor, "relation frame node d"],
        alpha: Float[Tensor, "window time relation head"],
        frames: Frames,
    ) -> Float[Tensor, "own_frame node d"]:
        """Return the aggregated states weighted by attention, in every window by itself, normalised if there is a norm.

        Args:
            name: Their type.
            M: The aggregated states.
            alpha: The relations' weights.
            frames: The windows.
        """
        group = self.channels // self.heads
        parts = (M[r][frames.index] * alpha[:, :, r, None, :].repeat_interleave(group, -1) for r in range(len(M)))
        fused = cast(Tensor, sum(parts)).flatten(0, 1)
        if self.norm is None:
            return fused
        share = frames.batch.share(name, frames.own().snap, self.mask_absent, fused.dtype)
        return self.normalise(name, fused, share)

    def normalise(
        self, name: str, y: Float[Tensor, "frame node d"], share: Float[Tensor, "frame node"]
    ) -> Float[Tensor, "frame node d"]:
        """Normalise states per node, or over all channels of a frame's nodes.

        Args:
            name: Their type.
            y: The states.
            share: Weight of each node in the mean over a frame's nodes.
        """
        norm = cast(nn.LayerNorm, self.norms[list(self.relations).index(name)])
        if self.norm == "node":
            return cast(Tensor, norm(y))

        def mean(values: Tensor) -> Tensor:
            return torch.einsum("fnd,fn->f", values, share)[:, None, None] / self.channels

        centred = y - mean(y)
        return centred / (mean(centred**2).clamp(min=1e-12).sqrt() + norm.eps) * norm.weight + norm.bias

    def train(self, mode: bool = True) -> SEHTGNNConv:
        """Go to training, where the running means of sampled batches begin anew, or to evaluation."""
        if mode:
            self._seen = [0] * len(self.relations)
        return super().train(mode)

    def _load_from_state_dict(self, state_dict: Mapping[str, Tensor], prefix: str, *more: Any) -> None:
        """Give running means the shape that they were saved with: it depends on the window."""
        for place in range(len(self.relations)):
            if (key := f"{prefix}running_{place}") in state_dict:
                setattr(self, f"running_{place}", torch.empty_like(state_dict[key]))
        super()._load_from_state_dict(state_dict, prefix, *more)

    def _aggregate(self, h: Mapping[str, Tensor], frames: Frames, triple: Triple) -> Tensor:
        source, target = h[triple[0]], h[triple[2]]
        rows = frames.batch.data.rows(triple, self.aggr, self.degree, target.device, target.dtype)
        if self.aggr != "gat":
            return average(target, source, rows, frames.snap)
        left, right = self.scores[self.metadata[1].index(triple)]
        return nn.functional.elu(target + attend(source, source @ left, target @ right, rows, frames.snap))

    def _estimated(self, logits: Tensor, place: int) -> Tensor:
        """Keep the mean of an epoch's logits of sampled batches, and use it in place of them outside of training."""
        running = cast(Tensor, getattr(self, f"running_{place}"))
        if self.training:
            now = logits.detach().mean(0)
            self._seen[place] += 1
            held = now if self._seen[place] == 1 else running + (now - running) / self._seen[place]
            setattr(self, f"running_{place}", held)
            return logits
        return logits if running.shape != logits.shape[1:] else running.expand_as(logits)


def _one_window(
    x_dict: Mapping[str, Tensor],
    edges: Sequence[Mapping[Triple, Tensor]],
    weights: Sequence[Mapping[Triple, Tensor]] | None,
) -> tuple[WindowBatch, Tensor, Tensor]:
    steps = len(edges)
    for name, x in x_dict.items():
        if x.shape[1] != steps:
            raise ValueError(f"x_dict: {name!r} has {x.shape[1]} snapshots, edge_index_dicts {steps}")
    joined: dict[Triple, Any] = {}
    for triple in dict.fromkeys(t for held in edges for t in held):
        pieces = [(t, held[triple]) for t, held in enumerate(edges) if triple in held]
        snapshot = torch.cat([torch.full((e.shape[1],), t) for t, e in pieces])
        counted = None
        if weights is not None:
            counted = torch.cat([weights[t].get(triple, torch.ones(e.shape[1])) for t, e in pieces])
        joined[triple] = Edges(torch.cat([e.cpu().long() for _, e in pieces], 1), snapshot, counted)
    data = HeteroTemporalData(
        {name: len(x) for name, x in x_dict.items()}, joined,
        {name: x.detach().transpose(0, 1).cpu() for name, x in x_dict.items()}, times=range(steps),
    )  # fmt: skip
    device = next(iter(x_dict.values())).device
    batch = data.windows([steps], steps, device)
    return batch, batch.unique, batch.index
