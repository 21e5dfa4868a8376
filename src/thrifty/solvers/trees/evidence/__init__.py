"""What `thrifty bench trees` measures: local search on decision trees, beside CART and what else one could pick.

The tables are those of the paper that a package carries (KEEL), and one that the paper does not use, ``satimage``
(six classes), chosen before anything was run.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.solvers.trees.evidence import fronts, optimum, scaling, speed, value

CLAIMS = (
    Claim(
        id="dp-speedup",
        text="Two adjustments are found at least 1000 times as fast as by the paper's programme in plain Python.",
        about="time",
        unit="ratio",
        contenders=("branch and bound", "plain dynamic programme"),
        target=Target(">=", 1000.0),
        gate=Gate("training errors", margin=0.0),
        published="their Python code: 33 of 47 adjustment tasks within an hour",
    ),
    Claim(
        id="k2-in-seconds",
        text="Two adjustments and two exchanges of CART trees with 96 and 186 cuts are proven best within 10 s each.",
        about="exactness",
        unit="of 4 proven",
        contenders=("branch and bound",),
        target=Target("==", 4.0),
        published="banana, 186 cuts (J48): k = 2 not finished within an hour, by adjustment or exchange",
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
        id="gap-to-optimal",
        text="Share of the way from CART's training errors to an optimal tree's (depth 3) that hill-climbing goes.",
        about="quality",
        unit="%",
        contenders=("hill-climb", "ConTree"),
    ),
    Claim(
        id="time-to-optimal",
        text="Hill-climbing a depth-3 tree is at least ten times as fast as finding the optimal one.",
        about="time",
        unit="ratio",
        contenders=("hill-climb", "ConTree"),
        target=Target(">=", 10.0),
        gate=Gate("test error", margin=0.01),
    ),
    Claim(
        id="states-scale",
        text="The dynamic programme visits at most (D + 1)^(2d) · s states.",
        about="exactness",
        unit="ratio",
        contenders=("dynamic programme",),
        target=Target("<=", 1.0),
        published="(D + 1)^(2d) · poly, Theorems 4.1 and 4.2",
    ),
    Claim(
        id="states-slope",
        text="Time grows with the number of states to this power (slope on logarithmic scales).",
        about="time",
        unit="exponent",
        contenders=("dynamic programme",),
    ),
    Claim(
        id="hardness",
        text="Time grows at least five times as much where only D or only d is bounded as where both are.",
        about="mechanism",
        unit="ratio",
        contenders=("dynamic programme",),
        target=Target(">=", 5.0),
        published="NP-hard for D = 2 alone, W[1]-hard in d alone, tractable in both together",
    ),
    Claim(
        id="pruning-front",
        text="Errors with two cuts left after one exchange, as a share of those of pruning alone.",
        about="quality",
        unit="ratio",
        contenders=("prune and exchange", "pruning alone"),
    ),
)


def prepare() -> None:
    """Compile the kernels, which numba keeps for the next run."""
    speed.compile_kernels()


def run(ctx: Context) -> Evidence:
    """Measure what people ask for first; a table of one's own takes the place of all the others."""
    evidence = ctx.evidence("classification tables of the KEEL repository, with trees by scikit-learn's CART")
    if ctx.data is None:
        speed.show(ctx, evidence)
    value.show(ctx, evidence)
    if ctx.data is None:
        for part in (optimum, scaling, fronts):
            part.show(ctx, evidence)
    return evidence
