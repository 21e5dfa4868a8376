"""Real training: open_clip's models and Transformers', through the trainer, the recipe and the command."""

import json
import shutil

import pytest
import torch
from amorlip_models import OPEN_CLIP, arguments, clip_model, clip_rows, members, tar_of

from thrifty.training.amorlip import (
    AmorLIPConfig,
    AmorLIPLoss,
    AmorLIPTrainer,
    PartitionAmortizer,
    load_host,
    lock_tower,
    run_towers,
)
from thrifty.training.amorlip.hosts import embedding_width
from thrifty.training.amorlip.pairs import Shards, expand, read_pairs
from thrifty.training.amorlip.recipe import Recipe, train

FAST = {"ema_decay": 0.5, "amor_every": 2}


def test_transformers_clip_learns_and_goes_on_exactly_where_it_stopped(tmp_path):
    """Stopped in the middle of the second of three epochs."""

    def run(folder, steps, resume=None):
        model = clip_model()
        options = {"per_device_train_batch_size": 4, "max_steps": steps, "learning_rate": 1e-3, "seed": 3}
        args = arguments(folder, **options, save_strategy="steps", save_steps=6, lr_scheduler_type="constant")
        trainer = AmorLIPTrainer(model, args, config=AmorLIPConfig(epochs=3, **FAST), train_dataset=clip_rows())
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    whole = run(tmp_path / "whole", 12)
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    assert whole.loss.amortizer.epoch == 2
    run(tmp_path / "part", 6)
    again = run(tmp_path / "part", 12, resume=str(tmp_path / "part" / "checkpoint-6"))
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(whole.loss.amortizer.parameters(), again.loss.amortizer.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_models_own_bias_is_trained_along(tmp_path):
    from transformers import SiglipConfig, SiglipModel

    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = small | {"vocab_size": 28, "max_position_embeddings": 3}
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=small | {"image_size": 16, "patch_size": 8}))
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    trainer = AmorLIPTrainer(
        model, arguments(tmp_path, max_steps=2, per_device_train_batch_size=4), config=AmorLIPConfig(**FAST),
        train_dataset=clip_rows(),
    )  # fmt: skip
    trainer.train()
    assert embedding_width(model) == 16
    moved = [name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])]
    assert any(name.startswith("vision_model") for name in moved)
    assert model.logit_bias.item() == pytest.approx(before["logit_bias"].item(), abs=1e-3)


def test_the_temperature_has_its_own_rate_and_bounds(tmp_path):
    model = clip_model(logit_scale_init_value=4.6)
    options = {"per_device_train_batch_size": 4, "max_steps": 4, "learning_rate": 1e-3}
    trainer = AmorLIPTrainer(
        model, arguments(tmp_path, **options, warmup_steps=2), config=AmorLIPConfig(rho=50.0, **FAST), lr_tau=0.5,
        train_dataset=clip_rows(),
    )  # fmt: skip
    trainer.train()
    assert model.logit_scale.exp().item() <= 100.001
    groups = {group["name"]: group for group in trainer.optimizer.param_groups}
    assert groups["temperature"]["weight_decay"] == 0
    assert groups["temperature"]["lr"] == pytest.approx(0.5 / 3)  # 1/s is below 0.03
    assert groups["decay"]["lr"] < 1e-3


def test_evaluation_by_the_trainer_teaches_the_networks_nothing(tmp_path):
    options = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "max_steps": 2}
    trainer = AmorLIPTrainer(
        clip_model(), arguments(tmp_path, **options), config=AmorLIPConfig(**FAST), train_dataset=clip_rows(),
        eval_dataset=clip_rows(),
    )  # fmt: skip
    trainer.train()
    before = [p.clone() for p in trainer.loss.amortizer.parameters()]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(trainer.evaluate()["eval_loss"])
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.loss.amortizer.parameters(), strict=True))


def test_inputs_that_would_be_dropped_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"args: expected TrainingArguments\(remove_unused_columns=False\)"):
        AmorLIPTrainer(clip_model(), arguments(tmp_path, remove_unused_columns=True), train_dataset=clip_rows())


def test_losses_that_need_numbers_say_so(tmp_path):
    from thrifty.training.amorlip import SogCLRLoss

    trainer = AmorLIPTrainer(
        clip_model(), arguments(tmp_path, max_steps=1, per_device_train_batch_size=4), loss=SogCLRLoss(16),
        train_dataset=clip_rows(),
    )  # fmt: skip
    with pytest.raises(ValueError, match="index: SogCLRLoss needs each pair's number"):
        trainer.train()


@pytest.mark.parametrize("which", ["image", "text"])
def test_a_locked_tower_stays_as_it_is(which, ground):
    for model in (str(ground / "hf"), str(ground / "tiny-clip.json")):
        host = load_host(model)
        lock_tower(host.model, which)
        batch = {k: torch.stack([v, v]) for k, v in host.image(read_picture(ground)).items()}
        found = run_towers(host.model, batch | host.tokenize(["a red square", "a blue one"]))
        assert found.image.requires_grad == (which == "text")
        assert found.text.requires_grad == (which == "image")
        AmorLIPLoss(16, **FAST)(*found).backward()
        with pytest.raises(ValueError, match="which: expected one of 'image', 'text'"):
            lock_tower(host.model, "audio")


