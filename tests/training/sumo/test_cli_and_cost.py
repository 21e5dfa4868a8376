"""The command line on real files, and the adviser's predictor."""

import json

import pytest
import torch
from safetensors.torch import save_file

from thrifty._common.ledger import Resource, Workload
from thrifty.training.sumo import estimate_state_bytes
from thrifty.training.sumo.cost import predict


@pytest.fixture
def models(tmp_path):
    torch.manual_seed(0)
    base = {
        "model.embed_tokens.weight": torch.randn(50, 32),
        "model.layers.0.mlp.up_proj.weight": torch.randn(64, 32),
        "model.layers.0.mlp.down_proj.weight": torch.randn(32, 64),
        "model.norm.weight": torch.ones(32),
    }
    tuned = {name: tensor.clone() for name, tensor in base.items()}
    tuned["model.layers.0.mlp.up_proj.weight"] += torch.outer(torch.randn(64), torch.randn(32))
    tuned["model.norm.weight"] += 1
    for name, tensors in (("base", base), ("tuned", tuned)):
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
    return tmp_path


def test_plan_reads_shapes_and_counts(thrifty, models):
    done = thrifty("sumo", "plan", str(models / "base"), "--rank", "8", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["matrices"], found["others"]) == (2, 2)
    assert found["bytes"]["sumo"] == estimate_state_bytes([(64, 32), (32, 64), (50 * 32,), (32,)], 8)
    shown = thrifty("sumo", "plan", str(models / "base" / "model.safetensors"))
    assert "galore" in shown.out


def test_plan_sorts_weights_as_the_group_builder_does(thrifty, tmp_path):
    model = torch.nn.ModuleDict(
        {
            "embed": torch.nn.Embedding(50, 32),
            "attention": torch.nn.MultiheadAttention(32, 2),
            "narrow": torch.nn.Linear(32, 4),
            "patches": torch.nn.Conv2d(3, 32, 4),
            "lm_head": torch.nn.Linear(32, 50),
        }
    )
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    done = thrifty("sumo", "plan", str(tmp_path), "--rank", "8", "--json")
    found = json.loads(done.out)["bytes"]
    assert found == {method: estimate_state_bytes(model, 8, method) for method in found}


def test_extract_lora_writes_what_changed_once(thrifty, models):
    pytest.importorskip("peft")
    arguments = ["extract-lora", str(models / "tuned"), str(models / "base"), "--out", str(models / "adapter")]
    done = thrifty("sumo", *arguments)
    assert done.code == 0, done.err
    assert "1 layers, ranks 1 to 1" in done.out + done.err
    assert "model.norm.weight" in done.out + done.err
    config = json.loads((models / "adapter" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["model.layers.0.mlp.up_proj"]
    assert "already exists" in thrifty("sumo", *arguments).err
    assert thrifty("sumo", *arguments, "--force").code == 0


def test_files_that_are_no_model_are_named(thrifty, models):
    (models / "notes.txt").write_text("hello")
    (models / "broken.safetensors").write_text("hello")
    for name in ("notes.txt", "broken.safetensors"):
        code, _, error = thrifty("sumo", "plan", models / name)
        assert (code, name in error) == (2, True)
    save_file({"norm.weight": torch.ones(3)}, models / "norm.safetensors")
    assert "no weight of a linear layer" in thrifty("sumo", "plan", models / "norm.safetensors").err


def test_the_prediction_is_the_count():
    facts = {"hidden": 256, "matrices": 3, "rank": 16}
    shapes = [(256, 256)] * 3
    for optimizer in ("adamw", "galore", "muon"):
        delta = predict(Workload("language-model fine-tuning", facts | {"optimizer": optimizer}))
        ours, theirs = (estimate_state_bytes(shapes, 16, method)["matrices"] for method in ("sumo", optimizer))
        assert delta.total(Resource.OPTIMIZER_STATE) == ours - theirs
    assert predict(Workload("language-model fine-tuning", facts | {"optimizer": "muon"})).total(Resource.FLOPS) < 0
    assert not predict(Workload("tabular classification", facts)).applies
    assert not predict(Workload("image-model training", facts | {"rank": 256})).applies
    with pytest.raises(ValueError, match="'hidden' is needed"):
        predict(Workload("image-model training", {}))
    with pytest.raises(ValueError, match="'optimizer' must be one of"):
        predict(Workload("image-model training", facts | {"optimizer": "lion"}))
