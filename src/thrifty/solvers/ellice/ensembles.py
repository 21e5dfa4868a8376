"""Models about as good as the deployed one, to hold recourse against (the paper's section on evaluation)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from thrifty._common.checks import number, one_of, whole
from thrifty._common.extras import require
from thrifty.solvers.ellice.ellipsoid import RashomonEllipsoid
from thrifty.solvers.ellice.labels import class_codes
from thrifty.solvers.ellice.logistic import objective, with_constant
from thrifty.solvers.ellice.reading import Reading, as_fitted, read_model
from thrifty.solvers.ellice.retraining import refit, retrain_network
from thrifty.solvers.ellice.true_rashomon import true_worst_logit

Kind = Literal["retrain", "bootstrap", "subsample", "shift", "dropout", "awp", "sample", "ellipsoid", "rashomon"]
Recipe = Callable[[int, Any, NDArray], Any]


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Models to hold recourse against.

    Attributes:
        kind: How they came about.
        logits: (raw rows, sign of the wanted class) to logits ``[models, n]``. The exact kinds (``"ellipsoid"``,
            ``"rashomon"``) give one row: the worst logit over infinitely many models.
        size: How many models; 0 where infinitely many are meant.
        tried: How many were made, of which those under the bound were kept.
        bound: Largest objective of a model that is kept; ``None``: all are.

    Example:
        >>> def logits(rows, sign):  # two models of one feature
        ...     return np.array([[sign * (row - cut) for row in rows] for cut in (1.0, 2.0)])
        >>> two = Ensemble("retrain", logits, size=2, tried=2, bound=None)
        >>> (two.logits([1.5, 3.0], 1) > 0).all(axis=0).tolist()
        [False, True]
    """

    kind: Kind
    logits: Callable[[Any, int], Float[np.ndarray, "k n"]]
    size: int
    tried: int
    bound: float | None


def make_ensemble(
    kind: Kind,
    model: Any,
    X: Any,
    y: ArrayLike,
    epsilon_target: float | None = None,
    n_models: int = 50,
    random_state: int = 0,
    *,
    l2: float = 1e-3,
    recipe: Recipe | None = None,
    head: Any = None,
) -> Ensemble:
    """Make models whose objective is at most that of ``model`` plus ``epsilon_target``.

    Args:
        kind: ``"retrain"``: other seeds (vacuous for a linear model, hence refused there). ``"bootstrap"``,
            ``"subsample"`` (80 %): other samples. ``"shift"``: each trained on a random half. ``"dropout"``: weights
            times N(1, s²). ``"awp"``: weights pushed against single rows. ``"sample"``: uniform in the ellipsoid.
            ``"ellipsoid"``: its worst case. ``"rashomon"``: the worst case of the true set (linear models).
        model: The fitted model.
        X: Its training table.
        y: Its labels.
        epsilon_target: Tolerance; ``None`` keeps every model (retrained ones, that is; the others need one).
        n_models: How many are wanted; up to twice as many are tried.
        random_state: Seed.
        l2: λ of the objective.
        recipe: (seed, X, y) to a fitted model, for ``"retrain"``, ``"bootstrap"``, ``"subsample"`` and ``"shift"``.
            By default scikit-learn estimators are cloned, networks trained by Adam from fresh weights.
        head: A network's linear layer.

    Returns:
        The models, to hold answers against.

    Raises:
        ValueError: The kind is unknown, or does not fit the model, or no model stays under the bound.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (1e-3 * len(X)))).fit(X, y)
        >>> make_ensemble("bootstrap", model, X, y, n_models=3).kind
        'bootstrap'

    Source:
        the paper's section on evaluation, which names them.
    """
    one_of("kind", kind, get_args(Kind))
    if epsilon_target is not None:
        number("epsilon_target", epsilon_target, "a number of at least 0", least=0.0)
    whole("n_models", n_models)
    whole("random_state", random_state, least=0)
    number("l2", l2, "a number of at least 0", least=0.0)
    X = as_fitted(model, X)
    reading = read_model(model, X, head=head)
    encoding = reading.encoding
    frame = encoding.frame(X)
    _, codes = class_codes(y, reading.classes, len(frame))
    if kind in ("retrain", "bootstrap", "subsample", "shift"):
        if kind == "retrain" and reading.kind == "linear" and recipe is None:
            raise ValueError(
                "kind: expected 'bootstrap' for a linear model, which comes out the same from every seed, got 'retrain'"
            )
        return _retrained(kind, model, reading, X, y, codes, epsilon_target, n_models, random_state, l2, recipe)
    if epsilon_target is None:
        raise ValueError(f"epsilon_target: expected a number with kind={kind!r}, got None")
    if kind in ("dropout", "awp"):
        return _perturbed(kind, reading, frame, codes, epsilon_target, n_models, random_state, l2)
    rashomon = RashomonEllipsoid(epsilon_target, l2).fit_reading(reading, X, y)
    training = with_constant(reading.features(encoding.encode(frame)))

    def rows_of(raw: Any) -> NDArray[np.float64]:
        return with_constant(reading.features(encoding.encode(encoding.frame(raw))))

    if kind == "sample":
        drawn = rashomon.sample(n_models, random_state=random_state)
        return Ensemble(kind, lambda raw, _: drawn @ rows_of(raw).T, n_models, n_models, None)
    if kind == "ellipsoid":
        worst = rashomon.ellipsoid_
        return Ensemble(kind, lambda raw, sign: worst.robust(rows_of(raw), sign)[None], 0, 0, None)
    if reading.kind != "linear":
        raise ValueError("kind: expected 'awp' or 'dropout' for what is no linear model, got 'rashomon'")
    bound = rashomon.objective_ + epsilon_target
    return Ensemble(
        kind,
        lambda raw, sign: true_worst_logit(rows_of(raw), sign, training, codes, l2, bound, reading.theta)[None],
        0,
        0,
        bound,
    )


