"""Refusing settings that will not do: each message names the argument, what came, and what would do."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from thrifty._common.checks import one_of, whole
from thrifty.solvers.ellice.errors import EpsilonTooLargeError

if TYPE_CHECKING:
    from thrifty.solvers.ellice.explainer import ElliCE
    from thrifty.solvers.ellice.reading import Reading

#: Spreads of columns that differ by more than this make a plain distance meaningless.
UNSCALED = 1e3


def check_settings(explainer: ElliCE) -> None:
    """Refuse settings that are wrong whatever the model is.

    Raises:
        ValueError: One is; the message names it.
    """
    from thrifty.solvers.ellice.distances import check_distance
    from thrifty.solvers.ellice.labels import threshold_logit
    from thrifty.solvers.ellice.supports import check_sparsity

    one_of("method", explainer.method, ("auto", "exact", "gradient", "data"))
    one_of("solver", explainer.solver, ("auto", "clarabel", "bisection"))
    one_of("preset", explainer.preset, ("closest", "library", "paper"))
    one_of("certify", explainer.certify, ("ellipsoid", "rashomon"))
    check_distance(explainer.distance)
    check_sparsity(explainer.sparsity)
    whole("n_counterfactuals", explainer.n_counterfactuals)
    whole("max_combinations", explainer.max_combinations)
    whole("n_restarts", explainer.n_restarts)
    if explainer.random_state is not None:
        whole("random_state", explainer.random_state, least=0)
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
        raise ValueError(f"method: expected {' or '.join(map(repr, fits))}, got {explainer.method!r}: the model {why}")
    if explainer.distance == "sparse" and method != "data":
        raise ValueError(
            "distance: expected another than 'sparse', which is for method='data' (here sparsity= keeps changes few)"
        )
    if explainer.certify == "rashomon" and (method != "exact" or explainer.sparsity is not None):
        raise ValueError(
            "certify: expected 'ellipsoid', got 'rashomon', which needs method='exact' (a linear model) and no sparsity"
        )
    if explainer.sparsity is not None and method == "data":
        raise ValueError(
            "sparsity: expected None with method='data' (distance='sparse' keeps changes few), got a number"
        )
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
