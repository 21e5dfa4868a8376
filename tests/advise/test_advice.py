"""Offers, profiles and the command line."""

import json

import pytest

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Workload
from thrifty.advise import (
    advise_data,
    advise_decisions,
    advise_serving,
    advise_training,
    cards,
    device,
    optimizer,
    to_json,
)
from thrifty.advise.account import Account, Part
from thrifty.advise.evidence.families import configuration
from thrifty.advise.facts import workload as facts_of
from thrifty.advise.offers import offers, pairs
from thrifty.advise.training import account
from thrifty.advise.tuning import training_job
from thrifty.bench import registry


def thrifty(capsys, *arguments):
    """Run ``thrifty advise`` in this process; return its exit status, output and remarks."""
    import sys

    from typer.main import get_command

    from thrifty.advise.cli import app

    try:
        get_command(app).main(args=list(arguments), prog_name="thrifty advise", standalone_mode=False)
        code = 0
    except (ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        code = 2
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_long_sequence_is_streamed_and_reaches_further(write_config, tmp_path):
    small = tmp_path / "small.json"
    small.write_text(json.dumps({"gib": 0.3, "tflops": 1, "tflops32": 1, "tb_per_s": 0.1, "link_gb_per_s": 1}))
    found = advise_training(write_config(), length=60_000, device=str(small))
    assert not found.account.fits
    assert found.best is not None
    assert found.best.method == "streambp"
    assert found.best.memory < found.account.memory
    reach = {each.method: each for each in found.reach}
    assert reach["streambp"].sequence > 2 * reach["as it is"].sequence
    assert {offer.method for offer in found.offers} == {method.name for method in registry.METHODS}
    json.dumps(to_json(found), default=str)


def test_the_optimizer_state_binds_where_weights_are_many(write_config, tmp_path):
    small = tmp_path / "small.json"
    small.write_text(json.dumps({"gib": 0.06, "tflops": 1, "tflops32": 1, "tb_per_s": 0.1, "link_gb_per_s": 1}))
    where = write_config(hidden_size=512, intermediate_size=1024, num_hidden_layers=2)
    found = advise_training(where, length=64, device=str(small), optimizer="adamw-mixed", rank=16)
    assert found.account.binding.kind == "memory"
    assert found.best is not None
    assert "sumo" in [offer.method for offer in found.offers if offer.applies]
    assert found.best.method == "sumo"


def test_pairs_add_up_unless_they_take_the_same_part():
    now = Account((Part("weights", Resource.WEIGHTS, 100.0, ""),), {"arithmetic": 1.0}, 50.0, 10.0)
    asked = training_job(configuration("llama"), length=4096, rank=8)
    before = account(asked)
    found = [offer for offer in offers(facts_of(asked, before), before) if offer.applies]
    assert {offer.method for offer in found} == {"streambp", "sumo"}
    (both,) = pairs(found, before)
    assert both.applies
    assert both.memory == pytest.approx(before.memory_after(found[0].delta + found[1].delta))
    assert both.code == f"{found[0].code}; {found[1].code}"
    one_tree = Workload("tabular classification", {"rows": 1000, "features": 5, "queries": 10})
    (apart,) = pairs(offers(one_tree, now), now)
    assert not apart.applies


def test_sorting_is_by_the_binding_resource():
    entries = (Entry(Resource.WEIGHTS, -10.0, "", ""), Entry(Resource.FLOPS, 5.0, "", ""))
    full = Account((Part("weights", Resource.WEIGHTS, 100.0, ""),), {"arithmetic": 1.0}, 50.0, 10.0)
    roomy = Account(full.parts, full.seconds, 500.0, 10.0)
    from thrifty.advise.offers import saving

    assert saving(full, LedgerDelta(entries)) == pytest.approx(0.1)
    assert saving(roomy, LedgerDelta(entries)) == pytest.approx(-0.5)


@pytest.mark.parametrize("method", registry.METHODS, ids=lambda method: method.name)
def test_every_card_says_how_to_switch_on_and_what_was_found(method):
    code = cards.switch_on(method)
    assert any(name in code for name in method.exports)
    assert cards.risk(method), "a section 'When not to use it' with a list"


def test_decisions_data_and_serving(write_config):
    names = [offer.method for offer in advise_decisions(rows=1000, features=10, queries=50).offers if offer.applies]
    assert names == ["ellice", "trees"]
    assert not [o for o in advise_decisions(rows=1000, features=10).offers if o.method == "ellice" and o.applies]
    data = advise_data(write_config(), pool=100_000, selected=5_000)
    assert data.best is not None
    assert data.best.method == "influence"
    assert 0 < data.best.seconds < data.account.time
    served = advise_serving("qwen3-30b-a3b", draft="qwen3-0.6b", batch=64)
    assert served.best is not None
    assert served.best.method == "speculation"
    assert served.reach[0].batch > 64


def test_a_vision_transformer_of_timm():
    pytest.importorskip("timm")
    found = advise_serving("vit_small_patch16_224", images=1000)
    assert found.best is not None
    assert found.best.method == "token-reduction"
    assert found.account.total(Resource.FLOPS) == pytest.approx(2 * 1000 * 4.54e9, rel=0.01)


def test_profiles_are_files_that_a_user_adds(tmp_path):
    entry = {"gib": 10, "tflops": 100, "tflops32": 10, "tb_per_s": 1, "link_gb_per_s": 10}
    (tmp_path / "mine.json").write_text(json.dumps(entry))
    assert device("mine", tmp_path).memory == 10 * 2**30
    state = {"matrix": {"mn": 1, "m": 2}, "others": 1, "bytes": 4, "copies": 0}
    (tmp_path / "ours.json").write_text(json.dumps(state))
    assert optimizer("ours", tmp_path).numbers(3, 5, 1) == 15 + 10
    assert device("h800").name == "h100-80gb"


def test_the_command_shows_and_prints_json(capsys, write_config, tmp_path):
    where, small = write_config(), tmp_path / "small.json"  # where little fits, the search for the most is short
    small.write_text(json.dumps({"gib": 0.05, "tflops": 1, "tflops32": 1, "tb_per_s": 0.1, "link_gb_per_s": 1}))
    train = ("train", "--model", where, "--gpu", str(small), "--seq-len")
    code, out, _ = thrifty(capsys, *train, "1024", "--lora", "r=4")
    assert code == 0, out
    for words in ("Fits", "weights", "streambp", "enable_streambp(", "largest that fits", "adapters are trained"):
        assert words in out, words
    code, out, _ = thrifty(capsys, *train, "512", "--json")
    assert json.loads(out)["account"]["fits"] is True
    assert thrifty(capsys, "decide", "--rows", "1000", "--features", "4", "--queries", "3")[0] == 0
    assert thrifty(capsys, "serve", "--model", "qwen3-30b-a3b", "--draft", "qwen3-0.6b")[0] == 0
    assert thrifty(capsys, "data", "--model", where, "--pool", "1000", "--selected", "10")[0] == 0


@pytest.mark.parametrize(
    ("changes", "arguments", "says"),
    [
        ({"model_type": "teapot"}, [], "knows no model type 'teapot'"),
        ({"model_type": None}, [], "lacks the field 'model_type'"),
        ({"num_hidden_layers": None}, [], "lacks the field num_hidden_layers"),
        ({"num_attention_heads": 5}, [], "model: "),
        ({}, ["--gpu", "abacus"], "device: expected one of h100-80gb"),
        ({}, ["--optimizer", "hope"], "optimizer: expected one of adamw"),
        ({}, ["--dtype", "fp4"], "--dtype: expected one of bf16, fp16, fp32, got 'fp4'"),
        ({}, ["--objective", "luck"], "objective: expected one of 'sft', 'dpo', 'grpo', got 'luck'"),
        ({}, ["--lora", "many"], "--lora: expected a rank, as in r=16, got 'many'"),
        ({}, ["--profiles", "/nowhere"], "--profiles: expected a folder of JSON files"),
        ({}, ["--optimizer", "sumo", "--lora", "r=4"], "optimizer: sumo is for whole weights"),
    ],
)
def test_a_mistake_is_one_line(capsys, write_config, changes, arguments, says):
    code, out, err = thrifty(capsys, "train", "--model", write_config(**changes), "--seq-len", "64", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_what_is_no_model_is_named(capsys, tmp_path):
    assert "there is no" in thrifty(capsys, "train", "--model", str(tmp_path / "absent"))[2]
    (tmp_path / "config.json").write_text("{")
    assert "is not JSON" in thrifty(capsys, "train", "--model", str(tmp_path))[2]
    assert "a name of timm's" in thrifty(capsys, "serve", "--model", "vit_of_mine", "--images", "3")[2]


def test_it_is_a_command_and_an_experiment_but_no_method(capsys):
    from thrifty import cli

    assert registry.experiment("advise").package == "thrifty.advise"
    assert registry.experiment("trees") is registry.get("trees")
    assert "advise" not in [method.name for method in registry.METHODS]
    assert "advise" not in registry.markdown_table()
    with pytest.raises(SystemExit) as ended:
        cli.main(["advise", "train", "--model", "/nowhere"])
    assert ended.value.code == 2
    assert "error: model: there is no /nowhere" in capsys.readouterr().err


def test_gemma_and_gpt2_call_their_fields_otherwise_and_are_read_alike():
    from thrifty.advise.evidence.families import configuration
    from thrifty.advise.model import read_decoder

    for family in ("gpt2", "gemma3", "qwen3-moe"):
        model = read_decoder(configuration(family))
        assert model.layers == 3
        assert model.parameters == model.outside + 3 * model.layer_parameters
    assert read_decoder(configuration("qwen3-moe")).active < model.parameters


def test_a_round_of_a_federation(monkeypatch):
    monkeypatch.setattr("thrifty.advise.federated.reaches", lambda job, found: [])  # searched in other tests
    from transformers import LlamaConfig

    from thrifty.advise import advise_federated

    tiny = LlamaConfig(
        vocab_size=512, hidden_size=64, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4
    )
    one, many = (advise_federated(tiny, clients=n, device="rtx-3090", length=128, lora_rank=4) for n in (1, 20))
    assert many.account.total(Resource.TRANSFER) == 20 * one.account.total(Resource.TRANSFER)
    assert many.account.time == one.account.time, "clients work side by side"
    with pytest.raises(ValueError, match="clients: expected a whole number of at least 1, got 0"):
        advise_federated(tiny, clients=0)
