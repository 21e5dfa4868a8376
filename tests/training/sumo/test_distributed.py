"""Several processes that talk to each other over gloo; what they check stands in ``sumo_ranks.py``."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.dist, pytest.mark.slow]


def start(scenario, world, folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("sumo_ranks.py")), scenario, str(folder)],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * world, "\n".join(errors)


@pytest.mark.ci
def test_fsdp2_is_single_process_training_without_gathering(tmp_path):
    start("fsdp", 2, tmp_path)


def test_replicas_of_shards_take_the_same_steps(tmp_path):
    start("hsdp", 4, tmp_path)


def test_distributed_checkpoints_resume_exactly(tmp_path):
    start("checkpoint", 2, tmp_path)


def test_ddp_ranks_agree_to_the_bit(tmp_path):
    start("ddp", 2, tmp_path)


def test_any_cut_of_rows_or_columns(tmp_path):
    start("shapes", 3, tmp_path)
