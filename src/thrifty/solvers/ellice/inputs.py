"""What the command line names, made into tables, labels, models and constraints."""

from __future__ import annotations

import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from thrifty._common.checks import number
from thrifty._common.extras import require
from thrifty._common.tables import read_table, split_target, whole_numbers

#: Numbers stay below this in size, so that their variance is a number.
LARGEST = 1e150

#: Types beyond those that skops trusts by itself which a model file may hold.
TRUSTED = (
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.compose._column_transformer._RemainderColsList",
    "thrifty.solvers.ellice.leaves.LeafEmbedding",
)


def training_table(path: Path, target: str) -> tuple[Any, np.ndarray]:
    """Return the rows and labels of a training table."""
    pd = require("pandas", extra="tabular")
    columns, labels = split_target(read_table(path), target)
    if (found := len(np.unique(labels))) != 2:
        raise ValueError(f"--target: expected two labels, got {found} in column {target!r} of {path}")
    return pd.DataFrame({name: whole_numbers(values) for name, values in columns.items()}), labels


def limits_of(constraints: Path | None, immutable: str) -> Any:
    """Return the constraints of a file, and the features named on the command line."""
    from thrifty.solvers.ellice.constraints import Constraints

    limits = Constraints() if constraints is None else Constraints.from_json(constraints)
    names = [name.strip() for name in immutable.split(",") if name.strip()]
    return replace(limits, immutable=[*limits.immutable, *names])


def model_of(path: Path | None, frame: Any, labels: np.ndarray, l2: float) -> Any:
    """Load a model, or fit the one that most people would begin with."""
    if path is not None:
        io = require("skops.io", extra="tabular")
        try:
            types = io.get_untrusted_types(file=path)
        except (zipfile.BadZipFile, KeyError, ValueError) as error:
            raise ValueError(f"--model: expected a skops file, got {path}: {error}") from None
        if strange := sorted(set(types) - set(TRUSTED)):
            raise ValueError(f"--model: expected types on this command's list, got in {path} {', '.join(strange)}")
        return io.load(path, trusted=list(TRUSTED))
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    if holed := [name for name in frame.columns if frame[name].isna().any()]:
        raise ValueError(
            f"--data: expected no missing values (fill them in, or leave those rows out), got some in {holed}"
        )
    words = [name for name in frame.columns if frame[name].dtype.kind not in "iufb"]
    numbers = [name for name in frame.columns if name not in words]
    if beyond := [name for name in numbers if not np.abs(frame[name]).max() < LARGEST]:
        raise ValueError(f"--data: expected numbers below {LARGEST:g} in size, got larger ones in {beyond}")
    number("--l2", l2, "a number of at least 0", least=0.0, below=LARGEST)
    sys.stderr.write(f"no --model: fitting a logistic regression, C = 1/(l2 n), to {len(frame)} rows\n")
    steps = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), words))
    return make_pipeline(steps, LogisticRegression(C=1 / (max(l2, 1e-12) * len(frame)), max_iter=10_000)).fit(
        frame, labels
    )


def label_of(desired: str | None, labels: np.ndarray) -> Any:
    """Return the label that a word on the command line names."""
    found = np.unique(labels).tolist()
    if desired is None:
        return found[-1]
    if desired == "opposite":
        return desired
    for label in found:
        if desired == str(label) or (isinstance(label, float) and _is(desired, label)):
            return label
    raise ValueError(f"--desired: expected one of the labels {', '.join(map(str, found))}, got {desired!r}")


def _is(word: str, number: float) -> bool:
    try:
        return float(word) == number
    except ValueError:
        return False


def persons_like(persons: Any, frame: Any) -> Any:
    """Give the persons' columns the types of the training table's (a column may hold one number only)."""
    if missing := [name for name in frame.columns if name not in persons.columns]:
        raise ValueError(f"--query: expected the columns of --data, got none of {', '.join(missing)}")
    persons = persons[list(frame.columns)].copy()
    for name in frame.columns:
        persons[name] = whole_numbers(persons[name].to_numpy())
        if frame[name].dtype.kind not in "iufb" and persons[name].dtype.kind in "iuf":
            persons[name] = persons[name].map(lambda value: f"{value:g}")
    return persons
