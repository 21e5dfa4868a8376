"""Two processes that talk by gloo: exact gradients, and each communicated once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "distributed_worker.py"


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", pytest.param("fsdp2", marks=pytest.mark.ci)])
def test_two_processes_equal_one(kind):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", WORKER, kind]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(WORKER.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
