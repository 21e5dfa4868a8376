"""The learning rates of the contenders, and how they were found: one grid, budget and validation split for all.

``python -m thrifty.training.amorlip.evidence.tuning`` runs the search again (the bench does not) and prints the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import torch

from thrifty.training.amorlip.evidence import pictures
from thrifty.training.amorlip.evidence.contenders import OURS, RIVALS
from thrifty.training.amorlip.evidence.training import train

#: Where the search begins; it goes on by a factor of two while the best rate is at an end.
GRID = (5e-4, 1e-3, 2e-3, 4e-3)

#: Steps of a tuning run, by the batch.
STEPS = {32: 400, 8: 600}

#: By the batch: the rate with the best R@10 on the validation split, seed 1000.
RATES: Mapping[int, Mapping[str, float]] = {
    32: dict(zip((OURS, *RIVALS), (2e-3, 2e-3, 1e-3, 1e-3, 1e-3, 2e-3), strict=True)),
    8: dict(zip((OURS, *RIVALS), (1e-3, 1e-3, 1e-3, 1e-3, 5e-4, 1e-3), strict=True)),
}


def tune(batch: int, names: Sequence[str] = ()) -> dict[str, dict[float, float]]:
    """Return R@10 on the validation split of each contender at each rate (seed 1000, which no report uses).

    Args:
        batch: Pairs a step.
        names: Of contenders; all by default.
    """
    data = pictures.load()
    found: dict[str, dict[float, float]] = {}
    for name in names or (OURS, *RIVALS):
        seen = found.setdefault(name, {})
        rates: Sequence[float] = GRID
        while rates:
            for lr in rates:
                run = train(name, lr, data, batch=batch, steps=STEPS[batch], seed=1000, held_out="validation")
                seen[lr] = run["r10"]
                sys.stdout.write(f"{batch} {name} {lr:g}: {run['r10']:.2f}\n")
                sys.stdout.flush()
            best = max(seen, key=lambda lr: seen[lr])
            rates = [best / 2] if best == min(seen) else [2 * best] if best == max(seen) else []
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    for batch_ in map(int, sys.argv[1:2] or STEPS):
        tune(batch_, sys.argv[2:])
