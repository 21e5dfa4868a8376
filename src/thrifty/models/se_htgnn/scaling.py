"""Features and targets in units in which a network learns easily, by training snapshots; targets back again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thrifty.models.se_htgnn.temporal import HeteroTemporalData


@dataclass(frozen=True)
class Scaling:
    """z = (f(y) - center) / scale, with f the identity or log(1 + y).

    Args:
        center: Taken off.
        scale: Divided by.
        log: Take log(1 + y) first: for counts that span orders of magnitude.
    """

    center: float = 0.0
    scale: float = 1.0
    log: bool = False

    @classmethod
    def of(cls, values: Tensor, log: bool = False) -> Scaling:
        """Return the scaling by the median and the mean absolute deviation of known values.

        Args:
            values: Of training snapshots; NaN is left out.
            log: Take log(1 + y) first.

        Raises:
            ValueError: No value is known, or one is below 0 and ``log`` is on.
        """
        known = values[torch.isfinite(values)].double()
        if not len(known):
            raise ValueError("y: expected at least one observed value in training, got none")
        if log and float(known.min()) < 0:
            raise ValueError(f"log1p: expected targets of at least 0, got {float(known.min()):g}")
        known = torch.log1p(known) if log else known
        center = float(known.median())
        scale = float((known - center).abs().mean())
        return cls(center, scale if scale > 0 else 1.0, log)

    def __call__(self, y: Tensor) -> Tensor:
        """Return scaled values."""
        return ((torch.log1p(y.clamp(min=0)) if self.log else y) - self.center) / self.scale

    def invert(self, z: NDArray[Any]) -> NDArray[Any]:
        """Return values in their own unit."""
        y = z * self.scale + self.center
        return np.expm1(y) if self.log else y

    def to_list(self) -> Sequence[float | bool]:
        """Return center, scale and log."""
        return [self.center, self.scale, self.log]


@dataclass(frozen=True)
class FeatureScaling:
    """x = (x - center) / scale for every feature of the nodes that are present; absent nodes keep their zeros.

    Args:
        center: By node type, taken off; nothing is done to a type that is not there.
        scale: By node type, divided by.
    """

    center: Mapping[str, Sequence[float]] = field(default_factory=dict)
    scale: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, data: HeteroTemporalData, snapshots: int) -> Self:
        """Return the scaling by mean and standard deviation over present nodes.

        Args:
            data: The graph.
            snapshots: How many of its first snapshots are of training.
        """
        center, scale = {}, {}
        for name, x in data.x.items():
            known = x[:snapshots][data.present[name][:snapshots]].double()
            if len(known):
                spread = known.std(0, correction=0)
                center[name] = known.mean(0).tolist()
                scale[name] = torch.where(spread > 0, spread, 1.0).tolist()
        return cls(center, scale)

    def __call__(self, data: HeteroTemporalData) -> HeteroTemporalData:
        """Return a graph with scaled features."""
        x = dict(data.x)
        for name, center in self.center.items():
            if name in x:
                scaled = (x[name].double() - torch.tensor(center, dtype=torch.float64)) / torch.tensor(self.scale[name])
                x[name] = torch.where(data.present[name].unsqueeze(-1), scaled, 0.0).float()
        return data.with_features(x)

    def to_json(self) -> dict[str, Any]:
        """Return what JSON can carry."""
        return {"center": self.center, "scale": self.scale}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` gave."""
        return cls(found["center"], found["scale"])
