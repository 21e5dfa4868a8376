"""What a step allocates beside the state, and the same step on an accelerator."""

import pytest
import torch
from sumo_ground import matrix
from torch import nn

from thrifty.bench.memory import allocated_peak
from thrifty.training.sumo import SUMO, attach_layerwise, sumo_param_groups


@pytest.mark.parametrize("residual", ["raw", "none", "fira"])
@pytest.mark.parametrize("limit_target", ["orthogonal", "update"])
@pytest.mark.parametrize("shape", [(1024, 512), (512, 1024)])
def test_between_refreshes_nothing_of_the_weights_size_is_allocated(shape, limit_target, residual, rng):
    weight = nn.Parameter(matrix(rng, *shape))
    optimizer = SUMO([weight], rank=8, residual=residual, limit_target=limit_target, lr=1e-3)
    weight.grad = matrix(rng, *shape)
    for _ in range(12):  # past the steps in which the residual is watched
        optimizer.step()
    assert allocated_peak(optimizer.step) < 10 * 8 * (512 + 1024) * 4 < weight.numel() * 4 / 4


def test_a_16_bit_weight_is_widened_a_block_at_a_time(rng, monkeypatch):
    monkeypatch.setattr("thrifty.training.sumo.weights.BLOCK", 1 << 14)
    weight = nn.Parameter(matrix(rng, 1024, 512).bfloat16())
    optimizer = SUMO([weight], rank=8, lr=1e-3)
    weight.grad = matrix(rng, 1024, 512).bfloat16()
    for _ in range(12):
        optimizer.step()
    assert allocated_peak(optimizer.step) < weight.numel() * 2


def test_gradients_do_not_coexist_when_stepping_in_the_backward_pass(rng):
    def peak(eager):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(12)))
        x = matrix(rng, 2, 256)
        if eager:
            step = attach_layerwise(model, SUMO, rank=4, lr=1e-4).optimizer
        else:
            step = SUMO(sumo_param_groups(model, rank=4), lr=1e-4)

        def once():
            model(x).pow(2).mean().backward()
            step.step()
            step.zero_grad()

        once()
        return allocated_peak(once)

    assert peak(eager=True) < 0.3 * peak(eager=False)


@pytest.mark.gpu
@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("residual", ["raw", "fira"])
def test_an_accelerator_takes_the_steps_of_the_cpu(residual, foreach, rng):
    shapes = [(96, 64), (64, 96), (96, 64), (30,)]
    starts = [matrix(rng, *shape) for shape in shapes]
    gradients = [[matrix(rng, *shape) for shape in shapes] for _ in range(7)]
    found = []
    for device in ("cpu", "cuda"):
        parameters = [nn.Parameter(start.to(device)) for start in starts]
        optimizer = SUMO(parameters, rank=4, lr=0.05, update_proj_gap=3, residual=residual, foreach=foreach)
        for step in gradients:
            for p, G in zip(parameters, step, strict=True):
                p.grad = G.to(device)
            optimizer.step()
        found.append([p.detach().cpu() for p in parameters])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
