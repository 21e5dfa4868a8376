"""The command line on files as a user has them, and what the adviser is told."""

import json

import pytest
import torch
from leff_models import make
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification, ByT5Tokenizer

from thrifty._common.ledger import Resource, Workload
from thrifty.training.leff import LeffConfig
from thrifty.training.leff.cost import predict
from thrifty.training.leff.recipe import METHODS, order_of


@pytest.fixture
def folder(tmp_path):
    config = BertConfig(
        vocab_size=384, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, pad_token_id=0
    )
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    ByT5Tokenizer().save_pretrained(tmp_path / "model")
    lines = ["text,label,domain"] + [
        f"{'good' if n % 2 else 'bad'} film {n},{'yes' if n % 2 else 'no'},{n % 3}" for n in range(60)
    ]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def given(folder, *more):
    sizes = [
        "--clients",
        3,
        "--capacity",
        "1,2,3",
        "--length",
        16,
        "--proxy",
        8,
        "--set",
        "distill_steps=2",
        "--set",
        "lr=0.01",
    ]
    return ["leff", "run", folder / "model", "--data", folder / "data.csv", *sizes, *more]


def test_run_goes_on_and_is_reported(thrifty, folder):
    first = thrifty(*given(folder, "--out", folder / "out", "--rounds", 1))
    assert first.code == 0, first.err
    assert "round 1 of 1: 3 of 3 clients; loss" in first.err
    found = json.loads(first.out.splitlines()[-1])
    assert found["rounds"] == 1
    assert 0 <= found["accuracy"] <= 100
    again = json.loads(thrifty(*given(folder, "--out", folder / "out", "--rounds", 2)).out.splitlines()[-1])
    assert again["rounds"] == 2
    straight = json.loads(thrifty(*given(folder, "--out", folder / "other", "--rounds", 2)).out.splitlines()[-1])
    assert {k: v for k, v in straight.items() if k != "out"} == again
    model = AutoModelForSequenceClassification.from_pretrained(folder / "out" / "model")
    assert model.config.id2label == {0: "no", 1: "yes"}
    shown = thrifty("leff", "report", folder / "out")
    assert shown.code == 0, shown.err
    assert "in updates" in shown.out
    numbers = json.loads(thrifty("leff", "report", folder / "out", "--json").out)
    assert [row["round"] for row in numbers["rounds"]] == [1, 2]
    assert set(numbers["clients"]) == {"000", "001", "002"}
    checkpoint = folder / "out" / "checkpoints" / "round-00002"
    assert json.loads(thrifty("leff", "report", checkpoint, "--json").out) == numbers
    refused = thrifty(*given(folder, "--out", folder / "out", "--rounds", 3, "--alpha", 5))
    assert refused.code == 2
    assert "alpha: the run in" in refused.err
    refused = thrifty(*given(folder, "--out", folder / "out", "--rounds", 3, "--seed", 5))
    assert "other seed" in refused.err


@pytest.mark.parametrize("method", ["fedprox", *(pytest.param(m, marks=pytest.mark.slow) for m in ("leff", "flora"))])
def test_rivals_run_on_the_same_split(thrifty, folder, method):
    assert method in METHODS
    done = thrifty(
        *given(folder, "--method", method, "--rounds", 1, *(["--out", folder / "o"] if method == "leff" else []))
    )
    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[-1])["up"] > 0


def test_labels_keep_the_order_of_the_model_that_knows_them(thrifty, folder):
    model = AutoModelForSequenceClassification.from_pretrained(folder / "model")
    model.config.id2label, model.config.label2id = {0: "yes", 1: "no"}, {"yes": 0, "no": 1}
    model.save_pretrained(folder / "model")
    done = thrifty(*given(folder, "--out", folder / "out", "--rounds", 1, "--set", "lr=1e-9"))
    assert done.code == 0, done.err
    again = AutoModelForSequenceClassification.from_pretrained(folder / "out" / "model")
    assert again.config.id2label == {0: "yes", 1: "no"}
    torch.testing.assert_close(again.classifier.weight, model.classifier.weight, atol=1e-6, rtol=0)
    assert order_of(["no", "yes"], {0: "yes", 1: "no", 2: "perhaps"}) == ("yes", "no", "perhaps")
    assert order_of(["b", "a", "c"], {0: "LABEL_0", 1: "LABEL_1"}) == ("a", "b", "c")


def test_a_head_of_another_size_is_made_anew(thrifty, folder):
    rows = (folder / "data.csv").read_text().replace("good film 1,yes", "good film 1,perhaps")
    (folder / "data.csv").write_text(rows)
    done = thrifty(*given(folder, "--out", folder / "out", "--rounds", 1))
    assert done.code == 0, done.err
    again = AutoModelForSequenceClassification.from_pretrained(folder / "out" / "model")
    assert again.config.id2label == {0: "no", 1: "perhaps", 2: "yes"}


