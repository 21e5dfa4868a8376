"""The data set: what a sample holds, where its chance comes from, what is skipped, and where an epoch goes on."""

from functools import partial

import numpy as np
import pytest
import torch

from thrifty.data.v2v import EventCamera, EventCameraSampler, FixedThresholds, VideoToVoxel
from thrifty.data.v2v.augment import (
    Augmentation,
    change_contrast,
    pause_indices,
    place_crop,
    resized,
    shake_offsets,
)
from thrifty.data.v2v.dataset import VideoVoxelDataset
from thrifty.data.v2v.loading import EpochSampler, enter_epoch, make_loader
from thrifty.data.v2v.video import VideoError, read_frames

PLAIN = Augmentation(flip=False, pause=None)


def small(videos, **how):
    return VideoVoxelDataset(videos, **({"sequence_length": 2, "crop": 32, "augmentation": PLAIN} | how))


def same(one, other):
    return all(torch.equal(one[k], other[k]) for k in ("voxels", "frames"))


def test_a_sample_is_the_sensor_on_the_frames_of_the_file(clip):
    path = clip(height=32, width=32)
    camera = EventCamera(0.1, 0.15)
    data = small([path], v2v=VideoToVoxel(camera=camera), return_first_frame=True)
    levels = read_frames(path)
    assert len(data) == 3  # 31 frames, 11 a sample, a step of 10
    sample = data[1]
    assert data.locate(1) == (str(path), 10)
    assert torch.equal(sample["frames"][:, 0], torch.from_numpy(levels[[10, 15, 20]]).float() / 255)
    generator = torch.Generator().manual_seed(sample["seed"])
    assert torch.equal(
        sample["voxels"], VideoToVoxel(camera=camera)(torch.from_numpy(levels[None, 10:21]), generator)[0]
    )


def test_a_clip_of_exactly_one_sample_yields_it(clip):
    """The paper's code yields none."""
    assert len(small([clip(frames=11)])) == 1
    with pytest.raises(ValueError, match="at least 11 frames and 32 pixels each way, got 1 of at most 10 frames"):
        small([clip("short.mp4", frames=10)])
    with pytest.raises(ValueError, match=r"got 1 of at most 31 frames and 48 x 64 pixels, the first .*clip.mp4"):
        small([clip()], crop=64)
    with pytest.raises(ValueError, match="at least 11 frames"):
        small([clip("two.mp4", frames=2)])


def test_samples_a_video_are_capped_and_stepped(clip):
    path = clip()
    assert len(small([path], step=2)) == 10
    assert len(small([path], step=2, max_per_video=4)) == 4
    assert small([path, path], step=2, max_per_video=4).locate(5) == (str(path), 2)


def test_previous_voxels_and_frames_in_the_step(clip):
    path = clip()
    data = small([path], return_previous_voxel=True, v2v=VideoToVoxel(camera=EventCamera(0.1, 0.1)))
    assert data[0]["voxels"].shape == (3, 5, 32, 32)
    assert data[0]["frames"].shape == (2, 1, 32, 32)
    late = small([path], simulate="step", augmentation=Augmentation())
    soon = small([path], augmentation=Augmentation())
    batch = torch.utils.data.default_collate([late[0], late[1]])
    made = late.voxels(batch["video"], batch["seed"], batch["path"])
    assert torch.equal(made[1], soon[1]["voxels"])
    assert torch.equal(made[0], soon[0]["voxels"])


def test_a_sample_depends_on_seed_epoch_and_index_alone(clip):
    path = clip()
    data, twin = (small([path], augmentation=Augmentation()) for _ in range(2))
    first = data[1]
    _ = data[0]
    assert same(first, twin[1])
    data.set_epoch(1)
    assert not same(first, data[1])
    data.set_epoch(0)
    assert same(first, data[1])
    assert not same(first, small([path], augmentation=Augmentation(), seed=1)[1])


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_change_nothing(clip, workers):
    data = small([clip()], augmentation=Augmentation(), step=2)
    loader, sampler = make_loader(data, 2, workers=workers)
    for epoch in (0, 1):
        enter_epoch(data, sampler, epoch)
        for batch in loader:
            fresh = small([data.index.path(0)], augmentation=Augmentation(), step=2)
            fresh.set_epoch(epoch)
            assert torch.equal(batch["voxels"][1], fresh[int(batch["index"][1])]["voxels"])


