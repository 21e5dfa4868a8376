"""The small networks that predict log λ from one embedding: the paper's MLP, and NeuCLIP's prototypes.

Both answer on the mean scale, log(λ / N). The MLP is that of arXiv 2505.18983, appendix B; the prototypes are the
head of NeuCLIP (arXiv 2511.08417): a partition function over m learned references in place of n samples.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from thrifty._common.checks import number, whole


class PartitionMLP(nn.Module):
    """x → LN(ReLU(W1 x)) → LN(ReLU(W2 ·)) → w·ReLU(· + x) + b.

    Args:
        embed_dim: d, the width of the embedding.
        hidden_factor: Of d, the units of the hidden layer.
        scale_inputs: Multiply the embedding by √s, in which the partition function is linear (see ``spectral.py``).

    Example:
        >>> sum(p.numel() for p in PartitionMLP(512, 1.0).parameters())
        527873

    Source:
        arXiv 2505.18983, appendix B.
    """

    def __init__(self, embed_dim: int, hidden_factor: float = 0.5, *, scale_inputs: bool = False) -> None:
        super().__init__()
        whole("embed_dim", embed_dim)
        hidden = int(number("hidden_factor", hidden_factor, "a number above 0", least=1e-9) * embed_dim)
        if hidden < 1:
            raise ValueError(f"hidden_factor: expected at least {1 / embed_dim:g} for {embed_dim}, got {hidden_factor}")
        self.first, self.norm = nn.Linear(embed_dim, hidden), nn.LayerNorm(hidden)
        self.second, self.last_norm = nn.Linear(hidden, embed_dim), nn.LayerNorm(embed_dim)
        self.last = nn.Linear(embed_dim, 1)
        self.scale_inputs = scale_inputs

    def forward(self, x: Float[Tensor, "batch dim"], logit_scale: Float[Tensor, ""]) -> Float[Tensor, " batch"]:
        """Return log λ̄ of every row."""
        if self.scale_inputs:
            x = x * logit_scale.sqrt()
        # In place: on a CPU a fresh buffer costs as much as the arithmetic on it.
        h = self.norm(functional.relu_(self.first(x)))
        h = self.last_norm(functional.relu_(self.second(h)))
        return self.last(functional.relu_(h + x)).squeeze(-1)  # type: ignore[no-any-return]

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Draw the weights anew, as torch does for linear layers."""
        for layer in (self.first, self.second, self.last):
            bound = 1 / math.sqrt(layer.in_features)
            for parameter in (layer.weight, layer.bias):
                drawn = torch.rand(parameter.shape, generator=generator) * (2 * bound) - bound
                parameter.copy_(drawn)
        for norm in (self.norm, self.last_norm):
            norm.reset_parameters()

    @torch.no_grad()
    def start_from(self, others: Tensor, shift: Tensor) -> None:
        """Begin at the level of the first targets, so that a fresh network is not far below them."""
        self.last.bias.add_(shift)


class PartitionPrototypes(nn.Module):
    """log λ̄(x) = log mean_k e^{s cos(x, W_k)}: the batch's partition function over references that are learned.

    Args:
        embed_dim: d.
        prototypes: m.

    Source:
        arXiv 2511.08417, equation 6 (there relative to the positive pair's logit, which is added back here).
    """

    def __init__(self, embed_dim: int, prototypes: int = 1024) -> None:
        super().__init__()
        whole("embed_dim", embed_dim)
        whole("prototypes", prototypes)
        self.weight = nn.Parameter(torch.empty(prototypes, embed_dim))
        self.shift = nn.Parameter(torch.zeros(()))
        nn.init.normal_(self.weight)

    def forward(self, x: Float[Tensor, "batch dim"], logit_scale: Float[Tensor, ""]) -> Float[Tensor, " batch"]:
        """Return log λ̄ of every row."""
        A = (x * logit_scale) @ functional.normalize(self.weight, dim=1).mT
        return A.logsumexp(1) - math.log(len(self.weight)) + self.shift

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Draw the prototypes anew: directions without preference."""
        self.weight.copy_(torch.randn(self.weight.shape, generator=generator))
        self.shift.zero_()

    @torch.no_grad()
    def start_from(self, others: Tensor, shift: Tensor) -> None:
        """Begin as the first batch's embeddings of the other modality, which are what the sum is over."""
        again = -(-len(self.weight) // len(others))
        self.weight.copy_(others.repeat(again, 1)[: len(self.weight)])


def make_network(kind: str, embed_dim: int, hidden_factor: float, prototypes: int, scale_inputs: bool) -> nn.Module:
    """Return a network of one of the two kinds."""
    if kind == "prototypes":
        return PartitionPrototypes(embed_dim, prototypes)
    return PartitionMLP(embed_dim, hidden_factor, scale_inputs=scale_inputs)


#: What ``config.network`` may be.
NETWORKS = ("mlp", "prototypes")
