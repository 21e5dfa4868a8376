"""Every public name has an example in its docstring, and every example of the package runs."""

import doctest
import inspect
from importlib import import_module

import pytest
import torch

from thrifty.models import lrcssm

MODULES = sorted({inspect.getmodule(getattr(lrcssm, name)).__name__ for name in lrcssm.__all__})


@pytest.mark.parametrize("name", lrcssm.__all__)
def test_a_public_name_has_an_example(name):
    assert ">>> " in getattr(lrcssm, name).__doc__


@pytest.mark.parametrize("name", [*MODULES, "thrifty.models.lrcssm.cost"])
def test_examples_run(name):
    torch.manual_seed(0)
    done = doctest.testmod(import_module(name))
    assert done.attempted > 0
    assert done.failed == 0
