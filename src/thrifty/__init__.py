"""Thrifty: published methods that make machine learning cheaper, in the libraries that you already use.

Every method's main names are here too, and are imported when they are first used::

    from thrifty import TreeLocalSearchClassifier
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from thrifty.bench import registry as _registry

if TYPE_CHECKING:
    from thrifty.solvers.ellice import ElliCE, RashomonEllipsoid, evaluate_recourse, tune_epsilon
    from thrifty.solvers.trees import TreeLocalSearchClassifier, error_table, improve_forest, improve_tree

__version__ = metadata.version("thrifty")

_HOME = {name: method.package for method in _registry.METHODS for name in method.exports}

__all__ = [
    "ElliCE",
    "RashomonEllipsoid",
    "TreeLocalSearchClassifier",
    "error_table",
    "evaluate_recourse",
    "improve_forest",
    "improve_tree",
    "tune_epsilon",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'thrifty' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
