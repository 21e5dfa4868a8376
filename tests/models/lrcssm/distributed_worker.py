"""Run by torchrun in two processes: train data-parallel or sharded, and leave the weights in a folder."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))

from test_network import coded

from thrifty.models.lrcssm import LrcSSMModel
from thrifty.models.lrcssm.fitting import Recipe, fit


def small():
    torch.manual_seed(0)
    return LrcSSMModel(2, 2, d_model=8, d_state=4, n_layers=2)


def three_steps(model, rank=0, world=1):
    """Train on every world-th sequence."""
    data = coded()
    X, y = torch.from_numpy(data.X)[rank::world], torch.from_numpy(data.y).long()[rank::world]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(model(X), y).backward()
        optimizer.step()


def data_parallel(folder):
    model = small()
    fit(model, coded(), None, Recipe(epochs=2, lr=1e-2, batch_size=8))
    if dist.get_rank() == 0:
        model.save_pretrained(folder)


def sharded(folder):
    model = small()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    three_steps(model, dist.get_rank(), dist.get_world_size())
    whole = {name: p.full_tensor().detach().contiguous() for name, p in model.state_dict().items()}
    if dist.get_rank() == 0:
        save_file(whole, Path(folder, "sharded.safetensors"))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    {"data-parallel": data_parallel, "sharded": sharded}[sys.argv[1]](sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
