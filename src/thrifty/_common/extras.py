"""Importing what an extra brings, with an error that says how to get it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def require(module: str, *, extra: str) -> ModuleType:
    """Import ``module``, which comes with ``pip install "thrifty[extra]"``.

    Raises:
        ImportError: It is not installed; the message holds the exact command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # it is there, and something that it needs is not: its own message says more
        raise ImportError(f'{error.name} is not installed: pip install "thrifty[{extra}]"', name=error.name) from error
