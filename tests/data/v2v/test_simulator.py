"""The sensor: identities, a walk from crossing to crossing, worked pixels, laws of the noise, and chunks."""

import numpy as np
import pytest
import torch
from scipy import special

from thrifty.data.v2v import (
    EventCamera,
    EventCameraSampler,
    VideoToVoxel,
    kernels,
    log_table,
    noise,
    normalized,
    sensor,
)
from thrifty.data.v2v.rivals import reference_counts, walk_events

NOISY = EventCamera(0.3, 0.4, noise_std=0.1, hot_fraction=0.01, hot_std=5.0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def video(*shape, seed=0, low=0, high=256):
    return torch.randint(low, high, shape, dtype=torch.uint8, generator=generator(seed))


def begin_at(frames, potential, camera, dtype=torch.float64):
    """Return a state whose potential is given."""
    table = torch.tensor(log_table(), dtype=dtype)
    state = sensor.begin(table[frames[:, 0].int()], camera.spread(len(frames)), np.zeros(len(frames), np.int64))
    state.potential.copy_(torch.as_tensor(potential, dtype=dtype).expand_as(state.potential))
    return state


def run_pixel(levels, c_pos, c_neg, v0, backend="numba"):
    frames = torch.tensor(levels, dtype=torch.uint8).view(1, -1, 1, 1)
    camera = EventCamera(c_pos, c_neg)
    v2v, state = VideoToVoxel(dtype=torch.float64, backend=backend), begin_at(frames, v0, camera)
    counts, potentials = [], []
    for i in range(1, len(levels)):
        count, state = v2v.counts(frames[:, i : i + 1], state=state)
        counts.append(int(count))
        potentials.append(float(state.potential))
    return counts, potentials


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_worked_pixels(backend):
    counts, potentials = run_pixel([64, 128, 255, 128, 64, 0], 0.5, 0.6, 0.0, backend)
    assert counts == [3, 3, -2, -3, -6]
    assert potentials == pytest.approx([0.008754, 0.021521, -0.291246, 0.0, -0.287233], abs=1e-6)
    assert run_pixel(range(100, 111), 0.1, 0.1, 0.0, backend)[0] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert run_pixel([200, 180, 160, 140, 120, 100], 0.25, 0.4, 0.2, backend)[0] == [0, 0, -1, -1, -1]
    assert log_table()[[0, 1, 64, 128, 255]] == pytest.approx(
        [-6.907755, -6.902691, -3.020522, -1.511768, 0.001], abs=1e-6
    )


def test_counts_telescope_to_the_change_of_the_logarithm():
    frames = video(2, 31, 24, 20)
    camera = EventCamera([0.3, 0.11], [0.25, 0.2])
    v2v = VideoToVoxel(camera=camera, polarity="split", dtype=torch.float64)
    first = begin_at(frames, torch.rand(2, 24, 20, generator=generator(3)) * 0.2 - 0.1, camera)
    before = first.potential.clone()
    split, state = v2v.counts(frames[:, 1:], state=first)
    c_pos, c_neg = (torch.tensor(np.array(c))[:, None, None] for c in (camera.c_pos, camera.c_neg))
    total = split.sum(dim=1).double()
    table = torch.tensor(log_table())
    change = table[frames[:, -1].int()] - table[frames[:, 0].int()] + before - state.potential
    assert torch.allclose(c_pos * total[:, 0] - c_neg * total[:, 1], change, atol=1e-12, rtol=0)
    assert torch.equal(first.potential, before), "a state that was given stays as it was"


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_the_potential_stays_between_the_thresholds(backend):
    cameras = EventCameraSampler(threshold=(0.01, 0.1), hot_fraction=(0.2, 0.2)).sample(4, generator())
    v2v = VideoToVoxel(camera=cameras, backend=backend)
    frames = video(4, 2, 64, 64)
    state = v2v.counts(frames, generator(1))[1]
    low, high = (torch.tensor(c, dtype=torch.float32)[:, None, None] for c in (-cameras.c_neg, cameras.c_pos))
    for step in range(12):
        assert ((state.potential > low) & (state.potential < high)).all(), step
        state = v2v.counts(video(4, 1, 64, 64, seed=step), state=state)[1]


def test_a_walk_from_crossing_to_crossing_gives_the_same_counts():
    """3 000 random sequences of twelve steps, thresholds unequal, as the specification's oracle has it."""
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 256, (3000, 13)).astype(np.uint8)
    c_pos, c_neg = rng.uniform(0.05, 2, (2, 3000))
    v0 = rng.uniform(-c_neg, c_pos)
    camera = EventCamera(c_pos, c_neg)
    frames = torch.from_numpy(levels)[:, :, None, None]
    state = begin_at(frames, torch.from_numpy(v0)[:, None, None], camera)
    counts, _ = VideoToVoxel(dtype=torch.float64).counts(frames[:, 1:], state=state)
    walked = [walk_events(*row) for row in zip(levels, c_pos, c_neg, v0, strict=True)]
    assert (counts[:, :, 0, 0].numpy() == np.array(walked)).all()