def test_an_epoch_goes_on_in_the_middle_and_is_shared():
    one = EpochSampler(11, seed=3)
    one.begin(2)
    order = list(one)
    assert sorted(order) == list(range(11))
    one.begin(3)
    assert list(one) != order
    parts = [EpochSampler(11, seed=3, rank=r, world=3) for r in range(3)]
    for part in parts:
        part.begin(2)
    shares = [list(part) for part in parts]
    assert [len(share) for share in shares] == [3, 3, 3]
    assert len({i for share in shares for i in share}) == 9
    parts[1].begin(2, position=2)
    assert list(parts[1]) == shares[1][2:]
    assert len(parts[1]) == 1
    for bad in ({"rank": 3, "world": 3}, {"world": 12}):
        with pytest.raises(ValueError):
            EpochSampler(11, **bad)


def test_corrupt_videos_are_skipped_with_a_warning_and_counted(tmp_path, clip):
    good, bad = clip("good.mp4"), clip("bad.mp4")
    data = small([bad, good])
    content = bad.read_bytes()
    bad.write_bytes(content[: len(content) // 2])
    with pytest.warns(UserWarning, match=r"skipped: .*bad.mp4"):
        sample = data[0]
    assert sample["path"] == str(good)
    assert data.skipped == 1
    assert data[1]["path"] == str(good), "the second time there is no warning"
    strict = small([good], on_error="raise")
    good.unlink()
    with pytest.raises(FileNotFoundError, match="good.mp4"):
        strict[0]
    with pytest.warns(UserWarning, match="skipped"), pytest.raises(ValueError, match="got none of 2"):
        data[0]


@pytest.mark.filterwarnings("ignore:skipped")
def test_what_workers_skip_is_counted_here(clip):
    good, bad = clip("good.mp4"), clip("bad.mp4")
    data = small([bad, good])
    bad.write_bytes(b"gone")
    loader, _ = make_loader(data, 2, workers=2, shuffle=False)
    assert len(list(loader)) == 3
    assert data.skipped == 1


def unreadable_from(monkeypatch, name, frame):
    """Let a file be corrupt from a frame on, as a decoder finds out."""
    from thrifty.data.v2v import dataset

    def read(path, start=0, count=None, **how):
        if str(path).endswith(name) and start + count > frame:
            raise VideoError(f"{path}: it is corrupt behind frame {frame}")
        return read_frames(path, start, count, **how)

    monkeypatch.setattr(dataset, "read_frames", read)


@pytest.mark.filterwarnings("ignore:skipped")
def test_what_was_skipped_before_changes_no_sample(clip, monkeypatch):
    """Order, workers and resumed runs must not matter: a sample depends on (seed, epoch, index) and the files alone."""
    videos = [clip("bad.mp4"), clip("good.mp4", seed=1)]
    unreadable_from(monkeypatch, "bad.mp4", 15)
    forwards, backwards = small(videos), small(videos)
    one = [forwards[i] for i in range(6)]
    other = [backwards[i] for i in reversed(range(6))][::-1]
    assert all(same(a, b) for a, b in zip(one, other, strict=True))
    assert one[0]["path"] == str(videos[0]), "what comes before the damage is still used"
    assert [sample["index"] for sample in one] == [0, 3, 3, 3, 4, 5]
    assert forwards.skipped == backwards.skipped == 1


def test_videos_without_a_sample_are_warned_of_and_counted(clip, tmp_path):
    (tmp_path / "bad.mp4").write_bytes(b"nothing")
    videos = [clip("good.mp4"), clip("two.mp4", frames=2), clip("small.mp4", width=16), tmp_path / "bad.mp4"]
    with pytest.warns(UserWarning, match="left out") as caught:
        data = small(videos)
    said = [str(warning.message) for warning in caught]
    assert any("2 of 3 videos are not of at least 11 frames and 32 pixels" in line for line in said)
    assert any("two.mp4 (2 frames of 48 x 64)" in line for line in said)
    assert data.left_out == 3
    assert data.skipped == 0


def test_fixed_thresholds_belong_to_the_content_of_a_video(clip, tmp_path, monkeypatch):
    law = FixedThresholds(EventCameraSampler(noise_std=(0, 0), hot_fraction=(0, 0)))
    path = clip("a.mp4")
    moved = tmp_path / "elsewhere.mp4"
    moved.write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    samples = [small([name], v2v=VideoToVoxel(camera=law))[0] for name in (path, "a.mp4", "./a.mp4", moved)]
    assert all(same(samples[0], sample) for sample in samples[1:])


def test_fixed_thresholds_stay_over_epochs(clip):
    law = FixedThresholds(EventCameraSampler(noise_std=(0, 0), hot_fraction=(0, 0)))
    data = small([clip()], v2v=VideoToVoxel(camera=law))
    first = data[0]["voxels"]
    data.set_epoch(1)
    second = data[0]["voxels"]
    # same thresholds, but another crop: compare what the law says
    one, two = (law.sample_for("clip.mp4", torch.Generator().manual_seed(s)) for s in (0, 1))
    assert one.c_pos == two.c_pos
    assert first.shape == second.shape


def test_a_pause_repeats_a_frame_as_often_as_the_chain_says():
    shown = pause_indices(200_000, 5, (0.05, 0.9), np.random.default_rng(0))
    step = np.diff(shown)
    assert set(step.tolist()) == {0, 1}
    begins, stays = 1 - 0.95**0.2, 0.9**0.2
    assert begins == pytest.approx(0.010206, abs=1e-6)
    assert stays == pytest.approx(0.979148, abs=1e-6)
    again = step[1:][step[:-1] == 0]
    assert (again == 0).mean() == pytest.approx(stays, abs=0.003)
    after = step[1:][step[:-1] == 1]
    assert (after == 0).mean() == pytest.approx(begins, abs=0.002)
    assert pause_indices(4, 5, None, np.random.default_rng(0)).tolist() == [0, 1, 2, 3]


def test_crops_stay_inside_and_scale():
    rng = np.random.default_rng(0)
    how = Augmentation(scale=(0.5, 2.0), keep_top=0.54)
    for _ in range(200):
        top, left, side = place_crop(100, 90, 40, how, rng)
        assert top >= 0
        assert top + side <= 54
        assert 0 <= left <= 90 - side
        assert 20 <= side <= 54
    with pytest.raises(ValueError, match="crop: expected at most 54 pixels in frames of 54 x 90, got 60"):
        place_crop(100, 90, 60, how, rng)


def test_a_shaking_camera_ends_at_rest_within_reach():
    walk = shake_offsets(200, 5, np.random.default_rng(0))
    assert walk[-1].tolist() == [0, 0]
    assert np.abs(walk).max() == 5
    assert np.abs(np.diff(walk, axis=0)).max() <= 1


def test_contrast_and_resize():
    x = np.array([[[0, 100, 150, 255]]], np.uint8)
    assert change_contrast(x, 2.0).tolist() == [[[0, 72, 172, 255]]]
    ramp = np.tile(np.arange(0, 64, 2, dtype=np.uint8), (1, 32, 1))
    assert resized(ramp, 64).shape == (1, 64, 64)
    assert np.abs(np.diff(resized(ramp, 64)[0, 5, 2:-2].astype(int)) - 1).max() <= 1
    assert resized(ramp, 32) is ramp


@pytest.mark.parametrize("how", [
    {"scale": (0.6, 1.0)}, {"shake": 3}, {"contrast": (1, 3), "contrast_share": 1.0}, {"cut": 1.0}, {"flip": True},
    {"text": 1.0},
])  # fmt: skip
def test_every_augmentation_changes_samples_and_is_seeded(clip, how):
    path = clip()
    changed = Augmentation(**({"flip": False, "pause": None} | how))
    plain, varied, twin = (small([path], augmentation=a) for a in (PLAIN, changed, changed))
    assert any(not torch.equal(plain[i]["frames"], varied[i]["frames"]) for i in range(3))
    assert all(same(varied[i], twin[i]) for i in range(3))
    assert varied[0]["voxels"].shape == plain[0]["voxels"].shape


@pytest.mark.parametrize("how", [
    {"keep_top": 0}, {"scale": (1, 0.5)}, {"pause": (0.5, 1.0)}, {"shake": -1}, {"contrast": (0, 1)}, {"cut": 2},
    {"contrast_share": -1}, {"text": 1.5},
])  # fmt: skip
def test_bad_augmentations_are_refused(how):
    with pytest.raises(ValueError, match=next(iter(how))):
        Augmentation(**how)


def test_bad_arguments_are_refused(clip):
    path = clip()
    for how, said in (
        ({"sequence_length": 0}, "sequence_length"), ({"crop": -1}, "crop"), ({"simulate": "gpu"}, "simulate"),
        ({"on_error": "ignore"}, "on_error"), ({"max_per_video": 0}, "max_per_video"), ({"step": 0}, "step"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            small([path], **how)
    for index in (3, -4):
        with pytest.raises(IndexError):
            small([path])[index]
    assert same(small([path])[-1], small([path])[2])
    with pytest.raises(ValueError, match="at most 3 samples a process, got 4"):
        make_loader(small([path]), 4)


@pytest.mark.slow
def test_ray_gives_the_same_samples(clip):
    ray = pytest.importorskip("ray")
    from thrifty.data.v2v.corpus import ray_samples

    path = str(clip())
    make = partial(VideoVoxelDataset, [path], sequence_length=2, crop=32, augmentation=PLAIN)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        rows = ray_samples(make, workers=1, batch_size=2).take_all()
    finally:
        ray.shutdown()
    here = small([path])
    assert sorted(row["index"] for row in rows) == [0, 1, 2]
    for row in rows:
        assert (row["voxels"] == here[int(row["index"])]["voxels"].numpy()).all()
