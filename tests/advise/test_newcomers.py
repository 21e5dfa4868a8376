"""Every verb on what people who never saw this would bring: it answers, in words that they know."""

import json
import sys

import pytest

from thrifty import cli

LLAMA_8B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
LLAMA_7B = LLAMA_8B | {"vocab_size": 32000, "intermediate_size": 11008, "num_key_value_heads": 32}
SMALL = LLAMA_8B | {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}


@pytest.fixture
def ask(capsys, tmp_path, monkeypatch):
    """Run a verb on a configuration; return what it printed on one line, a space between words."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(verb, *arguments, config=None):
        if config is not None:
            (tmp_path / "config.json").write_text(json.dumps(config))
            arguments = ("--model", str(tmp_path), *arguments)
        with pytest.raises(SystemExit) as ended:
            cli.main(["advise", verb, *map(str, arguments)])
        out, err = capsys.readouterr()
        assert ended.value.code == 0, err
        return " ".join(out.split())

    return run


def test_a_llama_of_8b_at_32k_on_one_card_of_80_gb(ask):
    said = ask("train", "--seq-len", 32768, config=LLAMA_8B)
    assert "Does not fit" in said
    assert "and then it fits" in said
    assert "mixed precision keeps them in 32 bits besides: --optimizer adamw-mixed" in said


def test_adapters_of_a_7b_on_24_gb(ask):
    said = ask("train", "--lora", "r=16", "--gpu", "rtx-4090", "--seq-len", 2048, config=LLAMA_7B)
    assert "LoRA r=16" in said
    assert "Fits" in said
    assert "sumo adapters are trained" in said


def test_reinforcement_learning_on_eight_cards(ask):
    said = ask("train", "--objective", "grpo", "--gpus", 8, "--seq-len", 8192, config=LLAMA_8B)
    assert "8 sequences an example" in said
    assert "generation" in said
    assert "streambp: saves" in said


def test_a_mixture_to_serve(ask):
    said = ask("serve", "--model", "qwen3-30b-a3b", "--draft", "qwen3-0.6b", "--batch", 64)
    assert "speculation: saves" in said
    alone = ask("serve", "--model", "qwen3-30b-a3b")
    assert "no smaller model is named that could draft: name one of the same vocabulary by `--draft`" in alone


def test_a_vision_transformer_to_serve(ask):
    pytest.importorskip("timm")
    said = ask("serve", "--model", "vit_small_patch16_224", "--images", 1_000_000, "--batch", 256)
    assert "256 at once" in said
    assert "a block's working set" in said
    assert "token-reduction: saves" in said


def test_a_training_set_to_shrink(ask):
    said = ask("data", "--pool", 200_000, "--selected", 10_000, config=LLAMA_8B)
    assert "influence: saves 84% of the time; time 10.4 h -> 1.71 h" in said
    assert "hidden" not in said


def test_a_federation_of_phones(ask):
    said = ask("federate", "--clients", 20, "--gpu", "phone", "--seq-len", 256, config=SMALL)
    assert "Fits" in said
    assert "at the server, of the other clients" in said


def test_a_decision_from_a_table(ask):
    said = ask("decide", "--rows", 5000, "--features", 30, "--queries", 1000)
    assert "ellice: saves" in said
    assert "ellice + trees the model would be both one whose last layer is linear and a decision tree" in said
    alone = ask("decide", "--rows", 5000, "--features", 30)
    assert "trees: takes 0.6 s more; it saves errors at the same tree size" in alone
    assert "nobody asks for recourse: say how many do by `--queries`" in alone
    assert "For other tasks: influence, " in alone


@pytest.mark.parametrize("verb", ["", "train", "serve", "data", "federate", "decide", "sequence"])
def test_help_teaches(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        cli.main(["advise", *([verb] if verb else []), "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert (f"thrifty advise {verb} --" in said) if verb else ("the line of code that switches it on" in said)
    if verb in {"train", "federate"}:
        assert "phone" in said
        assert "adamw-mixed" in said


@pytest.mark.slow
@pytest.mark.ci
def test_choosing_and_deciding_import_no_torch(tmp_path):
    import subprocess

    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    code = (
        "import sys; from thrifty.advise import advise_data, advise_decisions; "
        f"advise_data({str(tmp_path)!r}, pool=1000, selected=10); advise_decisions(rows=9, features=2, queries=1); "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found == "[]\n", "a method whose entry in the registry has no `tasks` is imported to be asked"
