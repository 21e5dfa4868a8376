"""The ellipsoid R̂(ε) = {θ : ½ (θ−θ̂)ᵀ H (θ−θ̂) ≤ ε}, and all that is known of it in closed form.

Everything rests on one Cholesky factor H = LLᵀ in float64: x̃ᵀH⁻¹x̃ = ‖L⁻¹x̃‖², for a batch of rows by one triangular
solve. Theorem 1 and Corollary 1 of arXiv 2602.07674 give the worst model; the radius, the largest certifiable ε and
the exact attainability for one class follow from them (see the docstrings).

``sign`` is +1 where class 1 is wanted and −1 for class 0; ``threshold`` is a logit.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from thrifty.solvers.ellice.logistic import Rows, Theta


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """An ellipsoid of last-layer parameters.

    Attributes:
        theta: The centre θ̂, weights then bias; ``[m]``.
        cholesky: L, lower triangular, with H = LLᵀ; ``[m, m]``.
        epsilon: The tolerance ε ≥ 0, in units of the objective.
    """

    theta: Theta
    cholesky: Float[np.ndarray, "m m"]
    epsilon: float

    @property
    def size(self) -> int:
        """Number of parameters m."""
        return len(self.theta)

    @cached_property
    def whitening(self) -> Float[np.ndarray, "m m"]:
        """L⁻¹, by one triangular solve; certificates are then one matrix product."""
        return np.asarray(solve_triangular(self.cholesky, np.eye(self.size), lower=True))

    def with_epsilon(self, epsilon: float) -> Ellipsoid:
        """The same centre and Hessian with another tolerance."""
        made = replace(self, epsilon=epsilon)
        made.__dict__["whitening"] = self.whitening
        return made

    def spread(self, rows: Rows) -> Float[np.ndarray, " n"]:
        """Return √(x̃ᵀH⁻¹x̃) of every row: by how much the logit varies over the ellipsoid, for 2ε = 1."""
        white = rows @ self.whitening.T
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", white, white)))

    def nominal(self, rows: Rows) -> Float[np.ndarray, " n"]:
        """Return θ̂ᵀx̃ of every row."""
        logits: NDArray[np.float64] = rows @ self.theta
        return logits

    def robust(self, rows: Rows, sign: int) -> Float[np.ndarray, " n"]:
        """Return the logit under the model of the ellipsoid that is worst for the wanted class (g₁, or g₀)."""
        return np.asarray(self.nominal(rows) - sign * np.sqrt(2 * self.epsilon) * self.spread(rows))

    def worst_model(self, row: Theta, sign: int) -> Theta:
        """Return θ_w = θ̂ ∓ √(2ε) H⁻¹x̃ / √(x̃ᵀH⁻¹x̃), at which the worst logit of a row x̃ is attained."""
        turned = cho_solve((self.cholesky, True), row)
        worst: Theta = self.theta - sign * np.sqrt(2 * self.epsilon / (row @ turned)) * turned
        return worst

    def radius(self, rows: Rows, sign: int, threshold: float) -> Float[np.ndarray, " n"]:
        """Return ε* of every row, the largest ε at which it is certified: max(0, ±(θ̂ᵀx̃−t))² / (2 x̃ᵀH⁻¹x̃)."""
        surplus = np.maximum(0.0, sign * (self.nominal(rows) - threshold))
        radius: NDArray[np.float64] = 0.5 * (surplus / self.spread(rows)) ** 2
        return radius

    def max_epsilon(self, sign: int | None = None, threshold: float = 0.0) -> float:
        """Return the ε from which on no row x̃ = [z; 1], z any vector at all, can be certified.

        With H⁻¹ = B split at the bias, c = −B_xx⁻¹ b and κ = b_bb − bᵀB_xx⁻¹b, the best row z has
        g = l − √(κ (2ε − ρ)) for 2ε ≥ ρ, where ρ = θ_xᵀB_xx⁻¹θ_x and l = ±(θ_xᵀc + θ_b − t); below that there is no
        limit. So the answer is ρ/2, plus l²/(2κ) if l > 0. At t = 0 the larger of the two classes' is θ̂ᵀHθ̂/2, where
        the ellipsoid comes to hold θ = 0.

        Args:
            sign: The wanted class; ``None``: the larger of both.
            threshold: As a logit.
        """
        if sign is None:
            return max(self.max_epsilon(1, threshold), self.max_epsilon(-1, threshold))
        inverse = cho_solve((self.cholesky, True), np.eye(self.size))
        b, weights, bias = inverse[:-1, -1], self.theta[:-1], self.theta[-1]
        factor = cho_factor(inverse[:-1, :-1], lower=True)
        rho = float(weights @ cho_solve(factor, weights))
        turned = cho_solve(factor, b)
        kappa = float(inverse[-1, -1] - b @ turned)
        surplus = sign * float(bias - threshold - weights @ turned)
        return 0.5 * (rho + max(0.0, surplus) ** 2 / kappa)

    def excess(self, thetas: Float[np.ndarray, "k m"]) -> Float[np.ndarray, " k"]:
        """Return ½ (θ−θ̂)ᵀ H (θ−θ̂) of every model: its rise of the objective to second order."""
        moved = (np.atleast_2d(thetas) - self.theta) @ self.cholesky
        return np.asarray(0.5 * np.einsum("ij,ij->i", moved, moved))

    def sample(self, k: int, rng: np.random.Generator, *, on_surface: bool = False) -> Float[np.ndarray, "k m"]:
        """Draw models uniformly: θ̂ + √(2ε) L⁻ᵀ u r, u on the unit sphere, r = U^(1/m), or 1 on the surface."""
        u = rng.standard_normal((k, self.size))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        if not on_surface:
            u *= rng.random((k, 1)) ** (1 / self.size)
        drawn: NDArray[np.float64] = (
            self.theta + np.sqrt(2 * self.epsilon) * solve_triangular(self.cholesky, u.T, lower=True, trans="T").T
        )
        return drawn

    def shape(self) -> Float[np.ndarray, "m m"]:
        """Return √(2ε) L⁻¹, whose product with x̃ has the norm that is taken off the logit."""
        scaled: NDArray[np.float64] = np.sqrt(2 * self.epsilon) * self.whitening
        return scaled


def cholesky_of(H: Float[np.ndarray, "m m"], l2: float) -> Float[np.ndarray, "m m"]:
    """Return the Cholesky factor L of a Hessian H = LLᵀ; warn where it is little more than the penalty's λI.

    Raises:
        ValueError: H is singular.
    """
    try:
        cholesky = np.linalg.cholesky(H)
    except np.linalg.LinAlgError:
        cholesky = np.zeros_like(H)
    if np.diag(cholesky).min() <= 1e-7 * np.sqrt(np.diag(H).max()):
        raise ValueError(f"l2: expected a larger one (1e-3 in the paper), got {l2}, with which the Hessian is singular")
    if float(np.trace(H)) < 2 * len(H) * l2:
        warnings.warn(
            "the model is so sure of nearly all training rows (separable data, or too weak a penalty) that the "
            f"ellipsoid is set by l2={l2} rather than by the data",
            UserWarning,
            stacklevel=5,
        )
    return np.asarray(cholesky)
