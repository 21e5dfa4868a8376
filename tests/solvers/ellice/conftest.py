"""A real table, a linear model of it, and a small network."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

L2 = 1e-3


@pytest.fixture(scope="session")
def cancer():
    """Standardised rows, labels, and the model whose golden values are tested."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    return X, y, LogisticRegression(C=1 / (L2 * len(X)), tol=1e-10, max_iter=10_000).fit(X, y)


@pytest.fixture(scope="session")
def credit():
    """Persons with numbers, whole numbers and categories (made up, so that the right answers are known)."""
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 70, n),
            "income": rng.normal(3000, 900, n).round(),
            "debt": rng.gamma(2.0, 400.0, n),
            "housing": rng.choice(["own", "rent", "free"], n),
            "job": rng.choice(["none", "some", "good"], n),
        }
    )
    score = (
        (frame["income"] - 3000) / 900
        - (frame["debt"] - 800) / 600
        + (frame["housing"] == "own")
        + (frame["job"] == "good")
    )
    y = np.where(score + rng.logistic(0, 1, n) > 0.5, "good", "bad")
    model = make_pipeline(
        make_column_transformer(
            (StandardScaler(), ["age", "income", "debt"]),
            (OneHotEncoder(drop=["free"]), ["housing"]),
            (OneHotEncoder(), ["job"]),
        ),
        LogisticRegression(C=1 / (L2 * n), max_iter=1000),
    ).fit(frame, y)
    return frame, y, model


@pytest.fixture(scope="session")
def net(cancer):
    """A network on ten columns, float32, with dropout and batch normalisation."""
    torch = pytest.importorskip("torch")
    X, y, _ = cancer
    X = X[:, :10]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Sequential(
            torch.nn.Linear(10, 16),
            torch.nn.BatchNorm1d(16),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.1),
            torch.nn.Linear(16, 1),
        )
        adam = torch.optim.Adam(module.parameters(), 1e-2, weight_decay=1e-3)
        inputs, labels = torch.as_tensor(X).float(), torch.as_tensor(y).float()
        for _ in range(150):
            adam.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(module(inputs)[:, 0], labels).backward()
            adam.step()
    return X, y, module.train()
