"""What is minimised: the loss of a batch of windows for each task (arXiv 2510.18467, section 4.4).

An objective holds the network, so that data-parallel training wraps one module. It gives a mean and over how many it
was taken, so that processes with unequal shares of a step can be averaged rightly.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from thrifty.models.se_htgnn.splits import negative_edges, positive_edges
from thrifty.models.se_htgnn.temporal import Triple, WindowBatch

Decoder = Literal["dot", "mlp"]

#: A mean, and over how many labels (windows, for links) it was taken.
Loss = tuple[Tensor, int]


class RegressionObjective(nn.Module):
    """Mean absolute error of scaled targets over labelled nodes.

    Args:
        model: Gives (window, node, horizon, 1) by node type.
        target_type: Whose values.
        transform: Scales targets.
        horizon: Steps ahead.
    """

    def __init__(self, model: nn.Module, target_type: str, transform: Any, horizon: int = 1) -> None:
        super().__init__()
        self.model, self.target_type, self.transform, self.horizon = model, target_type, transform, horizon

    def forward(self, batch: WindowBatch) -> Loss:
        """Return the loss, and the number of labels."""
        out = self.model(batch, self.target_type)[self.target_type].squeeze(-1)
        target = self.transform(batch.y(self.target_type, self.horizon).to(out))
        known = torch.isfinite(target)
        if not known.any():
            return cast(Tensor, out.sum() * 0), 0
        return functional.l1_loss(out[known], target[known]), int(known.sum())


class ClassificationObjective(nn.Module):
    """Cross-entropy over labelled nodes.

    Args:
        model: Gives (window, node, horizon, class) by node type.
        target_type: Whose classes.
        classes: Those of training, in order; the output's columns.
        horizon: Steps ahead.
    """

    classes: Tensor

    def __init__(self, model: nn.Module, target_type: str, classes: Tensor, horizon: int = 1) -> None:
        super().__init__()
        self.model, self.target_type, self.horizon = model, target_type, horizon
        self.register_buffer("classes", classes, persistent=False)

    def forward(self, batch: WindowBatch) -> Loss:
        """Return the loss, and the number of labels."""
        out = self.model(batch, self.target_type)[self.target_type]
        target = batch.y(self.target_type, self.horizon)
        known = torch.isfinite(target)
        if not known.any():
            return cast(Tensor, out.sum() * 0), 0
        loss = functional.cross_entropy(out[known], torch.searchsorted(self.classes, target[known].long()))
        return loss, int(known.sum())


class LinkObjective(nn.Module):
    """-log sigma(s) of links and -log sigma(-s) of as many pairs that are not linked, drawn anew at each step.

    Args:
        model: Gives embeddings by ``encode``.
        relation: Which links.
        channels: Width d.
        decoder: ``"dot"``: product of embeddings behind an MLP; ``"mlp"``: an MLP of both, as HTGNN's.
        seed: Of the pairs.
    """

    def __init__(
        self, model: nn.Module, relation: Triple, channels: int, decoder: Decoder = "dot", seed: int = 0
    ) -> None:
        super().__init__()
        self.model, self.relation, self.kind, self.seed = model, relation, decoder, seed
        d = channels
        width = (d, d) if decoder == "dot" else (2 * d, 1)
        self.decoder = nn.Sequential(nn.Linear(width[0], d), nn.ReLU(), nn.Linear(d, width[1]))
        self.drawn: Tensor
        self.register_buffer("drawn", torch.zeros((), dtype=torch.long))

    def forward(self, batch: WindowBatch) -> Loss:
        """Return the loss, and the number of windows."""
        source, target = self.relation[0], self.relation[2]
        z = self.model.encode(batch, list(dict.fromkeys((source, target))))  # type: ignore[operator]
        losses, places = [], None if batch.nodes is None else _places(batch, (source, target))
        for b, when in enumerate(batch.targets.tolist()):
            rng = np.random.default_rng([self.seed, int(self.drawn), when])
            data = batch.whole if batch.whole is not None else batch.data
            positive = positive_edges(data, self.relation, when)
            negative = negative_edges(data, self.relation, when, rng)
            for pairs, sign in ((positive, 1.0), (negative, -1.0)):
                here = pairs if places is None else _inside(pairs, places)
                if here.shape[1]:
                    losses.append(
                        -functional.logsigmoid(sign * self.score(z[source][b, :, 0], z[target][b, :, 0], here)).mean()
                    )
        self.drawn.add_(1)
        if not losses:
            return cast(Tensor, sum(v.sum() for v in z.values()) * 0), 0
        return torch.stack(losses).sum() / len(batch.targets), len(batch.targets)

    def score(self, source: Float[Tensor, "node d"], target: Float[Tensor, "other d"], pairs: Int[Tensor, "2 pair"]
              ) -> Float[Tensor, " pair"]:  # fmt: skip
        """Return the logit of each pair.

        Args:
            source: Embeddings of the relation's source type.
            target: Those of its destination type.
            pairs: Which nodes.
        """
        left, right = source[pairs[0]], target[pairs[1]]
        if self.kind == "mlp":
            return cast(Tensor, self.decoder(torch.cat([left, right], -1))).squeeze(-1)
        return cast(Tensor, self.decoder(left) * self.decoder(right)).sum(-1)


def _places(batch: WindowBatch, names: tuple[str, str]) -> list[Tensor]:
    """Return where each node of the whole graph is in a sample; -1 where it is not."""
    found = []
    for name in names:
        assert batch.nodes is not None
        assert batch.whole is not None
        place = torch.full((batch.whole.num_nodes[name],), -1)
        place[batch.nodes[name]] = torch.arange(len(batch.nodes[name]))
        found.append(place)
    return found


def _inside(pairs: Tensor, places: list[Tensor]) -> Tensor:
    local = torch.stack([places[0][pairs[0]], places[1][pairs[1]]])
    return local[:, (local >= 0).all(0)]
