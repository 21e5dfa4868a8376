import sys
from pathlib import Path

import pytest
import torch

from thrifty.bench.timing import threads

sys.path.insert(0, str(Path(__file__).parent))  # for sumo_ground


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def one_thread():
    """Small matrices, and other processes: more threads would only wait for each other."""
    with threads(1):
        yield