def test_the_seed_decides_random_weights(ground):
    model = str(ground / "tiny-clip.json")
    one, same, other = (load_host(model, seed=seed).model.text_projection for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def read_picture(folder):
    from thrifty.training.amorlip.pairs import open_picture

    return open_picture(next((folder / "classes" / "red").iterdir()))


@pytest.mark.parametrize("loss", ["amorlip", "clip", "sogclr", "fastclip", "neuclip"])
def test_every_loss_trains_an_open_clip_model(loss, ground, tmp_path):
    recipe = Recipe(
        str(ground / "tiny-clip.json"), loss, epochs=2, batch=8, lr=1e-3, warmup=1,
        skip_repeats=loss == "amorlip", amor=FAST if loss == "amorlip" else {},
    )  # fmt: skip
    found = train(recipe, str(ground / "pairs.jsonl"), tmp_path / "run", save_every=4)
    assert (found["steps"], found["samples"], found["resumed"]) == (6, 24, False)
    assert train(recipe, str(ground / "pairs.jsonl"), tmp_path / "run")["steps"] == 6  # complete: it stays as it is
    host = load_host(str(tmp_path / "run"))
    assert embedding_width(host.model) == 16
    if loss == "amorlip":
        assert AmorLIPConfig.from_pretrained(tmp_path / "run").amor_every == 2
        with pytest.raises(ValueError, match="lr: the run in .* has 0.001, got 0.01"):
            train(Recipe(**{**vars(recipe), "lr": 0.01}), str(ground / "pairs.jsonl"), tmp_path / "run")


def test_siglip_needs_a_bias(ground, tmp_path):
    with pytest.raises(ValueError, match="loss: expected a model with a logit_bias for 'siglip'"):
        train(Recipe(str(ground / "tiny-clip.json"), "siglip", batch=8), str(ground / "pairs.jsonl"), tmp_path / "run")
    config = tmp_path / "tiny-biased.json"
    config.write_text(json.dumps(OPEN_CLIP | {"init_logit_bias": -10.0}))
    recipe = Recipe(str(config), "siglip", epochs=1, batch=8)
    assert train(recipe, str(ground / "pairs.csv"), tmp_path / "sigmoid")["steps"] == 3
    again = Recipe(str(tmp_path / "sigmoid"), "amorlip", epochs=1, batch=8, amor=FAST)  # fine-tuned by a softmax loss
    assert train(again, str(ground / "pairs.csv"), tmp_path / "softmax")["steps"] == 3


def test_fine_tuning_begins_at_the_checkpoint_and_keeps_its_temperature(ground, tmp_path, thrifty):
    folder = tmp_path / "start"
    shutil.copytree(ground / "hf", folder)
    from transformers import CLIPModel

    model = CLIPModel.from_pretrained(folder)
    with torch.no_grad():
        model.logit_scale.fill_(3.7)
    model.save_pretrained(folder)
    common = ["--data", ground / "pairs.jsonl", "--epochs", 1, "--batch", 8, "--lr", 1e-7, "--amor", "ema_decay=0.5"]
    kept = thrifty("amorlip", "train", "--model", folder, "--out", tmp_path / "kept", *common)
    assert kept.code == 0, kept.err
    assert json.loads(kept.out)["steps"] == 3
    assert CLIPModel.from_pretrained(tmp_path / "kept").logit_scale.item() == pytest.approx(3.7, abs=1e-3)
    reset = thrifty(
        "amorlip", "train", "--model", folder, "--out", tmp_path / "reset", *common, "--reset-scale", "--lock", "image"
    )
    assert reset.code == 0, reset.err
    tuned = CLIPModel.from_pretrained(tmp_path / "reset")
    assert tuned.logit_scale.item() == pytest.approx(2.659, abs=1e-2)
    for a, b in zip(tuned.vision_model.parameters(), model.vision_model.parameters(), strict=True):
        assert torch.equal(a, b)
    started = thrifty(
        "amorlip",
        "train",
        "--model",
        ground / "tiny-clip.json",
        "--checkpoint",
        "nowhere.pt",
        "--out",
        tmp_path / "x",
        *common,
    )
    assert started.code == 2
    assert "checkpoint: there is no nowhere.pt" in started.err


def test_shards_are_streamed(ground, tmp_path, thrifty, monkeypatch):
    pairs = read_pairs(ground / "pairs.jsonl")
    for shard in range(3):
        tar_of(tmp_path / f"shard-{shard:02d}.tar", members(pairs[8 * shard : 8 * shard + 8]))
    assert [path.name for path in expand(str(tmp_path / "shard-{00..02}.tar"))] == [f"shard-0{i}.tar" for i in range(3)]
    assert expand(str(tmp_path / "*.tar")) == expand(str(tmp_path / "shard-{00..02}.tar"))
    with pytest.raises(FileNotFoundError, match=r"there is no .*shard-03\.tar"):
        expand(str(tmp_path / "shard-{00..03}.tar"))
    host = load_host(str(ground / "tiny-clip.json"))
    shards = Shards(expand(str(tmp_path / "*.tar")), host.image, host.tokenize, buffer=5)
    first = [row["text"].tolist() for row in shards]
    assert len(first) == 24
    shards.set_epoch(1)
    second = [row["text"].tolist() for row in shards]
    assert first != second
    assert sorted(first) == sorted(second)
    run = ["--model", ground / "tiny-clip.json", "--data", tmp_path / "*.tar", "--epochs", 2, "--batch", 8]
    begun = []
    start = PartitionAmortizer.start_epoch

    def told(amortizer, epoch):
        begun.append(epoch)
        start(amortizer, epoch)

    monkeypatch.setattr(PartitionAmortizer, "start_epoch", told)
    ran = thrifty("amorlip", "train", *run, "--out", tmp_path / "run", "--num-samples", 24, "--amor", "ema_decay=0.5")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["steps"] == 6
    assert begun == [0, 0, 0, 1, 1, 1], "a stream's passes are its epochs"
    refused = thrifty("amorlip", "train", *run, "--out", tmp_path / "y")
    assert refused.code == 2
    assert "num_samples: expected the pairs of an epoch with tar shards" in refused.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["train", "--model", "no-such-model", "--data", "{pairs}", "--out", "{out}"],
            "model: expected a folder, a .json",
        ),
        (
            ["train", "--model", "{tiny}", "--data", "{pairs}", "--out", "{out}", "--loss", "infonce"],
            "loss: expected one of",
        ),
        (
            ["train", "--model", "{tiny}", "--data", "{pairs}", "--out", "{out}", "--batch", "64"],
            "batch: expected at most",
        ),
        (
            ["train", "--model", "{tiny}", "--data", "{pairs}", "--out", "{out}", "--amor", "tau=1"],
            "--amor: expected NAME=",
        ),
        (
            ["train", "--model", "{tiny}", "--data", "{pairs}", "--out", "{out}", "--amor", "beta_max=1"],
            "beta_max: expected",
        ),
        (
            ["train", "--model", "{tiny}", "--data", "{pairs}", "--out", "{out}", "--loss", "clip", "--skip-repeats"],
            "skip_repeats: expected it with the loss 'amorlip' only, got 'clip'",
        ),
        (
            ["train", "--model", "{tiny}", "--data", "{pairs}", "--out", "{out}", "--caption-field", "text"],
            "a field 'text'",
        ),
        (
            ["train", "--model", "{tiny}", "--data", "{pairs}", "--out", "{here}", "--batch", "8"],
            "there are files already",
        ),
        (["eval", "{hf}", "--data", "{tasks}"], "--out: expected a .jsonl file"),
        (["eval", "{hf}", "--data", "{classes}", "--out", "{out}"], "data: expected pairs, or folders named as tasks"),
        (["compare", "{pairs}"], "expected a key"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(words, message, ground, tmp_path, thrifty):
    places = {
        "pairs": ground / "pairs.jsonl", "tiny": ground / "tiny-clip.json", "hf": ground / "hf", "here": ground,
        "classes": ground / "classes", "out": tmp_path / "out", "tasks": tmp_path,
    }  # fmt: skip
    (tmp_path / "cifar10").mkdir()
    ran = thrifty("amorlip", *(word.format(**places) for word in words))
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.count("\n") <= 2


def test_pairs_in_a_folder_and_pictures_that_are_missing(ground, tmp_path):
    shutil.copy(next((ground / "classes" / "red").iterdir()), tmp_path / "one.png")
    with pytest.raises(ValueError, match="data: expected pairs of pictures and captions"):
        read_pairs(tmp_path)
    (tmp_path / "one.txt").write_text(" a red square\n")
    assert read_pairs(tmp_path) == [(tmp_path / "one.png", "a red square")]
    (tmp_path / "pairs.csv").write_text("image,caption\ntwo.png,nothing\n")
    with pytest.raises(FileNotFoundError, match=r"pairs\.csv names .*two\.png, which is not there"):
        read_pairs(tmp_path / "pairs.csv")
    with pytest.raises(ValueError, match="expected a column 'text', got image, caption"):
        read_pairs(tmp_path / "pairs.csv", caption_field="text")


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize("gather", ["global", "local"])
def test_two_processes_train_one_model(gather, ground, tmp_path, torchrun):
    torchrun(
        "-m", "thrifty.cli", "amorlip", "train", "--model", ground / "tiny-clip.json", "--data", ground / "pairs.jsonl",
        "--epochs", 2, "--batch", 4, "--lr", 1e-3, "--gather", gather, "--out", tmp_path / "run",
        "--amor", "ema_decay=0.5",
    )  # fmt: skip
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (found["steps"], found["samples"]) == (6, 24)
    assert embedding_width(load_host(str(tmp_path / "run")).model) == 16
