"""Every public name has an example in its docstring (they run with the docstrings of the whole library)."""

import pytest

from thrifty.data import influence


@pytest.mark.parametrize("name", influence.__all__)
def test_every_public_name_has_an_example(name):
    assert ">>>" in (getattr(influence, name).__doc__ or "")
