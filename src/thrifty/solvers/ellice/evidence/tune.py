"""How the constants of ``settings.py`` were found: ``python -m thrifty.solvers.ellice.evidence.tune``.

For every table and seed the *training* rows are split once more; models are fitted, retrained and explained on those
parts alone, so that no test row is seen. Every contender has up to four settings to choose from (the margin has none to
choose), which are judged alike: by the mean height of the frontier between the nominal distance and twice that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from thrifty.bench.context import Context
from thrifty.bench.timing import threads
from thrifty.solvers.ellice.evidence import frontiers as f
from thrifty.solvers.ellice.evidence import networks, retrains, tables
from thrifty.solvers.ellice.evidence.settings import CANDIDATES, LINEAR, NETWORK, Settings

SEEDS = (0, 1)
PERSONS, MODELS = 25, 20
#: Distances at which a frontier's height is taken, in units of the nominal distance.
STOPS = np.linspace(1.0, 2.0, 11)

Measure = Callable[[str, int, Settings, str], f.Frontier]


def tune(
    measure: Measure, names: Sequence[str], start: Settings, contenders: Sequence[str] = tuple(CANDIDATES)
) -> Settings:
    """Choose every contender's setting on the validation splits of some tables."""
    chosen = start
    nominal = {(name, seed): measure(name, seed, start, "margin")[0][f.DISTANCE] for name in names for seed in SEEDS}
    for who in contenders:
        field, options = CANDIDATES[who]
        scores = []
        for option in options:
            heights = []
            for (name, seed), far in nominal.items():
                frontier = measure(name, seed, _with(start, field, option), who)
                if frontier:
                    heights += [f.share_at(frontier, stop * far) or 0.0 for stop in STOPS]
            scores.append(float(np.mean(heights)) if heights else float("nan"))
        if not np.isfinite(scores).any():
            continue  # this experiment leaves the contender out
        best = options[int(np.nanargmax(scores))]
        sys.stderr.write(f"{who}: {field}={best!r}; {dict(zip(options, np.round(scores, 4).tolist(), strict=True))}\n")
        chosen = _with(chosen, field, best)
    return chosen


def _with(settings: Settings, field: str, value: Any) -> Settings:
    return replace(settings, **{field: value})


def linear(name: str, seed: int, settings: Settings, who: str) -> f.Frontier:
    """Measure one contender's frontier with linear models, on a validation split."""
    case = tables.case(Context(()), name, seed, PERSONS, validation=True)
    found = retrains.frontiers(case, retrains.bootstrap(case, MODELS, seed), seed, settings, full=False, only=who)
    return found.get(who, [])


def network(name: str, seed: int, settings: Settings, who: str) -> f.Frontier:
    """Measure one contender's frontier with networks, on a validation split."""
    case = tables.case(Context(()), name, seed, PERSONS, validation=True)
    return networks.frontiers(case, MODELS, PERSONS, seed, settings, only=who).get(who, [])


if __name__ == "__main__":
    with threads(1):
        rivals = [who for who in CANDIDATES if who != f.OURS]  # a linear model's λ is that of its objective
        sys.stdout.write(f"LINEAR = {tune(linear, retrains.TABLES, LINEAR, rivals)}\n")
        sys.stdout.write(f"NETWORK = {tune(network, networks.TABLES, NETWORK)}\n")
