"""The examples in the docstrings run."""

import doctest
import pkgutil
from importlib import import_module

import pytest

from thrifty.inference import speculation

MODULES = [m.name for m in pkgutil.iter_modules(speculation.__path__) if m.name not in {"evidence", "cli", "rivals"}]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = import_module(f"{speculation.__name__}.{name}")
    names = {n: getattr(speculation, n) for n in getattr(speculation, "__all__", ())}
    failed, _ = doctest.testmod(module, extraglobs=names | vars(module))
    assert not failed
