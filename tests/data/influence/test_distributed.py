"""Two processes over gloo share the work, and choose what one process chooses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from influence_ground import llama, pool, stepped

from thrifty.data.influence import InfluenceDistillation, JVPEmbedding

pytestmark = [pytest.mark.dist, pytest.mark.slow]
HERE = Path(__file__).parent


def alone(**settings):
    model = llama()
    optimizer = stepped(model, pool(26))
    picker = InfluenceDistillation(model, optimizer, embedding=JVPEmbedding(num_blocks=2), **settings)
    return picker.select(
        pool(26), pool(5, seed=77), 8, aggregate="mean" if settings.get("order") == 2 else "round_robin"
    )


@pytest.mark.ci
def test_torchrun_chooses_what_one_process_does(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*launcher, str(HERE / "influence_ranks.py"), "shared", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=180, env={**os.environ, "PYTHONPATH": str(HERE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    for name, settings in {
        "random": {"num_landmarks": 9}, "kmeans++": {"num_landmarks": 9, "landmarks": "kmeans++"},
        "checked": {"num_landmarks": 9, "num_check": 3}, "exact": {"num_landmarks": 26},
    }.items():  # fmt: skip
        one = alone(**settings)
        assert found[name][0] == one.indices.tolist(), name
        # each process checks its batched gradients once
        assert found[name][1] == one.report["backward_passes"] + 1
    assert found["stored"][0] == found["random"][0]
    assert len(list((tmp_path / "store-2" / "embeddings").glob("rows-*"))) == 7
    assert found["second order"][0] == alone(num_landmarks=9, order=2).indices.tolist()
