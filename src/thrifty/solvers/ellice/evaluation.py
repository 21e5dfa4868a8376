"""How good recourse is: validity, distance, plausibility, and robustness over an ensemble of models."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import LocalOutlierFactor

from thrifty.solvers.ellice.encoding import Encoded
from thrifty.solvers.ellice.ensembles import Ensemble
from thrifty.solvers.ellice.labels import sign_of, threshold_logit
from thrifty.solvers.ellice.result import RecourseResult

#: Neighbours of the local outlier factor.
NEIGHBOURS = 20


@dataclass(frozen=True)
class Scores:
    """Means over persons; each person's nearest answer counts.

    Attributes:
        n_queries: Persons.
        coverage: Share of persons with an answer.
        robustness: Share of *all* persons whose answer keeps the wanted class under every model of the ensemble.
        agreement: Mean share of the ensemble's models that accept a person's answer; no answer counts as 0.
        l0: Mean number of changed raw columns, of those answered.
        l1: Mean L1 distance on encoded rows, of those answered.
        l2: Mean L2 distance on encoded rows.
        distance: Mean distance as it was minimised.
        outlier: Mean local outlier factor of the answers among the training rows (1: as dense as its neighbours);
            NaN without a training table.
        seconds_per_query: Wall-clock.
        models: Size of the ensemble; 0: a worst case over infinitely many.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (1e-3 * len(X)))).fit(X, y)

        >>> from thrifty.solvers.ellice import ElliCE, evaluate_recourse, make_ensemble
        >>> explainer = ElliCE(model, epsilon=0.01).fit(X, y)
        >>> worst = make_ensemble("ellipsoid", model, X, y, epsilon_target=0.01)
        >>> scores = evaluate_recourse(explainer.explain(X[y == 0][:2]), worst, explainer)
        >>> scores.robustness, scores.models  # certified: under every model of the ellipsoid
        (1.0, 0)
    """

    n_queries: int
    coverage: float
    robustness: float
    agreement: float
    l0: float
    l1: float
    l2: float
    distance: float
    outlier: float
    seconds_per_query: float
    models: int

    def to_dict(self) -> dict[str, float]:
        """Return name to value."""
        return asdict(self)


def accepted(result: RecourseResult, ensemble: Ensemble, classes: NDArray, threshold: float = 0.5) -> NDArray[np.bool_]:
    """Tell which model accepts which answer: ``[models, answers]``; False where there is no answer.

    Args:
        result: Answers.
        ensemble: Models.
        classes: The two labels, class 1 last (``ElliCE.classes_``).
        threshold: Probability of class 1 from which on the decision is class 1.
    """
    t = threshold_logit(threshold)
    signs = np.array([sign_of(target, classes) for target in result.target], dtype=int)
    has = result.answered
    found = np.zeros((max(1, ensemble.size), len(result)), bool)
    for sign in (1, -1):
        at = np.flatnonzero(has & (signs == sign))
        if len(at):
            found[:, at] = sign * (ensemble.logits(_whole(result, at), sign) - t) >= 0
    return found


def evaluate_recourse(
    result: RecourseResult, ensemble: Ensemble, explainer: Any, training: Encoded | None = None
) -> Scores:
    """Score answers against an ensemble.

    Args:
        result: Answers.
        ensemble: Models; see :func:`thrifty.solvers.ellice.ensembles.make_ensemble`.
        explainer: The fitted :class:`~thrifty.solvers.ellice.explainer.ElliCE` that gave them: its encoding, classes
            and threshold.
        training: Encoded rows for the outlier factor; by default the explainer's.

    Returns:
        Coverage, robustness, agreement and mean distances.

    Raises:
        TypeError: One of the first three is of another kind.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (1e-3 * len(X)))).fit(X, y)
        >>> from thrifty.solvers.ellice import ElliCE, make_ensemble
        >>> explainer = ElliCE(model, epsilon=0.01).fit(X, y)
        >>> answers = explainer.explain(X[y == 0][:3])
        >>> evaluate_recourse(answers, make_ensemble("bootstrap", model, X, y, n_models=3), explainer).coverage
        1.0

    Source:
        the paper's evaluation. Its authors average over valid answers only; here all persons count.
    """
    for name, given, kind in (("result", result, RecourseResult), ("ensemble", ensemble, Ensemble)):
        if not isinstance(given, kind):
            raise TypeError(f"{name}: expected a {kind.__name__}, got a {type(given).__name__}")
    if not hasattr(explainer, "reading_"):
        raise TypeError(
            f"explainer: expected the fitted ElliCE that gave the answers, got a {type(explainer).__name__}"
        )
    first = result.rank == 0
    has = first & result.answered
    at = np.flatnonzero(has)
    n = int(first.sum())
    agrees = accepted(result, ensemble, explainer.classes_, explainer.threshold)
    encoding = explainer.reading_.encoding
    training = explainer.training_ if training is None else training
    if len(at):
        before, after = encoding.encode(encoding.frame(result.queries.iloc[at])), encoding.encode(_whole(result, at))
        moved = after - before
        l0 = float(np.mean([len(result.changed[i]) for i in at]))
        l1, l2 = float(np.abs(moved).sum(axis=1).mean()), float(np.linalg.norm(moved, axis=1).mean())
        outlier = _outlier(training, after)
    else:
        l0 = l1 = l2 = outlier = float("nan")
    return Scores(
        n_queries=n,
        coverage=len(at) / n if n else float("nan"),
        robustness=float((agrees.all(axis=0) & has).sum() / n) if n else float("nan"),
        agreement=float((agrees.mean(axis=0) * has).sum() / n) if n else float("nan"),
        l0=l0,
        l1=l1,
        l2=l2,
        distance=float(result.distance[at].mean()) if len(at) else float("nan"),
        outlier=outlier,
        seconds_per_query=result.seconds / n if n else float("nan"),
        models=ensemble.size,
    )


def _outlier(training: Encoded, rows: Encoded) -> float:
    if len(training) <= NEIGHBOURS:
        return float("nan")
    factor = LocalOutlierFactor(NEIGHBOURS, novelty=True).fit(training)
    return float(np.mean(-factor.score_samples(rows)))


def _whole(result: RecourseResult, at: NDArray[np.intp]) -> Any:
    """Return answers as a table of the query table's types."""
    return result.counterfactuals.iloc[at].infer_objects()
