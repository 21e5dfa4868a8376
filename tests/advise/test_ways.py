"""Ways to train that change where bytes are: several devices, the host, heads in chunks, generation."""

import pytest

from thrifty._common.ledger import Resource
from thrifty.advise import advise_sequences, device, optimizer, rehearse
from thrifty.advise.account import MEMORY
from thrifty.advise.evidence.families import configuration
from thrifty.advise.facts import workload
from thrifty.advise.job import Training
from thrifty.advise.model import read_decoder
from thrifty.advise.offers import offers
from thrifty.advise.peak import allocated, floor, fullest
from thrifty.advise.training import account
from thrifty.advise.tuning import training_job
from thrifty.bench import registry


def job(**changes):
    given = {"length": 512, "dtype": "float32", **changes}
    return Training(read_decoder(configuration("llama")), device("a100"), optimizer("adamw"), **given)


def offer(method, **settings):
    """Return what one method would change, and the ledger now."""
    asked = training_job(configuration("llama"), **settings)
    now = account(asked)
    return offers(workload(asked, now), now, [registry.get(method)])[0], now


def test_a_head_in_chunks_holds_no_logits_of_a_sequence():
    config = configuration("llama")
    config.vocab_size = 8192
    whole, fused = (rehearse(config, 1, 2048, dtype="float32", fused_head=each) for each in (False, True))
    logits = 4 * 2048 * 8192
    assert whole.head - fused.head > 2 * logits
    assert fused.kept == whole.kept
    longer = rehearse(config, 1, 4096, dtype="float32", fused_head=True)
    assert longer.head - fused.head < logits / 4


@pytest.mark.parametrize("tokens", [700, 3000, 40_000])
def test_a_search_interpolates_what_a_rehearsal_would_say(tokens):
    for family in ("llama", "gemma2"):  # tokens alone, and pairs of tokens
        seen = [
            Training(read_decoder(configuration(family)), device("a100"), optimizer("adamw"), tokens, asked=asked)
            for asked in (None, (512, 1))
        ]
        exact, near = (account(each).memory for each in seen)
        assert near == pytest.approx(exact, rel=0.02), family
    more = job(batch=3, asked=(512, 1))
    assert account(more).memory == pytest.approx(account(job(batch=3)).memory, rel=0.02)


def test_what_is_offloaded_is_counted_on_the_host():
    here, there = account(job(length=4096)), account(job(length=4096, offload=frozenset(("checkpoints", "optimizer"))))
    assert there.total(Resource.OPTIMIZER_STATE) == 0
    kept = 3 * allocated(job(length=4096)).kept
    weights = here.total(Resource.WEIGHTS)
    assert there.total(Resource.HOST) == kept + 3 * weights, "checkpoints, two moments, gradients"
    assert there.memory < here.memory
    assert there.seconds["host traffic"] == pytest.approx((2 * kept + 2 * weights) / device("a100").host_link)
    away = account(job(offload=frozenset(("weights",))))
    layer = read_decoder(configuration("llama")).layer_parameters
    outside = read_decoder(configuration("llama")).outside
    assert away.total(Resource.WEIGHTS) == 4 * (outside + 2 * layer)


def test_devices_that_share_a_sequence_hold_a_slice_and_gather_keys_and_values():
    one = job(length=8192, fused_head=True)
    four = job(length=8192, fused_head=True, gpus=4, context_parallel=4)
    assert allocated(four) == allocated(job(length=2048, fused_head=True))
    (cache,) = [part for part in fullest(four)[0] if part.resource is Resource.KV_CACHE]
    assert cache.amount == pytest.approx(4 * 2 * 48 * 8192 * 3 / 4), "one layer's, in 4 bytes, of the other three"
    assert account(four).total(Resource.FLOPS) == pytest.approx(account(one).total(Resource.FLOPS) / 4)
    assert [part.name for part in fullest(one)[0]].count("keys and values") == 0


def test_answers_are_generated_with_a_cache_and_all_weights():
    settings = {"length": 2048, "objective": "grpo"}
    few, many = account(job(**settings)), account(job(**settings, generated=1024))
    assert many.total(Resource.FLOPS) > few.total(Resource.FLOPS)
    read = many.seconds["generation's memory traffic"] * device("a100").bandwidth / 1024
    cache = 8 * 3 * 2 * 48 * 4  # a token of all sequences
    assert read == pytest.approx(few.total(Resource.WEIGHTS) + cache * (2048 - 512))
    assert floor(job(**settings, generated=1024)) >= cache * 2048 > 0
    assert training_job(configuration("llama"), objective="grpo", length=100).generated == 50


