"""The command line on files as a user has them."""

import json

import pytest
import torch
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

from thrifty.training.streambp.cli import app
from thrifty.training.streambp.cost import predict


@pytest.fixture
def folder(tmp_path):
    config = LlamaConfig(
        vocab_size=384, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=1, max_position_embeddings=512,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    ByT5Tokenizer().save_pretrained(tmp_path / "model")
    texts = [json.dumps({"text": f"def f_{n}(x): return x + {n}\n" * 8}) for n in range(6)]
    (tmp_path / "data.jsonl").write_text("\n".join(texts))
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_plan(folder):
    given = ("plan", "--model", folder / "model", "--seq-len", 4096, "--json")
    found = json.loads(run(*given, "--budget-gib", "0.01").stdout)
    peaks = [found[mode]["peak_gib"] for mode in ("stream", "checkpoint+fused", "checkpoint", "none")]
    assert peaks == sorted(peaks)
    assert found["budget"]["layer_chunk"] <= 4096 / 3 + 1
    assert "a layer chunk of" in run(*given[:-1], "--budget-gib", "0.01").stdout
    assert json.loads(run("plan", "--model", folder / "model" / "config.json", "--seq-len", 4096, "--json").stdout)
    assert run(*given, "--trained", 5).exit_code == run(*given, "--budget-gib", -1).exit_code == 2
    assert "--layer-chunk" in str(run(*given, "--layer-chunk", "many").exception)


def test_train_and_go_on(folder):
    given = ("train", "--model", folder / "model", "--data", folder / "data.jsonl", "--out", folder / "out")
    sizes = ("--seq-len", 64, "--budget-gib", 0.001, "--lr", 0.01, "--save-every", 2)
    first = run(*given, *sizes, "--steps", 4)
    assert first.exit_code == 0, first.exception
    found = json.loads(first.stdout.splitlines()[-1])
    assert found["last_loss"] < found["first_loss"]
    again = json.loads(run(*given, *sizes, "--steps", 6).stdout.splitlines()[-1])
    assert again["resumed"]
    assert again["steps"] == 6
    weights = (folder / "out" / "model.safetensors").read_bytes()
    assert json.loads(run(*given, *sizes, "--steps", 6).stdout.splitlines()[-1]) == again, "there is nothing left to do"
    assert (folder / "out" / "model.safetensors").read_bytes() == weights
    assert LlamaForCausalLM.from_pretrained(folder / "out").config.vocab_size == 384
    assert [line.split(":")[0] for line in first.stderr.splitlines() if "loss" in line] == [
        f"step {n} of 4" for n in (1, 2, 3, 4)
    ]


def test_a_run_goes_on_as_it_began_and_from_a_whole_checkpoint(folder):
    given = ("train", "--model", folder / "model", "--data", folder / "data.jsonl", "--out", folder / "out")
    sizes = ("--seq-len", 64, "--save-every", 2)
    assert run(*given, *sizes, "--steps", 4).exit_code == 0
    for name, other in (("length", ("--seq-len", 32)), ("learning_rate", ("--lr", 1)), ("seed", ("--seed", 3))):
        assert f"{name}: the run in" in str(run(*given, *sizes, "--steps", 6, *other).exception)
    (folder / "out" / "checkpoint-5").mkdir()  # its save was cut off
    whole = run(*given, *sizes, "--steps", 6)
    assert "step 5 of 6" in whole.stderr
    assert "step 4 of 6" not in whole.stderr


def test_what_is_wrong_with_the_files_is_said(folder):
    given = ["train", "--model", folder / "model", "--data", folder / "data.jsonl", "--out", folder / "out"]
    assert "seq_len" in str(run(*given, "--seq-len", 10**6).exception)
    (folder / "data.jsonl").write_text('{"content": "x"}\n')
    assert "line 1" in str(run(*given, "--seq-len", 8).exception)
    (folder / "data.jsonl").write_text("")
    assert "expected text" in str(run(*given, "--seq-len", 8).exception)
    (folder / "data.jsonl").write_text('{"text": "long enough for a sequence"}')
    assert "learning_rate" in str(run(*given, "--seq-len", 8, "--lr", 0).exception)
    assert "torchrun" in str(run(*given, "--seq-len", 8, "--fsdp").exception)
    with_model = [*given[:-1], folder / "model"]
    assert isinstance(run(*with_model, "--seq-len", 8).exception, FileExistsError), "the model is not written over"
    given[2] = folder
    assert "config.json" in str(run(*given, "--seq-len", 8).exception)


def test_cost():
    from thrifty._common.ledger import Resource, Workload

    facts = {"layers": 32, "hidden": 4096, "sequence": 16_000, "vocabulary": 128_256, "feed_forward": 14_336}
    delta = predict(Workload("language-model fine-tuning", facts))
    assert delta.applies
    assert delta.total(Resource.ACTIVATIONS) < -1e9
    assert delta.total(Resource.FLOPS) > 0
    assert not predict(Workload("tabular classification")).applies
    with pytest.raises(ValueError, match="hidden"):
        predict(Workload("language-model fine-tuning", {"sequence": 1}))
