import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # for sumo_ground


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)
