"""The errors of recourse that a caller may want to tell apart."""

from __future__ import annotations


class EpsilonTooLargeError(ValueError):
    """No row whatever can be certified: the ellipsoid holds a model that never gives the wanted class.

    Args:
        epsilon: The tolerance that was asked for.
        max_epsilon: The largest below which some row can be certified.
    """

    def __init__(self, epsilon: float, max_epsilon: float) -> None:
        super().__init__(
            f"epsilon: expected a tolerance below {max_epsilon:.6g} (or a better classifier), got {epsilon:.6g}, where "
            "the ellipsoid holds a model that never gives the wanted class, so that no row can be certified"
        )
        self.epsilon = epsilon
        self.max_epsilon = max_epsilon


class UnsupportedModelError(TypeError):
    """The model's last layer is not linear, or it cannot be found."""
