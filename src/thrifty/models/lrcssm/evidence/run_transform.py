"""Run by the evidence in a process of its own: aeon's MultiRocketHydra from its unpacked package; prints accuracies."""

from __future__ import annotations

import json
import sys
import types
import zipfile
from pathlib import Path
from typing import Any


def main(archive: str, *sets: str) -> None:
    """Unpack, import, fit and score."""
    folder = Path(archive).with_suffix("")
    if not (folder / "aeon").exists():
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
    sys.path.insert(0, str(folder))
    stand_in = types.ModuleType("deprecated")  # aeon marks old names with it, and nothing more
    sphinx = types.ModuleType("deprecated.sphinx")
    sphinx.deprecated = stand_in.deprecated = lambda *_, **__: lambda marked: marked  # type: ignore[attr-defined]
    sys.modules.update({"deprecated": stand_in, "deprecated.sphinx": sphinx})
    from aeon.classification.convolution_based import MultiRocketHydraClassifier  # type: ignore[import-not-found]

    from thrifty.bench.data import timeseries

    found = {}
    for name in sets:
        train, test = (_padded(part.X) for part in timeseries.load(name))
        labels = [part.y for part in timeseries.load(name)]
        model = MultiRocketHydraClassifier(n_jobs=1, random_state=0).fit(train, labels[0])
        found[name] = 100 * float((model.predict(test) == labels[1]).mean())
    sys.stdout.write("\n" + json.dumps(found) + "\n")


def _padded(X: list[Any]) -> Any:
    """Fill up with zeros what is shorter, which the transform cannot read otherwise."""
    import numpy as np

    longest = max(30, *(x.shape[1] for x in X))
    return np.stack([np.pad(x, ((0, 0), (0, longest - x.shape[1]))) for x in X])


if __name__ == "__main__":
    main(*sys.argv[1:])
