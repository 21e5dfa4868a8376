"""A tree as JSON: the form in which fitted trees travel, since nothing of a user's file is ever unpickled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from thrifty._common import settings
from thrifty._common.checks import whole
from thrifty._common.files import write_whole
from thrifty.solvers.trees.model.tree import Tree

SCHEMA = "thrifty.tree"
VERSION = 1
_ARRAYS = ("left", "right", "feature", "threshold", "missing_left", "value", "weight", "n_samples")
_KEYS = ("dtype", "n_features", "feature_names", "classes", *_ARRAYS)


def tree_to_dict(tree: Tree) -> dict[str, Any]:
    """Plain lists and numbers that `tree_from_dict` takes back exactly.

    Raises:
        TypeError: The class names are neither numbers, booleans nor strings.
    """
    classes = tree.classes.tolist()
    if not all(isinstance(name, (bool, int, float, str)) for name in classes):
        raise TypeError(f"classes: expected numbers, booleans or strings, which JSON holds, got {classes!r}")
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "version": VERSION,
        "dtype": tree.dtype,
        "n_features": tree.n_features,
        "feature_names": None if tree.feature_names is None else list(tree.feature_names),
        "classes": classes,
    }
    for name in _ARRAYS:
        array = getattr(tree, name)
        document[name] = None if array is None else array.tolist()
    return document


def tree_from_dict(document: Mapping[str, Any]) -> Tree:
    """Rebuild a tree; indices and bounds are checked before anything can be predicted.

    Raises:
        ValueError: Another schema or version, an unknown or missing key, or arrays that are no tree.
    """
    settings.check(document, SCHEMA, VERSION, known=_KEYS, needed=_KEYS, name="document")
    n_features, names = document["n_features"], document["feature_names"]
    whole("n_features", n_features)
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ValueError(f"feature_names: expected a list of strings, or null, got {names!r}")
    arrays: dict[str, Any] = {}
    for name in (*_ARRAYS, "classes"):
        given = document[name]
        if given is None and name == "missing_left":
            arrays[name] = None
            continue
        if not isinstance(given, list):
            raise ValueError(f"{name}: expected a list, got a {type(given).__name__}")
        try:
            arrays[name] = np.array(given)
        except (ValueError, OverflowError):
            raise ValueError(
                f"{name}: expected a rectangular list, got one that is ragged or holds numbers out of range"
            ) from None
    if arrays["missing_left"] is not None and arrays["missing_left"].dtype != np.bool_:
        raise ValueError("missing_left: expected true and false, got other values")
    return Tree(
        **arrays,
        n_features=n_features,
        feature_names=None if names is None else tuple(names),
        dtype=document["dtype"],
    )


def save_tree(tree: Tree, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write ``tree`` to ``path`` as JSON, whole or not at all; return the path.

    Raises:
        FileExistsError: ``path`` exists and ``force`` is False.
    """
    return write_whole(path, json.dumps(tree_to_dict(tree), allow_nan=False) + "\n", force=force)


def load_tree(path: str | os.PathLike[str]) -> Tree:
    """Read a tree that `save_tree` wrote.

    Raises:
        ValueError: The file is no JSON, or no tree; the message names the file.
    """
    try:
        return tree_from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:  # the latter: JSON nested thousands deep
        raise ValueError(f"{path}: {error}") from error
