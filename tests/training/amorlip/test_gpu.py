"""On an accelerator: the same numbers as on the CPU, blocks that keep memory small, and a whole step in bfloat16."""

import pytest
import torch
from amorlip_ground import gradients, pairs

from thrifty.training.amorlip import AmorLIPLoss, amortized_clip_loss, batch_log_partition

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")]


def on_gpu(*tensors):
    return [x.detach().cuda().requires_grad_() for x in tensors]


@pytest.mark.parametrize("scale", [14.3, 100.0])
def test_loss_and_gradients_are_those_of_the_cpu(scale):
    cpu = pairs(batch=300, dim=64, dtype=torch.float64)
    gpu = on_gpu(*cpu)
    for chunk in (None, 64):
        found = []
        for u, v in (cpu, gpu):
            Z = batch_log_partition(u, v, scale, chunk_size=chunk)
            found.append(gradients(amortized_clip_loss(u, v, scale, Z.image, Z.text, chunk_size=chunk), u, v))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b.cpu(), atol=1e-9, rtol=1e-9)


def test_steps_of_the_whole_loss_are_those_of_the_cpu():
    options = {"num_samples": 1000, "steps_per_epoch": 4, "ema_decay": 0.5, "amor_every": 2, "beta_epochs": 2}
    losses = AmorLIPLoss(16, **options).double(), AmorLIPLoss(16, **options).double().cuda()
    for step in range(12):
        u, v = pairs(step, dtype=torch.float64)
        a = losses[0](u, v, torch.tensor(14.0))
        b = losses[1](*on_gpu(u, v), torch.tensor(14.0, device="cuda"))
        assert b.item() == pytest.approx(a.item(), rel=1e-6)


def test_blocks_keep_memory_small():
    u, v = on_gpu(*pairs(batch=16_384, dim=64))
    peaks = []
    for chunk in (512, 16_384):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        Z = batch_log_partition(u, v, 14.0, chunk_size=chunk)
        amortized_clip_loss(u, v, 14.0, Z.image, Z.text, chunk_size=chunk).backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[0] < 0.1 * peaks[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast(dtype):
    u, v = on_gpu(*pairs(batch=128, dim=64))
    loss = AmorLIPLoss(64, steps_per_epoch=10, ema_decay=0.5).cuda()
    with torch.autocast("cuda", dtype=dtype):
        found = loss(u.to(dtype), v.to(dtype), torch.tensor(100.0, device="cuda"))
    found.backward()
    assert found.dtype == torch.float32
    assert u.grad.isfinite().all()
