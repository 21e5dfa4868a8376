"""Settings of the retraining experiments, found by ``tune.py`` on validation splits; the bench reads, and never tunes.

Every contender's own robustness parameter (ε, τ, δ) is not tuned but swept: it makes the frontier. What is tuned is
the rest, four settings a contender, by the mean height of its frontier between the nominal distance and twice that.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What contenders are run with.

    Attributes:
        l2: λ in our Hessian.
        library_l2: λ in the authors' package.
        trex: Variance of T:Rex's neighbours, and its step size.
        roar: ROAR's price of distance, and its step size.
        proplace_k: Neighbours that span PROPLACE's hull.
        neighbours_walk: Halvings of the way to a Δ-robust neighbour.
    """

    l2: float = 1e-3
    library_l2: float = 1e-3
    trex: tuple[float, float] = (0.01, 0.01)
    roar: tuple[float, float] = (0.1, 0.01)
    proplace_k: int = 10
    neighbours_walk: int = 30


#: What :func:`~thrifty.solvers.ellice.evidence.tune.tune` tries: (field, candidates), four at most for each contender.
CANDIDATES = {
    "ElliCE": ("l2", (1e-4, 1e-3, 1e-2, 1e-1)),
    "ellice 0.1.4": ("library_l2", (1e-4, 1e-3, 1e-2, 1e-1)),
    "T:Rex": ("trex", ((0.01, 0.01), (0.01, 0.05), (0.1, 0.01), (0.1, 0.05))),
    "ROAR": ("roar", ((0.1, 0.01), (0.2, 0.01), (0.4, 0.01), (0.8, 0.01))),
    "PROPLACE": ("proplace_k", (5, 10, 20, 40)),
    "Δ-robust neighbours": ("neighbours_walk", (0, 30)),
}
#: For a linear model our λ is that of its objective, and no choice.
LINEAR = Settings(library_l2=0.1, roar=(0.2, 0.01))
NETWORK = Settings(l2=0.01, library_l2=0.1, roar=(0.2, 0.01))
