"""What is shown fits the terminal and its characters; what is counted by a formula is what is there."""

import io
import json

import pytest
from rich.console import Console

from thrifty._common.ledger import LedgerDelta, Resource
from thrifty.advise import advise_decisions, advise_serving, advise_training, show
from thrifty.advise.account import Account, Part
from thrifty.advise.advice import Advice
from thrifty.advise.evidence.families import configuration
from thrifty.advise.model import read_decoder
from thrifty.advise.offers import Offer
from thrifty.advise.reach import longest
from thrifty.advise.remarks import remarks
from thrifty.advise.selecting import GATED, _sizes
from thrifty.advise.tuning import training_job
from thrifty.advise.vision import HELD, WRITTEN

FULL = Account((Part("weights", Resource.WEIGHTS, 2.0**31, "Σ a·b"),), {"arithmetic": 1.0}, 2.0**30, 1e9)


def shown(advice, width=80):
    out = io.StringIO()
    show(advice, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("width", [30, 45, 80, 200])
def test_bars_are_scaled_to_the_terminal(width):
    lines = shown(Advice("a workload", FULL, ()), width).splitlines()
    drawn = [line.count("w") for line in lines if "www" in line]
    device = [line.count("─") for line in lines if "──" in line]
    assert len(drawn) == len(device) == 1
    assert drawn[0] == pytest.approx(2 * device[0], abs=1)
    assert all(len(line) <= width for line in lines)


def test_a_terminal_without_the_characters_gets_others():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    show(Advice("a workload", FULL, ()), Console(file=out, width=80))
    out.flush()
    assert b"sum a*b" in raw.getvalue()
    assert b"----" in raw.getvalue()


def test_all_pairs_are_shown_with_their_code():
    def offer(name, applies, why=(), saving=0.5):
        return Offer(name, applies, why, LedgerDelta(), 2.0**29, 0.5, saving, code=f"switch {name}")

    both = (offer("trees + ellice", True), offer("sumo + trees", True), offer("sumo + ellice", False, ("no",)))
    said = shown(Advice("a workload", FULL, (), both))
    for words in ("switch trees + ellice", "switch sumo + trees", "do not go together", "sumo + ellice", "holds at"):
        assert words in said, words


def test_times_that_are_compared_have_one_unit():
    said = shown(advise_decisions(rows=5000, features=30), 200)
    assert "time 0.039 s -> 0.639 s" in said


def test_a_vision_transformer_holds_and_writes_what_is_said():
    timm = pytest.importorskip("timm")
    import torch

    from thrifty.advise.rehearsal import Storages, without_values

    with torch.device("meta"):
        model = timm.create_model("vit_small_patch16_224").bfloat16().eval()
        images = torch.zeros(4, 3, 224, 224, dtype=torch.bfloat16)
    storages = Storages([*model.parameters(), images])
    with without_values(), torch.no_grad(), storages:
        model(images)
    numbers = 2 * 4 * 197 * 384
    assert storages.most / numbers == pytest.approx(HELD, rel=0.01)
    assert storages.written / numbers / 12 == pytest.approx(WRITTEN, rel=0.01)
    found = advise_serving("vit_small_patch16_224", images=1000, batch=4)
    assert found.account.total(Resource.ACTIVATIONS) == pytest.approx(storages.most + images.nbytes, rel=0.01)
    assert found.reach[0].batch > 1000
    with pytest.raises(ValueError, match="draft: expected none with images"):
        advise_serving("vit_small_patch16_224", images=1000, draft="qwen3-0.6b")


def test_a_table_of_positions_ends():
    config = configuration("gpt2")
    config.n_positions = 128
    assert read_decoder(config).positions == 128
    with pytest.raises(ValueError, match="length: expected at most the 128 positions of gpt2, got 129"):
        training_job(config, length=129)
    assert longest(training_job(config, length=64), lambda tried: tried.length < 10_000) == 128
    assert read_decoder(configuration("llama")).positions == 0


@pytest.mark.parametrize("kind", ["BertConfig", "T5Config"])
def test_an_encoder_is_named(kind):
    import transformers

    with pytest.raises(ValueError, match=r"encodes: expected a causal language model$"):
        read_decoder(getattr(transformers, kind)())


@pytest.mark.parametrize("name", ["length", "batch", "gpus"])
def test_there_is_a_most(name):
    with pytest.raises(ValueError, match=f"{name}: expected at most [0-9]+, got 1000000000000"):
        training_job(configuration("llama"), **{name: 10**12})
    if name != "length":
        with pytest.raises(ValueError, match=f"{name}: expected at most 65536"):
            advise_serving("qwen3-30b-a3b", **{name: 10**12})


def test_remarks():
    config = configuration("llama")
    config.max_position_embeddings = 256
    said = remarks(training_job(config, length=512))
    assert any("configured for 256 tokens" in each for each in said)
    assert any("--optimizer adamw-mixed" in each for each in said)
    assert remarks(training_job(config, length=64, lora_rank=2)) == ()
    assert advise_training(config, length=512).notes == said


@pytest.mark.parametrize("family", GATED)
def test_weights_by_arithmetic_are_those_of_the_class(family, tmp_path):
    import transformers

    sizes = {
        "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 512, "pad_token_id": 0, "eos_token_id": 1,
    }  # fmt: skip
    config = transformers.CONFIG_MAPPING[family](**sizes)
    (tmp_path / "config.json").write_text(json.dumps({**config.to_diff_dict(), "model_type": family, **sizes}))
    name, active, layers = _sizes(str(tmp_path))
    assert (name, layers) == (tmp_path.name, 3)
    assert active == pytest.approx(read_decoder(config).active, rel=1e-3)
