"""Every public name has an example in its docstring (they run with the docstrings of the whole library)."""

import pytest

from thrifty.inference import token_reduction


@pytest.mark.parametrize("name", token_reduction.__all__)
def test_every_public_name_has_an_example(name):
    assert ">>> " in getattr(token_reduction, name).__doc__
