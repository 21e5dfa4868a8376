"""The command line, on a clip: convert, report, train, eval, show; and the settings file, the report, the adviser."""

import json

import numpy as np
import pytest

from thrifty._common.ledger import Resource, Workload
from thrifty.data.v2v import EventCameraSampler
from thrifty.data.v2v.config import PipelineConfig
from thrifty.data.v2v.cost import predict
from thrifty.data.v2v.event_files import read_events
from thrifty.data.v2v.pictures import flow_picture, flow_wheel, voxel_picture
from thrifty.data.v2v.recordings import read_windows
from thrifty.data.v2v.video import probe


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


def test_flow_trains_from_the_command_line(clip, tmp_path, v2v):
    words = ("train", clip(), "--out", tmp_path / "run", "--model", "evflownet", "--length", 1, "--crop", 16)
    result = json.loads(v2v(*words, "--epochs", 1, "--batch", 2, "--workers", 0, "--device", "cpu"))
    assert result["steps"] == 3


def test_settings_are_one_file():
    config = PipelineConfig(sampler=EventCameraSampler(threshold=(0.1, 0.2)), crop=64)
    assert PipelineConfig.from_json(config.to_json()) == config
    by_hand = PipelineConfig.from_json('{"augmentation": {"scale": [0.5, 1], "flip": false}}')
    assert by_hand.augmentation.scale == (0.5, 1)
    assert config.samples()["crop"] == 64
    for text, said in (
        ('{"bins": 5}', "got also 'bins'"), ("nonsense", "expected JSON"), ('{"num_bins": 0}', "num_bins"),
        ('{"camera": "dvs"}', "camera"), ('{"sampler": {"speed": 1}}', "sampler"), ('{"version": 2}', "version"),
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
