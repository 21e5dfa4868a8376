"""How much each relation counts in each snapshot: the paper's dynamic attention, and the choices it is compared with.

A core reads the aggregated states of all relations into one node type, and returns weights over those relations that
sum to 1 in every snapshot (arXiv 2510.18467, section 4.2; tables 3 and 4 for the others). All relations are computed at
once; only the narrow recurrences run along time.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from thrifty._common.checks import one_of
from thrifty.models.se_htgnn.operations import carry

Core = Literal["gru", "lstm", "transformer", "ssm", "projected", "self", "gate", "uniform"]

States = Float[Tensor, "relation frame node d"]
Index = Int[Tensor, "window time"]
Share = Float[Tensor, "frame node"]
Weights = Float[Tensor, "window time relation head"]


def make_core(name: Core, relations: int, channels: int, heads: int) -> nn.Module:
    """Return a core by name.

    Args:
        name: ``"gru"`` (the paper's), ``"lstm"``, ``"transformer"``, ``"ssm"`` (a selective state space); without
            memory ``"projected"``, ``"self"``, ``"gate"``; or ``"uniform"``: no attention.
        relations: Into the node type.
        channels: Width d of the states.
        heads: Weights a relation, each for a group of channels.

    Raises:
        ValueError: There is no such core.
    """
    one_of("attention", name, get_args(Core))
    kinds = {
        "gru": GRUCore, "lstm": LSTMCore, "transformer": TransformerCore, "ssm": StateSpaceCore,
        "projected": ProjectedCore, "self": SelfCore, "gate": GateCore, "uniform": UniformCore,
    }  # fmt: skip
    return kinds[name](relations, channels, heads)


def _uniform(*shape: int, fan: int) -> nn.Parameter:
    bound = 1 / math.sqrt(fan)
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))


def _mean(logits: Float[Tensor, "relation frame node head"], index: Index, share: Share) -> Weights:
    """Average logits over nodes, and turn them into weights of the windows' snapshots."""
    means = torch.einsum("rfnk,fn->frk", logits, share)
    return torch.softmax(means[index], 2)


class GRUCore(nn.Module):
    """A GRU of width 1 a relation (k for k heads), whose state is the relation's logit, carried along time.

    Weights are those of ``torch.nn.GRU``, stacked over relations. ``logits`` gives the means before the softmax.
    """

    def __init__(self, relations: int, channels: int, heads: int) -> None:
        super().__init__()
        self.weight_ih = _uniform(relations, 3 * heads, channels, fan=channels)
        self.weight_hh = _uniform(relations, 3 * heads, heads, fan=heads)
        self.bias_ih = _uniform(relations, 3 * heads, fan=channels)
        self.bias_hh = _uniform(relations, 3 * heads, fan=channels)

    def logits(self, M: States, index: Index, share: Share, prior: Float[Tensor, " relation"]) -> Weights:
        """Return the means over nodes of the relations' states, before the softmax."""
        drive = self.weight_ih[:, None] @ M.mT + self.bias_ih[:, None, :, None]  # relation frame gate node
        start = prior[:, None].expand(-1, self.weight_hh.shape[2])
        return carry(drive, index, self.weight_hh, self.bias_hh, start, share)

    def forward(self, M: States, index: Index, share: Share, prior: Float[Tensor, " relation"]) -> Weights:
        """Return the weights of relations."""
        return torch.softmax(self.logits(M, index, share, prior), 2)


class LSTMCore(nn.Module):
    """An LSTM of width 1 a relation; the hidden state starts at the prior, the cell at 0."""

    def __init__(self, relations: int, channels: int, heads: int) -> None:
        super().__init__()
        self.weight_ih = _uniform(relations, 4 * heads, channels, fan=channels)
        self.weight_hh = _uniform(relations, 4 * heads, heads, fan=heads)
        self.bias = _uniform(relations, 4 * heads, fan=channels)

    def forward(self, M: States, index: Index, share: Share, prior: Float[Tensor, " relation"]) -> Weights:
        """Return the weights of relations."""
        relations, frames, nodes, d = M.shape
        drive = torch.baddbmm(self.bias[:, None], M.reshape(relations, frames * nodes, d), self.weight_ih.mT)
        drive = drive.view(relations, frames, nodes, -1)
        h = prior[:, None, None, None].expand(-1, len(index), nodes, self.weight_hh.shape[2])
        cell, means = torch.zeros_like(h), []
        for t in range(index.shape[1]):
            gates = drive[:, index[:, t]] + torch.einsum("rgk,rbnk->rbng", self.weight_hh, h)
            i, f, g, o = gates.chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(cell)
            means.append(torch.einsum("rbnk,bn->brk", h, share[index[:, t]]))
        return torch.softmax(torch.stack(means, 1), 2)


class TransformerCore(nn.Module):
    """One causal attention block over a window's snapshots, then a linear map to the logit; it has no prior."""

    def __init__(self, relations: int, channels: int, heads: int) -> None:
        super().__init__()
        self.qkv = _uniform(relations, 3 * channels, channels, fan=channels)
        self.out = _uniform(relations, heads, channels, fan=channels)

    def forward(self, M: States, index: Index, share: Share, prior: Float[Tensor, " relation"]) -> Weights:
        """Return the weights of relations."""
        qkv = torch.einsum("rfnd,rgd->rfng", M, self.qkv)[:, index].transpose(2, 3)  # relation window node time 3d
        q, k, v = qkv.chunk(3, -1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True) + M[:, index].transpose(2, 3)
        logits = torch.einsum("rbntd,rkd->rbtnk", mixed, self.out)
        means = torch.einsum("rbtnk,btn->btrk", logits, share[index])
        return torch.softmax(means, 2)


class StateSpaceCore(nn.Module):
    """A selective diagonal state space: its step, input and read-out depend on what comes in, as in Mamba.

    x(t) = exp(-delta a) x(t-1) + delta B(m) u(m), logit = C(m) x(t), with delta = softplus(w m + b).
    """

    STATES = 4

    def __init__(self, relations: int, channels: int, heads: int) -> None:
        super().__init__()
        self.read = _uniform(relations, 2 * heads + 2 * self.STATES, channels, fan=channels)
        self.bias = nn.Parameter(torch.zeros(relations, heads))
        self.log_rate = nn.Parameter(torch.log(torch.arange(1.0, self.STATES + 1)).repeat(relations, heads, 1))

    def forward(self, M: States, index: Index, share: Share, prior: Float[Tensor, " relation"]) -> Weights:
        """Return the weights of relations."""
        heads = self.bias.shape[1]
        read = torch.einsum("rfnd,rgd->rfng", M, self.read)
        step, u, B, C = torch.split(read, [heads, heads, self.STATES, self.STATES], -1)
        step = functional.softplus(step + self.bias[:, None, None])
        keep = torch.exp(-step.unsqueeze(-1) * torch.exp(self.log_rate)[:, None, None])
        push = (step * u).unsqueeze(-1) * B.unsqueeze(-2)
        x, means = M.new_zeros(()), []
        for t in range(index.shape[1]):
            f = index[:, t]
            x = keep[:, f] * x + push[:, f]
            logit = (x * C[:, f].unsqueeze(-2)).sum(-1) + prior[:, None, None, None]
            means.append(torch.einsum("rbnk,bn->brk", logit, share[f]))
        return torch.softmax(torch.stack(means, 1), 2)


class ProjectedCore(nn.Module):
    """The logit is q . tanh(W m + b), in each snapshot by itself (as in HTGNN's relation attention)."""

    def __init__(self, relations: int, channels: int, heads: int) -> None:
        super().__init__()
        self.weight = _uniform(relations, channels, channels, fan=channels)
        self.bias = nn.Parameter(torch.zeros(relations, channels))
        self.query = _uniform(heads, channels, fan=channels)

    def forward(self, M: States, index: Index, share: Share, prior: Float[Tensor, " relation"]) -> Weights:
        """Return the weights of relations."""
        mapped = torch.tanh(torch.einsum("rfnd,rgd->rfng", M, self.weight) + self.bias[:, None, None])
        return _mean(mapped @ self.query.mT, index, share)


class SelfCore(nn.Module):
    """Scaled dot products among the relations' mean states of one snapshot."""

    def __init__(self, relations: int, channels: int, heads: int) -> None:
        super().__init__()
        self.query, self.key = (
            _uniform(heads, channels, channels, fan=channels),
            _uniform(heads, channels, channels, fan=channels),
        )

    def forward(self, M: States, index: Index, share: Share, prior: Float[Tensor, " relation"]) -> Weights:
        """Return the weights of relations."""
        summary = torch.einsum("rfnd,fn->frd", M, share)
        q, k = (torch.einsum("frd,ked->fkre", summary, w) for w in (self.query, self.key))
        attended = torch.softmax(q @ k.mT / math.sqrt(M.shape[-1]), -1)  # who looks at whom
        return attended.mean(2).transpose(1, 2)[index]


class GateCore(nn.Module):
    """A sigmoid gate a relation, scaled so that the gates sum to 1."""

    def __init__(self, relations: int, channels: int, heads: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            _uniform(relations, heads, channels, fan=channels),
            nn.Parameter(torch.zeros(relations, heads)),
        )

    def forward(self, M: States, index: Index, share: Share, prior: Float[Tensor, " relation"]) -> Weights:
        """Return the weights of relations."""
        summary = torch.einsum("rfnd,fn->frd", M, share)
        gate = torch.sigmoid(torch.einsum("frd,rkd->frk", summary, self.weight) + self.bias)
        return (gate / gate.sum(1, keepdim=True))[index]


class UniformCore(nn.Module):
    """Every relation counts alike."""

    def __init__(self, relations: int, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, M: States, index: Index, share: Share, prior: Float[Tensor, " relation"]) -> Weights:
        """Return the weights of relations."""
        return M.new_full((*index.shape, len(M), self.heads), 1 / len(M))
