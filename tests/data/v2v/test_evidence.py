"""What the bench rests on: the rival simulator, imported from its unpacked wheel in another process."""

import numpy as np
import pytest

from thrifty.bench.carried import UnavailableError
from thrifty.data.v2v.evidence import speed


@pytest.mark.net
def test_grids_of_another_simulator_are_its_counts():
    levels = np.zeros((2, 6, 4, 4), np.uint8)
    levels[1, 3:] = 255  # ln 256 = 5.545 in one step, and nothing else: 27 events at a threshold of 0.2
    try:
        grids = speed.grids_of_another(levels, 0.2)
    except UnavailableError as error:
        pytest.skip(str(error))
    assert grids.shape == (2, 5, 4, 4)
    assert (grids[0] == 0).all()
    assert (grids[1, 2] == 27).all()
    assert (grids[1, [0, 1, 3, 4]] == 0).all()
