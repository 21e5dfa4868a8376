"""Event streams: two representations, conventions that are arguments, and the export from frames."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thrifty.data.v2v import (
    EVENT,
    EventCamera,
    VideoToVoxel,
    as_events,
    events_to_voxel,
    frames_to_events,
    from_tonic,
)
from thrifty.data.v2v.events import event_packets

SIZE = (6, 8)


def stream(n=500, seed=0, span=1000):
    rng = np.random.default_rng(seed)
    made = np.empty(n, EVENT)
    made["x"], made["y"] = rng.integers(0, SIZE[1], n), rng.integers(0, SIZE[0], n)
    made["t"], made["p"] = np.sort(rng.integers(0, span, n)), rng.choice([-1, 1], n)
    return made


def by_hand(events, bins, mode, t0, t1):
    grid = np.zeros((bins, *SIZE))
    for x, y, t, p in events.tolist():
        if mode == "discrete":
            grid[min(int(bins * (t - t0) / (t1 - t0)), bins - 1), y, x] += p
        else:
            for b in range(bins):
                grid[b, y, x] += p * max(0, 1 - abs((bins - 1) * (t - t0) / (t1 - t0) - b))
    return grid


@pytest.mark.parametrize("mode", ["discrete", "interpolated"])
@pytest.mark.parametrize("bins", [1, 2, 5])
def test_voxels_are_those_of_the_definition(mode, bins):
    events = stream()
    assert events_to_voxel(events, SIZE, bins, mode, (0, 1000)) == pytest.approx(
        by_hand(events, bins, mode, 0, 1000), abs=1e-5
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.integers(0, 10_000), st.integers(1, 6))
def test_both_representations_have_the_same_sum_over_bins(n, seed, bins):
    events = stream(n, seed)
    for window in ("events", (0, 1000), None):
        discrete, shared = (events_to_voxel(events, SIZE, bins, mode, window) for mode in ("discrete", "interpolated"))
        assert discrete.sum(0) == pytest.approx(shared.sum(0), abs=1e-4)
        signed = np.zeros(SIZE)
        np.add.at(signed, (events["y"], events["x"]), events["p"])
        assert (discrete.sum(0) == signed).all()


def test_the_window_is_an_argument():
    events = stream(50, span=100)
    assert events_to_voxel(events, SIZE, t_range=(200, 300)).sum() == 0
    inside = events[(events["t"] >= 20) & (events["t"] < 60)]
    assert (events_to_voxel(events, SIZE, t_range=(20, 60)) == by_hand(inside, 5, "discrete", 20, 60)).all()
    edges = {"x": [0, 1, 2], "y": [0, 0, 0], "t": [20, 59, 60], "p": [1, 1, 1]}
    assert events_to_voxel(edges, SIZE, t_range=(20, 60)).sum(0)[0, :3].tolist() == [1, 1, 0], "the end is outside"
    assert events_to_voxel(edges, SIZE, t_range="events").sum() == 3, "the last event is inside"
    last = events_to_voxel(events, SIZE, 2, "interpolated", "events")
    assert np.abs(last).sum() > 0
    assert (events_to_voxel(events, SIZE) == events_to_voxel(events, SIZE, t_range="events")).all()


@pytest.mark.parametrize("mode", ["discrete", "interpolated"])
def test_few_events_give_no_nan(mode):
    assert (events_to_voxel(stream(0), SIZE, 5, mode) == 0).all()
    for n in (1, 3):
        together = stream(n)
        together["t"] = 7
        for window in ("events", (7, 7)):
            grid = events_to_voxel(together, SIZE, 5, mode, window)
            assert (grid[1:] == 0).all()
            assert grid[0].sum() == together["p"].sum()


def test_polarities_times_and_names_differ_in_the_wild():
    events = stream(40)
    expected = events_to_voxel(events, SIZE, t_range=(0, 1000))
    ones = {"xs": events["x"], "ys": events["y"], "ts": events["t"], "ps": (events["p"] > 0).astype(np.uint8)}
    assert (events_to_voxel(ones, SIZE, t_range=(0, 1000)) == expected).all()
    seconds = ones | {"ts": events["t"] * 1e-6, "ps": events["p"] > 0}
    assert (events_to_voxel(seconds, SIZE, t_range=(0, 1000), time_unit="s") == expected).all()
    mixed = events[np.random.default_rng(0).permutation(40)]
    before = mixed.copy()
    assert (events_to_voxel(mixed, SIZE, t_range=(0, 1000)) == expected).all()
    assert (mixed == before).all(), "the caller's arrays stay"
    theirs = np.array(events.tolist(), dtype=[("x", "i2"), ("y", "i2"), ("t", "i8"), ("p", "i1")])
    ours, size = from_tonic(theirs, (8, 6, 2))
    assert size == SIZE
    assert (ours == events).all()


@pytest.mark.parametrize(("change", "said"), [
    ({"x": [9]}, r"whole x in \[0, 8\), got 9 to 9"), ({"y": [-1]}, "whole y"), ({"x": [0.5]}, "whole x"),
    ({"p": [2]}, "polarities"), ({"t": [0.5]}, "time_unit"), ({"t": [1, 2]}, "one length"),
    ({"t": ["a"]}, "timestamps that are numbers"),
])  # fmt: skip
def test_bad_events_are_refused(change, said):
    good = {"x": [0], "y": [0], "t": [5], "p": [1]}
    with pytest.raises(ValueError, match=said):
        events_to_voxel({name: np.array(column) for name, column in (good | change).items()}, SIZE)


def test_bad_windows_and_fields_are_refused():
    with pytest.raises(ValueError, match="t_range"):
        events_to_voxel(stream(5), SIZE, t_range=(5, 1))
    with pytest.raises(ValueError, match="t_range"):
        events_to_voxel(stream(5), SIZE, t_range="frames")
    with pytest.raises(ValueError, match="expected a field p"):
        as_events({"x": [1], "y": [1], "t": [1]})
    with pytest.raises(ValueError, match="plain numbers"):
        as_events(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="finite timestamps"):
        as_events({"x": [1], "y": [1], "t": [np.nan], "p": [1]}, time_unit="s")
    with pytest.raises(ValueError, match="num_bins"):
        events_to_voxel(stream(5), SIZE, 0)


def test_exported_events_are_those_that_the_voxels_count():
    """Counted between frames, the stream gives the counts; shared between bins, the interpolated voxels."""
    frames = torch.randint(0, 256, (11, *SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    camera = EventCamera(0.3, 0.41, noise_std=0.05, hot_fraction=0.05, hot_std=1.0)
    times = np.arange(11) * 1_000_000
    events = frames_to_events(frames, times, camera, torch.Generator().manual_seed(5))
    assert (np.diff(events["t"]) >= 0).all()
    v2v = VideoToVoxel(camera=camera, dtype=torch.float64, representation="discrete")
    discrete = v2v(frames[None], torch.Generator().manual_seed(5))[0].flatten(0, 1)
    late = events.copy()
    late["t"] -= 1  # an event at the time of a frame belongs to the interval that the frame ends
    counted = [events_to_voxel(late, SIZE, 1, t_range=(a, a + 1_000_000))[0] for a in times[:-1]]
    assert (np.stack(counted) == discrete.numpy()).all()
    v2v = VideoToVoxel(camera=camera, dtype=torch.float64, representation="interpolated")
    shared = v2v(frames[None], torch.Generator().manual_seed(5))[0]
    for t, grid in enumerate(shared):
        part = late[(late["t"] >= times[5 * t]) & (late["t"] < times[5 * t + 5])]
        made = events_to_voxel(part, SIZE, 5, "interpolated", (times[5 * t], times[5 * t + 5]))
        assert made == pytest.approx(grid.numpy(), abs=1e-4)


def test_a_pixel_is_silent_in_its_refractory_period():
    frames = np.zeros((3, 1, 1), np.uint8)
    frames[1] = 255
    camera = EventCamera(0.5, 0.5)
    full = frames_to_events(frames, [0, 1000, 2000], camera, np.random.default_rng(0))
    sparse = frames_to_events(frames, [0, 1000, 2000], camera, np.random.default_rng(0), refractory_us=300)
    assert len(full) > 20
    assert 4 <= len(sparse) <= 7
    assert (np.diff(sparse["t"]) >= 300).all()


def test_bad_timestamps_are_refused():
    frames = np.zeros((3, 4, 4), np.uint8)
    for times in ([0, 1], [0, 2, 2], [0, 2, 1]):
        with pytest.raises(ValueError, match="timestamps: expected"):
            frames_to_events(frames, times, EventCamera(1, 1))
    with pytest.raises(ValueError, match="expected at least 2, got 1"):
        frames_to_events(frames[:1], [0], EventCamera(1, 1))


def test_times_in_seconds_need_their_unit():
    frames = np.stack([np.full((4, 4), level, np.uint8) for level in (40, 80, 160)])
    with pytest.raises(ValueError, match="time_unit: expected one of 'us', 'ms', 's', 'ns' for floating timestamps"):
        frames_to_events(frames, [0, 0.02, 0.04], EventCamera(0.2, 0.2))
    for times, unit in (([0, 0.02, 0.04], "s"), ([0, 20, 40], "ms")):
        made = frames_to_events(frames, times, EventCamera(0.2, 0.2), np.random.default_rng(0), time_unit=unit)
        whole = frames_to_events(frames, [0, 20_000, 40_000], EventCamera(0.2, 0.2), np.random.default_rng(0))
        assert (made == whole).all()
        assert len(made) > 0
    with pytest.raises(ValueError, match="timestamps: expected finite"):
        frames_to_events(frames, [0, 0.02, float("inf")], EventCamera(0.2, 0.2), time_unit="s")


def test_blocks_of_frames_give_the_stream_of_all_of_them():
    frames = np.random.default_rng(0).integers(0, 256, (9, 8, 8)).astype(np.uint8)
    times, camera = np.arange(9) * 10_000, EventCamera(0.2, 0.3, noise_std=0.05)
    for silence in (0, 3_000):
        whole = frames_to_events(frames, times, camera, np.random.default_rng(1), refractory_us=silence)
        blocks = (frames[:1], frames[1:4], frames[4:])
        parts = list(event_packets(blocks, times, camera, np.random.default_rng(1), refractory_us=silence))
        assert [len(part) > 0 for part in parts] == [False, True, True]
        assert (np.concatenate(parts) == whole).all()


def test_an_empty_list_is_an_empty_stream():
    assert (events_to_voxel({"x": [], "y": [], "t": [], "p": []}, (4, 4)) == 0).all()
