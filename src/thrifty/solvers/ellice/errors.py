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
            f"epsilon is {epsilon:.6g}; no row can be certified for the wanted class unless it is below "
            f"{max_epsilon:.6g}, where the ellipsoid comes to hold a model that never gives that class; "
            "choose a smaller tolerance, or a better classifier"
        )
        self.epsilon = epsilon
        self.max_epsilon = max_epsilon


class UnsupportedModelError(TypeError):
    """The model's last layer is not linear, or it cannot be found."""
