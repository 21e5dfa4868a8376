"""`thrifty sumo pretrain` on a tiny model and tokenizer: it learns, it goes on where it stopped, it refuses by name."""

import json
import math

import pytest

from thrifty.cli import main
from thrifty.training.sumo.pretrain import LLAMA, Recipe, llama_config, pretrain

transformers = pytest.importorskip("transformers")
pytest.importorskip("datasets")

WORDS = [f"w{i}" for i in range(40)]


@pytest.fixture
def ground(tmp_path):
    """A folder with a tokenizer, a configuration and 400 documents of one repeated sentence."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: i for i, word in enumerate([*WORDS, "<eos>", "<unk>"])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<eos>", unk_token="<unk>")
    fast.save_pretrained(tmp_path / "tokenizer")
    transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=64
    ).save_pretrained(tmp_path / "model")
    lines = (json.dumps({"text": " ".join(WORDS[(i + j) % 40] for j in range(20))}) for i in range(400))
    (tmp_path / "text.jsonl").write_text("\n".join(lines))
    return tmp_path


def recipe(ground, **changes):
    small = {"rank": 4, "update_proj_gap": 10, "lr": 0.02, "steps": 20, "batch": 8, "micro_batch": 4, "length": 16}
    return Recipe(str(ground / "model" / "config.json"), **(small | changes))


def run(ground, out="out", **changes):
    return pretrain(
        recipe(ground, **changes), [ground / "text.jsonl"], ground / "tokenizer", ground / out, save_every=10
    )


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sumo", "galore", "adamw"])
def test_every_optimizer_learns_a_repeated_sentence(ground, optimizer):
    found = run(ground, optimizer=optimizer)
    assert found["steps"] == 20
    assert found["loss"] < 0.9 * math.log(42)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert json.loads((ground / "out" / "result.json").read_text()) == found
    transformers.AutoModelForCausalLM.from_pretrained(ground / "out")


@pytest.mark.slow
def test_a_low_rank_state_is_the_smaller(ground):
    held = {name: run(ground, out=name, optimizer=name, steps=1)["state_bytes"] for name in ("sumo", "galore", "adamw")}
    assert held["sumo"] < held["galore"] < held["adamw"]


@pytest.mark.slow
def test_an_interrupted_run_ends_where_a_whole_one_does(ground):
    whole = run(ground, out="whole")

    class StopError(Exception):
        pass

    def stop(step, steps, loss):
        if step > 10:
            raise StopError

    with pytest.raises(StopError):
        pretrain(
            recipe(ground), [ground / "text.jsonl"], ground / "tokenizer", ground / "cut", save_every=10, progress=stop
        )
    resumed = run(ground, out="cut")
    assert resumed["resumed"]
    assert resumed["loss"] == pytest.approx(whole["loss"], rel=1e-6)
    with pytest.raises(ValueError, match=r"lr: the run in .* has 0.02, got 0.01"):
        run(ground, out="cut", lr=0.01)


@pytest.mark.slow
def test_the_command(ground, capsys):
    options = {
        "--config": ground / "model" / "config.json", "--data": ground / "text.jsonl",
        "--tokenizer": ground / "tokenizer", "--out": ground / "out", "--rank": 4, "--steps": 2, "--batch": 4,
        "--micro-batch": 2, "--length": 16,
    }  # fmt: skip
    with pytest.raises(SystemExit, match="0"):
        main(["sumo", "pretrain", *(str(part) for pair in options.items() for part in pair)])
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1])["steps"] == 2
    assert "step 2 of 2" in err


def test_what_cannot_be_trained_is_named(ground):
    with pytest.raises(ValueError, match="optimizer: expected one of 'sumo', 'galore', 'adamw', got 'lion'"):
        run(ground, optimizer="lion")
    with pytest.raises(ValueError, match="batch: expected a multiple of 4, .*got 7"):
        run(ground, batch=7)
    with pytest.raises(FileNotFoundError, match="config: expected one of llama_60m"):
        llama_config("llama_2b", 100)
    with pytest.raises(FileNotFoundError, match="data: expected text files, got none at"):
        pretrain(recipe(ground), ground / "nowhere", ground / "tokenizer", ground / "out")
    (ground / "full").mkdir()
    (ground / "full" / "mine").write_text("")
    with pytest.raises(FileExistsError, match="no run to go on with"):
        run(ground, out="full")
    assert not (ground / "out").exists()


@pytest.mark.parametrize("name", LLAMA)
def test_shapes_are_the_papers(name):
    config = llama_config(name, 32_000)
    assert config.hidden_size % config.num_attention_heads == 0
    assert (config.hidden_size, config.intermediate_size, config.num_hidden_layers) == LLAMA[name][:3]
