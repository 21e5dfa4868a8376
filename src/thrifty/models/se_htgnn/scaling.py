"""Targets in units in which a network learns easily, and back: shifted and scaled by training snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


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
