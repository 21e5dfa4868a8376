"""Estimators from their folders."""

from __future__ import annotations

from pathlib import Path

from thrifty.models.se_htgnn.links import LinkForecaster
from thrifty.models.se_htgnn.nodes import NodeClassifier, NodeRegressor
from thrifty.models.se_htgnn.saving import read_record

#: By the name that ``estimator.json`` holds.
ESTIMATORS: dict[str, type[NodeRegressor] | type[NodeClassifier] | type[LinkForecaster]] = {
    "NodeRegressor": NodeRegressor,
    "NodeClassifier": NodeClassifier,
    "LinkForecaster": LinkForecaster,
}


def load_forecaster(folder: str | Path, *, device: str = "cpu") -> NodeRegressor | NodeClassifier | LinkForecaster:
    """Return the fitted estimator, of whatever kind, that a folder holds.

    Args:
        folder: What ``save_pretrained`` wrote.
        device: Where it is to forecast.

    Raises:
        ValueError: It holds none.
        OSError: A file is missing.

    Example:
        >>> import torch
        >>> from thrifty.models.se_htgnn import Edges, HeteroTemporalData
        >>> edges = {("a", "to", "a"): Edges(torch.tensor([[0, 1], [1, 2]]), torch.tensor([3, 5]))}
        >>> y = torch.sin(torch.arange(9.0))[:, None].repeat(1, 3)
        >>> data = HeteroTemporalData({"a": 3}, edges, {"a": y[..., None]}, {"a": y})
        >>> NodeRegressor("a", window=2, epochs=1, validation=2).fit(data).save_pretrained("waves", force=True)
        >>> type(load_forecaster("waves")).__name__
        'NodeRegressor'

    Source:
        The file format is this package's own.
    """
    kind = read_record(folder)["estimator"]
    if kind not in ESTIMATORS:
        raise ValueError(f"folder: expected one of {', '.join(ESTIMATORS)} in {folder}, got {kind!r}")
    return ESTIMATORS[kind].from_pretrained(folder, device=device)