def _retrained(
    kind: Kind,
    model: Any,
    reading: Reading,
    X: Any,
    y: ArrayLike,
    codes: NDArray,
    epsilon: float | None,
    n_models: int,
    seed: int,
    l2: float,
    recipe: Recipe | None,
) -> Ensemble:
    encoding, n = reading.encoding, len(codes)
    encoded = encoding.encode(encoding.frame(X))
    bound = None if epsilon is None else _whole_objective(reading, encoded, codes, l2) + epsilon
    kept: list[Reading] = []
    tried = 0
    while len(kept) < n_models and tried < (n_models if bound is None else 2 * n_models):
        rng = np.random.default_rng([seed, tried])
        rows = {
            "retrain": np.arange(n),
            "bootstrap": rng.integers(0, n, n),
            "subsample": rng.choice(n, int(0.8 * n), replace=False),
            "shift": rng.choice(n, n // 2, replace=False),
        }[kind]
        tried += 1
        if len(np.unique(codes[rows])) < 2:
            continue
        fresh = seed * 100_003 + tried
        if recipe is not None:
            some = X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]
            made = recipe(fresh, some, np.asarray(y)[rows])
        elif reading.classes is None:
            assert reading.network is not None
            made = retrain_network(reading.network.deployed, encoded[rows], codes[rows], fresh, l2=l2)
        else:
            made = refit(model, X, np.asarray(y), fresh % 2**31, rows)
        read = read_model(made, X)
        own = read.encoding.encode(read.encoding.frame(X))
        if bound is None or _whole_objective(read, own, codes, l2) <= bound:
            kept.append(read)
    if not kept:
        raise ValueError(
            f"epsilon_target: expected one that retrained models are within, or None, got {epsilon} ({tried} are not)"
        )

    def logits(raw: Any, _: int) -> NDArray[np.float64]:
        return np.stack([one.deployed_logit(encoding.frame(raw)) for one in kept])

    return Ensemble(kind, logits, len(kept), tried, bound)


def _whole_objective(reading: Reading, encoded: NDArray[np.float64], codes: NDArray, l2: float) -> float:
    """Return the mean loss plus the penalty of *all* parameters."""
    value = objective(reading.theta, with_constant(reading.features(encoded)), codes, l2)
    if reading.network is None:
        return value
    every = sum(float(part.square().sum()) for part in reading.network.module.parameters())
    return value + 0.5 * l2 * (every - float(reading.theta @ reading.theta))


def _perturbed(
    kind: Kind, reading: Reading, frame: Any, codes: NDArray, epsilon: float, n_models: int, seed: int, l2: float
) -> Ensemble:
    torch = require("torch", extra="torch")
    from thrifty.solvers.ellice import perturbations

    if reading.network is not None:
        module, to_logit = reading.network.module, reading.network.to_logit
    elif reading.kind == "linear":
        module = torch.nn.Linear(len(reading.theta) - 1, 1, dtype=torch.float64)
        with torch.no_grad():
            module.weight.copy_(torch.as_tensor(reading.theta[None, :-1]))
            module.bias.fill_(float(reading.theta[-1]))
        to_logit = partial(torch.squeeze, dim=-1)
    else:
        raise ValueError(
            f"kind: expected one that perturbs no weights for a model of which some steps have none, got {kind!r}"
        )
    encoded = reading.encoding.encode(frame)
    family = perturbations.Family(module, to_logit, torch.as_tensor(encoded), torch.as_tensor(codes).double(), l2)
    bound = float(family.loss(family.base)) + epsilon
    if kind == "dropout":
        stack, tried = perturbations.dropout(family, bound, n_models, seed)
    else:
        stack, tried = perturbations.awp(family, bound, n_models)
    size = len(next(iter(stack.values())))
    if not size:
        raise ValueError(
            f"epsilon_target: expected one that a perturbed model is within, got {epsilon}, and {tried} are not"
        )

    def logits(raw: Any, _: int) -> NDArray[np.float64]:
        rows = torch.as_tensor(reading.encoding.encode(reading.encoding.frame(raw)))
        return family.all_logits(stack, rows)

    return Ensemble(kind, logits, size, tried, bound)
