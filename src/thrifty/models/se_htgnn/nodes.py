"""Estimators of values and of classes of a node type in the next snapshots.

``predict`` forecasts the snapshot after the last, or any that are asked for, from what was before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from thrifty.models.se_htgnn.forecaster import Forecaster
from thrifty.models.se_htgnn.metrics import classification_metrics, regression_metrics
from thrifty.models.se_htgnn.objectives import ClassificationObjective, RegressionObjective
from thrifty.models.se_htgnn.scaling import Scaling
from thrifty.models.se_htgnn.splits import Split
from thrifty.models.se_htgnn.temporal import HeteroTemporalData


class _NodeForecaster(Forecaster):
    """What the two share: labels are needed, in training and where a fit is stopped by."""

    def _labels(self, data: HeteroTemporalData, split: Split) -> Tensor:
        """Return the labels of training, over all steps that are forecast."""
        self._check_target(data)
        for name, part in (("train", split.train), ("validation", split.validation)):
            if len(part) and not bool(torch.isfinite(self._observed(data, part)).any()):
                raise ValueError(
                    f"{name}: expected labels of {self.target!r} in its snapshots ({part.min()} to {part.max()}), got "
                    "none"
                )
        return self._observed(data, split.train)

    def _observed(self, data: HeteroTemporalData, targets: Sequence[int] | NDArray[np.int64]) -> Tensor:
        return data.windows(targets, self.window).y(self.target, self.horizon)

    def _check_target(self, data: HeteroTemporalData) -> None:
        if self.target not in data.y:
            raise ValueError(
                f"target: expected a node type with y, among {', '.join(data.y) or 'none'}, got {self.target!r}"
            )

    def _forecast(self, data: HeteroTemporalData, targets: Sequence[int]) -> Tensor:
        """Return the network's outputs, (window, node, horizon, out), for a graph as it reads it."""
        name = self._seed_type()
        return self._computed(data, targets, name, lambda batch: self.model_(batch, name)[name])

    def evaluate(self, data: HeteroTemporalData, targets: Sequence[int]) -> dict[str, float]:
        """Return the metrics of forecasts for snapshots whose values are known.

        Args:
            data: The graph.
            targets: First target snapshots.

        Returns:
            Of values ``mae`` and ``rmse`` (means over snapshots) and ``rmse_pooled``; of classes ``macro_f1``,
            ``macro_recall`` and ``accuracy`` over labelled nodes.
        """
        known = self._known(data)
        self._check_target(data)
        return self._evaluate(known, self._targets(data, targets))


class NodeRegressor(_NodeForecaster):
    """Forecast a number for every node of a type.

    Args:
        target: The node type (a link forecaster: the edge type).
        hidden_channels: Width d.
        num_layers: Layers.
        window: Snapshots T that a forecast is made from.
        horizon: Steps ahead to forecast.
        heads: Attention weights a relation.
        attention: The core; see :class:`SEHTGNN`.
        aggr: ``"mean"``, ``"none"``, ``"gcn"`` or ``"gat"``.
        norm: ``None``, ``"node"`` or ``"graph"``.
        dropout: Of input features.
        prior: Initial attention; see :class:`TypePrior`.
        type_embeddings: A language model's vectors of the node types.
        scale_features: Standardise every feature by the training snapshots.
        log1p: Learn log(1 + y): for counts that span orders of magnitude.
        nonnegative: Forecasts below 0 become 0.
        decoder: Of a link forecaster: ``"dot"`` or ``"mlp"``.
        epochs: Passes over the windows at most.
        lr: Adam's rate.
        weight_decay: Adam's.
        batch_size: Windows a step.
        patience: Epochs without a better validation score after which to stop.
        validation: Snapshots held out to stop by; 0 trains for all epochs.
        num_neighbors: Neighbours to draw for each relation, one number a layer: for graphs that do not fit.
        device: Where to compute, as torch calls it.
        random_state: Of weights and of the order of steps.
        verbose: Log every epoch.

    Example:
        >>> from thrifty.models.se_htgnn import Edges
        >>> edges = {("a", "to", "a"): Edges(torch.tensor([[0, 1], [1, 2]]), torch.tensor([3, 5]))}
        >>> y = torch.sin(torch.arange(20.0))[:, None].repeat(1, 4)
        >>> data = HeteroTemporalData({"a": 4}, edges, {"a": y[..., None]}, {"a": y})
        >>> model = NodeRegressor("a", hidden_channels=8, window=4, epochs=5, validation=4, random_state=0).fit(data)
        >>> model.predict(data).shape  # the next snapshot's
        (1, 4, 1)

    Source:
        arXiv 2510.18467, sections 4.4 and 5.1.
    """

    metric, more_is_better = "mae", False

    def predict(self, data: HeteroTemporalData, targets: Sequence[int] | None = None
                ) -> Float[np.ndarray, "window node horizon"]:  # fmt: skip
        """Return forecasts.

        Args:
            data: The graph; of each target, only what was before it is read.
            targets: First target snapshots; the one after the last, if ``None``.
        """
        return self._values(self._known(data), self._targets(data, targets))

    def _values(self, data: HeteroTemporalData, targets: Sequence[int]) -> Float[np.ndarray, "window node horizon"]:
        out = self.scaling_.invert(self._forecast(data, targets)[..., 0].double().numpy())
        return np.maximum(out, 0) if self.nonnegative else out

    def _evaluate(self, data: HeteroTemporalData, targets: Sequence[int]) -> dict[str, float]:
        predicted = self._values(data, targets).transpose(0, 2, 1)
        observed = self._observed(data, targets).transpose(1, 2).numpy()
        return regression_metrics(predicted.reshape(-1, predicted.shape[2]), observed.reshape(-1, observed.shape[2]))

    def _begin(self, data: HeteroTemporalData, split: Split) -> None:
        self.scaling_ = Scaling.of(self._labels(data, split), self.log1p)

    def _outputs(self) -> int:
        return 1

    def _objective(self, seed: int) -> nn.Module:
        return RegressionObjective(self.model_, self.target, self.scaling_, self.horizon)

    def _state(self) -> dict[str, Any]:
        return {"scaling": self.scaling_.to_list()}

    def _restore(self, state: Mapping[str, Any], folder: Path) -> None:
        center, scale, log = state["scaling"]
        self.scaling_ = Scaling(center, scale, log)
        self.objective_ = self._objective(0)


