"""How the contenders' rates were found: one grid, one budget, three validation splits of each set, for all.

``python -m thrifty.models.lrcssm.evidence.tuning`` runs the search again (the bench does not) and prints the table.
"""

from __future__ import annotations

import json
import statistics
import sys

from thrifty.models.lrcssm.evidence.contenders import GRID, RATES
from thrifty.models.lrcssm.evidence.training import EPOCHS, accuracy, validation

#: Each fixes the split, the weights and the order of batches. BasicMotions is left out: everyone has it right.
SEEDS, SETS = (1000, 1001, 1002), ("ItalyPowerDemand", "GunPoint", "JapaneseVowels")


def tune(name: str) -> dict[float, float]:
    """Return a contender's mean validation accuracy at each rate."""
    return {
        lr: statistics.mean(accuracy(name, validation(k, s), lr, s, EPOCHS[k]) for k in SETS for s in SEEDS)
        for lr in GRID
    }


if __name__ == "__main__":
    for name_ in sys.argv[1:] or RATES:
        found = tune(name_)
        best = max(found, key=lambda lr: (found[lr], -lr))
        sys.stdout.write(json.dumps({"name": name_, "best": best, "accuracy": found}) + "\n")
        sys.stdout.flush()