def test_texts_for_a_language_model(thrifty, tmp_path):
    make("llama", 2, vocab_size=384).save_pretrained(tmp_path / "model")
    ByT5Tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "data.jsonl").write_text(
        "\n".join(json.dumps({"text": f"def f_{n}(x): return x + {n}"}) for n in range(40))
    )
    done = thrifty("leff", "run", tmp_path / "model", "--data", tmp_path / "data.jsonl", "--out", tmp_path / "out",
                   "--task", "lm", "--clients", 2, "--capacity", "1,2", "--length", 12, "--rounds", 1, "--proxy", 6,
                   "--set", "distill_steps=2")  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[-1])["loss"] > 0


def test_what_is_wrong_is_said(thrifty, folder):
    for words, says in (
        (["--out", folder / "o", "--capacity", "one"], "--capacity: expected whole numbers such as 1,1,2,4, got 'one'"),
        (["--out", folder / "o", "--capacity", "9"], "capacity: expected at most 3, the number of layers, got 9"),
        (["--out", folder / "o", "--set", "lr"], "--set: expected NAME=VALUE, got 'lr'"),
        (["--out", folder / "o", "--set", "speed=1"], "speed: no such setting; there are compression"),
        (["--out", folder / "o", "--task", "vision"], "task: expected one of 'classification', 'lm', got 'vision'"),
        (["--out", folder / "o", "--by", "age"], "data: expected the column 'age', got text, label, domain"),
        (["--method", "fedsgd"], "method: expected one of 'leff', 'local'"),
        (["--out", folder / "model"], "choose another folder"),
        ([], "--out: expected a folder"),
        (["--out", folder / "o", "--clients", 100], "data: expected at least one text for each of 100 clients"),
    ):
        refused = thrifty(*given(folder, *words))
        assert refused.code == 2, words
        assert says in " ".join(refused.err.split()), refused.err
    empty = folder / "empty"
    empty.mkdir()
    assert "expected a history.json" in thrifty("leff", "report", empty).err
    assert "config.json" in thrifty("leff", "run", empty, "--data", folder / "data.csv", "--out", folder / "o").err


def test_cost():
    facts = {"clients": 20, "layers": 32, "layer_parameters": 218e6, "sequence": 512}
    delta = predict(Workload("language-model fine-tuning", facts))
    assert delta.applies
    stand_in = 16
    assert delta.total(Resource.WEIGHTS) == -(31 - stand_in) * 218e6 * 2
    assert delta.total(Resource.GRADIENTS) == -31 * 218e6 * 2
    assert delta.total(Resource.OPTIMIZER_STATE) == -31 * 218e6 * 8
    assert delta.total(Resource.TRANSFER) == (2 + stand_in) * 218e6 * 2 - 2 * 32 * 218e6 * 2
    full = 2 * 512 * 218e6 * 96
    assert delta.total(Resource.FLOPS) == pytest.approx(full * ((17 + 2 + 8) / 96 - 1))
    lora = predict(Workload("language-model fine-tuning", {**facts, "adapter_rank": 8, "matrix_sides": 1e6}))
    assert lora.total(Resource.TRANSFER) > 0, "adapters are smaller than a block"
    assert lora.total(Resource.WEIGHTS) < 0
    assert not predict(Workload("language-model fine-tuning", {"layers": 2})).applies
    with pytest.raises(ValueError, match="'capacity' must be from 1 to 32"):
        predict(Workload("language-model fine-tuning", {**facts, "capacity": 40}))


@pytest.mark.parametrize(("settings", "says"), [
    ({"compression": "prune"}, "compression: expected one of 'distill', 'drop', 'none', got 'prune'"),
    ({"compression_rate": 0}, "compression_rate: expected a share above 0 and at most 1, got 0"),
    ({"compression_rate": 1.5}, "compression_rate: expected a share above 0 and at most 1, got 1.5"),
    ({"participation": 0.0}, "participation: expected a share"),
    ({"temperature": 0}, "temperature: expected a positive number, got 0"),
    ({"alpha": 2}, "alpha: expected a weight from 0 to 1, got 2"),
    ({"sampler": "best"}, "sampler: expected one of"),
    ({"max_steps": 0}, "max_steps: expected a whole number of at least 1, got 0"),
    ({"noise_multiplier": 1.0}, "noise_multiplier: expected 0 where clip_norm is None"),
    ({"server_optimizer": "sgd"}, "server_optimizer: expected one of"),
    ({"embeddings_once": "no"}, "embeddings_once: expected one of True, False, got 'no'"),
    ({"seed": -1}, "seed: expected a whole number of at least 0, got -1"),
])  # fmt: skip
def test_settings_out_of_range(settings, says):
    with pytest.raises(ValueError, match=says):
        LeffConfig(**settings)


def test_settings_travel(tmp_path):
    config = LeffConfig(sampler="random", clip_norm=1.0, max_steps=3)
    config.save_pretrained(tmp_path)
    assert LeffConfig.from_pretrained(tmp_path) == config
    with pytest.raises(ValueError, match="got also 'speed'"):
        LeffConfig.from_json(config.to_json().replace('"seed"', '"speed": 1, "seed"'))
