"""The estimator of links of the next snapshot, and the pairs that it is trained and judged on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from thrifty._common.files import write_whole
from thrifty._common.weights import load_tensors
from thrifty.models.se_htgnn.forecaster import Forecaster
from thrifty.models.se_htgnn.metrics import link_metrics
from thrifty.models.se_htgnn.objectives import LinkObjective
from thrifty.models.se_htgnn.splits import Split, negative_edges, positive_edges
from thrifty.models.se_htgnn.temporal import HeteroTemporalData

DECODER = "decoder.safetensors"


class LinkForecaster(Forecaster):
    """Forecast which links of an edge type the next snapshot will have; ``target`` is the triple.

    Arguments as :class:`NodeRegressor`'s.

    Example:
        >>> from thrifty.models.se_htgnn import Edges
        >>> index = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]]).repeat(1, 5)
        >>> edges = {("a", "to", "a"): Edges(index, torch.arange(5).repeat_interleave(4))}
        >>> data = HeteroTemporalData({"a": 4}, edges, {"a": torch.randn(5, 4, 2)})
        >>> model = LinkForecaster(("a", "to", "a"), window=2, epochs=2, validation=1, random_state=0)
        >>> model.fit(data).predict(data, torch.tensor([[0, 1], [1, 0]])).shape
        (2,)

    Source:
        arXiv 2510.18467, sections 4.4 and 5.1.
    """

    metric, more_is_better = "auc", True

    def predict(self, data: HeteroTemporalData, pairs: Int[Tensor, "2 pair"], target: int | None = None
                ) -> Float[np.ndarray, " pair"]:  # fmt: skip
        """Return the probability that each pair will be linked.

        Args:
            data: The graph.
            pairs: Source and destination of each.
            target: In which snapshot; the one after the last, if ``None``.

        Raises:
            ValueError: Pairs have another shape, or name nodes that there are none of.
        """
        known, chosen = self._known(data), torch.as_tensor(pairs)
        (when,) = self._targets(data, None if target is None else [target])
        if chosen.ndim != 2 or len(chosen) != 2:
            raise ValueError(f"pairs: expected sources and destinations, (2, pairs), got {tuple(chosen.shape)}")
        for end, name in ((0, self.target[0]), (1, self.target[2])):
            if chosen.numel() and not 0 <= int(chosen[end].min()) <= int(chosen[end].max()) < data.num_nodes[name]:
                raise ValueError(f"pairs: expected {name!r} from 0 to below {data.num_nodes[name]}, got another")
        found: NDArray[np.float32] = torch.sigmoid(self._scores(known, [chosen], when)[0]).numpy()
        return found

    def evaluate(self, data: HeteroTemporalData, targets: Sequence[int], *, random_state: int = 0) -> dict[str, float]:
        """Return ``auc`` and ``ap`` of links against as many pairs that are not linked, over all target snapshots.

        Args:
            data: The graph.
            targets: Target snapshots.
            random_state: Draws those pairs.
        """
        known = self._known(data)
        self._check_target(data)
        return self._evaluate(known, self._targets(data, targets), random_state)

    def _evaluate(self, data: HeteroTemporalData, targets: Sequence[int], random_state: int = 0) -> dict[str, float]:
        scores, linked = [np.empty(0)], [np.empty(0)]
        for when in targets:
            rng = np.random.default_rng([random_state, int(when)])
            pairs = [positive_edges(data, self.target, when), negative_edges(data, self.target, when, rng)]
            for label, found in zip((1, 0), self._scores(data, pairs, int(when)), strict=True):
                scores.append(found.numpy())
                linked.append(np.full(len(found), label))
        return link_metrics(np.concatenate(scores), np.concatenate(linked))

    @torch.no_grad()
    def _scores(self, data: HeteroTemporalData, pairs: Sequence[Tensor], target: int) -> list[Tensor]:
        """Return the logits of several lists of pairs in one snapshot."""
        objective = cast(LinkObjective, self.objective_)
        source, destination = (self._embeddings(data, name, target) for name in (self.target[0], self.target[2]))
        return [objective.score(source, destination, some.to(self.device)).cpu() for some in pairs]

    def _check_target(self, data: HeteroTemporalData) -> None:
        if not isinstance(self.target, tuple) or self.target not in data.edges:
            raise ValueError(f"target: expected an edge type among {list(data.edges)}, got {self.target!r}")

    def _embeddings(self, data: HeteroTemporalData, name: str, target: int) -> Float[Tensor, "node d"]:
        found = self._computed(data, [target], name, lambda batch: self.model_.encode(batch, name)[name])
        return found[0, :, 0].to(self.device)

    def _seed_type(self) -> str:
        return str(self.target[0])

    def _begin(self, data: HeteroTemporalData, split: Split) -> None:
        self._check_target(data)
        if self.horizon != 1:
            raise ValueError(f"horizon: links are forecast one step ahead, got {self.horizon}")

    def _outputs(self) -> int:
        return 1

    def _objective(self, seed: int) -> nn.Module:
        return LinkObjective(self.model_, self.target, self.hidden_channels, self.decoder, seed)

    def _state(self) -> dict[str, Any]:
        return {}

    def _save_more(self, folder: Path) -> None:
        from safetensors.torch import save

        decoder = cast(LinkObjective, self.objective_).decoder
        write_whole(folder / DECODER, save(dict(decoder.state_dict())), force=True)

    def _restore(self, state: Mapping[str, Any], folder: Path) -> None:
        self.objective_ = self._objective(0)
        cast(LinkObjective, self.objective_).decoder.load_state_dict(
            load_tensors(folder / DECODER, name="folder", extra="graph")
        )
