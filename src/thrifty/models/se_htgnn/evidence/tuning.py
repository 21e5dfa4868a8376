"""How the contenders' rates were found: one grid, one budget, the same validation days, for all.

``python -m thrifty.models.se_htgnn.evidence.tuning`` runs the search again (the bench does not) and prints the table.
"""

from __future__ import annotations

import json
import statistics
import sys

from thrifty.models.se_htgnn.evidence import flights
from thrifty.models.se_htgnn.evidence.contenders import GRID, RATES, WINDOW, train

#: Fixes the weights and the order of steps; no seed of the bench's own runs. All have the same number of epochs.
SEEDS, EPOCHS = (1000, 1001), 20


def tune(name: str) -> dict[float, float]:
    """Return a contender's mean validation error, in minutes, at each rate; the test days are not looked at."""
    data, split = flights.graph(), flights.split(WINDOW)
    found = {}
    for lr in GRID:
        runs = [train(name, data, flights.TARGET, split, s, epochs=EPOCHS, lr=lr, test=False) for s in SEEDS]
        found[lr] = statistics.mean(run["validation"] for run in runs)
    return found


if __name__ == "__main__":
    for name_ in sys.argv[1:] or RATES:
        table = tune(name_)
        best = min(table, key=lambda lr: (table[lr], lr))
        sys.stdout.write(json.dumps({"name": name_, "best": best, "validation": table}) + "\n")
        sys.stdout.flush()
