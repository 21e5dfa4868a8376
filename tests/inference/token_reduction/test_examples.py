"""The examples in docstrings run and give what they say, and every public name has one."""

import doctest
import importlib

import pytest

from thrifty.inference import token_reduction

MODULES = sorted({getattr(token_reduction, name).__module__ for name in token_reduction.__all__})


@pytest.mark.parametrize("module", [*MODULES, "thrifty.inference.token_reduction.cost"])
def test_examples_run(module):
    pytest.importorskip("timm")
    assert doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.mark.parametrize("name", token_reduction.__all__)
def test_every_public_name_has_an_example(name):
    assert ">>> " in getattr(token_reduction, name).__doc__
