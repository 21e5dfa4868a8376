"""Several processes that talk to each other over gloo; what they check stands in ``sumo_ranks.py``."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.dist, pytest.mark.slow]


@pytest.fixture
def start(torchrun):
    def run(scenario, world, folder):
        torchrun(Path(__file__).with_name("sumo_ranks.py"), scenario, folder, processes=world)

    return run


@pytest.mark.ci
def test_fsdp2_is_single_process_training_without_gathering(start, tmp_path):
    start("fsdp", 2, tmp_path)


def test_replicas_of_shards_take_the_same_steps(start, tmp_path):
    start("hsdp", 4, tmp_path)


def test_distributed_checkpoints_resume_exactly(start, tmp_path):
    start("checkpoint", 2, tmp_path)


def test_ddp_ranks_agree_to_the_bit(start, tmp_path):
    start("ddp", 2, tmp_path)


def test_any_cut_of_rows_or_columns(start, tmp_path):
    start("shapes", 3, tmp_path)
