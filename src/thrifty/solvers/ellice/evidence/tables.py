"""The tables, and the linear model of each: standardised, 75/25, λ = 1e-3, the larger class coded 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from thrifty._common.tables import one_hot, read_table
from thrifty.bench.context import Context
from thrifty.bench.data import keel

#: Fixed before the first run.
TABLES = ("breast_cancer", "pima", "australian", "german", "saheart", "heart")
L2 = 1e-3


@dataclass(frozen=True, eq=False)
class Case:
    """One table, split, with its model, the held-out rows, and those of them that it rejects."""

    name: str
    X: Float[np.ndarray, "n d"]
    y: np.ndarray
    model: Any
    rejected: Float[np.ndarray, "q d"]
    held: Float[np.ndarray, "h d"]

    @property
    def theta(self) -> Float[np.ndarray, " m"]:
        """Weights, then the bias."""
        return np.append(self.model.coef_[0], self.model.intercept_)


def load(ctx: Context, name: str) -> tuple[Float[np.ndarray, "n d"], np.ndarray]:
    """Return rows and labels, the larger class coded 1; rows with missing values are left out."""
    if name == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return X, y
    if ctx.data is not None:
        *features, target = (columns := read_table(ctx.data))
        X, _ = one_hot({feature: columns[feature] for feature in features})
        _, codes = np.unique(columns[target].astype(str), return_inverse=True)
    else:
        table = keel.load(name)
        X, codes = table.X, table.y
    whole = np.isfinite(X).all(axis=1)
    X, codes = X[whole], codes[whole]
    return X, (codes == np.bincount(codes).argmax()).astype(int)


def names(ctx: Context) -> tuple[str, ...]:
    """Return the tables of a run; the user's own takes their place."""
    return TABLES if ctx.data is None else (ctx.data.stem,)


def case(ctx: Context, name: str, seed: int, persons: int, *, validation: bool = False) -> Case:
    """Split, scale and fit; return at most ``persons`` rejected test rows.

    With ``validation`` the training rows are split once more, and the test rows are not touched.
    """
    X, y = load(ctx, name)
    X_train, X_test, y_train, _ = train_test_split(X, y, test_size=0.25, random_state=seed, stratify=y)
    if validation:
        X_train, X_test, y_train, _ = train_test_split(
            X_train, y_train, test_size=0.25, random_state=seed, stratify=y_train
        )
    scaler = StandardScaler().fit(X_train)
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    moving = X_train.std(axis=0) > 0
    X_train, X_test = X_train[:, moving], X_test[:, moving]
    model = LogisticRegression(C=1 / (L2 * len(X_train)), tol=1e-8, max_iter=10_000).fit(X_train, y_train)
    return Case(name, X_train, y_train, model, X_test[model.predict(X_test) == 0][:persons], X_test)
