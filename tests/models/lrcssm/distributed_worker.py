"""Run by torchrun in two processes: train data-parallel, and leave the model in a folder."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent))

from test_network import coded

from thrifty.models.lrcssm import LrcSSMModel
from thrifty.models.lrcssm.fitting import Recipe, fit

if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = LrcSSMModel(2, 2, d_model=8, d_state=4, n_layers=1)
    fit(model, coded(), None, Recipe(epochs=2, lr=1e-2, batch_size=8))
    if dist.get_rank() == 0:
        model.save_pretrained(sys.argv[1])
    dist.barrier()
    dist.destroy_process_group()
