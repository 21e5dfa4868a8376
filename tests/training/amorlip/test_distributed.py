"""Several processes that talk to each other over gloo; what they check stands in ``amorlip_ranks.py``."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.dist
RANKS = Path(__file__).with_name("amorlip_ranks.py")


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(("scenario", "processes"), [("global_is_one_big_batch", 2)])
def test_two_ranks_are_one_big_batch(torchrun, scenario, processes):
    torchrun(RANKS, scenario, processes=processes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "processes"),
    [
        ("global_is_one_big_batch", 3),
        ("local_needs_no_communication_in_stage_two", 2),
        ("local_negatives_stand_for_all", 2),
        ("ranks_that_came_apart_are_noticed", 2),
        ("memory_does_not_grow_with_ranks", 4),
    ],
)
def test_several_ranks(torchrun, scenario, processes):
    torchrun(RANKS, scenario, processes=processes)
