"""The ellipsoid of near-optimal models around a fitted classifier, as an estimator."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError

from thrifty._common.checks import number, one_of
from thrifty.solvers.ellice.geometry import Ellipsoid, cholesky_of
from thrifty.solvers.ellice.labels import as_array, class_codes, sign_of, threshold_logit
from thrifty.solvers.ellice.logistic import Total, alone, hessian, minimise, objective, slope, with_constant
from thrifty.solvers.ellice.npz import read_npz, write_npz
from thrifty.solvers.ellice.processes import over_processes
from thrifty.solvers.ellice.reading import LARGEST, Reading, read_model

EpsilonMode = Literal["absolute", "relative"]
Center = Literal["as_is", "refit"]

#: Version of the saved file.
SCHEMA = 1


class RashomonEllipsoid:
    """All last-layer parameters whose objective is, to second order, within ε of the fitted model's.

    Args:
        epsilon: The tolerance ε ≥ 0 on the mean objective, or with ``epsilon_mode="relative"`` a share of it (the
            paper's headline setting is 0.1).
        l2: λ of the objective, and what keeps its Hessian invertible.
        epsilon_mode: ``"absolute"`` or ``"relative"``.
        center: ``"as_is"``: the model's own last layer. ``"refit"``: the minimiser of the objective on its features
            (a network's last layer is not).

    Attributes:
        ellipsoid_: Centre, Cholesky factor and tolerance: the closed forms.
        epsilon_: The absolute tolerance.
        objective_: L̂ at the centre.
        classes_: The two labels, class 1 last.
        reading_: The model as it was read; ``None`` if made of parameters.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from thrifty.solvers.ellice import RashomonEllipsoid
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (1e-3 * len(X)))).fit(X, y)
        >>> near_optimal = RashomonEllipsoid(epsilon=0.01).fit(model, X, y)
        >>> sure = near_optimal.robust_logit(X, target=1) >= 0  # rows that every such model puts in class 1
        >>> round(float(sure.mean()), 2)
        0.48

    Source:
        Turbal, Voitsitska, Semenova, NeurIPS 2025 (arXiv 2602.07674), Definition 3, Theorem 1, Corollary 1.
    """

    ellipsoid_: Ellipsoid

    def __init__(
        self, epsilon: float = 0.01, l2: float = 1e-3, epsilon_mode: EpsilonMode = "absolute", center: Center = "as_is"
    ) -> None:
        self.epsilon = epsilon
        self.l2 = l2
        self.epsilon_mode = epsilon_mode
        self.center = center

    def fit(
        self, model: Any, X: Any, y: ArrayLike, *, head: Any = None, device: str = "cpu", sharded: bool = False
    ) -> RashomonEllipsoid:
        """Build the ellipsoid of a fitted classifier.

        Args:
            model: See :func:`thrifty.solvers.ellice.reading.read_model`.
            X: Its training table, raw; ``[n, columns]``.
            y: Its labels; ``[n]``.
            head: A network's linear layer, if it should not be looked for.
            device: Where a network computes.
            sharded: ``X`` holds only this process's rows of the table; all processes of the default
                ``torch.distributed`` group call this together, and all get the ellipsoid of the whole table.

        Raises:
            ValueError: A setting, the labels or the table will not do.
            TypeError: The model's last layer is not linear.
        """
        return self.fit_reading(read_model(model, X, head=head, device=device), X, y, sharded=sharded)

    def fit_reading(self, reading: Reading, X: Any, y: ArrayLike, *, sharded: bool = False) -> RashomonEllipsoid:
        """Build the ellipsoid of a model that has been read."""
        self._check()
        self.reading_: Reading | None = reading
        frame = reading.encoding.frame(X)
        self.classes_, codes = class_codes(y, reading.classes, len(frame))
        total = over_processes() if sharded else alone
        self._build(reading.theta, reading.features(reading.encoding.encode(frame)), codes, total)
        if reading.kind == "linear" and self.center == "as_is":
            self._warn_if_not_optimal(total)
        if sharded:
            self._rows, self._y = None, None  # a part of the table judges no model
        return self

    def _warn_if_not_optimal(self, total: Total) -> None:
        """Say so where the centre itself is about as far from the objective's minimum as the models around it may be.

        By how much the objective is above its minimum is, to second order, half the squared Newton decrement.
        """
        ellipsoid, rows = self._fitted(), self._rows
        assert rows is not None
        gradient = slope(ellipsoid.theta, rows, self._y, self.l2, total)
        above = 0.5 * float(np.square(ellipsoid.whitening @ gradient).sum())
        if above > self.epsilon_ > 0:
            warnings.warn(
                f"the model does not minimise the logistic objective with l2={self.l2}: it is about {above:.2g} above "
                f"the minimum, which is more than epsilon={self.epsilon_:.2g}; give the l2 of its fit "
                "(LogisticRegression: 1 / (C n)), or center='refit'",
                UserWarning,
                stacklevel=4,
            )

    @classmethod
    def from_parameters(
        cls,
        theta: ArrayLike,
        features: ArrayLike,
        y: ArrayLike,
        *,
        epsilon: float = 0.01,
        l2: float = 1e-3,
        epsilon_mode: EpsilonMode = "absolute",
        center: Center = "as_is",
    ) -> RashomonEllipsoid:
        """Build the ellipsoid from last-layer parameters; rows are then given as features h(x).

        Args:
            theta: Weights, then the bias; numpy or torch, ``[p + 1]``.
            features: h of the training rows; numpy or torch, ``[n, p]``.
            y: Their labels; ``[n]``.
            epsilon: As for the class.
            l2: As for the class.
            epsilon_mode: As for the class.
            center: As for the class.

        Returns:
            The ellipsoid, fitted.

        Raises:
            ValueError: An argument is out of range, ``theta`` does not fit the features, or there are not two classes.
        """
        made = cls(epsilon, l2, epsilon_mode, center)
        made._check()
        made.reading_ = None
        rows, parameters = as_array(features), as_array(theta)
        if rows.ndim != 2 or parameters.shape != (rows.shape[1] + 1,):
            raise ValueError(
                f"theta: expected the {rows.shape[1]} weights, then the bias, got shape {parameters.shape}"
            )
        made.classes_, codes = class_codes(y, None, len(rows))
        made._build(parameters, rows, codes)
        return made

    def _check(self) -> None:
        number("epsilon", self.epsilon, "a number of at least 0, in units of the mean loss", least=0.0)
        number("l2", self.l2, "a number of at least 0 (1e-3 in the paper)", least=0.0)
        one_of("epsilon_mode", self.epsilon_mode, ("absolute", "relative"))
        one_of("center", self.center, ("as_is", "refit"))

    def _build(
        self, theta: NDArray[np.float64], features: Float[np.ndarray, "n p"], y: NDArray, total: Total = alone
    ) -> None:
        m = len(theta)
        if m > LARGEST:
            raise ValueError(
                f"model: expected a last layer of at most {LARGEST} parameters (put a narrower linear one before it), "
                f"got {m}, whose Hessian would take {8 * m * m / 2**30:.0f} GiB"
            )
        rows = with_constant(features)
        if self.center == "refit":
            if self.l2 == 0:
                raise ValueError("l2: expected a penalty above 0 with center='refit', to have a minimiser, got 0")
            theta = minimise(rows, y, self.l2, start=theta, total=total)
        cholesky = cholesky_of(hessian(theta, rows, self.l2, total), self.l2)
        self.objective_ = objective(theta, rows, y, self.l2, total)
        self.epsilon_ = float(self.epsilon * (self.objective_ if self.epsilon_mode == "relative" else 1.0))
        self.ellipsoid_ = Ellipsoid(theta, cholesky, self.epsilon_)
        self._rows, self._y = rows, y

    def robust_logit(self, X: Any, target: Any = 1) -> Float[np.ndarray, " n"]:
        """Return every row's logit under the model of the ellipsoid that is worst for the wanted class.

        Args:
            X: Raw rows, or features if made of parameters.
            target: The wanted label (or 0 or 1).
        """
        return self._fitted().robust(self._features(X), self.sign_of(target))

    def nominal_logit(self, X: Any) -> Float[np.ndarray, " n"]:
        """Return every row's logit under the centre."""
        return self._fitted().nominal(self._features(X))

    def worst_case_model(self, x: Any, target: Any = 1) -> Float[np.ndarray, " m"]:
        """Return the model of the ellipsoid that is worst for one row."""
        (row,) = self._features(x)
        return self._fitted().worst_model(row, self.sign_of(target))

    def robustness_radius(self, X: Any, target: Any = 1, threshold: float = 0.5) -> Float[np.ndarray, " n"]:
        """Return the largest ε at which every row is certified.

        Args:
            X: Raw rows.
            target: The wanted label.
            threshold: Decision threshold, as a probability of class 1.
        """
        return self._fitted().radius(self._features(X), self.sign_of(target), threshold_logit(threshold))

    def max_epsilon(self, target: Any = None, threshold: float = 0.5) -> float:
        """Return the ε from which on no row can be certified (for one class, or for either).

        For a network it is an upper bound, since not every feature vector is that of a row.
        """
        sign = None if target is None else self.sign_of(target)
        return self._fitted().max_epsilon(sign, threshold_logit(threshold))

    def contains(self, thetas: ArrayLike) -> Bool[np.ndarray, " k"]:
        """Tell which models are in the ellipsoid (to 1e-9)."""
        ellipsoid = self._fitted()
        return np.asarray(ellipsoid.excess(as_array(thetas)) <= ellipsoid.epsilon * (1 + 1e-9) + 1e-15)

    def sample(
        self, k: int, on_surface: bool = False, random_state: int | np.random.Generator | None = None
    ) -> Float[np.ndarray, "k m"]:
        """Draw models uniformly from the ellipsoid or its surface."""
        return self._fitted().sample(k, np.random.default_rng(random_state), on_surface=on_surface)

    def coverage(
        self, k: int = 1000, on_surface: bool = False, random_state: int | np.random.Generator | None = None
    ) -> float:
        """Return the share of sampled models whose objective on the training table truly is within ε.

        Args:
            k: How many are drawn.
            on_surface: From the surface in place of the whole.
            random_state: Seed, or a generator.

        Raises:
            ValueError: The training features are not there: the ellipsoid was saved and read, or fitted on shards.
        """
        ellipsoid = self._fitted()
        if self._rows is None:
            raise ValueError(
                "coverage: expected the training features (fit it on the whole table), got none: a saved or sharded "
                "ellipsoid does not hold them"
            )
        bound = self.objective_ + ellipsoid.epsilon + 1e-12
        drawn = self.sample(k, on_surface, random_state)
        return float(np.mean([objective(theta, self._rows, self._y, self.l2) <= bound for theta in drawn]))

    def with_epsilon(self, epsilon: float) -> RashomonEllipsoid:
        """A fitted copy with another absolute tolerance; nothing is computed again."""
        made = RashomonEllipsoid(epsilon, self.l2, "absolute", self.center)
        made._check()
        fitted = self._fitted()
        made.__dict__.update({name: value for name, value in self.__dict__.items() if name not in made.__dict__})
        made.epsilon_ = float(epsilon)
        made.ellipsoid_ = fitted.with_epsilon(float(epsilon))
        return made

    def sign_of(self, target: Any) -> int:
        """Return +1 for class 1 and −1 for class 0.

        Raises:
            ValueError: It is neither of the labels, nor 0 or 1.
        """
        return sign_of(target, self.classes_)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the ellipsoid as npz with JSON inside; nothing is pickled."""
        ellipsoid = self._fitted()
        facts = {
            "schema": "thrifty.ellice.ellipsoid",
            "version": SCHEMA,
            "settings": {"epsilon": float(self.epsilon), "l2": float(self.l2)}
            | {"epsilon_mode": self.epsilon_mode, "center": self.center},
            "objective": self.objective_,
            "epsilon": ellipsoid.epsilon,
            "classes": self.classes_.tolist(),
        }
        return write_npz(path, facts, {"theta": ellipsoid.theta, "cholesky": ellipsoid.cholesky}, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RashomonEllipsoid:
        """Read a saved ellipsoid; rows are then given as features h(x).

        Raises:
            ValueError: The file is another's, cut off, or damaged.
        """
        kept = ("settings", "objective", "epsilon", "classes")
        shapes = {"theta": "m", "cholesky": "m m"}
        facts, arrays = read_npz(path, "thrifty.ellice.ellipsoid", SCHEMA, facts=kept, shapes=shapes)
        try:
            made = cls(**facts["settings"])
        except TypeError as error:
            raise ValueError(f"{path}: expected settings of an ellipsoid, got others: {error}") from None
        made.reading_, made._rows, made._y = None, None, None
        made.classes_, made.objective_ = np.array(facts["classes"]), facts["objective"]
        made.epsilon_ = facts["epsilon"]
        made.ellipsoid_ = Ellipsoid(arrays["theta"], arrays["cholesky"], facts["epsilon"])
        return made

    _rows: NDArray[np.float64] | None
    _y: Any

    def _features(self, X: Any) -> Float[np.ndarray, "n m"]:
        reading = self._read()
        if reading is None:
            return with_constant(np.atleast_2d(as_array(X)))
        return with_constant(reading.features(reading.encoding.encode(reading.encoding.frame(X))))

    def _read(self) -> Reading | None:
        self._fitted()
        return self.reading_

    def _fitted(self) -> Ellipsoid:
        if not hasattr(self, "ellipsoid_"):
            raise NotFittedError("this RashomonEllipsoid is not fitted; call fit(model, X, y) first")
        return self.ellipsoid_
