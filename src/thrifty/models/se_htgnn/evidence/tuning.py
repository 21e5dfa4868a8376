"""How the contenders' settings were found: one grid, one budget, the same validation snapshots, for all.

``python -m thrifty.models.se_htgnn.evidence.tuning flights|covid|links [NAME ...]`` searches again (the bench does not)
and prints the tables. Test snapshots are not looked at, and no seed is one of the bench's own.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

from thrifty.models.se_htgnn.evidence import accuracy, covid, flights, links
from thrifty.models.se_htgnn.evidence.contenders import GRID, RATES, WINDOW, train

#: Where a run takes a contender minutes, only the first.
SEEDS = (1000, 1001)


def on_flights(name: str, seed: int, lr: float) -> float:
    """Return the validation error in minutes."""
    return train(name, flights.graph(), flights.TARGET, flights.split(WINDOW), seed, epochs=accuracy.EPOCHS,
                 patience=accuracy.PATIENCE, lr=lr, test=False)["validation"]  # fmt: skip


def on_covid(name: str, seed: int, lr: float) -> float:
    """Return the validation error in cases."""
    return covid.one(covid.graph(), name, seed, lr, test=False)["validation"]


def on_links(name: str, seed: int, lr: float) -> float:
    """Return 1 less the AUC of the validation day."""
    return 1 - links.one(links.graph(), name, seed, lr, test=False)["validation"]


#: By workload: who is compared, and the error of one run.
SEARCHES: dict[str, tuple[Any, Callable[[str, int, float], float]]] = {
    "flights": (RATES, on_flights),
    "covid": (covid.RATES, on_covid),
    "links": (links.RATES, on_links),
}


def tune(workload: str, name: str) -> dict[float, float]:
    """Return a contender's mean validation error at each rate."""
    seeds, error = SEEDS if workload == "flights" else SEEDS[:1], SEARCHES[workload][1]
    return {lr: statistics.mean(error(name, seed, lr) for seed in seeds) for lr in GRID}


if __name__ == "__main__":
    chosen = sys.argv[1]
    for contender in sys.argv[2:] or SEARCHES[chosen][0]:
        table = tune(chosen, contender)
        best = min(table, key=lambda lr: (table[lr], lr))
        sys.stdout.write(json.dumps({"workload": chosen, "name": contender, "best": best, "error": table}) + "\n")
        sys.stdout.flush()
