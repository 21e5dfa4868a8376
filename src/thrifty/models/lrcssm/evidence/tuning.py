"""How the contenders' rates were found: one grid, one budget, validation splits of three training sets, for all.

``python -m thrifty.models.lrcssm.evidence.tuning`` runs the search again (the bench does not) and prints the table.
"""

from __future__ import annotations

import json
import sys

from thrifty.models.lrcssm.evidence.contenders import GRID, RATES
from thrifty.models.lrcssm.evidence.training import accuracy, validation

#: Epochs of each set.
SETS, SEED = {"BasicMotions": 15, "JapaneseVowels": 10, "ItalyPowerDemand": 40}, 1000


def tune(name: str) -> dict[float, float]:
    """Return a contender's mean validation accuracy at each rate."""
    return {
        lr: sum(accuracy(name, validation(kind), lr, SEED, epochs) for kind, epochs in SETS.items()) / len(SETS)
        for lr in GRID
    }


if __name__ == "__main__":
    for name_ in sys.argv[1:] or RATES:
        found = tune(name_)
        best = max(found, key=lambda lr: (found[lr], -lr))
        sys.stdout.write(json.dumps({"name": name_, "best": best, "accuracy": found}) + "\n")
        sys.stdout.flush()
