"""Lets the tests of this folder share `lrc_cells`, and keeps small tensors on one thread, where they are fastest."""

import sys
from pathlib import Path

import pytest

from thrifty.bench.timing import threads

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _one_thread():
    with threads(1):
        yield