def test_float64_equals_the_plain_numpy_form_and_float32_nearly():
    frames, camera = video(1, 21, 40, 50, high=60), EventCamera(0.2, 0.31)
    v0 = torch.rand(1, 40, 50, generator=generator(), dtype=torch.float64) * 0.4 - 0.2
    reference = reference_counts(frames[0].numpy(), 0.2, 0.31, v0[0].numpy())
    exact, _ = VideoToVoxel(dtype=torch.float64).counts(frames[:, 1:], state=begin_at(frames, v0, camera))
    assert (exact[0].numpy() == reference).all()
    state = begin_at(frames, v0, camera, torch.float32)
    fast, _ = VideoToVoxel().counts(frames[:, 1:], state=state)
    assert (fast[0].numpy() != reference).mean() < 5e-3


def test_repeated_levels_may_move_an_event_by_one_interval_only():
    """Ties: in float32 the total a pixel differs by at most one where thresholds are equal."""
    frames = torch.randint(0, 4, (1, 25, 40, 50), generator=generator()).mul(60).to(torch.uint8)
    camera = EventCamera(0.5, 0.5)
    counts = [
        VideoToVoxel(dtype=dtype).counts(frames[:, 1:], state=begin_at(frames, 0.0, camera, dtype))[0].long()
        for dtype in (torch.float32, torch.float64)
    ]
    assert (counts[0].sum(1) - counts[1].sum(1)).abs().max() <= 1


@pytest.mark.parametrize("how", [
    {}, {"dtype": torch.float64}, {"polarity": "split"}, {"polarity": "abs"}, {"frames_per_bin": 2},
    {"init": "triangular"}, {"noise": "external"}, {"burn_in": 3}, {"normalize": True}, {"gamma": "srgb"},
])  # fmt: skip
def test_torch_and_numba_agree_in_every_bit(how):
    frames = video(3, 21, 33, 47)
    camera = EventCamera([0.1, 0.3, 0.7], [0.12, 0.3, 0.6], [0.0, 0.1, 0.05], 0.02, [0.0, 3.0, 10.0])
    ours, theirs = (
        VideoToVoxel(camera=camera, backend=backend, **how)(frames, generator()) for backend in ("numba", "torch")
    )
    assert torch.equal(ours, theirs)
    assert ours.abs().sum() > 0


def test_interpolated_bins_agree_between_backends_and_sum_to_the_discrete_ones():
    frames = video(2, 21, 16, 16)
    discrete = VideoToVoxel(camera=NOISY, frames_per_bin=2)(frames, generator())
    for backend in ("numba", "torch"):
        shared = VideoToVoxel(camera=NOISY, frames_per_bin=2, representation="interpolated", backend=backend)
        grid = shared(frames, generator())
        assert torch.allclose(grid.sum(2), discrete.sum(2), atol=1e-3)
        assert not torch.equal(grid, discrete)
    one = VideoToVoxel(1, camera=NOISY, representation="interpolated")(frames, generator())
    assert torch.equal(one, VideoToVoxel(1, camera=NOISY)(frames, generator()))


