"""Cameras: the law they are drawn by, and what is refused."""

import numpy as np
import pytest
import torch

from thrifty.data.v2v import PRESETS, EventCamera, EventCameraSampler, FixedThresholds, VideoToVoxel, preset


def test_the_law_of_the_sampler():
    """The specification's oracle: both means 1.153125, ratio at most 1.5, thresholds at most 3."""
    drawn = EventCameraSampler().sample(200_000, torch.Generator().manual_seed(0))
    assert drawn.c_pos.mean() == pytest.approx(1.153125, abs=0.006)
    assert drawn.c_neg.mean() == pytest.approx(1.153125, abs=0.006)
    ratio = np.maximum(drawn.c_pos, drawn.c_neg) / np.minimum(drawn.c_pos, drawn.c_neg)
    assert ratio.min() >= 1
    assert 1.49 < ratio.max() <= 1.5 + 1e-12
    assert max(drawn.c_pos.max(), drawn.c_neg.max()) <= 3
    assert (drawn.c_pos < drawn.c_neg).mean() == pytest.approx(0.5, abs=0.005)
    for name, high in (("noise_std", 0.1), ("hot_fraction", 1e-3), ("hot_std", 10.0)):
        column = getattr(drawn, name)
        assert column.min() >= 0
        assert column.max() <= high
        assert column.mean() == pytest.approx(high / 2, rel=0.01)


def test_both_kinds_of_generator_and_none_will_do():
    sampler = EventCameraSampler()
    one, two = (sampler.sample(3, np.random.default_rng(4)) for _ in range(2))
    assert (one.c_pos == two.c_pos).all()
    assert (sampler.sample(3).c_pos != sampler.sample(3).c_pos).all()


def test_noise_can_be_scaled_by_the_threshold():
    plain, scaled = (EventCameraSampler(scale_noise=s).sample(5, torch.Generator().manual_seed(1)) for s in (0, 1))
    assert scaled.noise_std == pytest.approx(plain.noise_std * plain.c_pos)
    assert scaled.hot_std == pytest.approx(plain.hot_std * plain.c_pos)


def test_fixed_thresholds_belong_to_the_video():
    law = FixedThresholds(EventCameraSampler(), seed=3)
    first, again, other = (
        law.sample_for(video, torch.Generator().manual_seed(s)) for video, s in (("a", 0), ("a", 1), ("b", 1))
    )
    assert first.c_pos == again.c_pos
    assert first.c_neg == again.c_neg
    assert first.c_pos != other.c_pos
    assert first.noise_std != again.noise_std


@pytest.mark.parametrize(("arguments", "said"), [
    ((0.0, 1.0), "c_pos: expected a finite number of at least 1e-06, got 0.0"),
    ((1.0, -0.1), "c_neg"), ((float("nan"), 1.0), "c_pos"), ((1.0, float("inf")), "c_neg"),
    ((1.0, 1.0, -0.1), "noise_std"), ((1.0, 1.0, 0.0, 1.5), "hot_fraction.*at most 1, got 1.5"),
    ((1.0, 1.0, 0.0, 0.0, float("nan")), "hot_std"), (([1.0, 2.0], [1.0, 2.0, 3.0]), "one a batch item"),
    (([[1.0]], 1.0), "one a batch item"), (([], []), "one a batch item"), ((1e-39, 1.0), "c_pos"),
])  # fmt: skip
def test_bad_cameras_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        EventCamera(*arguments)


@pytest.mark.parametrize("how", [
    {"threshold": (0, 1)}, {"threshold": (2, 1)}, {"ratio": (0.9, 1.2)}, {"noise_std": (-1, 0)},
    {"hot_std": (0, float("nan"))}, {"hot_fraction": (0, 2)}, {"threshold": 0.2}, {"shot": (0, 1.5)}, {"leak": (-1, 0)},
])  # fmt: skip
def test_bad_ranges_are_refused(how):
    with pytest.raises(ValueError, match=next(iter(how))):
        EventCameraSampler(**how)


def test_presets_have_names():
    assert preset("davis346") is PRESETS["davis346"]
    with pytest.raises(ValueError, match="clean, noisy, davis346, prophesee-gen4, got 'dvs'"):
        preset("dvs")
    assert PRESETS["noisy"].describe()[0]["noise_std"] == 0.03


def test_a_law_by_video_needs_a_video():
    v2v = VideoToVoxel(camera=FixedThresholds(EventCameraSampler()))
    with pytest.raises(ValueError, match="got FixedThresholds, a law by video"):
        v2v(torch.zeros(1, 6, 4, 4, dtype=torch.uint8))


def test_leak_and_shot_noise_are_drawn_where_asked_for():
    plain, more = EventCameraSampler(), EventCameraSampler(leak=(0.01, 0.02), shot=(0.001, 0.002))
    one, other = (law.sample(100, torch.Generator().manual_seed(0)) for law in (plain, more))
    assert (one.c_pos == other.c_pos).all(), "the others are drawn as before"
    assert (one.leak == 0).all()
    assert ((other.leak >= 0.01) & (other.leak <= 0.02)).all()
    assert ((other.shot >= 0.001) & (other.shot <= 0.002)).all()
