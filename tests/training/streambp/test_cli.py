"""The command line on files as a user has them."""

import json
import math
from functools import partial

import pytest
import torch
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

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


@pytest.fixture
def run(thrifty):
    return partial(thrifty, "streambp")


def test_plan(run, folder):
    given = ("plan", folder / "model", "--length", 4096, "--json")
    found = json.loads(run(*given, "--budget-gib", "0.01").out)
    peaks = [found[mode]["peak_gib"] for mode in ("stream", "checkpoint+fused", "checkpoint", "none")]
    assert peaks == sorted(peaks)
    assert found["budget"]["layer_chunk"] <= 4096 / 3 + 1
    assert "a layer chunk of" in run(*given[:-1], "--budget-gib", "0.01").out
    assert json.loads(run("plan", folder / "model" / "config.json", "--length", 4096, "--json").out)
    assert run(*given, "--trained", 5).code == run(*given, "--budget-gib", -1).code == 2
    assert "--layer-chunk" in run(*given, "--layer-chunk", "many").err


def test_train_and_go_on(run, folder):
    given = ("train", folder / "model", "--data", folder / "data.jsonl", "--out", folder / "out")
    sizes = ("--length", 64, "--budget-gib", 0.001, "--lr", 0.01, "--save-every", 2)
    first = run(*given, *sizes, "--steps", 4)
    assert first.code == 0, first.err
    found = json.loads(first.out.splitlines()[-1])
    assert found["last_loss"] < found["first_loss"]
    again = json.loads(run(*given, *sizes, "--steps", 6).out.splitlines()[-1])
    assert again["resumed"]
    assert again["steps"] == 6
    weights = (folder / "out" / "model.safetensors").read_bytes()
    assert json.loads(run(*given, *sizes, "--steps", 6).out.splitlines()[-1]) == again, "there is nothing left to do"
    assert (folder / "out" / "model.safetensors").read_bytes() == weights
    assert LlamaForCausalLM.from_pretrained(folder / "out").config.vocab_size == 384
    assert [line.split(":")[0] for line in first.err.splitlines() if "loss" in line] == [
        f"step {n} of 4" for n in (1, 2, 3, 4)
    ]


def test_a_run_goes_on_as_it_began_and_from_a_whole_checkpoint(run, folder):
    given = ("train", folder / "model", "--data", folder / "data.jsonl", "--out", folder / "out")
    sizes = ("--length", 64, "--save-every", 2)
    assert run(*given, *sizes, "--steps", 4).code == 0
    for name, other in (("length", ("--length", 32)), ("lr", ("--lr", 1)), ("seed", ("--seed", 3))):
        assert f"{name}: the run in" in run(*given, *sizes, "--steps", 6, *other).err
    (folder / "out" / "checkpoint-5").mkdir()  # its save was cut off
    whole = run(*given, *sizes, "--steps", 6)
    assert "step 5 of 6" in whole.err
    assert "step 4 of 6" not in whole.err


PAIRS = [{"prompt": f"{n} + 1 =", "chosen": " yes", "rejected": " no"} for n in range(8)]


def test_preference_pairs_are_learnt(run, folder):
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, PAIRS)))
    given = ["train", folder / "model", "--data", folder / "pairs.jsonl", "--out", folder / "out", "--objective", "dpo"]
    sizes = ["--length", 32, "--layer-chunk", 7, "--lr", 0.01, "--batch", 4, "--beta", 1, "--save-every", 2]
    first = run(*given, *sizes, "--steps", 4)
    found = json.loads(first.out.splitlines()[-1])
    assert (found["steps"], found["sequences"]) == (4, 8)
    assert found["first_loss"] == pytest.approx(math.log(2), abs=1e-3), "the model is as far from itself as it was"
    assert found["last_loss"] < 0.9 * math.log(2)
    assert json.loads(run(*given, *sizes, "--steps", 6).out.splitlines()[-1])["resumed"]
    assert "beta: the run in" in run(*given, *sizes, "--steps", 6, "--beta", 0.5).err


def test_rewards_are_earned(run, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend("")
    (folder / "streambp_rewards.py").write_text(
        "import json\n"
        "def low(completions, colour, **_):\n"
        "    with open('seen.jsonl', 'a') as file:\n"
        "        file.write(json.dumps(colour) + '\\n')\n"
        "    return [-float(len(text)) for text in completions]\n"
    )
    prompts = [{"prompt": f"{n} + 1 =", "colour": "red"} for n in range(8)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    given = ["train", folder / "model", "--data", folder / "prompts.jsonl", "--out", folder / "out"]
    sizes = ["--objective", "grpo", "--length", 8, "--layer-chunk", 5, "--batch", 4, "--generations", 2, "--lr", 0.01]
    done = run(*given, *sizes, "--steps", 2, "--reward", "streambp_rewards.low")
    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[-1])["steps"] == 2
    assert {colour for line in (folder / "seen.jsonl").read_text().splitlines() for colour in json.loads(line)} == {
        "red"
    }
    before = LlamaForCausalLM.from_pretrained(folder / "model").state_dict()
    after = LlamaForCausalLM.from_pretrained(folder / "out").state_dict()
    assert any((after[name] - before[name]).abs().max() > 1e-4 for name in before)
    for words, says in (
        (("--reward", "streambp_rewards.high"), "reward: expected the import path of a function, got 'streambp_rewa"),
        (("--reward", "json"), "reward: expected the import path of a function, got 'json'"),
        ((), "reward: expected an import path such as my_rewards.short with objective='grpo', got None"),
        (("--reward", "streambp_rewards.low", "--generations", 3), "generations: expected a divisor of 4"),
        (("--reward", "streambp_rewards.low", "--fsdp"), "fsdp: expected objective='sft'"),
    ):
        refused = run(*given[:-1], folder / "other", *sizes, "--steps", 2, *words)
        assert refused.code == 2
        assert says in " ".join(refused.err.split()), refused.err


def test_objectives_have_settings_and_data_of_their_own(run, folder):
    given = ["train", folder / "model", "--data", folder / "data.jsonl", "--out", folder / "out", "--length", 8]
    for words, says in (
        (("--objective", "ppo"), "objective: expected one of 'sft', 'dpo', 'grpo', got 'ppo'"),
        (("--objective", "dpo"), "data: expected the fields prompt, chosen, rejected, got none of 'prompt' in row 1"),
        (("--beta", 0.1), "beta: expected None with objective='sft', got 0.1"),
        (("--reward", "json.dumps"), "reward: expected None with objective='sft', got 'json.dumps'"),
    ):
        refused = run(*given, *words)
        assert refused.code == 2
        assert says in refused.err


def test_what_is_wrong_with_the_files_is_said(run, folder):
    given = ["train", folder / "model", "--data", folder / "data.jsonl", "--out", folder / "out"]
    assert "length" in run(*given, "--length", 10**6).err
    (folder / "data.jsonl").write_text('{"content": "x"}\n')
    assert "line 1" in run(*given, "--length", 8).err
    (folder / "data.jsonl").write_text("")
    assert "expected text" in run(*given, "--length", 8).err
    (folder / "data.jsonl").write_text('{"text": "long enough for a sequence"}')
    assert "lr: expected a positive number" in run(*given, "--length", 8, "--lr", 0).err
    assert "torchrun" in run(*given, "--length", 8, "--fsdp").err
    with_model = [*given[:-1], folder / "model"]
    assert "choose another folder" in run(*with_model, "--length", 8).err, "the model is not written over"
    given[1] = folder
    assert "config.json" in run(*given, "--length", 8).err


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
