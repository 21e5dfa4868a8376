"""What `thrifty bench trees` measures: local search on decision trees, beside CART and what else one could pick.

The tables are those of the paper that a package carries (KEEL), and one that the paper does not use, ``satimage``
(six classes), chosen before anything was run.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.solvers.trees.evidence import speed, value

CLAIMS = (
    Claim(
        id="same-size-fewer-errors",
        text="Hill-climbed trees make fewer training errors than CART's trees of the same size, on every table.",
        about="quality",
        unit="ratio",
        contenders=("hill-climb", "CART"),
        target=Target("<", 1.0),
        gate=Gate("mean test error over all tables", margin=0.0),
        published="unpruned J48 trees cut back to the heuristic's size: errors −5.2 % (adjustment), −8.9 % (exchange)",
    ),
    Claim(
        id="vs-cart-fit",
        text="The best exchange of one cut, proven, takes at most ten CART fits (20 000 × 10, depth 4).",
        about="time",
        unit="ratio",
        contenders=("k=1 exchange", "CART"),
        target=Target("<=", 10.0),
        gate=Gate("training errors", margin=0.0),
    ),
)


def run(ctx: Context) -> Evidence:
    """Measure, cheapest first."""
    evidence = ctx.evidence("classification tables of the KEEL repository; trees by scikit-learn's CART")
    speed.show(ctx, evidence)
    value.show(ctx, evidence)
    return evidence
