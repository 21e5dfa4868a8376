"""The learning rates of the contenders, and the search that finds them: one grid, budget and validation split for all.

``python -m thrifty.training.leff.evidence.tuning`` runs the search (the bench does not) and prints the tables. So far
it was run in part, so that tuning was not equal: at the reported length LEFF, FedAvg and FedLoRA were tried at two
rates each and the head alone at one; the kin of FedLoRA, FedRA and BitFit take its rate, and those of FedAvg its.

Validation loss: LEFF 0.520 at 5e-5, 0.481 at 1e-4; FedAvg 0.485 and 0.440; FedLoRA 0.515 at 1e-3, 0.495 at 3e-3; the
head alone 0.537 at 1e-2. Pilots of fewer rounds ruled the others out: at 3e-4 and above LEFF did not learn and FedAvg
was worse, at 1e-3 the head hardly moved.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence

from thrifty.training.leff.evidence.contenders import BITFIT, FEDAVG, FEDLORA, FEDRA, GRID, HEAD, OURS
from thrifty.training.leff.evidence.federations import run

TUNED = (OURS, FEDAVG, FEDLORA, HEAD, FEDRA, BITFIT)


def tune(names: Sequence[str] = TUNED) -> Iterator[tuple[str, float, float]]:
    """Yield (contender, rate, validation loss) over the grid, at alpha 1 and with seed 1000, which no report uses.

    Args:
        names: Of contenders.
    """
    for name in names:
        for lr in GRID:
            loss = run(name, 1.0, 1000, lr=lr, held_out="validation")["loss"]
            yield name, lr, loss if math.isfinite(loss) else math.inf


if __name__ == "__main__":
    for name_, lr_, loss_ in tune(sys.argv[1:] or TUNED):
        sys.stdout.write(f"{name_} {lr_:g}: {loss_:.4f}\n")
        sys.stdout.flush()
