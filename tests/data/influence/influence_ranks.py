"""What each process checks in ``test_distributed.py``."""

import json
import sys
from pathlib import Path

import torch
from influence_ground import llama, pool, stepped
from torch import distributed as dist

from thrifty.data.influence import InfluenceDistillation, JVPEmbedding, stores

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
    second = pick(num_landmarks=9, order=2).select(ROWS, TARGET, 8, aggregate="mean")
    found["second order"] = (second.indices.tolist(), second.weights.round(3).tolist())
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, found)
    assert all(other == found for other in gathered)
    if dist.get_rank() == 0:
        (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        {"shared": shared}[sys.argv[1]](Path(sys.argv[2]))
    finally:
        dist.destroy_process_group()
