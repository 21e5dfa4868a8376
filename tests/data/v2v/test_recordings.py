"""Recordings: formats of cameras written and read, the HDF5 layout, evaluation on it."""

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from thrifty.data.v2v import EVENT, events_to_voxel
from thrifty.data.v2v.event_files import read_events, write_events
from thrifty.data.v2v.recordings import evaluate, read_windows, standard_cut
from thrifty.data.v2v.writing import write_recording


def stream(n=400, seed=0, span=100_000, size=(12, 16)):
    rng = np.random.default_rng(seed)
    made = np.empty(n, EVENT)
    made["x"], made["y"] = rng.integers(0, size[1], n), rng.integers(0, size[0], n)
    made["t"], made["p"] = np.sort(rng.integers(0, span, n)), rng.choice([-1, 1], n)
    return made


@pytest.mark.parametrize("ending", ["aedat4", "raw", "dat"])
def test_camera_formats_come_back(tmp_path, ending):
    events = stream()
    path = write_events(tmp_path / f"a.{ending}", events, (12, 16))
    back, size = read_events(path)
    assert size == (12, 16)
    assert (back == events).all()
    with pytest.raises(FileExistsError):
        write_events(path, events, (12, 16))


def test_another_library_reads_the_same_raw_and_dat(tmp_path):
    expelliarmus = pytest.importorskip("expelliarmus")
    events = stream()
    for ending, encoding in (("dat", "dat"), ("raw", "evt3")):
        path = write_events(tmp_path / f"a.{ending}", events, (12, 16))
        theirs = expelliarmus.Wizard(encoding=encoding).read(path)
        if len(theirs) != len(events):
            continue  # another version of the encoding
        assert (theirs["x"] == events["x"]).all()
        assert ((theirs["p"] > 0) == (events["p"] > 0)).all()


def test_both_hdf5_layouts(tmp_path):
    events = stream()
    with h5py.File(tmp_path / "dsec.h5", "w") as file:
        for name in "xyt":
            file[f"events/{name}"] = events[name]
        file["events/p"] = (events["p"] > 0).astype(np.uint8)
    back, size = read_events(tmp_path / "dsec.h5")
    assert (back == events).all()
    assert size == (12, 16)
    recording(tmp_path / "our.h5")
    assert (read_events(tmp_path / "our.h5")[0] == events).all()


@pytest.mark.parametrize("ending", ["aedat4", "raw", "dat"])
def test_damaged_recordings_say_so(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=f"a.{ending}"):
        read_events(path)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="ending in .aedat4"):
        read_events(tmp_path / "a.bag")
    with pytest.raises(FileNotFoundError):
        read_events(tmp_path / "a.raw")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data"] = [1]
    with pytest.raises(ValueError, match="a group 'events', got data"):
        read_events(tmp_path / "other.h5")
    with pytest.raises(ValueError, match="'events'"):
        list(read_windows(tmp_path / "other.h5"))


TIMES = np.array([0, 40_000, 100_000])


def recording(path, flow=None, **how):
    frames = np.stack([np.full((12, 16), level, np.uint8) for level in (0, 100, 200)])
    return write_recording(path, stream(), frames, TIMES, flow, **how)


def test_windows_are_those_between_frames(tmp_path):
    path, events = recording(tmp_path / "a.h5"), stream()
    with h5py.File(path) as file:
        assert set(file["events"]) == {"xs", "ys", "ts", "ps"}
        assert dict(file["images/image000000001"].attrs)["timestamp"] == pytest.approx(0.04)
        assert file["images/image000000001"].attrs["event_idx"] == (events["t"] < 40_000).sum()
    found = list(read_windows(path))
    assert [int(part.frame[0, 0]) for part in found] == [100, 200]
    assert sum(part.events for part in found) == len(events)
    assert (found[1].voxel == events_to_voxel(events, (12, 16), 5, t_range=(40_000, 100_000))).all()
    stretched = next(iter(read_windows(path, window="events")))
    assert (stretched.voxel == events_to_voxel(events[events["t"] < 40_000], (12, 16), 5, t_range="events")).all()
    assert len(list(read_windows(path, start=0.04))) == 1
    assert len(list(read_windows(path, end=0.04))) == 1
    with pytest.raises(FileExistsError):
        recording(path)
    recording(path, force=True)


