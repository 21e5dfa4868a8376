"""The learning rates of the contenders, and how they were found: one grid, one budget, one validation split for all.

``python -m thrifty.training.sumo.evidence.tuning`` runs the search again (the bench does not) and prints both tables.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence

import torch

from thrifty.training.sumo.evidence import digits, language
from thrifty.training.sumo.evidence.contenders import GRID, RIVALS, SUMO_OPTIONS


def tune(workload: str, names: Sequence[str] = ()) -> dict[str, list[float]]:
    """Return the validation loss of each contender at each rate of the grid (seed 1000, which no report uses)."""
    text = language.read_text(None) if workload == "language" else None

    def final(name: str, lr: float) -> float:
        if text is None:
            return digits.train(name, lr, seed=1000, held_out="validation").final
        run = language.train(
            name, lr, text, steps=language.TUNE_STEPS, seed=1000, held_out="validation", every=language.TUNE_STEPS
        )
        return run.final

    return {name: _over_the_grid(name, final) for name in names or (*SUMO_OPTIONS, *RIVALS)}


def _over_the_grid(name: str, final: Callable[[str, float], float]) -> list[float]:
    losses = []
    for lr in GRID:
        try:
            loss = final(name, lr)
        except (ValueError, RuntimeError):  # it diverged
            loss = math.inf
        losses.append(loss if math.isfinite(loss) else math.inf)
    sys.stderr.write(json.dumps([name, losses]) + "\n")
    return losses


if __name__ == "__main__":
    torch.set_num_threads(1)
    for workload_ in sys.argv[1:2] or ("digits", "language"):
        for name_, losses_ in tune(workload_, sys.argv[2:]).items():
            sys.stdout.write(f"{workload_} {name_}: {dict(zip(GRID, losses_, strict=True))}\n")
