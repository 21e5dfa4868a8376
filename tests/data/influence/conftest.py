import sys
from pathlib import Path

import pytest

from thrifty.bench.timing import threads

sys.path.insert(0, str(Path(__file__).parent))  # for influence_ground


@pytest.fixture(autouse=True)
def one_thread():
    """Small models, and other processes: more threads would only wait for each other."""
    with threads(1):
        yield
