"""Trainers: they learn, go on where they stopped, and share work between processes."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from thrifty.data.v2v import EVENT, Augmentation, EventCamera, VideoToVoxel, VideoVoxelDataset
from thrifty.data.v2v.networks import build_model
from thrifty.data.v2v.recipe import Recipe
from thrifty.data.v2v.recordings import evaluate
from thrifty.data.v2v.saving import load_model, save_model
from thrifty.data.v2v.training import FlowTrainer, ReconstructionTrainer
from thrifty.data.v2v.writing import write_recording

PLAIN = Augmentation(flip=False, pause=None)


@pytest.fixture
def samples(clip):
    path = clip()

    def make(**how):
        settings = {"sequence_length": 2, "crop": 16, "augmentation": PLAIN, "step": 5, "max_per_video": 4}
        v2v = how.pop("v2v", None) or VideoToVoxel(camera=EventCamera(0.1, 0.1))
        return VideoVoxelDataset([path], v2v=v2v, **(settings | how))

    return make


def test_reconstruction_learns(samples):
    trainer = ReconstructionTrainer(samples(sequence_length=4, max_per_video=2), Recipe("firenet", 12, 2, lr=3e-3))
    losses = trainer.fit()["losses"]
    assert losses[-1] < 0.8 * losses[0]


def test_flow_learns(samples):
    data = samples(return_first_frame=True)
    trainer = FlowTrainer(data, Recipe("evflownet", 3, 2, lr=3e-4))
    losses = trainer.fit()["losses"]
    assert min(losses[-2:]) < losses[0]


def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(samples, tmp_path):
    """In the middle of an epoch; the same weights, bit for bit."""
    recipe = Recipe("firenet", 2, 1, lr=1e-3, chunk=1)
    whole = ReconstructionTrainer(samples(), recipe)
    whole.fit(tmp_path / "whole")
    first = ReconstructionTrainer(samples(), recipe)
    assert first.fit(tmp_path / "run", steps=5)["steps"] == 5
    second = ReconstructionTrainer(samples(), recipe)
    result = second.fit(tmp_path / "run")
    assert result["resumed"]
    assert result["steps"] == 8
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    loaded = load_model(tmp_path / "run")
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), second.model.parameters(), strict=True))
    assert json.loads((tmp_path / "run/result.json").read_text())["steps"] == 8
    assert len(list((tmp_path / "run").glob("checkpoint-*"))) <= 2
    with pytest.raises(ValueError, match=r"lr: the run in .* has 0.001, got 0.01"):
        ReconstructionTrainer(samples(), Recipe("firenet", 2, 1, lr=1e-2, chunk=1)).fit(tmp_path / "run")


def test_a_finished_run_is_left_as_it_is(samples, tmp_path):
    recipe = Recipe("firenet", 1, 2, lr=1e-3)
    first = ReconstructionTrainer(samples(), recipe).fit(tmp_path / "run")
    again = ReconstructionTrainer(samples(), recipe).fit(tmp_path / "run")
    assert again["loss"] == first["loss"] == json.loads((tmp_path / "run/result.json").read_text())["loss"]


@pytest.mark.parametrize("lr", [1e30, float("inf")])
def test_a_run_that_diverges_stops_and_saves_nothing_of_it(samples, tmp_path, lr):
    trainer = ReconstructionTrainer(samples(), Recipe("firenet", 3, 1, lr=lr))
    with pytest.raises(ValueError, match=r"lr: the loss of step \d is"):
        trainer.fit(tmp_path / "run")
    assert not (tmp_path / "run/model.safetensors").exists()
    assert not (tmp_path / "run/result.json").exists()


@pytest.mark.filterwarnings("ignore:skipped")
def test_corrupt_videos_change_nothing_for_a_resumed_run(clip, tmp_path, monkeypatch):
    from thrifty.data.v2v import dataset
    from thrifty.data.v2v.video import VideoError, read_frames

    def read(path, start=0, count=None, **how):
        if "bad" in str(path) and start + count > 15:
            raise VideoError(f"{path}: it is corrupt behind frame 15")
        return read_frames(path, start, count, **how)

    monkeypatch.setattr(dataset, "read_frames", read)
    videos, recipe = [clip("bad.mp4"), clip("good.mp4", seed=1)], Recipe("firenet", 2, 1, lr=1e-3)

    def trainer():
        data = VideoVoxelDataset(videos, sequence_length=2, crop=16, augmentation=PLAIN)
        return ReconstructionTrainer(data, recipe)

    whole = trainer().fit(tmp_path / "whole")
    trainer().fit(tmp_path / "run", steps=5)
    resumed = trainer().fit(tmp_path / "run")
    assert resumed["losses"] == whole["losses"][5:]
    assert resumed["skipped"] == whole["skipped"] == 1
    assert trainer().fit(tmp_path / "run")["skipped"] == 1, "kept, though nothing was left to read"


def test_a_disk_that_is_full_is_named(samples, tmp_path, monkeypatch):
    from thrifty.data.v2v import checkpoints

    def full(path, content, **how):
        path.parent.mkdir(parents=True, exist_ok=True)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_whole", full)
    with pytest.raises(OSError, match="checkpoint cannot be written: No space left on device: .*checkpoint-1"):
        ReconstructionTrainer(samples(), Recipe("firenet", 1, 4)).fit(tmp_path / "run")
    assert not (tmp_path / "run/checkpoint-1").exists()


def test_the_checkpoint_that_errs_least_is_kept_apart(samples, tmp_path):
    errors = iter([3.0, 1.0, 2.0, 4.0])
    trainer = ReconstructionTrainer(samples(), Recipe("firenet", 1, 1, lr=1e-3))
    weights = []

    def judge(model):
        weights.append([p.detach().clone() for p in model.parameters()])
        return next(errors)

    trainer.fit(tmp_path / "run", save_every=1, judge=judge, steps=3)
    result = ReconstructionTrainer(samples(), trainer.recipe).fit(tmp_path / "run", save_every=1, judge=judge)
    assert (result["best"], result["best_step"]) == (1.0, 2)
    best = load_model(tmp_path / "run/best")
    assert all(torch.equal(a, b) for a, b in zip(best.parameters(), weights[1], strict=True))


def test_trainers_measure_their_network_on_recordings(samples, tmp_path):
    frames = np.stack([np.full((16, 16), level, np.uint8) for level in (0, 100, 200)])
    flow = np.full((2, 2, 16, 16), 3, np.float32)
    path = write_recording(tmp_path / "a.h5", np.empty(0, EVENT), frames, np.array([0, 40_000, 80_000]), flow)
    v2v = VideoToVoxel(3, camera=EventCamera(0.1, 0.1), normalize=True)
    trainer = ReconstructionTrainer(samples(v2v=v2v), Recipe("firenet", 1, 1))
    found = trainer.evaluate(path)[str(path)]
    assert found["windows"] == 2
    trainer.save(tmp_path / "model")
    assert load_model(tmp_path / "model").grids == {"num_bins": 3, "representation": "discrete", "normalize": True}
    assert evaluate(load_model(tmp_path / "model"), path) == pytest.approx(found)
    flows = FlowTrainer(
        samples(return_first_frame=True), Recipe("evflownet", 1, 1), model=build_model("evflownet", base=2)
    )
    found = flows.evaluate([path])[str(path)]
    assert found["epe"] > 0
    assert found["sparse_epe"] != found["sparse_epe"], "no event, no pixel that counts"
    flows.save(tmp_path / "flow")
    assert load_model(tmp_path / "flow").predict.in_channels == 2


def test_the_sensor_in_the_step_gives_the_same_training(samples):
    recipe = Recipe("firenet", 1, 2, lr=1e-3)
    here, there = (ReconstructionTrainer(samples(simulate=how), recipe) for how in ("worker", "step"))
    assert here.fit()["losses"] == there.fit()["losses"]


@pytest.mark.parametrize("model", ["firenet", "e2vid"])
def test_recomputing_changes_no_gradient(samples, model):
    recipes = [Recipe(model, 1, 2, recompute=how) for how in (False, True)]
    one, other = (ReconstructionTrainer(samples(), recipe).fit()["losses"] for recipe in recipes)
    assert one == pytest.approx(other, rel=1e-5)


def test_truncated_back_propagation_has_the_same_loss(samples):
    data = samples(sequence_length=4, max_per_video=2)
    batch = torch.utils.data.default_collate([data[0], data[1]])
    totals = []
    for chunk in (None, 1, 3):
        trainer = ReconstructionTrainer(data, Recipe("firenet", 1, 2, chunk=chunk))
        totals.append(sum(float(part.detach()) for part in trainer.sequence_loss(batch, 0)))
    assert totals == pytest.approx([totals[0]] * 3, rel=1e-6)


def test_the_curriculum_of_hypere2vid(samples):
    trainer = ReconstructionTrainer(samples(), Recipe("hypere2vid", 1, 2))
    truth, last = torch.ones(1, 1, 4, 4), torch.zeros(1, 1, 4, 4)
    assert float(trainer._curriculum(("memory", last), truth, 0)[1].mean()) == 1
    assert float(trainer._curriculum(("memory", last), truth, 8)[1].mean()) == 0.5
    assert trainer._curriculum(("memory", last), truth, 16)[1] is last
    assert ReconstructionTrainer(samples(), Recipe("firenet", 1, 2))._curriculum(["state"], truth, 0) == ["state"]


def test_eraft_trains_on_consecutive_grids(samples):
    data = samples(return_first_frame=True, return_previous_voxel=True, max_per_video=1, sequence_length=1)
    model = build_model("eraft", updates=1)
    trainer = FlowTrainer(data, Recipe("eraft", 1, 1), model=model)
    assert trainer.fit()["steps"] == 1
    with pytest.raises(ValueError, match="return_previous_voxel"):
        FlowTrainer(samples(return_first_frame=True), Recipe("eraft", 1, 1), model=model)
    with pytest.raises(ValueError, match="return_first_frame"):
        FlowTrainer(samples(), Recipe("evflownet", 1, 1))


def test_published_settings_and_bad_ones():
    etnet = Recipe.published("etnet", workers=9)
    assert (etnet.batch, etnet.lr, etnet.epochs, etnet.optimizer, etnet.weight_decay) == (6, 2e-4, 100, "adamw", 0.01)
    assert Recipe.published("e2vid").epochs == 80
    for how in ({"epochs": 0}, {"lr": 0}, {"decay": 1.5}, {"chunk": 0}, {"optimizer": "sgd"}, {"precision": "fp8"}):
        with pytest.raises(ValueError, match=next(iter(how))):
            Recipe(**how)


def test_the_rate_falls_after_every_epoch(samples):
    trainer = ReconstructionTrainer(samples(), Recipe("firenet", 3, 4, lr=1e-3, decay=0.5))
    trainer.fit()
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(1e-3 * 0.25)
    assert trainer.optimizer.param_groups[0]["amsgrad"]


def test_models_are_saved_without_pickles(tmp_path):
    model = build_model("firenet", bins=3)
    save_model(model, tmp_path / "m", "firenet", bins=3)
    assert load_model(tmp_path / "m").head.conv.in_channels == 3
    with pytest.raises(FileExistsError):
        save_model(model, tmp_path / "m", "firenet", bins=3)
    with pytest.raises(FileNotFoundError, match="v2v_model.json"):
        load_model(tmp_path)
    path = tmp_path / "m/v2v_model.json"
    path.write_text(path.read_text().replace("thrifty.v2v.model", "other"))
    with pytest.raises(ValueError, match="schema"):
        load_model(tmp_path / "m")


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.dist
def test_two_processes_train_one_model(clip, tmp_path, torchrun):
    path, out = clip(frames=60), tmp_path / "run"
    program = Path(sys.executable).with_name("thrifty")
    words = ("--no-python", program, "v2v", "train", path, "--out", out, "--model", "firenet", "--length", "2")
    more = ("--crop", "16", "--epochs", "1", "--batch", "2", "--workers", "0", "--device", "cpu", "--save-every", "1")
    torchrun(*words, *more)
    result = json.loads((out / "result.json").read_text())
    assert result["steps"] == 1
    assert load_model(out).task == "reconstruction"
