"""Refusing settings that will not do: each message names the argument, what came, and what would do."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.ellice.errors import EpsilonTooLargeError

if TYPE_CHECKING:
    from thrifty.solvers.ellice.explainer import ElliCE
    from thrifty.solvers.ellice.reading import Reading

#: Spreads of columns that differ by more than this make a plain distance meaningless.
UNSCALED = 1e3


def check_number(name: str, value: Any, what: str, *, least: float = -math.inf) -> None:
    """Refuse what is no finite number, or too small.

    Args:
        name: How the argument is called.
        value: What came.
        what: What would do.
        least: The smallest that would.

    Raises:
        ValueError: It is none, or smaller.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not (math.isfinite(value) and float(value) >= least):
        raise ValueError(f"{name} is {value!r}; it is {what}")


def check_whole(name: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number.

    Raises:
        ValueError: It is none, or smaller than ``least``.
    """
    whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or value < least:
        raise ValueError(f"{name} is {value!r}; it is a whole number, at least {least}")
    return int(value)


def check_choice(name: str, value: Any, options: Sequence[str | None]) -> None:
    """Refuse what is not among the options.

    Raises:
        ValueError: It is not.
    """
    if not (isinstance(value, str) or value is None) or value not in options:
        said = [repr(option) for option in options]
        raise ValueError(f"{name} is {value!r}; it is {', '.join(said[:-1])} or {said[-1]}")


def check_settings(explainer: ElliCE) -> None:
    """Refuse settings that are wrong whatever the model is.

    Raises:
        ValueError: One is; the message names it.
    """
    from thrifty.solvers.ellice.distances import check_distance
    from thrifty.solvers.ellice.labels import threshold_logit
    from thrifty.solvers.ellice.supports import check_sparsity

    check_choice("method", explainer.method, ("auto", "exact", "gradient", "data"))
    check_choice("solver", explainer.solver, ("auto", "clarabel", "bisection"))
    check_choice("preset", explainer.preset, ("closest", "library", "paper"))
    check_choice("certify", explainer.certify, ("ellipsoid", "rashomon"))
    check_distance(explainer.distance)
    check_sparsity(explainer.sparsity)
    check_whole("n_counterfactuals", explainer.n_counterfactuals)
    check_whole("max_combinations", explainer.max_combinations)
    check_whole("n_restarts", explainer.n_restarts)
    if explainer.random_state is not None:
        check_whole("random_state", explainer.random_state, least=0)
    threshold_logit(explainer.threshold)


def method_for(explainer: ElliCE, reading: Reading) -> str:
    """Return the solver's name that ``method`` comes to for a model.

    Raises:
        ValueError: The two do not fit, or another setting does not fit the method.
    """
    fits = {"linear": ("exact", "gradient", "data"), "network": ("gradient", "data"), "opaque": ("data",)}[reading.kind]
    method = fits[0] if explainer.method == "auto" else explainer.method
    if method not in fits:
        why = {
            "network": "is a network, for which {g1 >= t} is not convex",
            "opaque": "has steps that cannot be undone, so rows cannot be made up",
        }[reading.kind]
        raise ValueError(f"method is {explainer.method!r}, but the model {why}; use {' or '.join(map(repr, fits))}")
    if explainer.distance == "sparse" and method != "data":
        raise ValueError("distance is 'sparse', which is for method='data'; otherwise keep changes few with sparsity=")
    if explainer.certify == "rashomon" and (method != "exact" or explainer.sparsity is not None):
        raise ValueError("certify is 'rashomon', which needs method='exact' (a linear model), without sparsity")
    if explainer.sparsity is not None and method == "data":
        raise ValueError("sparsity is for method 'exact' or 'gradient'; for 'data' use distance='sparse'")
    return method


def check_attainable(epsilon: float, most: float) -> None:
    """Refuse a tolerance at which no row whatever can be certified.

    Raises:
        thrifty.solvers.ellice.errors.EpsilonTooLargeError: It is one.
    """
    if epsilon >= most:
        raise EpsilonTooLargeError(epsilon, most)


def warn_if_unscaled(rows: NDArray[np.float64], weights: NDArray[np.float64]) -> None:
    """Warn where the columns of the training table are so far apart in scale that a plain distance means little."""
    spread = rows.std(axis=0) * np.sqrt(weights)
    spread = spread[spread > 0]
    if spread.size and spread.max() > UNSCALED * spread.min():
        warnings.warn(
            f"columns differ by a factor of {spread.max() / spread.min():.3g} in scale, so that a plain distance "
            "means little; put a StandardScaler in the model's pipeline, or give feature_weights",
            UserWarning,
            stacklevel=3,
        )
