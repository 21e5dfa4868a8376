"""Learning rates of fine-tuning: one grid, one tuning split, each contender its own best (not run by the bench)."""

from __future__ import annotations

import json
import statistics
import sys

from thrifty.bench.timing import threads
from thrifty.data.influence.evidence import comparison, workloads

GRID = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def tune(seeds: int = 2) -> dict[str, float]:
    """Return each contender's best rate on rows that no evidence sees; print the spread between seeds."""
    found: dict[str, dict[float, list[float]]] = {name: {} for name in comparison.CONTENDERS}
    with threads(1):
        for seed in range(100, 100 + seeds):
            scene = workloads.byte_scene(seed, split="tune")
            chosen = comparison.selections(scene, comparison.score(scene))
            for rate in GRID:
                tuned = workloads.replace_rates(scene, rate)
                for name, loss in comparison.losses(tuned, chosen).items():
                    found[name].setdefault(rate, []).append(loss)
            sys.stderr.write(json.dumps(found) + "\n")
    best = {name: min(by_rate, key=lambda rate: statistics.mean(by_rate[rate])) for name, by_rate in found.items()}
    ours, rds = found[comparison.OURS][best[comparison.OURS]], found[comparison.RDS][best[comparison.RDS]]
    apart = [a - b for a, b in zip(ours, rds, strict=True)]
    sys.stderr.write(f"best {best}; ours - RDS+: {apart}, standard deviation {statistics.stdev(apart):.4f}\n")
    return best


if __name__ == "__main__":
    tune()