class Sees(nn.Module):
    """Remembers how often it was called."""

    def __init__(self, task, answers):
        super().__init__()
        self.task, self.answers = task, answers

    def forward(self, voxel, state):
        turn = state or 0
        shape = (1, 1 if self.task == "reconstruction" else 2, *voxel.shape[-2:])
        return torch.full(shape, self.answers[turn]), turn + 1


def test_frames_are_measured_with_the_state_kept(tmp_path):
    path = recording(tmp_path / "a.h5")
    found = evaluate(Sees("reconstruction", [100 / 255, 200 / 255]), path)
    assert found["windows"] == 2
    assert found["mse"] == pytest.approx(0, abs=1e-12)
    assert evaluate(Sees("reconstruction", [100 / 255, 0.0]), path)["mse"] == pytest.approx((200 / 255) ** 2 / 2)
    with pytest.raises(ValueError, match="windows between start and end"):
        evaluate(Sees("reconstruction", [0.0]), path, start=5.0)


def test_flow_is_measured_dense_and_sparse(tmp_path):
    flow = np.zeros((2, 2, 12, 16), np.float32)
    flow[:, 0] = 4
    path = recording(tmp_path / "a.h5", flow)
    found = evaluate(Sees("flow", [0.0, 0.0]), path)
    assert found["epe"] == found["sparse_epe"] == 4
    assert found["over_3px"] == 100
    with pytest.raises(ValueError, match="expected flow"):
        evaluate(Sees("flow", [0.0, 0.0]), recording(tmp_path / "b.h5"))


def rewritten(path, change):
    with h5py.File(path, "a") as file:
        change(file)
    return path


def moved(file, old, new, values=None):
    values = file[old][()] if values is None else values
    del file[old]
    file[new] = values


def test_whole_microseconds_and_short_names_are_the_same_recording(tmp_path):
    def change(file):
        for field in "xyp":
            moved(file, f"events/{field}s", f"events/{field}")
        moved(file, "events/ts", "events/t", np.rint(file["events/ts"][()] * 1e6).astype(np.int64))
        for image in file["images"].values():
            image.attrs["timestamp"] = round(image.attrs["timestamp"] * 1e6)

    expected = list(read_windows(recording(tmp_path / "a.h5"), start=0.03))
    found = list(read_windows(rewritten(recording(tmp_path / "b.h5"), change), start=0.03))
    assert len(found) == len(expected) == 1
    assert (found[0].voxel == expected[0].voxel).all()


def test_images_are_in_the_order_of_their_times_whatever_their_names(tmp_path):
    """image10 comes before image9 in the order of text."""

    def change(file):
        for i, name in enumerate((8, 9, 10)):
            file.move(f"images/image{i:09d}", f"images/image{name}")
        for i, name in enumerate((9, 10)):
            file.move(f"flow/flow{i:09d}", f"flow/flow{name}")

    flow = np.stack([np.full((2, 12, 16), value, np.float32) for value in (1, 2)])
    path = rewritten(recording(tmp_path / "a.h5", flow), change)
    assert [(int(part.frame[0, 0]), float(part.flow[0, 0, 0])) for part in read_windows(path)] == [(100, 1), (200, 2)]


@pytest.mark.parametrize("off", [-2, -1, 0, 1, 100])
def test_event_idx_is_a_hint_that_is_checked(tmp_path, off):
    def change(file):
        for image in file["images"].values():
            image.attrs["event_idx"] = int(image.attrs["event_idx"]) + off

    path = recording(tmp_path / "a.h5")
    counts = [part.events for part in read_windows(path)]
    assert [part.events for part in read_windows(rewritten(path, change))] == counts


