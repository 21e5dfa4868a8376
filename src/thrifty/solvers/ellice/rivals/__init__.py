"""What else one could pick, clean-room: a margin, ROAR, T:Rex:I, Δ-robust neighbours and PROPLACE.

All take encoded rows that should come to class 1, and return a changed row for each (NaN where they find none).
"""

from thrifty.solvers.ellice.rivals.descents import local_weights, roar, trex, wachter
from thrifty.solvers.ellice.rivals.margins import margin, margin_until_certified
from thrifty.solvers.ellice.rivals.weight_boxes import proplace, robust_neighbours, worst_logit_in_box

__all__ = [
    "local_weights",
    "margin",
    "margin_until_certified",
    "proplace",
    "roar",
    "robust_neighbours",
    "trex",
    "wachter",
    "worst_logit_in_box",
]
