"""What cannot be, is said in one line; what does not fit, is said too."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Workload
from thrifty.advise import advise_data, advise_serving, advise_training, device, offers, optimizer
from thrifty.advise.account import Account, Part
from thrifty.advise.evidence.families import configuration
from thrifty.advise.show import text
from thrifty.advise.tuning import described, training_job
from thrifty.bench import registry

DEVICE = {"gib": 10, "tflops": 100, "tflops32": 10, "tb_per_s": 1, "link_gb_per_s": 10}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"intermediate_size": None}, "lacks the field intermediate_size"),
        ({"num_attention_heads": 8, "num_key_value_heads": 3}, "8 heads of queries, no multiple of its 3 of keys"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "quantised weights"),
    ],
)
def test_a_configuration_that_would_be_misread(write_config, changes, says):
    with pytest.raises(ValueError, match=says):
        training_job(write_config(**changes))


def test_ranks_are_at_most_a_side_of_a_weight():
    with pytest.raises(ValueError, match="lora_rank: expected at most the 256 rows of the widest weight, got 300"):
        training_job(configuration("llama"), lora_rank=300)
    with pytest.raises(ValueError, match="rank: expected at most the 256 rows of the widest weight, got 300"):
        training_job(configuration("llama"), rank=300, optimizer="sumo")
    assert training_job(configuration("llama"), rank=300).rank == 300, "asked of no optimizer"


def test_a_draft_knows_the_model_s_tokens():
    with pytest.raises(ValueError, match="draft: expected the model's vocabulary of 32000 tokens, got one of 151936"):
        advise_serving("mixtral-8x7b", draft="qwen3-0.6b")
    with pytest.raises(ValueError, match="model: there is no nowhere"):
        advise_serving("qwen3-30b-a3b", draft="nowhere")
    with pytest.raises(ValueError, match="a vision transformer's name goes with --images"):
        advise_serving("vit_small_patch16_224")


def test_more_cannot_be_selected_than_there_is(write_config):
    with pytest.raises(ValueError, match="selected: expected at most the pool's 10 examples, got 20"):
        advise_data(write_config(), pool=10, selected=20)


def test_profiles_of_one_s_own(tmp_path):
    (tmp_path / "My_Phone.json").write_text(json.dumps(DEVICE))
    assert device("My_Phone", tmp_path).memory == 10 * 2**30
    served = advise_serving("qwen3-30b-a3b", draft="qwen3-0.6b", device="My_Phone", profiles=tmp_path)
    (speculation,) = [offer for offer in served.offers if offer.method == "speculation"]
    assert speculation.applies, speculation.why
    with pytest.raises(ValueError, match="mi300x.*My_Phone, or a JSON file"):
        device("abacus", tmp_path)
    (tmp_path / "nan.json").write_text(json.dumps(DEVICE | {"gib": float("nan")}))
    with pytest.raises(ValueError, match="nan: expected the number 'gib', got nan"):
        device("nan", tmp_path)
    for count in (-5, "x"):
        (tmp_path / "odd.json").write_text(json.dumps({"matrix": {"mn": count}, "others": 1, "bytes": 4, "copies": 0}))
        with pytest.raises(ValueError, match="odd, 'matrix': expected the number 'mn'"):
            optimizer("odd", tmp_path)


def test_what_does_not_fit_comes_after_what_does(monkeypatch):
    now = Account((Part("weights", Resource.WEIGHTS, 100.0, ""),), {"arithmetic": 1.0}, 120.0, 10.0)
    deltas = {
        "trees": LedgerDelta((Entry(Resource.WEIGHTS, 30.0, "", ""), Entry(Resource.SECONDS, -0.9, "", ""))),
        "ellice": LedgerDelta((Entry(Resource.SECONDS, -0.1, "", ""),)),
        "sumo": LedgerDelta((Entry(Resource.SECONDS, -0.2, "", ""),)),
    }
    monkeypatch.setattr(offers, "delta_of", lambda method, workload: deltas[method.name])
    methods = [replace(registry.get(name), tasks=()) for name in deltas]
    found = offers.offers(Workload("anything"), now, methods)
    assert [(offer.method, offer.fits) for offer in found] == [("sumo", True), ("ellice", True), ("trees", False)]


def test_what_is_asked_and_what_then_fits_is_said(tmp_path):
    small = tmp_path / "small.json"
    small.write_text(json.dumps(DEVICE | {"gib": 0.3}))
    found = advise_training(configuration("llama"), length=60_000, device=str(small))
    out = io.StringIO()
    Console(file=out, width=200).print(text(found))
    assert "and then it fits" in out.getvalue()
    assert "arXiv 2506.03077" in out.getvalue(), "a formula's source"
    job = training_job(configuration("llama"), objective="grpo", offload=["optimizer"], gpus=2, context_parallel=2)
    for words in ("8 sequences an example", "optimizer on the host", "2 devices a sequence", "2048 tokens generated"):
        assert words in described(job)
