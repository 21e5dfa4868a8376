"""Losses and metrics: zeros where they must be, gradients by finite differences, and other libraries' numbers."""

import math

import numpy as np
import pytest
import torch

from thrifty.data.v2v.losses import GradientStructureLoss, ReconstructionLoss, temporal_consistency, warp
from thrifty.data.v2v.metrics import flow_errors, frame_errors, mse, ssim
from thrifty.data.v2v.teachers import dis_flow, named, warped_clip


def pictures(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_static_scene_is_consistent():
    frame, still = pictures(2, 1, 8, 8), torch.zeros(2, 2, 8, 8, dtype=torch.float64)
    prediction = pictures(2, 1, 8, 8, seed=1)
    assert temporal_consistency(prediction, prediction, frame, frame, still) == 0
    assert temporal_consistency(prediction, prediction + 0.1, frame, frame, still) > 0.01


def test_consistency_is_that_of_its_equation():
    p, q, f, g = (pictures(1, 1, 8, 8, seed=s) for s in range(4))
    still = torch.zeros(1, 2, 8, 8, dtype=torch.float64)
    by_hand = (torch.exp(-50 * (f - g) ** 2) * (p - q).abs() / (p.abs() + q.abs() + 1e-5)).mean()
    assert temporal_consistency(p, q, f, g, still) == pytest.approx(float(by_hand), rel=1e-12)
    assert temporal_consistency(p, q - 2, f, g, still) == temporal_consistency(p, q * 0, f, g, still), "clamped at 0"


def test_warping_follows_the_flow():
    frame = pictures(1, 1, 9, 11)
    flow = torch.zeros(1, 2, 9, 11, dtype=torch.float64)
    flow[:, 0], flow[:, 1] = 2, -1  # right and up
    moved = warp(frame, flow)
    assert torch.allclose(moved[..., :-1, 2:], frame[..., 1:, :-2])
    assert moved[..., :2].abs().max() < 1e-12


def test_gradients_match_finite_differences():
    """On 8 x 8, in float64; L1 and consistency are smooth almost everywhere."""
    p, q = (pictures(1, 1, 8, 8, seed=s).requires_grad_() for s in (0, 1))
    f, g = pictures(1, 1, 8, 8, seed=2), pictures(1, 1, 8, 8, seed=3)
    flow = pictures(1, 2, 8, 8, seed=4) - 0.5
    loss = ReconstructionLoss(None)
    assert torch.autograd.gradcheck(lambda a, b: loss.step(1, 2, a, f, (b, g), flow), (p, q))
    assert torch.autograd.gradcheck(lambda a: GradientStructureLoss()(a, f).sum(), (p,))


def test_consistency_begins_half_way():
    loss = ReconstructionLoss(None)
    assert [loss.needs_flow(t, 4) for t in range(4)] == [False, False, True, True]
    everywhere = ReconstructionLoss(None, consistent_from=0)
    assert [everywhere.needs_flow(t, 4) for t in range(4)] == [False, True, True, True]
    off = ReconstructionLoss(None, weights=(1, 1, 0))
    assert not off.needs_flow(3, 4)
    a, b = pictures(1, 1, 8, 8), pictures(1, 1, 8, 8, seed=1)
    assert float(loss.step(0, 4, a, b)) == pytest.approx(float((a - b).abs().mean()) / 4)


def test_ssim_is_scikit_images():
    a, b = pictures(2, 1, 20, 24), pictures(2, 1, 20, 24, seed=1)
    # scikit-image is not among our packages: by hand, over windows, with sample covariances
    windows = [x.unfold(2, 7, 1).unfold(3, 7, 1).flatten(4).squeeze(1) for x in (a, b)]
    for legacy, reach in ((False, 1.0), (True, 2.0)):
        mean = [w.mean(-1) for w in windows]
        var = [w.var(-1) for w in windows]
        cov = ((windows[0] - mean[0][..., None]) * (windows[1] - mean[1][..., None])).sum(-1) / 48
        c1, c2 = (0.01 * reach) ** 2, (0.03 * reach) ** 2
        top = (2 * mean[0] * mean[1] + c1) * (2 * cov + c2)
        by_hand = top / ((mean[0] ** 2 + mean[1] ** 2 + c1) * (var[0] + var[1] + c2))
        assert torch.allclose(ssim(a, b, legacy=legacy), by_hand.flatten(1).mean(1))
    assert ssim(a, b, legacy=True).mean() > ssim(a, b).mean()


def test_frame_errors_clamp():
    a = torch.full((1, 1, 16, 16), 1.5)
    found = frame_errors(a, torch.ones(1, 1, 16, 16), GradientStructureLoss())
    assert found["mse"] == 0
    assert found["ssim"] == pytest.approx(1)
    assert found["perceptual"] == pytest.approx(0)
    assert mse(a, torch.zeros_like(a)).tolist() == [2.25]


def test_zero_flow_errs_by_the_mean_length_where_there_is_truth():
    truth = torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(0)) * 3
    truth[0, :, 0, 0] = 0
    truth[0, :, 0, 1] = math.nan
    events = torch.zeros(1, 6, 6, dtype=torch.bool)
    events[0, 2:4] = True
    found = flow_errors(torch.zeros_like(truth), truth, events)
    length = truth.norm(dim=1)
    valid = torch.isfinite(length) & (length > 0)
    assert found["epe"] == pytest.approx(float(length[valid].mean()))
    assert found["over_3px"] == pytest.approx(100 * float((length[valid] > 3).float().mean()))
    assert found["sparse_epe"] == pytest.approx(float(length[:, 2:4].mean()))
    assert math.isnan(flow_errors(truth, torch.zeros_like(truth))["epe"])


def textured(side=160):
    y, x = np.mgrid[:side, :side]
    return (127 + 60 * np.sin(x / 5) * np.cos(y / 7) + 40 * np.sin((x + 2 * y) / 9)).astype(np.uint8)


def test_a_warped_clip_has_the_flow_that_it_says():
    clip, flow = warped_clip(textured(), 4, 64, np.random.default_rng(0), speed=3.0)
    assert clip.shape == (4, 64, 64)
    assert flow.shape == (3, 2, 64, 64)
    frames = torch.from_numpy(clip).float()[:, None] / 255
    moved, still = warp(frames[:-1], torch.from_numpy(flow)), frames[:-1]
    inner = (..., slice(8, -8), slice(8, -8))
    assert (moved - frames[1:])[inner].abs().mean() < 0.02 < (still - frames[1:])[inner].abs().mean()
    seen = dis_flow(frames[:-1], frames[1:])
    # the teacher gives flow at the earlier frame's pixels, the clip at the later one's
    assert flow_errors(seen[inner], torch.from_numpy(flow)[inner])["epe"] < 0.5
    with pytest.raises(ValueError, match="more than 64 x 64 pixels"):
        warped_clip(textured(60), 4, 64, np.random.default_rng(0))


def test_teachers_by_name(tmp_path):
    assert named("dis") is dis_flow
    with pytest.raises(ValueError, match="weights of raft-small, got none"):
        named("raft-small")
    with pytest.raises(ValueError, match="teacher"):
        named("liteflow")
    from torchvision.models.optical_flow import raft_small

    torch.save(raft_small(weights=None).state_dict(), tmp_path / "raft.pth")
    flow = named("raft-small", tmp_path / "raft.pth")(torch.rand(1, 1, 40, 50), torch.rand(1, 1, 40, 50))
    assert flow.shape == (1, 2, 40, 50)
    assert not flow.requires_grad
