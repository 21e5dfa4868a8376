"""Recourse for the persons of a table: read the model, build the ellipsoid, pick a solver, certify every answer."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError

from thrifty._common.checks import whole
from thrifty.solvers.ellice import saving
from thrifty.solvers.ellice.certifying import certify
from thrifty.solvers.ellice.checks import check_attainable, check_settings, method_for, warn_if_unscaled
from thrifty.solvers.ellice.compile import compile_constraints
from thrifty.solvers.ellice.cone import Solver
from thrifty.solvers.ellice.constraints import Bounds, Constraints, Feature
from thrifty.solvers.ellice.distances import Distance
from thrifty.solvers.ellice.ellipsoid import Center, EpsilonMode, RashomonEllipsoid
from thrifty.solvers.ellice.encoding import Encoded
from thrifty.solvers.ellice.labels import threshold_logit
from thrifty.solvers.ellice.nearest import Candidates
from thrifty.solvers.ellice.problem import Answer, Preset, Problem
from thrifty.solvers.ellice.processes import range_over_processes
from thrifty.solvers.ellice.reading import read_model
from thrifty.solvers.ellice.region import Region
from thrifty.solvers.ellice.result import RecourseResult
from thrifty.solvers.ellice.solving import solve
from thrifty.solvers.ellice.supports import Sparsity

Method = Literal["auto", "exact", "gradient", "data"]


class ElliCE:
    """Recourse that stays valid when the model is retrained: the nearest row that every near-optimal model accepts.

    Args:
        model: A fitted binary classifier with a linear last layer: a scikit-learn linear model or ``MLPClassifier``, a
            pipeline that ends in one, or a torch network (rows of numbers in; one or two logits out). Distances are
            measured in what the last step of a pipeline sees, so a scaler in it makes features comparable.
        epsilon: Tolerance: by how much a model's mean objective may be worse and still count; see
            :class:`~thrifty.solvers.ellice.ellipsoid.RashomonEllipsoid`.
        method: ``"exact"`` (linear models), ``"gradient"`` (networks), ``"data"`` (rows of a table); ``"auto"``: the
            first of these that fits the model.
        target: The wanted label; ``"opposite"``: for each person the one that the model does not give.
        threshold: Probability of class 1 from which on the decision is class 1.
        constraints: What may change; a :class:`~thrifty.solvers.ellice.constraints.Constraints`.
        distance: ``"l2"``, ``"l1"``, ``"mixed"`` (categories cost 0.5 when changed) or, for ``"data"``, ``"sparse"``.
        sparsity: The most features that may change, or ``"min"``: as few as possible.
        n_counterfactuals: Answers a person: the nearest rows (``"data"``), or changes of different features.
        bounds: ``"data"``: answers stay within the training table's range (or a person's own value, if that is
            outside).
        l2: λ of the objective.
        epsilon_mode: ``"absolute"``, or ``"relative"`` to the objective.
        certify: ``"ellipsoid"``; or, for the exact solver, ``"rashomon"``: answers are the nearest that also the true
            set of models with objective at most ε above the centre's accepts, not only its ellipsoid.
        center: ``"as_is"``, or ``"refit"`` the last layer (the deployed model must then agree too).
        solver: Of cone programmes: ``"clarabel"``, ``"bisection"`` (needs nothing else; slower), ``"auto"``.
        max_combinations: How much branching over categories one person may take.
        preset: Of gradients: ``"closest"``, or the authors' ``"library"`` or ``"paper"``.
        n_restarts: Of gradients.
        head: A network's linear layer, if it should not be looked for.
        device: Where a network computes.
        random_state: Seed of noise and restarts.

    Attributes:
        rashomon_: The ellipsoid.
        region_: The limits, compiled.
        classes_: The two labels.
        candidates_: Rows that ``method="data"`` chooses from.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from thrifty.solvers.ellice import ElliCE
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (1e-3 * len(X)))).fit(X, y)
        >>> result = ElliCE(model, epsilon=0.01).fit(X, y).explain(X[y == 0][:5])
        >>> result.statuses
        {'optimal': 5}

    Source:
        Turbal, Voitsitska, Semenova, NeurIPS 2025 (arXiv 2602.07674).
    """

    def __init__(
        self,
        model: Any,
        *,
        epsilon: float = 0.01,
        method: Method = "auto",
        target: Any = 1,
        threshold: float = 0.5,
        constraints: Constraints | None = None,
        distance: Distance = "l2",
        sparsity: Sparsity = None,
        n_counterfactuals: int = 1,
        bounds: Bounds = "data",
        l2: float = 1e-3,
        epsilon_mode: EpsilonMode = "absolute",
        center: Center = "as_is",
        certify: Literal["ellipsoid", "rashomon"] = "ellipsoid",
        solver: Solver = "auto",
        max_combinations: int = 512,
        preset: Preset = "closest",
        n_restarts: int = 1,
        head: Any = None,
        device: str = "cpu",
        random_state: int | None = None,
    ) -> None:
        self.model = model
        self.epsilon = epsilon
        self.method = method
        self.target = target
        self.threshold = threshold
        self.constraints = constraints
        self.distance = distance
        self.sparsity = sparsity
        self.n_counterfactuals = n_counterfactuals
        self.bounds = bounds
        self.l2 = l2
        self.epsilon_mode = epsilon_mode
        self.center = center
        self.certify = certify
        self.solver = solver
        self.max_combinations = max_combinations
        self.preset = preset
        self.n_restarts = n_restarts
        self.head = head
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, *, candidates: Any = None, sharded: bool = False) -> ElliCE:
        """Build the ellipsoid and compile the constraints.

        Args:
            X: The model's training table, raw; a DataFrame or ``[n, columns]``.
            y: Its labels; ``[n]``.
            candidates: Rows that ``method="data"`` chooses from; by default ``X``.
            sharded: ``X`` holds only this process's rows of the table; all processes of the default
                ``torch.distributed`` group call this together. Candidates stay each process's own.

        Raises:
            ValueError: A setting, a constraint or the table will not do; the message names it.
            TypeError: The model's last layer is not linear.
            thrifty.solvers.ellice.errors.EpsilonTooLargeError: No row can be certified at this tolerance.
        """
        check_settings(self)
        self.reading_ = read_model(self.model, X, head=self.head, device=self.device)
        self.method_ = method_for(self, self.reading_)
        self.rashomon_ = RashomonEllipsoid(self.epsilon, self.l2, self.epsilon_mode, self.center)
        self.rashomon_.fit_reading(self.reading_, X, y, sharded=sharded)
        self.classes_ = self.rashomon_.classes_
        encoding = self.reading_.encoding
        self.training_: Encoded = encoding.encode(encoding.frame(X))
        ends = np.stack([self.training_.min(axis=0), self.training_.max(axis=0)])
        self.range_: Encoded = range_over_processes(ends) if sharded else ends
        pool = self.training_ if candidates is None else encoding.encode(encoding.frame(candidates, "candidates"))
        self.candidates_ = Candidates(pool, self.reading_.features(pool))
        self.region_ = self._region(self.constraints or Constraints())
        warn_if_unscaled(self.training_, self.region_.weights)
        for sign in self._wanted_signs():
            self._check_attainable(sign)
        return self

    def explain(
        self,
        X: Any,
        *,
        constraints: Constraints | None = None,
        target: Any = None,
        n_counterfactuals: int | None = None,
    ) -> RecourseResult:
        """Find recourse for every row of a table.

        Args:
            X: Raw rows; a DataFrame with the training table's columns, a Series, a mapping, or ``[n, columns]``.
            constraints: In place of those given at construction.
            target: In place of that given at construction.
            n_counterfactuals: In place of that given at construction.

        Returns:
            An answer (or several) for every row, each with status and certificate.

        Raises:
            ValueError: A row will not do; the message names the column.
            sklearn.exceptions.NotFittedError: :meth:`fit` has not been called.
        """
        if not hasattr(self, "rashomon_"):
            raise NotFittedError("this ElliCE is not fitted; call fit(X, y) first")
        began = time.perf_counter()
        k = whole("n_counterfactuals", self.n_counterfactuals if n_counterfactuals is None else n_counterfactuals)
        region = self.region_ if constraints is None else self._region(constraints)
        encoding = self.reading_.encoding
        frame = encoding.frame(X)
        rows = encoding.encode(frame)
        for at, row in enumerate(rows):
            region.check_query(row, at)
        signs = self._signs(frame, self.target if target is None else target)
        answers: list[list[Answer]] = [[] for _ in rows]
        problems = {sign: self._problem(sign, region) for sign in np.unique(signs).tolist()}
        for sign, problem in problems.items():
            self._check_attainable(sign)
            mine = np.flatnonzero(signs == sign)
            for i, found in zip(mine, solve(self, problem, rows[mine], k), strict=True):
                answers[i] = found
        given = self.constraints if constraints is None else constraints
        return certify(
            self.rashomon_, self.reading_, given or Constraints(), frame, rows, signs, problems, answers, began
        )

    def generate_counterfactuals(
        self,
        query_instances: Any,
        total_CFs: int = 1,
        desired_class: Any = "opposite",
        features_to_vary: Sequence[Feature] | Literal["all"] = "all",
        permitted_range: dict[Feature, Sequence[Any]] | None = None,
    ) -> RecourseResult:
        """Do :meth:`explain` with DiCE's spellings.

        Args:
            query_instances: Raw rows.
            total_CFs: Answers a person.
            desired_class: The wanted label, or ``"opposite"``.
            features_to_vary: The only features that may change, on top of the other constraints.
            permitted_range: Feature to (lowest, highest), or to levels; in place of those given before.
        """
        given = self.constraints or Constraints()
        if isinstance(features_to_vary, str) and features_to_vary == "all":
            features_to_vary = given.features_to_vary
        ranges = {**given.permitted_range, **(permitted_range or {})}
        limits = replace(given, features_to_vary=features_to_vary, permitted_range=ranges)
        return self.explain(query_instances, constraints=limits, target=desired_class, n_counterfactuals=total_CFs)

    def with_epsilon(self, epsilon: float) -> ElliCE:
        """A fitted copy with another absolute tolerance; nothing is computed again but the certificates."""
        made = ElliCE(self.model, **{**self._settings(), "epsilon": epsilon, "epsilon_mode": "absolute"})
        check_settings(made)
        made.__dict__.update({name: value for name, value in self.__dict__.items() if name.endswith("_")})
        made.rashomon_ = self.rashomon_.with_epsilon(epsilon)
        return made

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write everything but a network: npz with JSON inside, nothing pickled.

        Raises:
            FileExistsError: ``path`` is there and ``force`` is not given.
        """
        return saving.save(self, path, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any = None) -> ElliCE:
        """Read a saved explainer.

        Args:
            path: What :meth:`save` wrote.
            model: The model, which only a linear one can do without.

        Raises:
            ValueError: It is no such file, or ``model`` is missing or another one.
        """
        return saving.load(cls, path, model)

    def _check_attainable(self, sign: int) -> None:
        most = self.rashomon_.ellipsoid_.max_epsilon(sign, threshold_logit(self.threshold))
        check_attainable(self.rashomon_.ellipsoid_.epsilon, most)

    # -- the pieces of a call

    def _wanted_signs(self) -> list[int]:
        return [] if _is_opposite(self.target) else [self.rashomon_.sign_of(self.target)]

    def _signs(self, frame: Any, target: Any) -> NDArray[np.intp]:
        if not len(frame):
            return np.empty(0, np.intp)
        if _is_opposite(target):
            says_one = self.reading_.deployed_logit(frame) >= threshold_logit(self.threshold)
            return np.where(says_one, -1, 1)
        return np.full(len(frame), self.rashomon_.sign_of(target))

    def _region(self, constraints: Constraints) -> Region:
        return compile_constraints(constraints, self.reading_.encoding, self.range_, bounds=self.bounds)

    def _problem(self, sign: int, region: Region) -> Problem:
        deployed = self.reading_.theta if self.center == "refit" else None
        return Problem(
            self.reading_,
            self.rashomon_.ellipsoid_,
            region,
            sign,
            threshold_logit(self.threshold),
            self.distance,
            deployed,
        )

    def _settings(self) -> dict[str, Any]:
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name not in ("self", "model")}


def _is_opposite(target: Any) -> bool:
    return isinstance(target, str) and target == "opposite"