class NodeClassifier(_NodeForecaster):
    """Forecast a class for every node of a type.

    Arguments as :class:`NodeRegressor`'s; classes are whole numbers in ``data.y``.

    Example:
        >>> from thrifty.models.se_htgnn import Edges
        >>> edges = {("a", "to", "a"): Edges(torch.tensor([[0, 1], [1, 2]]), torch.tensor([3, 5]))}
        >>> y = (torch.arange(20) % 2)[:, None].repeat(1, 4).float()
        >>> data = HeteroTemporalData({"a": 4}, edges, {"a": y[..., None]}, {"a": y})
        >>> model = NodeClassifier("a", hidden_channels=8, window=4, epochs=5, validation=4, random_state=0).fit(data)
        >>> model.predict_proba(data).shape
        (1, 4, 1, 2)

    Source:
        arXiv 2510.18467, sections 4.4 and 5.1.
    """

    metric, more_is_better = "macro_f1", True

    def predict_proba(self, data: HeteroTemporalData, targets: Sequence[int] | None = None
                      ) -> Float[np.ndarray, "window node horizon class"]:  # fmt: skip
        """Return the probability of each class.

        Args:
            data: The graph.
            targets: First target snapshots; the one after the last, if ``None``.
        """
        return self._probabilities(self._known(data), self._targets(data, targets))

    def predict(self, data: HeteroTemporalData, targets: Sequence[int] | None = None
                ) -> Int[np.ndarray, "window node horizon"]:  # fmt: skip
        """Return the likeliest class.

        Args:
            data: The graph.
            targets: First target snapshots; the one after the last, if ``None``.
        """
        found: NDArray[np.int64] = self.classes_[self.predict_proba(data, targets).argmax(-1)]
        return found

    def _probabilities(
        self, data: HeteroTemporalData, targets: Sequence[int]
    ) -> Float[np.ndarray, "window node horizon class"]:
        found: NDArray[np.float32] = torch.softmax(self._forecast(data, targets), -1).numpy()
        return found

    def _evaluate(self, data: HeteroTemporalData, targets: Sequence[int]) -> dict[str, float]:
        observed = self._observed(data, targets).numpy()
        known = np.isfinite(observed)
        if not known.any():
            raise ValueError(f"targets: expected labels of {self.target!r} in their snapshots, got none")
        predicted = self.classes_[self._probabilities(data, targets).argmax(-1)]
        return classification_metrics(predicted[known], observed[known].astype(np.int64))

    def _begin(self, data: HeteroTemporalData, split: Split) -> None:
        held = self._labels(data, split)
        known = held[torch.isfinite(held)]
        if len(strange := known[known != known.round()]):
            raise ValueError(f"y: expected classes as whole numbers, got {float(strange[0]):g}")
        self.classes_ = np.unique(known.numpy()).astype(np.int64)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected at least two classes in training, got {self.classes_.tolist()}")

    def _outputs(self) -> int:
        return len(self.classes_)

    def _objective(self, seed: int) -> nn.Module:
        return ClassificationObjective(self.model_, self.target, torch.from_numpy(self.classes_), self.horizon)

    def _state(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist()}

    def _restore(self, state: Mapping[str, Any], folder: Path) -> None:
        self.classes_ = np.array(state["classes"], dtype=np.int64)
        self.objective_ = self._objective(0)
