"""The command line, on a clip: convert, report, train, eval, show; and the settings file, the report, the adviser."""

import json

import numpy as np
import pytest
import torch

from thrifty._common.ledger import Resource, Workload
from thrifty.data.v2v import EventCamera, EventCameraSampler, VideoToVoxel, converting, frames_to_events, preset, report
from thrifty.data.v2v.config import PipelineConfig
from thrifty.data.v2v.converting import video_to_events, window_to_recording
from thrifty.data.v2v.cost import predict
from thrifty.data.v2v.event_files import read_events
from thrifty.data.v2v.losses import warp
from thrifty.data.v2v.pictures import flow_picture, flow_wheel, voxel_picture
from thrifty.data.v2v.recordings import read_windows
from thrifty.data.v2v.video import probe, read_frames, write_video


@pytest.fixture
def v2v(capsys):
    """Run ``thrifty v2v ...`` whether or not the method is registered."""
    import typer

    from thrifty.data.v2v.cli import app

    def run(*words):
        capsys.readouterr()
        typer.main.get_command(app).main([str(word) for word in words], standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_a_video_becomes_a_recording_a_stream_or_voxels(clip, tmp_path, v2v):
    path = clip(frames=21)
    said = v2v("convert", path, "--out", tmp_path / "a.h5", "--camera", "0.1,0.1")
    assert "21 frames of 48 x 64" in said
    windows = list(read_windows(tmp_path / "a.h5"))
    assert len(windows) == 20
    assert sum(part.events for part in windows) > 100
    v2v("convert", path, "--out", tmp_path / "a.aedat4", "--camera", "davis346")
    assert read_events(tmp_path / "a.aedat4")[1] == (48, 64)
    v2v("convert", path, "--out", tmp_path / "a.npz", "--start", "1", "--frames", "12")
    held = np.load(tmp_path / "a.npz")
    assert held["voxels"].shape == (2, 5, 48, 64)
    assert json.loads(str(held["camera"]))["c_pos"] > 0
    with pytest.raises(FileExistsError):
        v2v("convert", path, "--out", tmp_path / "a.npz")
    with pytest.raises(ValueError, match="C_POS,C_NEG"):
        v2v("convert", path, "--out", tmp_path / "b.npz", "--camera", "0.1")


def test_the_report_counts_bytes(clip, v2v):
    path = clip()
    found = json.loads(v2v("report", path, "--json"))
    assert found["list"]["frames"] == 31
    rows = found["storage"][str(path)]
    assert [row["threshold"] for row in rows] == [0.1, 0.2, 0.5, 1.0]
    size = path.stat().st_size
    assert rows[0]["event_ratio"] == pytest.approx(16 * rows[0]["events"] / size)
    assert rows[0]["voxel_ratio"] == pytest.approx(4 * 30 * 48 * 64 / size)
    assert "1 videos, 31 frames" in v2v("report", path)


def test_train_eval_show(clip, tmp_path, v2v):
    path, out = clip(frames=41), tmp_path / "run"
    (tmp_path / "pipeline.json").write_text(json.dumps({"camera": "clean", "sequence_length": 2, "crop": 32}))
    words = ("train", path, "--out", out, "--model", "firenet", "--config", tmp_path / "pipeline.json", "--epochs", 1)
    result = json.loads(v2v(*words, "--batch", 2, "--workers", 0, "--device", "cpu"))
    assert result["steps"] == 2
    assert PipelineConfig.from_json((out / "pipeline.json").read_text()).camera == "clean"
    v2v("convert", path, "--out", tmp_path / "test.h5", "--camera", "0.2,0.2")
    found = json.loads(v2v("eval", out, tmp_path / "test.h5", "--json", "--device", "cpu"))
    assert found[str(tmp_path / "test.h5")]["windows"] == 40
    assert "ssim" in v2v("eval", out, tmp_path / "test.h5", "--device", "cpu")
    (tmp_path / "test.h5").rename(tmp_path / "slider_depth.h5")
    words = ("eval", out, tmp_path / "slider_depth.h5", "--json", "--standard-cuts", "--device", "cpu")
    assert json.loads(v2v(*words))[str(tmp_path / "slider_depth.h5")]["windows"] == 15, (
        "from one second on, at 25 a second"
    )
    (tmp_path / "slider_depth.h5").rename(tmp_path / "test.h5")
    v2v("show", path, "--out", tmp_path / "a.png")
    v2v("show", path, "--out", tmp_path / "a.mp4", "--frames", 21)
    assert probe(tmp_path / "a.mp4").frames == 4
    v2v("show", tmp_path / "test.h5", "--out", tmp_path / "b.png")


def test_flow_trains_is_measured_and_drawn_from_the_command_line(clip, tmp_path, v2v):
    path, recording = clip(height=64), tmp_path / "flow.h5"
    said = v2v("convert", path, "--out", recording, "--flow", "--side", 32, "--frames", 21, "--camera", "0.1,0.1")
    assert "4 fields of flow of 32 x 32" in said
    parts = list(read_windows(recording))
    assert [part.flow.shape for part in parts] == [(2, 32, 32)] * 4
    assert all(0 < np.abs(part.flow).max() < 20 for part in parts)
    words = ("train", path, "--out", tmp_path / "run", "--model", "evflownet", "--length", 1, "--crop", 16)
    more = ("--epochs", 1, "--batch", 2, "--workers", 0, "--device", "cpu", "--validate", recording)
    result = json.loads(v2v(*words, *more))
    assert result["steps"] == 3
    found = json.loads(v2v("eval", tmp_path / "run/best", recording, "--json", "--device", "cpu"))
    assert found[str(recording)]["epe"] == pytest.approx(result["best"], rel=1e-5)
    v2v("show", recording, "--out", tmp_path / "flow.png", "--flow")
    v2v("show", path, "--out", tmp_path / "flow.mp4", "--flow", "--frames", 11)
    assert probe(tmp_path / "flow.mp4").frames == 2
    with pytest.raises(ValueError, match=r"ending in .h5, .hdf5, got"):
        v2v("convert", path, "--out", tmp_path / "flow.npz", "--flow")


def test_a_window_over_a_still_picture_has_exact_flow(tmp_path):
    """Moved along the flow, a frame that is kept becomes the next, after the window met an edge as well."""
    y, x = np.mgrid[:96, :96]
    still = np.stack([127 + 60 * np.sin(x / 9) + 50 * np.cos(y / 11)] * 2).astype(np.uint8)
    path = write_video(tmp_path / "still.mp4", still)
    _, fields = window_to_recording(path, tmp_path / "a.h5", EventCamera(0.2, 0.2), bins=5, side=32)
    parts = list(read_windows(tmp_path / "a.h5"))
    assert fields == len(parts) == 20
    before, after = (torch.from_numpy(part.frame)[None, None].float() for part in parts[16:18])
    inside = slice(10, -10)
    apart = (warp(before, torch.from_numpy(parts[17].flow)[None]) - after)[..., inside, inside].abs().mean()
    assert 5 * apart < (before - after)[..., inside, inside].abs().mean()


def test_converting_holds_a_block_and_gives_what_one_call_gives(clip, tmp_path, v2v, monkeypatch):
    path, camera = clip(frames=41), EventCamera(0.1, 0.12, noise_std=0.02)
    monkeypatch.setattr(converting, "BLOCK", 7)
    words = ("--camera", "davis346", "--seed", 3)
    v2v("convert", path, "--out", tmp_path / "a.npz", *words)
    levels = read_frames(path)
    expected = VideoToVoxel(camera=preset("davis346"))(torch.from_numpy(levels)[None], torch.Generator().manual_seed(3))
    assert (np.load(tmp_path / "a.npz")["voxels"] == expected[0].numpy()).all()
    video_to_events(path, tmp_path / "a.h5", camera, seed=3)
    video_to_events(path, tmp_path / "a.aedat4", camera, seed=3)
    events = frames_to_events(levels, np.arange(41) * 40_000, camera, torch.Generator().manual_seed(3))
    assert (read_events(tmp_path / "a.h5")[0] == events).all()
    assert (read_events(tmp_path / "a.aedat4")[0] == events).all()
    video_to_events(path, tmp_path / "thin.h5", camera, seed=3, every=5)
    assert len(list(read_windows(tmp_path / "thin.h5"))) == 8
    for limit in (1, 2):
        monkeypatch.setattr(report, "BLOCK", 32 if limit == 1 else 5)
        events = [row.events for row in report.storage_report(path, (0.1, 0.5))]
        assert events == [row.events for row in report.storage_report(path, (0.1, 0.5))]
    assert min(events) > 0


def test_what_cannot_be_converted_is_refused_before_any_work(clip, tmp_path, v2v):
    path, two = clip(), clip("two.mp4", frames=2)
    with pytest.raises(ValueError, match=r"out: expected a file ending in .h5.*got .*a.txt"):
        v2v("convert", path, "--out", tmp_path / "a.txt")
    for words in (("convert", two, "--out", tmp_path / "a.npz"), ("show", two, "--out", tmp_path / "a.png")):
        with pytest.raises(
            ValueError, match=r"two.mp4: expected at least 6 frames from frame 0 on, for .*5 bins, got 2"
        ):
            v2v(*words)
    assert "2 frames" in v2v("convert", two, "--out", tmp_path / "two.h5")


def test_a_variable_frame_rate_is_warned_of(uneven_clip, tmp_path, v2v):
    with pytest.warns(UserWarning, match=r"late.mp4: 57% of its frame intervals"):
        v2v("convert", uneven_clip, "--out", tmp_path / "late.h5")


def test_one_bad_file_costs_a_report_that_file(clip, tmp_path, v2v, monkeypatch):
    good, one, bad = clip("a.mp4"), clip("one.mp4", frames=1), tmp_path / "bad.mp4"
    bad.write_bytes(b"nothing")
    with pytest.warns(UserWarning, match="left out") as caught:
        found = json.loads(v2v("report", good, one, bad, "--json"))
    assert list(found["storage"]) == [str(good)]
    assert found["list"]["left_out"] == [str(bad), str(one)]
    assert any("one.mp4: expected at least 2 frames" in str(warning.message) for warning in caught)
    with pytest.warns(UserWarning, match="left out"), pytest.raises(ValueError, match="got none of 1"):
        v2v("report", one)


def test_settings_are_one_file():
    config = PipelineConfig(sampler=EventCameraSampler(threshold=(0.1, 0.2)), crop=64)
    assert PipelineConfig.from_json(config.to_json()) == config
    by_hand = PipelineConfig.from_json('{"augmentation": {"scale": [0.5, 1], "flip": false}}')
    assert by_hand.augmentation.scale == (0.5, 1)
    assert config.samples()["crop"] == 64
    exact = PipelineConfig.from_json('{"dtype": "float64", "polarity": "abs", "step": 7, "on_error": "raise"}')
    assert (exact.sensor().dtype, exact.sensor().polarity) == (torch.float64, "abs")
    assert (exact.samples()["step"], exact.samples()["on_error"]) == (7, "raise")
    for text, said in (
        ('{"bins": 5}', "got also 'bins'"), ("nonsense", "expected JSON"), ('{"num_bins": 0}', "num_bins"),
        ('{"dtype": "float16"}', "dtype"), ('{"polarity": "both"}', "polarity"), ('{"step": 0}', "step"),
        ('{"on_error": "ignore"}', "on_error"), ('{"reader": "gif"}', "reader"), ('{"camera": "dvs"}', "camera"),
        ('{"sampler": {"speed": 1}}', "sampler"), ('{"version": 2}', "version"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            PipelineConfig.from_json(text)


def test_pictures():
    voxel = np.zeros((5, 4, 4))
    voxel[:, 0, 0], voxel[0, 1, 1] = 1, -5
    drawn = voxel_picture(voxel, scale=5)
    assert drawn[0, 0].tolist() == [255, 0, 0]
    assert drawn[1, 1].tolist() == [0, 0, 255]
    assert drawn[3, 3].tolist() == [255, 255, 255]
    flow = np.zeros((2, 1, 3))
    flow[:, 0, 1], flow[:, 0, 2] = (0, 1), (-1, 0)
    assert [flow_picture(flow)[0, i].tolist() for i in range(3)] == [[255, 255, 255], [128, 255, 0], [0, 255, 255]]
    assert flow_wheel(51)[25, 50].tolist() == [255, 0, 0]


def test_the_adviser_hears_of_stored_bytes():
    facts = {"representation": "events", "frames": 1000, "video_bytes": 1e5}
    delta = predict(Workload("image-model training", facts))
    assert delta.total(Resource.DATA) == 1e5 - 1000 * 128 * 128 * 4
    assert not predict(Workload("image-model training", {"frames": 1000})).applies
    with pytest.raises(ValueError, match="frames"):
        predict(Workload("image-model training", {"representation": "events"}))
