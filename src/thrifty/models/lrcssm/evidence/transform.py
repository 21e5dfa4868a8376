"""Aeon's MultiRocketHydra from its unpacked package; run in a process of its own, which imports it."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np

from thrifty.bench import carried
from thrifty.models.lrcssm.evidence.training import splits


def accuracies(sets: list[str]) -> dict[str, float]:
    """Fit and score on each set, in per cent; of each the steps that the recurrent contenders read."""
    sys.path.insert(0, str(carried.unpacked("aeon")))
    stand_in = types.ModuleType("deprecated")  # aeon marks old names with it, and nothing more
    sphinx = types.ModuleType("deprecated.sphinx")
    sphinx.deprecated = stand_in.deprecated = lambda *_, **__: lambda marked: marked  # type: ignore[attr-defined]
    sys.modules.update({"deprecated": stand_in, "deprecated.sphinx": sphinx})
    from aeon.classification.convolution_based import MultiRocketHydraClassifier  # type: ignore[import-not-found]

    found = {}
    for name in sets:
        train, test = splits(name)
        model = MultiRocketHydraClassifier(n_jobs=1, random_state=0).fit(_padded(train.X), train.y)
        found[name] = 100 * float((model.predict(_padded(test.X)) == test.y).mean())
    return found


def _padded(X: Any) -> Any:
    """Return (n, channels, time), filled up to ten times the shortest kernel, which the transform cannot do without."""
    missing = max(0, 30 - X.shape[1])
    return np.pad(X, ((0, 0), (0, missing), (0, 0))).transpose(0, 2, 1).astype(np.float64)