def test_bins_merge():
    frames = video(2, 31, 20, 20)
    one = VideoToVoxel(camera=NOISY)(frames, generator())  # (2, 6, 5, ...)
    three = VideoToVoxel(camera=NOISY, frames_per_bin=3)(frames, generator())
    assert torch.equal(one.reshape(2, 2, 5, 3, 20, 20).sum(3), three)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_chunks_and_a_stream_give_the_bits_of_one_call(backend):
    frames = video(2, 21, 20, 20)
    v2v = VideoToVoxel(camera=NOISY, backend=backend)
    whole, info = v2v(frames, generator(), return_info=True)
    head, held = v2v(frames[:, :6], generator(), return_info=True)
    tail, end = v2v(frames[:, 6:], state=held["state"], return_info=True)
    assert torch.equal(torch.cat([head, tail], 1), whole)
    assert torch.equal(end["state"].potential, info["state"].potential)
    assert v2v.push(frames[:, 0], generator()) is None
    pushed = torch.stack([v2v.push(frames[:, i]) for i in range(1, 21)], 1)
    assert torch.equal(pushed.view(2, 4, 5, 20, 20).float(), whole)
    v2v.reset()
    assert v2v.push(frames[0, 0], generator()) is None
    assert v2v.push(frames[0, 1]).shape == (20, 20)


def test_what_is_computed_does_not_depend_on_threads():
    frames = video(1, 11, 400, 400)
    alone = VideoToVoxel(camera=NOISY)(frames, generator())
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert torch.equal(VideoToVoxel(camera=NOISY)(frames, generator()), alone)
    finally:
        torch.set_num_threads(before)


