"""The learning rates of the contenders, and how they were found: one grid, one budget, one validation split for all.

``python -m thrifty.training.sumo.evidence.tuning`` runs the search again (the bench does not) and prints the tables.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

import torch

from thrifty.training.sumo.evidence import digits, finetune, language
from thrifty.training.sumo.evidence.contenders import GRID, RIVALS, SUMO_OPTIONS


def tune(workload: str, names: Sequence[str] = ()) -> dict[str, dict[float, float]]:
    """Return the validation loss of each contender at each rate of the grid (seed 1000, which no report uses).

    Args:
        workload: ``"digits"``, ``"language"`` or ``"smollm2"``.
        names: Of contenders; all by default.
    """
    text = language.read_text(None)

    def final(name: str, lr: float) -> float:
        if workload == "digits":
            return digits.train(name, lr, seed=1000, held_out="validation").final
        if workload == "smollm2":
            return finetune.finetune(name, lr, text, seed=1000, held_out="validation")["loss"]
        steps = language.TUNE_STEPS
        return language.train(name, lr, text, steps=steps, seed=1000, held_out="validation", every=steps).final

    grid, everyone = (finetune.GRID, finetune.RATES) if workload == "smollm2" else (GRID, (*SUMO_OPTIONS, *RIVALS))
    return {name: _over_the_grid(name, grid, final) for name in names or everyone}


def _over_the_grid(name: str, grid: Sequence[float], final: Callable[[str, float], float]) -> dict[float, float]:
    losses = {}
    for lr in grid:
        try:
            loss = final(name, lr)
        except (ValueError, RuntimeError):  # it diverged
            loss = math.inf
        losses[lr] = loss if math.isfinite(loss) else math.inf
    return losses


if __name__ == "__main__":
    torch.set_num_threads(1)
    for workload_ in sys.argv[1:2] or ("digits", "language", "smollm2"):
        for name_, losses_ in tune(workload_, sys.argv[2:]).items():
            sys.stdout.write(f"{workload_} {name_}: {losses_}\n")
