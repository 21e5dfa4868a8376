"""What every solver returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from thrifty.solvers.trees.instance.problem import Cuts

Status = Literal["optimal", "local optimum", "time limit"]


@dataclass(frozen=True, eq=False)
class Solution:
    """The tests found, and what is proved about them.

    Attributes:
        cuts: The tests with the fewest errors found.
        errors_by_budget: Training errors of the best tree for each number of changes 0, 1, ..., k.
        status: ``"optimal"``: no tree within k changes makes fewer errors. ``"local optimum"``: none within k
            changes *of the tree returned* does. ``"time limit"``: the search was cut short.
        lower_bound: No tree within k changes of the tree as given makes fewer errors than this.
        n_states: Sweeps, states or trees evaluated, by the solver's own measure.
    """

    cuts: Cuts
    errors_by_budget: tuple[float, ...]
    status: Status
    lower_bound: float
    n_states: int