def test_a_seed_decides_and_items_differ():
    frames = video(1, 6, 30, 30).expand(2, -1, -1, -1)
    one, again, other = (VideoToVoxel()(frames, generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(VideoToVoxel()(frames), VideoToVoxel()(frames))


def test_noise_alone():
    """Static video, c = 0.5, sigma = 0.1: 0.080, 0.056, 0.046 from the uniform start, 0.032 in the steady state."""
    frames = torch.full((1, 201, 128, 128), 90, dtype=torch.uint8)
    rate = {}
    for init in ("uniform", "triangular"):
        v2v = VideoToVoxel(camera=EventCamera(0.5, 0.5, 0.1), init=init)
        counts, _ = v2v.counts(frames, generator())
        rate[init] = (counts[0] != 0).float().mean(dim=(1, 2))
    assert rate["uniform"][:3].tolist() == pytest.approx([0.080, 0.056, 0.046], abs=0.006)
    assert float(rate["triangular"][0]) == pytest.approx(0.020, abs=0.004)
    steady = (0.1 / (0.5 + 0.5826 * 0.1)) ** 2
    for law in rate.values():
        assert float(law[100:].mean()) == pytest.approx(steady, abs=0.0015)
    burnt = VideoToVoxel(camera=EventCamera(0.5, 0.5, 0.1), burn_in=60)
    assert float((burnt.counts(frames[:, :2], generator())[0] != 0).float().mean()) == pytest.approx(0.032, abs=0.004)


def test_the_noise_is_gaussian_and_its_frames_and_pixels_are_independent():
    keys = torch.from_numpy(noise.frame_keys(7, 1, 60).astype(np.int64))
    drawn = noise.torch_gaussian(keys, 20_000, torch.from_numpy(noise.quantiles().copy())).double().numpy()
    assert drawn.mean() == pytest.approx(0, abs=0.003)
    assert drawn.std() == pytest.approx(1, abs=0.003)
    for k in (1, 2, 3):
        assert (drawn > k).mean() == pytest.approx(special.ndtr(-k), rel=0.05)
    correlation = np.corrcoef(drawn)
    assert np.abs(correlation - np.eye(60)).max() < 5 / np.sqrt(20_000)
    neighbours = np.corrcoef(drawn[:, :-1].ravel(), drawn[:, 1:].ravel())[0, 1]
    assert abs(neighbours) < 0.005


@pytest.mark.parametrize("init", ["uniform", "triangular"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_ways_to_the_first_potential_agree(init, dtype):
    camera, seeds = EventCamera([0.6, 1e-3, 2.0], [0.3, 1e-3, 3.0]), np.array([3, 4, 5])
    here = sensor.begin(torch.zeros(3, 20, 30, dtype=dtype), camera, seeds, init).potential
    keys = noise.item_keys(seeds, noise.INITIAL)
    c_pos, c_neg = (torch.from_numpy(c.copy())[:, None] for c in (camera.c_pos, camera.c_neg))
    there = sensor._start_in_torch(keys, 600, c_pos, c_neg, init).to(dtype)
    assert torch.allclose(here.flatten(1), there, atol=1e-15 if dtype == torch.float64 else 0, rtol=0)


@pytest.mark.parametrize("init", ["uniform", "triangular"])
def test_the_first_potential_has_its_law(init):
    camera = EventCamera(0.6, 0.3).spread(1)
    v = sensor.begin(torch.zeros(1, 300, 300), camera, np.array([3]), init).potential.numpy().ravel()
    assert v.min() > -0.3
    assert v.max() < 0.6
    if init == "uniform":
        expected = (np.linspace(-0.2, 0.5, 8) + 0.3) / 0.9
    else:
        at = np.linspace(-0.2, 0.5, 8)
        expected = np.where(at < 0, (at + 0.3) ** 2 / (0.3 * 0.9), 1 - (0.6 - at) ** 2 / (0.6 * 0.9))
    assert [(v <= at).mean() for at in np.linspace(-0.2, 0.5, 8)] == pytest.approx(expected.tolist(), abs=0.006)


def test_hot_pixels_are_as_many_and_as_strong_as_asked():
    camera = EventCamera(0.5, 0.5, hot_fraction=0.01, hot_std=2.0).spread(1)
    state = sensor.begin(torch.zeros(1, 300, 300), camera, np.array([1]))
    hot = state.hot[state.hot != 0]
    assert len(hot) / 90_000 == pytest.approx(0.01, rel=0.1)
    assert float(hot.std()) == pytest.approx(2.0, rel=0.1)
    frames = torch.full((1, 5, 300, 300), 50, dtype=torch.uint8)
    counts, _ = VideoToVoxel(camera=camera).counts(frames, generator())
    assert counts.abs().amax() > 4, "a hot pixel fires in every frame"


def test_a_very_hot_pixel_is_cut_at_int16_with_a_warning(caplog):
    camera = EventCamera(1e-4, 1e-4, hot_fraction=1.0, hot_std=10.0)
    counts, _ = VideoToVoxel(camera=camera).counts(video(1, 3, 4, 4), generator())
    assert counts.abs().max() == 32767
    assert "were beyond int16" in caplog.text
    theirs, _ = VideoToVoxel(camera=camera, backend="torch").counts(video(1, 3, 4, 4), generator())
    assert torch.equal(counts, theirs)


def test_noise_on_the_potential_differs_from_noise_on_counts():
    frames = torch.full((1, 6, 40, 40), 90, dtype=torch.uint8)
    camera = EventCamera(0.5, 0.5, noise_std=0.05)
    inside = VideoToVoxel(camera=camera)(frames, generator())
    outside = VideoToVoxel(camera=camera, noise="external")(frames, generator())
    assert torch.equal(inside, inside.round())
    assert float(outside.std()) == pytest.approx(0.05, rel=0.05)
    assert VideoToVoxel(camera=camera, noise="external").counts(frames, generator())[0].is_floating_point()


@pytest.mark.parametrize("noise", ["potential", "external"])
@pytest.mark.parametrize("representation", ["discrete", "interpolated"])
def test_leak_and_shot_noise_are_the_same_bits_in_torch(noise, representation):
    if noise == "external" and representation == "interpolated":
        return
    camera = EventCamera([0.2, 0.4], [0.3, 0.2], 0.02, 0.01, 0.5, leak=[0.01, 0.0], shot=[0.05, 0.01])
    how = {"camera": camera, "noise": noise, "representation": representation}
    frames = video(2, 11, 24, 30)
    here, there = (VideoToVoxel(**how, backend=backend)(frames, generator()) for backend in ("numba", "torch"))
    assert torch.equal(here, there) if representation == "discrete" else torch.allclose(here, there, atol=1e-4)
    v2v = VideoToVoxel(**how)
    first, info = v2v(frames[:, :6], generator(), return_info=True)
    second = v2v(frames[:, 6:], state=info["state"])
    assert torch.equal(torch.cat([first, second], dim=1), here)


def test_a_leak_fires_upwards_as_often_as_it_fills_a_threshold():
    frames = torch.full((1, 101, 40, 40), 90, dtype=torch.uint8)
    counts, _ = VideoToVoxel(camera=EventCamera(0.2, 0.2, leak=0.01)).counts(frames, generator())
    assert counts.min() == 0
    assert float(counts.sum()) / 1600 == pytest.approx(100 * 0.01 / 0.2 - 0.5, rel=0.05), (
        "half a threshold is still on its way"
    )


def test_shot_noise_jumps_as_often_as_asked_in_both_directions():
    frames = torch.full((1, 51, 60, 60), 90, dtype=torch.uint8)
    v2v = VideoToVoxel(camera=EventCamera(0.3, 0.3, shot=0.02), noise="external")
    jumps = v2v.counts(frames, generator())[0]
    assert float((jumps == 1).float().mean()) == pytest.approx(0.01, rel=0.1)
    assert float((jumps == -1).float().mean()) == pytest.approx(0.01, rel=0.1)
    events = VideoToVoxel(camera=EventCamera(0.3, 0.3, shot=0.02)).counts(frames, generator())[0]
    assert 0.005 < float((events != 0).float().mean()) < 0.02, "about half of the jumps cross a threshold at once"


def test_few_frames_or_narrow_ones_are_grey_if_said_so():
    v2v = VideoToVoxel(2, camera=EventCamera(0.2, 0.2))
    for shape in ((5, 3, 8, 8), (1, 3, 8, 3)):
        frames = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator())
        assert v2v(frames, generator(), channels="grey").shape == (shape[0], 1, 2, *shape[2:])


def test_contrast_is_all_that_counts():
    """Without gamma, and with log_eps near 0, a factor on all intensities changes nothing."""
    frames = torch.rand(1, 11, 16, 16, generator=generator(), dtype=torch.float64) * 0.8 + 0.1
    v2v = VideoToVoxel(camera=EventCamera(0.2, 0.3), gamma=1.0, log_eps=1e-15, dtype=torch.float64)
    assert torch.equal(v2v(frames, generator()), v2v(frames / 2, generator()))


def test_time_reversed_the_signs_turn_around():
    frames, camera = video(1, 11, 30, 30), EventCamera(0.4, 0.4)
    v2v = VideoToVoxel(camera=camera, dtype=torch.float64)
    ahead = v2v.counts(frames[:, 1:], state=begin_at(frames, 0.0, camera))[0]
    back = frames.flip(1)
    behind = v2v.counts(back[:, 1:], state=begin_at(back, 0.0, camera))[0]
    apart = (ahead.long().sum(1) + behind.long().sum(1)).abs()
    assert apart[frames[:, 0] != frames[:, -1]].max() <= 1  # back at the same level is a tie, which rounding decides


def test_uint8_and_the_same_grey_in_floats_agree():
    frames = video(1, 11, 30, 30)
    v2v = VideoToVoxel(camera=EventCamera(0.31, 0.37), dtype=torch.float64)
    assert torch.equal(v2v(frames, generator()), v2v(frames.double() / 255, generator()))
    asked = v2v(frames.double(), generator(), value_range=(0, 255))
    assert torch.equal(v2v(frames, generator()), asked)


@pytest.mark.parametrize("scale", [4.0, 0.6, 0.1])
def test_normalized_divides_by_robust_maxima(scale):
    x = torch.randn(2, 3, 5, 16, 16, generator=generator()) * scale
    y = normalized(x)
    for item, made in zip(x, y, strict=True):
        up, down = np.percentile(item, 99), -np.percentile(item, 1)
        expected = np.where(item > 0, item / max(1, up), item / max(1, down))
        assert made.numpy() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("frames", "how", "said"), [
    (torch.rand(1, 6, 4, 4) * 255, {}, "value_range"),
    (torch.rand(1, 6, 4, 4) - 0.5, {}, r"in \[0, 1\]"),
    (torch.tensor([0.5, float("nan")]).repeat(8).view(1, 16, 1, 1)[:, :6], {}, "frame 1 of item 0"),
    (torch.zeros(1, 6, 4, 4, dtype=torch.int64), {}, "expected uint8"),
    (torch.zeros(6, 5, 3, dtype=torch.uint8), {}, "channels="),
    (torch.zeros(1, 6, 5, 5, 3, dtype=torch.uint8), {}, "channels="),
    (torch.zeros(11, 6, 5, 4, dtype=torch.uint8), {}, "looks like channels"),
    (torch.zeros(11, 3, 16, 16, dtype=torch.uint8), {}, "looks like channels"),
    (torch.zeros(1, 6, 5, 5, 4, dtype=torch.uint8), {"channels": "rgb"}, "three channels"),
    (torch.zeros(1, 6, 5, 5, 3, dtype=torch.uint8), {"channels": "gbr"}, "'rgb', 'bgr'"),
    (torch.zeros(1, 5, 4, 4, dtype=torch.uint8), {}, "multiple of 5 bins x 1 frames [+] 1, got 5"),
    (torch.zeros(1, 8, 4, 4, dtype=torch.uint8), {}, "multiple of 5"),
    (torch.zeros(1, 6, 0, 4, dtype=torch.uint8), {}, "at least one pixel"),
    (torch.zeros(1, 6, 4, 4, dtype=torch.uint8), {"value_range": (0, 1)}, "value_range: expected none"),
    (torch.zeros(1, 6, 4, 4), {"value_range": (1, 0)}, "black below white"),
    (torch.zeros(3, 6, 4, 4, dtype=torch.uint8), {"camera": EventCamera([1, 2], 1)}, "one for each of 3"),
])  # fmt: skip
def test_bad_frames_are_refused(frames, how, said):
    with pytest.raises((ValueError, TypeError), match=said):
        VideoToVoxel()(frames, generator(), **how)


def test_colour_frames_are_taken_with_the_right_weights():
    """BT.601; the paper's code weighs blue as green."""
    colour = video(1, 6, 8, 8, 3)
    grey = (colour.double() @ torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)).round().to(torch.uint8)
    v2v = VideoToVoxel(camera=NOISY)
    assert torch.equal(v2v(colour, generator(), channels="rgb"), v2v(grey, generator()))
    assert torch.equal(v2v(colour.flip(-1), generator(), channels="bgr"), v2v(grey, generator()))


@pytest.mark.parametrize(("how", "said"), [
    ({"num_bins": 0}, "num_bins"), ({"frames_per_bin": 0.5}, "frames_per_bin"), ({"gamma": 0}, "gamma"),
    ({"log_eps": 0.0}, "log_eps"), ({"init": "zero"}, "init"), ({"polarity": "both"}, "polarity"),
    ({"noise": "external", "polarity": "split"}, "polarity"), ({"dtype": torch.float16}, "dtype"),
    ({"representation": "interpolated", "polarity": "abs"}, "polarity"), ({"backend": "cuda"}, "backend"),
    ({"representation": "interpolated", "noise": "external"}, "noise"), ({"burn_in": -1}, "burn_in"),
])  # fmt: skip
def test_bad_settings_are_refused(how, said):
    with pytest.raises(ValueError, match=said):
        VideoToVoxel(**how)


def test_a_state_of_another_size_is_refused():
    v2v = VideoToVoxel()
    state = v2v.counts(video(1, 3, 8, 8), generator())[1]
    with pytest.raises(ValueError, match=r"size \(8, 8\) as before, got 1 of \(8, 9\)"):
        v2v(video(1, 5, 8, 9), state=state)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_the_gpu_gives_the_bits_of_the_cpu():
    frames = video(2, 11, 64, 64)
    here, there = VideoToVoxel(camera=NOISY), VideoToVoxel(camera=NOISY).cuda()
    assert torch.equal(here(frames, generator()), there(frames.cuda(), generator()).cpu())


def test_rounding_never_leaves_a_whole_threshold():
    """Just below a multiple, the product n c may be rounded down, and the rest be a threshold or more."""
    thresholds = np.float32([0.05, 0.05941763, 0.1, 1.1, 2.739139])
    for c in thresholds:
        multiples = np.arange(1, 20_000, dtype=np.float32) * c
        below = np.concatenate(
            [np.nextafter(multiples, np.float32(0)), multiples, np.nextafter(multiples, np.float32(1e9))]
        )
        for sign in (1, -1):
            v, count = sign * below, np.empty(len(below), np.float32)
            plain = np.abs(below - np.trunc(below / c) * c)
            kernels.fire(v, c, c, count)
            assert (np.abs(v) < c).all()
            assert np.abs(count.astype(np.float64) * np.float64(c) + v - sign * below.astype(np.float64)).max() < 2e-3
            if c in thresholds[[1, 4]]:
                assert (plain >= c).any(), "otherwise nothing is tested"
