"""Every public name has an example in its docstring (they run with the docstrings of the whole library)."""

import pytest

from thrifty.models import lrcssm


@pytest.mark.parametrize("name", lrcssm.__all__)
def test_a_public_name_has_an_example(name):
    assert ">>> " in getattr(lrcssm, name).__doc__