@pytest.mark.parametrize(("change", "said"), [
    (lambda file: file["events/ts"].write_direct(file["events/ts"][()][::-1].copy()), "sorted by time"),
    (lambda file: moved(file, "images/image000000001", "images/image000000001", np.zeros((12, 16, 3), np.uint8)),
     "'timestamp'"),
    (lambda file: file.pop("events/ps"), "events/p or events/ps, got ts, xs, ys"),
    (lambda file: file.pop("images"), "'images'"),
    (lambda file: file.create_dataset("flow/flow0", data=np.zeros((2, 12, 16))), "flow for every two images, got 1"),
])  # fmt: skip
def test_other_layouts_say_what_is_wrong(tmp_path, change, said):
    path = rewritten(recording(tmp_path / "a.h5"), change)
    with pytest.raises(ValueError, match=rf"a.h5: .*{said}"):
        list(read_windows(path))


def test_colour_needs_the_order_of_its_channels(tmp_path):
    colour = np.zeros((12, 16, 3), np.uint8)
    colour[..., 0] = 255

    def change(file):
        held = dict(file["images/image000000001"].attrs)
        moved(file, "images/image000000001", "images/image000000001", colour)
        file["images/image000000001"].attrs.update(held)

    path = rewritten(recording(tmp_path / "a.h5"), change)
    with pytest.raises(ValueError, match=r"channels='rgb' or 'bgr', got /images/image000000001 of uint8 \(12, 16, 3\)"):
        list(read_windows(path))


def test_a_truncated_file_is_named(tmp_path):
    path = recording(tmp_path / "a.h5")
    path.write_bytes(path.read_bytes()[:2000])
    for read in (read_events, lambda p: list(read_windows(p))):
        with pytest.raises(ValueError, match="a.h5: it cannot be read as a recording"):
            read(path)


def test_a_network_is_measured_on_the_grids_that_it_was_trained_on(tmp_path):
    seen = []

    class Looks(nn.Module):
        task = "reconstruction"

        def forward(self, voxel, state):
            seen.append(voxel)
            return torch.zeros(1, 1, *voxel.shape[-2:]), None

    path, model = recording(tmp_path / "a.h5"), Looks()
    model.grids = {"num_bins": 3, "representation": "interpolated", "normalize": True}
    evaluate(model, path)
    expected = next(iter(read_windows(path, 3, representation="interpolated", normalize=True))).voxel
    assert (seen[0][0].numpy() == expected).all()
    assert np.abs(expected).max() < np.abs(next(iter(read_windows(path, 3, representation="interpolated"))).voxel).max()
    evaluate(model, path, bins=4, representation="discrete", normalize=False)
    assert (seen[2][0].numpy() == next(iter(read_windows(path, 4))).voxel).all()


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    import faery

    def full(self, path, **how):
        path.with_name(f"{path.name}.write").write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(faery.FiniteEventsStream, "to_file", full)
    with pytest.raises(OSError, match="No space left"):
        write_events(tmp_path / "a.raw", stream(), (12, 16))
    assert list(tmp_path.iterdir()) == []


def test_recordings_that_lack_something(tmp_path):
    path = recording(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        del file["images/image000000002"].attrs["timestamp"]
    with pytest.raises(ValueError, match="'timestamp'"):
        list(read_windows(path))
    with h5py.File(path, "a") as file:
        del file["images/image000000001"], file["images/image000000002"]
    with pytest.raises(ValueError, match="at least two images, got 1"):
        list(read_windows(path))


def test_known_sequences_are_cut_as_the_field_does():
    assert standard_cut("x/indoor_flying4_data.h5") == {"start": 10.0, "end": 19.8}
    assert standard_cut("x/mine.h5") == {}