def test_an_offer_is_the_ledger_with_the_method_switched_on():
    """SUMO's offer counts AdamW's float32 moments of embedding and head, as the optimizer does."""
    for settings in ({}, {"gpus": 4}, {"objective": "dpo"}, {"objective": "grpo"}):
        given = {"length": 512, "rank": 8, "fused_head": True, **settings}
        sumo, now = offer("sumo", **given)
        assert sumo.applies, settings
        used = account(training_job(configuration("llama"), optimizer="sumo", **given))
        change = used.total(Resource.OPTIMIZER_STATE) - now.total(Resource.OPTIMIZER_STATE)
        assert sumo.delta.total(Resource.OPTIMIZER_STATE) == pytest.approx(change), settings


def test_streaming_saves_nothing_while_the_optimizer_steps():
    streamed, now = offer("streambp", length=64)
    assert now.moment == "the optimizer steps"
    assert not streamed.applies
    assert "while the optimizer steps" in streamed.why[0]
    streamed, now = offer("streambp", length=1024)
    assert streamed.applies
    always = now.total(Resource.WEIGHTS) + now.total(Resource.OPTIMIZER_STATE)
    assert streamed.memory >= always + floor(training_job(configuration("llama"), length=1024))


def test_streaming_asks_for_one_device_a_sequence():
    streamed, _ = offer("streambp", length=8192, gpus=2, context_parallel=2)
    assert not streamed.applies
    assert "several share it" in streamed.why[0]
    streamed, _ = offer("streambp", length=8192, offload=["checkpoints"])
    assert streamed.applies
    assert "offload=True" in streamed.code
    kept, _ = offer("streambp", length=8192)
    assert streamed.memory < kept.memory


def test_temporaries_of_adapters_are_those_of_an_adapter():
    adapters = floor(job(lora_rank=4)) - 4 * job(lora_rank=4).trained
    assert adapters == 2 * 4 * 256 * 4, "two of the largest: rank times the feed-forward width"
    assert floor(job()) - 4 * job().parameters == 2 * 4 * 512 * 96, "two of the embedding"


def test_adapters_on_experts_are_rehearsed():
    plain, adapted = (rehearse(configuration("qwen3-moe"), 1, 64, lora_rank=rank) for rank in (0, 4))
    assert 0 < adapted.kept == plain.kept


def test_the_line_that_switches_a_method_on_is_for_this_workload():
    sumo, _ = offer("sumo", length=512, rank=8)
    assert "sumo_param_groups(model, rank=8)" in sumo.code
    assert sumo.code.startswith("from thrifty import SUMO, sumo_param_groups; ")
    compile(sumo.code, "code", "exec")
    streamed, _ = offer("streambp", length=8192)
    assert streamed.code == "from thrifty import enable_streambp; enable_streambp(model)"


def test_a_recurrent_layer():
    found = advise_sequences(length=1000, state=64, batch=8, layers=2, device="rtx-3090")
    assert found.account.total(Resource.ACTIVATIONS) == 4 * 2 * 8 * 1000 * 64 * 4
    assert found.account.memory == sum(found.account.total(resource) for resource in MEMORY)
    (method,) = [each for each in found.offers if each.applies]
    assert method.method == "lrcssm"
    assert method.code == 'from thrifty import DiagonalRNN; DiagonalRNN("lrc", 64, 64)  # 2 of them, stacked'
    assert advise_sequences(length=10, state=4, rnn="lstm").account.memory > 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"offload": ["sofa"]}, "offload: expected one of 'checkpoints', 'optimizer', 'weights', got 'sofa'"),
        ({"offload": ["checkpoints"], "checkpointing": False}, "offload: expected checkpointing"),
        ({"gpus": 3, "context_parallel": 2}, "gpus: expected a multiple of context_parallel = 2, got 3"),
        ({"generated": 10}, "generated: expected fewer tokens than the sequence's 64, in grpo, got 10"),
        ({"generated": 64, "objective": "grpo"}, "generated: expected fewer tokens than the sequence's 64"),
    ],
)
def test_ways_that_do_not_go_together(settings, says):
    with pytest.raises(ValueError, match=says):
        training_job(configuration("llama"), length=64, **settings)


def test_seconds_and_traffic_are_what_their_formulas_say():
    now, model = account(job()), read_decoder(configuration("llama"))
    named = {part.name: part.amount for part in now.parts}
    assert named["attention"] == 2 * 3 * 512 * 512 * 96
    assert named["forward pass"] == 2 * model.active * 512
    assert now.seconds["arithmetic"] == pytest.approx(now.total(Resource.FLOPS) / device("a100").flops["float32"])
    shared = account(job(gpus=4))
    assert shared.total(Resource.TRANSFER) == 3 * 4 * model.parameters * 3 / 4, "weights twice, gradients once"
    assert shared.seconds["communication"] == pytest.approx(shared.total(Resource.TRANSFER) / device("a100").link)
