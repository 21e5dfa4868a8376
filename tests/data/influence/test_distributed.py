"""Two processes over gloo share the work, and choose what one process chooses: in code, and by the command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from influence_ground import command_folder, llama, pool, stepped

from thrifty.data.influence import InfluenceDistillation, JVPEmbedding

pytestmark = [pytest.mark.dist, pytest.mark.slow]
HERE = Path(__file__).parent

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

#: Accelerate starts several processes for several GPUs only; where there is none they work on the CPU, over gloo.
ACCELERATE = [
    sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1",
    "--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0",
]  # fmt: skip


def launch(*command):
    settings = {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, **settings},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def alone(**settings):
    model = llama()
    optimizer = stepped(model, pool(26))
    picker = InfluenceDistillation(model, optimizer, embedding=JVPEmbedding(num_blocks=2), **settings)
    return picker.select(
        pool(26), pool(5, seed=77), 8, aggregate="mean" if settings.get("order") == 2 else "round_robin"
    )


@pytest.mark.ci
def test_torchrun_chooses_what_one_process_does(tmp_path):
    launch(*TORCHRUN, HERE / "influence_ranks.py", "shared", tmp_path)
    found = json.loads((tmp_path / "found.json").read_text())
    for name, settings in {
        "random": {"num_landmarks": 9}, "kmeans++": {"num_landmarks": 9, "landmarks": "kmeans++"},
        "checked": {"num_landmarks": 9, "num_check": 3}, "exact": {"num_landmarks": 26},
    }.items():  # fmt: skip
        one = alone(**settings)
        assert found[name][0] == one.indices.tolist(), name
        # each process checks its batched gradients once
        assert found[name][1] == one.report["backward_passes"] + 1
    assert found["stored"][0] == found["random"][0] == found["in a file"][0]
    assert len(list((tmp_path / "store-2" / "embeddings").glob("rows-*"))) == 7
    assert found["second order"][0] == alone(num_landmarks=9, order=2).indices.tolist()


def test_accelerate_chooses_what_one_process_does(tmp_path):
    launch(*ACCELERATE, HERE / "influence_ranks.py", "accelerated", tmp_path)
    assert json.loads((tmp_path / "found.json").read_text()) == alone(num_landmarks=9).indices.tolist()


@pytest.mark.parametrize(
    ("launcher", "method"),
    [(TORCHRUN, "influence"), (TORCHRUN, "random"), (ACCELERATE, "influence")],
    ids=["torchrun", "torchrun, random", "accelerate"],
)
def test_the_command_writes_once_what_one_process_writes(tmp_path, launcher, method):
    folder = command_folder(tmp_path / "model")
    options = [
        "influence", "select", folder, "--data", folder / "pool.jsonl", "--target", folder / "dev.jsonl",
        "-k", 5, "--num-landmarks", 10, "--num-blocks", 1, "--warmup-steps", 2, "--method", method,
    ]  # fmt: skip
    done = launch(*launcher, "-m", "thrifty.cli", *options, "--out", tmp_path / "two.jsonl")
    launch(sys.executable, "-m", "thrifty.cli", *options, "--out", tmp_path / "one.jsonl")
    two, one = (
        [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()] for name in ("two", "one")
    )
    assert [row["id"] for row in two] == [row["id"] for row in one]
    assert [row["influence_score"] for row in two] == pytest.approx([row["influence_score"] for row in one], abs=1e-5)
    assert done.stdout.count("5 of 30 examples") == 1
    assert done.stderr.count("30 examples of") == 1
