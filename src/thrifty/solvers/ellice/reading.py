"""Any fitted binary classifier with a linear last layer, read as features h, parameters θ and an encoding.

What can be read: scikit-learn linear classifiers and ``MLPClassifier``, pipelines that end in one, torch networks.
A pipeline whose steps cannot be undone (principal components, say, or the leaves of trees) is read too, but for
searching among rows only: that is how tree ensembles come in, by :class:`~thrifty.solvers.ellice.leaves.LeafEmbedding`
with a logistic head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from thrifty._common.extras import require
from thrifty.solvers.ellice.encoding import Encoded, Encoding
from thrifty.solvers.ellice.errors import UnsupportedModelError
from thrifty.solvers.ellice.frames import dense, names_of
from thrifty.solvers.ellice.logistic import Theta
from thrifty.solvers.ellice.pipelines import OpaqueStepError, read_steps

if TYPE_CHECKING:
    from thrifty.solvers.ellice.networks import Network

#: Largest m whose m × m Hessian is built.
LARGEST = 20_000


@dataclass(frozen=True, eq=False)
class Reading:
    """A classifier as this method sees it.

    Attributes:
        kind: ``"linear"``: h is the identity on encoded rows; ``"network"``: h is differentiable; ``"opaque"``: h is
            only known by its values.
        encoding: Raw columns to encoded ones.
        theta: Last-layer weights, then the bias; ``[m]``.
        classes: The two labels, that of class 1 last; ``None`` if the model does not say.
        features: h on encoded rows, ``[n, d]`` to ``[n, p]``.
        deployed_logit: The model's own logit on raw rows, in its own precision.
        network: The torch network, where there is one.
    """

    kind: Literal["linear", "network", "opaque"]
    encoding: Encoding
    theta: Theta
    classes: NDArray | None
    features: Callable[[Encoded], Float[np.ndarray, "n p"]]
    deployed_logit: Callable[[Any], Float[np.ndarray, " n"]]
    network: Network | None = None


def read_model(model: Any, X: Any, *, head: Any = None, device: str = "cpu") -> Reading:
    """Read a fitted classifier.

    Args:
        model: A fitted scikit-learn classifier or pipeline, or a ``torch.nn.Module`` that takes rows of numbers.
        X: The training table: names the columns, and serves to check what was read.
        head: For a network: its linear layer (or that layer's name), if it should not be looked for.
        device: Where a network computes.

    Raises:
        thrifty.solvers.ellice.errors.UnsupportedModelError: The last layer is not linear, or there are more classes.
        sklearn.exceptions.NotFittedError: The model is not fitted.
    """
    model = getattr(model, "best_estimator_", model)  # a grid search stands for the model it chose
    X = as_fitted(model, X)
    names = names_of(X)
    if not len(X):
        raise ValueError("X: expected the rows that the model was trained on, got none")
    if _is_torch(model):
        encoding = Encoding.of_numbers(names)
        require("torch", extra="torch")
        from thrifty.solvers.ellice.networks import Network

        network = Network(model, encoding.encode(encoding.frame(X)), head=head, device=device)
        return Reading(
            "network",
            encoding,
            network.theta,
            None,
            network.features,
            lambda frame: network.deployed_logit(encoding.encode(encoding.frame(frame))),
            network,
        )
    steps, last = _split(model)
    check_is_fitted(last)
    classes = _two_classes(last)
    as_frame = hasattr(X, "columns")

    def deployed(frame: Any) -> Float[np.ndarray, " n"]:
        rows = frame if as_frame else frame.to_numpy()
        if hasattr(model, "decision_function"):
            return np.asarray(model.decision_function(rows), dtype=float)
        return np.asarray(logit(model.predict_proba(rows)[:, 1].astype(float)))

    try:
        encoding = read_steps(steps, names)
        frame = encoding.frame(X)
        encoded = encoding.encode(frame)
    except OpaqueStepError:
        return _opaque(model, X, names, last, classes, deployed)
    width = last.n_features_in_
    if encoding.width != width:
        raise UnsupportedModelError(
            f"model: expected one that takes the {encoding.width} columns of X, got one that takes {width}"
        )
    if _is_linear(last):
        if not (np.isfinite(last.coef_).all() and np.isfinite(last.intercept_).all()):
            raise ValueError(
                f"model: expected finite coefficients (fit it again), got others in a {type(last).__name__}"
            )
        theta = np.append(np.ravel(last.coef_), np.ravel(last.intercept_)[0]).astype(float)
        reading = Reading("linear", encoding, theta, classes, lambda rows: rows, deployed)
        ours = np.column_stack([encoded, np.ones(len(encoded))]) @ theta
        theirs = deployed(frame)
        if not np.allclose(ours, theirs, rtol=1e-6, atol=1e-6 * (1 + np.abs(theirs).max())):
            if steps:
                return _opaque(model, X, names, last, classes, deployed)
            raise UnsupportedModelError(
                f"model: expected one that decides by its coef_, got a {type(last).__name__} that does not"
            )
        return reading
    require("torch", extra="torch")
    from thrifty.solvers.ellice.networks import Network, from_mlp_classifier

    network = Network(from_mlp_classifier(last), encoded, device=device)
    return Reading("network", encoding, network.theta, classes, network.features, deployed, network)


def as_fitted(model: Any, X: Any) -> Any:
    """Return the table with the columns that the model was fitted to, by name and in their order.

    Raises:
        ValueError: Some are missing, or an array has another number of them.
    """
    known = getattr(model, "feature_names_in_", None)
    if known is None:
        width = getattr(model, "n_features_in_", None)
        if width is not None and len(given := names_of(X)) != width:
            raise ValueError(f"X: expected the {width} columns that the model was fitted to, got {len(given)}")
        return X
    if not hasattr(X, "columns"):
        if (width := len(names_of(X))) != len(known):
            raise ValueError(
                f"X: expected the {len(known)} columns that the model was fitted to, {', '.join(known)}, got {width}"
            )
        return require("pandas", extra="tabular").DataFrame(dense(X, "X"), columns=list(known))
    if missing := [str(name) for name in known if name not in X.columns]:
        raise ValueError(f"X: expected the columns {missing} too, which the model was fitted to, got {names_of(X)}")
    if not X.columns.is_unique:
        return X  # refused where names are read
    return X[list(known)]


def _opaque(
    model: Any, X: Any, names: list[str], last: Any, classes: NDArray, deployed: Callable[[Any], NDArray]
) -> Reading:
    """Read a pipeline by what its steps return."""
    if not _is_linear(last):
        raise UnsupportedModelError(
            f"model: expected a linear last step after steps that cannot be undone, got a {type(last).__name__}"
        )
    as_frame = hasattr(X, "columns")
    frame = X if as_frame else require("pandas", extra="tabular").DataFrame(np.asarray(X), columns=names)
    encoding = Encoding.of_frame(frame)
    like = frame.iloc[:1]

    def features(encoded: Encoded) -> Float[np.ndarray, "n p"]:
        if not len(encoded):
            return np.empty((0, last.n_features_in_))
        raw = encoding.decode(encoded, like.iloc[np.zeros(len(encoded), int)])
        found = model[:-1].transform(raw.astype(like.dtypes) if as_frame else raw.to_numpy())
        return np.asarray(found.toarray() if hasattr(found, "toarray") else found, dtype=float)

    theta = np.append(np.ravel(last.coef_), np.ravel(last.intercept_)[0]).astype(float)
    return Reading("opaque", encoding, theta, classes, features, deployed)


def _split(model: Any) -> tuple[list[Any], Any]:
    """Return the preprocessing steps and the classifier behind them."""
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    last = steps[-1]
    if not (_is_linear(last) or isinstance(last, MLPClassifier)):
        trees = any(hasattr(last, name) for name in ("tree_", "estimators_", "_predictors", "get_booster", "booster_"))
        way = (
            "; put its leaves before a logistic regression: make_pipeline(LeafEmbedding(model), LogisticRegression())"
            if trees
            or "Forest" in type(last).__name__
            or "Boosting" in type(last).__name__
            or "Tree" in type(last).__name__
            else ""
        )
        raise UnsupportedModelError(
            "model: expected a linear last layer (scikit-learn linear classifiers, MLPClassifier, pipelines that end "
            f"in one, torch networks{way}), got a {type(last).__name__}"
        )
    return steps[:-1], last


def _two_classes(last: Any) -> NDArray:
    classes = np.asarray(last.classes_)
    if len(classes) != 2:
        raise UnsupportedModelError(f"model: expected two classes (one against the rest), got {len(classes)}")
    return classes


def _is_linear(last: Any) -> bool:
    linear = type(last).__module__.startswith("sklearn.linear_model") or type(last).__module__.startswith("sklearn.svm")
    return bool(hasattr(last, "coef_") or linear) and hasattr(last, "decision_function") and not hasattr(last, "kernel")


def _is_torch(model: Any) -> bool:
    return any(f"{kind.__module__}.{kind.__name__}" == "torch.nn.modules.module.Module" for kind in type(model).__mro__)
