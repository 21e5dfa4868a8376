"""The attention that a model starts from: how close the types at a relation's two ends are in a language model's eyes.

Source: arXiv 2510.18467, section 4.3 (projected similarity); the authors' code (unprojected, normalised by the sum).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty._common.checks import number, one_of
from thrifty.models.se_htgnn.temporal import Metadata, Triple

PriorMode = Literal["projected", "similarity", "uniform", "zero", "random"]

#: Similarities below it count as it, where they are divided by their sum.
LEAST = 1e-6


class TypePrior(nn.Module):
    """Initial attention logits of every relation, normalised over the relations into the same node type.

    Args:
        metadata: Node types and edge types.
        embeddings: One vector a node type, of one width d'; needed by ``"projected"`` and ``"similarity"``.
        mode: ``"projected"`` (softmax of learnable projections' products), ``"similarity"`` (the released rule),
            ``"uniform"``, ``"zero"``, ``"random"`` (drawn once), or a number for every edge type.
        dim: Width d of the projections.
        center: Take the mean over types off the vectors first (``"projected"`` only): prompts share most words.

    Raises:
        ValueError: The mode is unknown, a vector is missing or of another width, or a number is outside [0, 1].

    Example:
        >>> metadata = (["state", "county"], [("county", "in", "state"), ("state", "near", "state")])
        >>> prior = TypePrior(metadata, {"state": torch.tensor([1.0, 0.0]), "county": torch.tensor([1.0, 0.2])})
        >>> {triple[1]: round(float(pi), 2) for triple, pi in TypePrior(metadata, mode="uniform")().items()}
        {'in': 0.5, 'near': 0.5}

    Source:
        arXiv 2510.18467, section 4.3.
    """

    vectors: Tensor
    fixed: Tensor

    def __init__(
        self,
        metadata: Metadata,
        embeddings: Mapping[str, Float[Tensor, " width"]] | None = None,
        mode: PriorMode | Mapping[Triple, float] = "projected",
        dim: int = 32,
        center: bool = True,
    ) -> None:
        super().__init__()
        types, self.triples = list(metadata[0]), list(metadata[1])
        self.mode = mode if isinstance(mode, str) else "given"
        self.groups = [[i for i, t in enumerate(self.triples) if t[2] == name] for name in types]
        self.groups = [group for group in self.groups if group]
        if isinstance(mode, str):
            one_of("prior", mode, get_args(PriorMode))
        if self.mode in ("projected", "similarity"):
            ends = sorted({name for t in self.triples for name in (t[0], t[2])}, key=types.index)
            vectors = _stacked(ends, embeddings)
            if self.mode == "projected":
                vectors = vectors - vectors.mean(0) if center and len(ends) > 1 else vectors
                vectors = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-12)
                mapped = _orthonormal(vectors.shape[1], dim)
                self.query, self.key = nn.Parameter(mapped.clone()), nn.Parameter(mapped.clone())
                self.temperature = nn.Parameter(torch.ones(()))
            self.register_buffer("vectors", vectors)
            self.source = [ends.index(t[0]) for t in self.triples]
            self.target = [ends.index(t[2]) for t in self.triples]
        else:
            self.register_buffer("fixed", self._constant(mode))

    def _constant(self, mode: PriorMode | Mapping[Triple, float]) -> Tensor:
        found = torch.zeros(len(self.triples))
        if isinstance(mode, Mapping):
            for i, triple in enumerate(self.triples):
                if triple not in mode:
                    raise ValueError(f"prior: expected a number for every edge type, got none for {triple}")
                found[i] = number(f"prior of {triple}", mode[triple], "a number in [0, 1]", least=0, below=1 + 1e-9)
        elif mode == "uniform":
            for group in self.groups:
                found[group] = 1 / len(group)
        elif mode == "random":
            for group in self.groups:
                found[group] = torch.softmax(torch.randn(len(group)), 0)
        return found

    def forward(self) -> dict[Triple, Float[Tensor, ""]]:
        """Return the prior of every edge type."""
        if self.mode not in ("projected", "similarity"):
            return dict(zip(self.triples, self.fixed.unbind(), strict=True))
        if self.mode == "similarity":
            score = (self.vectors[self.source] * self.vectors[self.target]).sum(1).clamp(min=LEAST)
            parts = {
                i: s for group in self.groups for i, s in zip(group, score[group] / score[group].sum(), strict=True)
            }
        else:
            q, k = self.vectors @ self.query, self.vectors @ self.key
            score = (q[self.source] * k[self.target]).sum(1) / math.sqrt(self.query.shape[1]) * self.temperature
            parts = {i: s for group in self.groups for i, s in zip(group, torch.softmax(score[group], 0), strict=True)}
        return {triple: parts[i] for i, triple in enumerate(self.triples)}


def _stacked(types: list[str], embeddings: Mapping[str, Tensor] | None) -> Tensor:
    if embeddings is None:
        raise ValueError(
            "type_embeddings: this prior needs a vector for every node type, got none; build_type_embeddings makes "
            'them, or choose prior="uniform"'
        )
    missing = [name for name in types if name not in embeddings]
    if missing:
        raise ValueError(f"type_embeddings: expected a vector for every node type, got none for {', '.join(missing)}")
    found = {name: torch.as_tensor(embeddings[name]).float().reshape(-1) for name in types}
    widths = {name: len(v) for name, v in found.items()}
    if len(set(widths.values())) > 1:
        raise ValueError(f"type_embeddings: expected vectors of one width, got {widths}")
    if not all(bool(torch.isfinite(v).all()) for v in found.values()):
        raise ValueError("type_embeddings: expected finite numbers")
    return torch.stack([found[name] for name in types])


def _orthonormal(rows: int, columns: int) -> Tensor:
    """Return a random matrix with orthonormal columns (orthonormal rows, if it has fewer of them)."""
    q, _ = torch.linalg.qr(torch.randn(max(rows, columns), min(rows, columns)))
    found: Tensor = q if rows >= columns else q.mT.contiguous()
    return found
