"""What can be promised of an LRC layer before any data, and what the data then show."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty.models.lrcssm.cells.certified import bound
from thrifty.models.lrcssm.cells.lrc import LRCCell
from thrifty.models.lrcssm.inputs import blend, check_input
from thrifty.models.lrcssm.layer import DiagonalRNN
from thrifty.models.lrcssm.scans.affine import shifted
from thrifty.models.lrcssm.solvers.newton import solve
from thrifty.models.lrcssm.solvers.recurrence import Recurrence


@dataclass(frozen=True)
class Observed:
    """What a batch showed.

    Args:
        jacobian: Lowest and highest entry of any step's Jacobian.
        log_product: The largest log of a product of absolute Jacobians over all steps from the first, over channels
            and times: above 0 a disturbance of the first state grew.
        state: The largest absolute state, as a share of its bound.
        n_iter: Newton iterations of the slowest sequence.

    Example:
        >>> seen = certificate(DiagonalRNN("lrc", 3, 16, rho=0.95), torch.randn(2, 50, 3)).observed
        >>> seen.jacobian[1] <= 0.95 and seen.state <= 1
        True
    """

    jacobian: tuple[float, float]
    log_product: float
    state: float
    n_iter: int


@dataclass(frozen=True)
class Certificate:
    """What holds for every input, and, with data, what was seen.

    Args:
        rho: The bound on |J| that is enforced; ``None``: none is.
        jacobian: The interval that every Jacobian lies in, for all inputs; ``None``: nothing is known.
        excess: c of every channel; 1 at most means that the weights need no reduction to be certified.
        state: X of every channel.
        observed: With data: what was seen.

    Example:
        >>> print(certificate(DiagonalRNN("lrc", 3, 16, rho=0.5)).describe().splitlines()[0])
        certified: every step's Jacobian lies in [-0.5, 0.5], whatever the input
    """

    rho: float | None
    jacobian: tuple[float, float] | None
    excess: Float[Tensor, " D"]
    state: Float[Tensor, " D"]
    observed: Observed | None = None

    @property
    def stable(self) -> bool:
        """Whether no disturbance of a state can grow, whatever the input."""
        return self.jacobian is not None and max(map(abs, self.jacobian)) <= 1

    def describe(self) -> str:
        """Return the certificate in words."""
        lines = []
        if self.jacobian is None:
            lines.append(
                f"not certified: {int((self.excess > 1).sum())} of {len(self.excess)} channels exceed the bound "
                f"(largest c {float(self.excess.max()):.3g}); rho=0.99 would enforce it"
            )
        else:
            low, high = self.jacobian
            lines.append(f"certified: every step's Jacobian lies in [{low:.4g}, {high:.4g}], whatever the input")
        lines.append(f"states stay below {float(self.state.max()):.4g} in absolute value")
        if self.observed is not None:
            low, high = self.observed.jacobian
            lines.append(
                f"on the data: Jacobians in [{low:.4g}, {high:.4g}], largest log-product "
                f"{self.observed.log_product:.4g}, states at most {self.observed.state:.3g} of their bound, "
                f"{self.observed.n_iter} Newton iterations"
            )
        return "\n".join(lines)


@torch.no_grad()
def certificate(layer: DiagonalRNN, u: Float[Tensor, "batch time n"] | None = None) -> Certificate:
    """Return what is guaranteed of an LRC layer, and, with inputs, what they show.

    Args:
        layer: A layer with a real LRC, STC or ablated cell, in one direction.
        u: Inputs to look at.

    Raises:
        TypeError: It is no such layer.
        ValueError: The cell has no bound (without saturation, complex, or with a free elastance).

    Example:
        >>> certificate(DiagonalRNN("lrc", 3, 16, rho=0.95)).stable
        True

    Source:
        the theorem of arXiv 2505.21717, section 3.3, with the bound made to hold (``cells/certified.py``).
    """
    if not hasattr(layer, "cell"):
        raise TypeError(f"layer: expected a DiagonalRNN, got {type(layer).__name__}")
    cell = layer.cell
    if not isinstance(cell, LRCCell) or layer.bidirectional:
        raise ValueError(f"layer: expected an LRC cell in one direction, got {type(cell).__name__}")
    found = bound(cell)
    certified = cell.rho is not None or bool((found.excess <= 1).all())
    rho = 1.0 if cell.rho is None else cell.rho
    interval = (rho * (1 - 2 * cell.dt), rho) if certified else None
    observed = None
    if u is not None:
        u = check_input(u, cell.input_size, cell.state_dtype)
        problem = Recurrence(cell, cell.precompute(u), (u.shape[0], u.shape[1]), *blend(u, None, cell.dt, cell.rho))
        x0 = layer.initial_state(len(u))
        x, info = solve(problem, x0, replace(layer.options, solver="newton", chunk=u.shape[1]))
        _, J = problem.phi_and_jacobian(shifted(x, x0))
        logs = J.abs().clamp(min=torch.finfo(J.dtype).tiny).log().cumsum(1)
        share = float((x.abs() / found.state.clamp(min=1e-30)).max())
        observed = Observed((float(J.min()), float(J.max())), float(logs.max()), share, int(info.n_iter.max()))
    return Certificate(cell.rho, interval, found.excess, found.state, observed)
