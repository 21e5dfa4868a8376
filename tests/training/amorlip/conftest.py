import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))  # for amorlip_ground

U = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]
V = [[1, 0.2, 0], [0, 1, 0.5], [0.3, 0, 1], [1, 0.5, 0.5]]


@pytest.fixture
def four():
    """Four pairs whose partition functions were worked out by hand, s = 5, in float64."""
    u, v = (functional.normalize(torch.tensor(x, dtype=torch.float64), dim=1).requires_grad_() for x in (U, V))
    return u, v, torch.tensor(5.0, dtype=torch.float64, requires_grad=True)


@pytest.fixture(scope="session")
def ground(tmp_path_factory):
    """Squares of four colours as pairs and as classes, and a tiny model of each host."""
    from amorlip_models import open_clip_config, pictures, transformers_model

    folder = tmp_path_factory.mktemp("amorlip")
    pictures(folder)
    open_clip_config(folder)
    transformers_model(folder / "hf")
    return folder
