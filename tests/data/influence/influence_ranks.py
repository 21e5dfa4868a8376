"""What each process checks in ``test_distributed.py``."""

import json
import sys
from pathlib import Path

import torch
from influence_ground import llama, pool, stepped
from torch import distributed as dist

from thrifty.data.influence import InfluenceDistillation, JVPEmbedding, rows, stores

stores.PIECE = 4
ROWS, TARGET = pool(26), pool(5, seed=77)


def pick(**settings):
    model = llama()
    optimizer = stepped(model, ROWS)
    return InfluenceDistillation(model, optimizer, embedding=JVPEmbedding(num_blocks=2), **settings)


def shared(folder):
    """Each process computes its pieces; all choose the same."""
    found = {}
    cases = {
        "random": {"num_landmarks": 9}, "kmeans++": {"num_landmarks": 9, "landmarks": "kmeans++"},
        "checked": {"num_landmarks": 9, "num_check": 3}, "exact": {"num_landmarks": 26},
        "stored": {"num_landmarks": 9, "store": folder / f"store-{dist.get_world_size()}"},
    }  # fmt: skip
    for name, settings in cases.items():
        result = pick(**settings).select(ROWS, TARGET, 8)
        found[name] = (result.indices.tolist(), result.report["backward_passes"])
    rows.IN_MEMORY = 0
    result = pick(num_landmarks=9, store=folder / f"store-{dist.get_world_size()}").select(ROWS, TARGET, 8)
    assert len(list((folder / f"store-{dist.get_world_size()}").glob(f"scores-*-{dist.get_rank()}.f32"))) == 1
    found["in a file"] = (result.indices.tolist(), result.report["backward_passes"])
    second = pick(num_landmarks=9, order=2).select(ROWS, TARGET, 8, aggregate="mean")
    found["second order"] = (second.indices.tolist(), second.weights.round(3).tolist())
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, found)
    assert all(other == found for other in gathered)
    if dist.get_rank() == 0:
        (folder / "found.json").write_text(json.dumps(found))


def accelerated(folder):
    """An Accelerator joins the processes, and wraps the optimizer."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    assert (accelerator.num_processes, dist.get_world_size()) == (2, 2)
    model = llama()
    optimizer = accelerator.prepare(stepped(model, ROWS))
    picker = InfluenceDistillation(model, optimizer, embedding=JVPEmbedding(num_blocks=2), num_landmarks=9)
    indices = picker.select(ROWS, TARGET, 8).indices.tolist()
    gathered = [None] * 2
    dist.all_gather_object(gathered, indices)
    assert gathered[0] == gathered[1]
    if accelerator.is_main_process:
        (folder / "found.json").write_text(json.dumps(indices))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "shared":
        dist.init_process_group("gloo")
    try:
        {"shared": shared, "accelerated": accelerated}[sys.argv[1]](Path(sys.argv[2]))
    finally:
        dist.destroy_process_group()
