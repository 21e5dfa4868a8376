"""What the amortisation networks are fitted with: divergences between a target partition function and a predicted one.

Per sample, with y = log target − log λ (arXiv 2505.18983, equations 7 to 9; the table of each is in
:data:`OBJECTIVES`). The paper's KL is f(t) = t log t of quantities that are not normalised: it is negative below t =
1, and its minimum is at λ = e·target. ``gkl`` is the same divergence with the terms that normalisation would have
made constant, e^y y − e^y + 1: its minimum is 0, at λ = target. ``neuclip`` is linear in the target (arXiv
2511.08417), so that a noisy estimate of Z gives an unbiased gradient: its minimum is at the mean of Z, not of log Z.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from thrifty._common.checks import one_of

#: Above it e^y is taken at the limit: a network that starts far too low must not blow up its own gradient.
LARGEST_EXPONENT = 20.0


def _l2_log(y: Tensor, log_ratio: Tensor) -> Tensor:
    return y.square()


def _kl(y: Tensor, log_ratio: Tensor) -> Tensor:
    return _exp(log_ratio) * y


def _gkl(y: Tensor, log_ratio: Tensor) -> Tensor:
    ratio = _exp(log_ratio)
    return ratio * y - ratio + 1


def _js(y: Tensor, log_ratio: Tensor) -> Tensor:
    # The unmixed ratio would move the minimum away from λ = target (its derivative there is (1 − e^{y_batch})/4).
    ratio = _exp(y)
    half = functional.softplus(y.clamp(max=LARGEST_EXPONENT)) - 0.6931471805599453
    return 0.5 * (ratio * y - (ratio + 1) * half)


def _neuclip(y: Tensor, log_ratio: Tensor) -> Tensor:
    return _exp(y) - y - 1


#: Name to the value a sample, of y and of log(Z / λ) with the batch's own Z, which is y where nothing is mixed in.
OBJECTIVES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "l2_log": _l2_log,
    "kl": _kl,
    "gkl": _gkl,
    "js": _js,
    "neuclip": _neuclip,
}

#: Divergences that are kept near the target by a small share of ``l2_log``.
REGULARISED = ("kl", "gkl", "js")

#: Those whose sum the authors' code divides by the batch once too often.
SCALED_OFFICIALLY = ("kl", "js")


def amortization_objective(
    log_target: Float[Tensor, " batch"],
    log_lambda: Float[Tensor, " batch"],
    objective: str = "l2_log",
    *,
    log_batch: Float[Tensor, " batch"] | None = None,
    log_positive: Float[Tensor, " batch"] | None = None,
    div_reg: float = 0.1,
    official_scaling: bool = False,
) -> Float[Tensor, ""]:
    """Return the mean over a batch of how far log λ is from its target.

    Args:
        log_target: What λ should be, mixed with the earlier network's prediction or not.
        log_lambda: What the network says.
        objective: A name of :data:`OBJECTIVES`.
        log_batch: The batch's own log Z, where the target is mixed: numerator of ``kl`` and ``gkl``.
        log_positive: log κ e^{A_ii}, where the networks fit the negatives alone: added to both sides, except by
            ``l2_log`` and ``neuclip``, which compare the networks with what they fit.
        div_reg: Share of ``l2_log`` in ``kl``, ``gkl`` and ``js``.
        official_scaling: Divide ``kl`` or ``js``, but not the share of ``l2_log``, by the batch once more, as the
            authors' code does: at a batch of 1024 the published rows are then l2-log in all but name.

    Raises:
        ValueError: There is no such objective, or none whose scale the authors' code changes.

    Example:
        >>> import torch
        >>> target = torch.zeros(4)
        >>> round(amortization_objective(target, target - 0.5, "kl", div_reg=0.0).item(), 5)
        0.82436
        >>> amortization_objective(target, target, "gkl").item()
        0.0

    Source:
        arXiv 2505.18983, section 3.2.
    """
    one_of("objective", objective, OBJECTIVES)
    if official_scaling and objective not in SCALED_OFFICIALLY:
        raise ValueError(
            f"official_scaling: expected the objective {' or '.join(SCALED_OFFICIALLY)} with it, got {objective!r}"
        )
    plain = log_target - log_lambda
    log_batch = log_target if log_batch is None else log_batch
    if log_positive is not None and objective in REGULARISED:
        log_target, log_lambda, log_batch = (
            torch.logaddexp(side, log_positive) for side in (log_target, log_lambda, log_batch)
        )
    value = OBJECTIVES[objective](log_target - log_lambda, log_batch - log_lambda).mean()
    if official_scaling:
        value = value / len(log_lambda)
    if objective in REGULARISED and div_reg:
        value = value + div_reg * plain.square().mean()
    return value


def _exp(y: Tensor) -> Tensor:
    return y.clamp(max=LARGEST_EXPONENT).exp()
