"""Explainers in files: npz with JSON inside, nothing pickled; a network is not stored, and must be given again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import NotFittedError

from thrifty._common.extras import require
from thrifty.solvers.ellice.checks import check_settings, method_for
from thrifty.solvers.ellice.constraints import Constraints
from thrifty.solvers.ellice.ellipsoid import RashomonEllipsoid
from thrifty.solvers.ellice.encoding import Encoded, Encoding
from thrifty.solvers.ellice.geometry import Ellipsoid
from thrifty.solvers.ellice.logistic import with_constant
from thrifty.solvers.ellice.nearest import Candidates
from thrifty.solvers.ellice.npz import read_npz, write_npz
from thrifty.solvers.ellice.reading import Reading, read_model

if TYPE_CHECKING:
    from thrifty.solvers.ellice.explainer import ElliCE

SCHEMA = 1

#: What a file says besides its arrays, and the axes of these: h(x) and 1, rows, encoded columns.
FACTS = ("settings", "constraints", "encoding", "kind", "classes", "epsilon", "objective")
SHAPES = {"theta": "m", "cholesky": "m m", "deployed": "m", "training": "n d", "range": "ends d", "candidates": "c d"}


def save(explainer: ElliCE, path: str | os.PathLike[str], *, force: bool) -> Path:
    """Write an explainer; see :meth:`thrifty.solvers.ellice.explainer.ElliCE.save`."""
    if not hasattr(explainer, "rashomon_"):
        raise NotFittedError("this ElliCE is not fitted; call fit(X, y) first")
    ellipsoid = explainer.rashomon_.ellipsoid_
    settings = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in explainer._settings().items()
        if name not in ("constraints", "head")
    }
    facts = {
        "schema": "thrifty.ellice.explainer",
        "version": SCHEMA,
        "settings": settings,
        "constraints": (explainer.constraints or Constraints()).to_json(),
        "encoding": explainer.reading_.encoding.to_json(),
        "kind": explainer.reading_.kind,
        "classes": explainer.classes_.tolist(),
        "epsilon": ellipsoid.epsilon,
        "objective": explainer.rashomon_.objective_,
    }
    arrays = {
        "theta": ellipsoid.theta,
        "cholesky": ellipsoid.cholesky,
        "deployed": explainer.reading_.theta,
        "training": explainer.training_,
        "range": explainer.range_,
        "candidates": explainer.candidates_.rows,
    }
    return write_npz(path, facts, arrays, force=force)


def load(kind: type[ElliCE], path: str | os.PathLike[str], model: Any) -> ElliCE:
    """Read an explainer; see :meth:`thrifty.solvers.ellice.explainer.ElliCE.load`."""
    facts, arrays = read_npz(path, "thrifty.ellice.explainer", SCHEMA, facts=FACTS, shapes=SHAPES)
    try:
        encoding = Encoding.from_json(facts["encoding"])
        classes, epsilon = np.array(facts["classes"]), float(facts["epsilon"])
        made = kind(model, constraints=Constraints.from_json(facts["constraints"]), **facts["settings"])
        check_settings(made)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: expected an explainer that was saved here, got parts of another: {error}") from None
    if classes.shape != (2,):
        raise ValueError(f"{path}: expected two classes, got {facts['classes']!r}")
    if model is None:
        if facts["kind"] != "linear":
            raise ValueError(
                f"model: expected the {facts['kind']} model of {path}, which the file does not hold, got None"
            )
        theta = arrays["deployed"]
        made.reading_ = Reading(
            "linear", encoding, theta, classes, lambda rows: rows,
            lambda frame: with_constant(encoding.encode(encoding.frame(frame))) @ theta,
        )  # fmt: skip
    else:
        like = encoding.decode(arrays["training"][:256], _blank(encoding, arrays["training"][:256]))
        like = like.to_numpy() if _numbered(encoding) and not hasattr(model, "feature_names_in_") else like
        made.reading_ = read_model(model, like, device=made.device)
        if not np.allclose(made.reading_.theta, arrays["deployed"], rtol=1e-6, atol=1e-9):
            raise ValueError(f"model: expected the one that {path} was made for, got another: its last layer differs")
    made.method_ = method_for(made, made.reading_)
    rashomon = RashomonEllipsoid(*(facts["settings"][s] for s in ("epsilon", "l2", "epsilon_mode", "center")))
    rashomon.reading_, rashomon._rows, rashomon._y = made.reading_, None, None
    rashomon.classes_, rashomon.objective_, rashomon.epsilon_ = classes, facts["objective"], epsilon
    rashomon.ellipsoid_ = Ellipsoid(arrays["theta"], arrays["cholesky"], epsilon)
    made.rashomon_, made.classes_ = rashomon, classes
    made.training_, made.range_ = arrays["training"], arrays["range"]
    made.candidates_ = Candidates(arrays["candidates"], made.reading_.features(arrays["candidates"]))
    made.region_ = made._region(made.constraints or Constraints())
    return made


def _numbered(encoding: Encoding) -> bool:
    return encoding.names == tuple(f"x{i}" for i in range(len(encoding.names)))


def _blank(encoding: Encoding, rows: Encoded) -> Any:
    """Return raw rows of the right kind, to be overwritten by decoding."""
    pd = require("pandas", extra="tabular")
    columns = {}
    for column, name in enumerate(encoding.names):
        group = encoding.groups.get(column)
        value: Any = 0.0 if group is None else group.levels[0]
        columns[name] = [value] * len(rows)
    return pd.DataFrame(columns)
