"""Recordings: formats of cameras written and read, the HDF5 layout, evaluation on it."""

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from thrifty.data.v2v import EVENT, events_to_voxel
from thrifty.data.v2v.event_files import read_events, write_events
from thrifty.data.v2v.recordings import evaluate, read_windows, standard_cut, write_recording


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
