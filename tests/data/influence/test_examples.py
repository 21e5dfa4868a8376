"""The examples in docstrings run, and every public name has one."""

import doctest
import importlib
import pkgutil

import pytest

from thrifty.data import influence

MODULES = [m.name for m in pkgutil.iter_modules(influence.__path__) if m.name not in {"evidence", "cli"}]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    module = importlib.import_module(f"thrifty.data.influence.{name}")
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.mark.parametrize("name", influence.__all__)
def test_every_public_name_has_an_example(name):
    assert ">>>" in (getattr(influence, name).__doc__ or "")
