"""Counts of public models, exactly; hardware; what both give without a measurement."""

import json
import sys
from dataclasses import replace

import pytest

from thrifty.inference.speculation import formula, shapes
from thrifty.inference.speculation.bounds import physical_bounds
from thrifty.inference.speculation.hardware import Hardware
from thrifty.inference.speculation.prior import PRIOR, roofline_model
from thrifty.inference.speculation.shapes import MoEShape, profiles

#: name: total, E, K, MoE layers, one expert over all layers, always read (in thousands of millions).
COUNTS = {
    "qwen2-57b-a14b": (57_408_658_944, 64, 8, 28, 770_703_360, 7.5391),
    "qwen1.5-moe-a2.7b": (14_315_784_192, 60, 4, 24, 207_618_048, 1.5475),
    "qwen3-30b-a3b": (30_532_122_624, 128, 8, 48, 226_492_416, 1.2299),
    "mixtral-8x7b": (46_702_792_704, 8, 2, 32, 5_637_144_576, 1.4746),
    "olmoe-1b-7b": (6_919_161_856, 64, 8, 16, 100_663_296, 0.3737),
    "deepseek-v2-lite": (15_706_484_224, 64, 6, 26, 224_919_552, 1.1019),
    "deepseek-v3": (671_026_404_352, 256, 8, 58, 2_554_331_136, 16.191),
    "gpt-oss-20b": (20_914_757_184, 32, 4, 24, 597_404_160, 1.2187),
    "qwen2-0.5b": (494_032_768, 1, 1, 0, 0, 0.4940),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_exact(name):
    shape = MoEShape.from_config(profiles()[name])
    assert shape == replace(MoEShape.from_config(name), name=shape.name)  # the stored ones are these
    total, experts, top_k, layers, expert, dense = COUNTS[name]
    assert (shape.total_params, shape.num_experts, shape.top_k) == (total, experts, top_k)
    assert (shape.moe_layers, shape.expert_params) == (layers, expert)
    assert shape.dense_params / 1e9 == pytest.approx(dense, abs=6e-5 if dense < 10 else 6e-4)


@pytest.mark.parametrize("name", COUNTS)
def test_the_formula_agrees_with_the_class(name):
    counted, computed = MoEShape.from_config(name), formula.counts(profiles()[name])
    assert computed.total == pytest.approx(counted.total_params, rel=5e-4)
    assert computed.dense == pytest.approx(counted.dense_params, rel=5e-4)
    assert computed.expert == pytest.approx(counted.expert_params, rel=5e-4)
    assert (computed.num_experts, computed.top_k, computed.moe_layers) == (
        counted.num_experts, counted.top_k, counted.moe_layers,
    )  # fmt: skip


def test_an_unknown_class_is_computed_and_says_so(monkeypatch):
    unknown = profiles()["mixtral-8x7b"] | {"model_type": "never-heard-of"}
    shape = MoEShape.from_config(unknown)
    assert shape.total_params == COUNTS["mixtral-8x7b"][0]
    assert "never-heard-of" in shape.notes[0]
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert MoEShape.from_config(profiles()["mixtral-8x7b"]).total_params == COUNTS["mixtral-8x7b"][0]


@pytest.mark.parametrize("missing", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_a_missing_field_is_named(missing):
    fields = {k: v for k, v in profiles()["mixtral-8x7b"].items() if k != missing} | {"model_type": "never-heard-of"}
    with pytest.raises(ValueError, match=missing):
        MoEShape.from_config(fields)


def test_experts_without_a_number_for_each_token_are_refused():
    fields = {k: v for k, v in profiles()["qwen3-30b-a3b"].items() if k != "num_experts_per_tok"}
    with pytest.raises(ValueError, match="num_experts_per_tok"):
        MoEShape.from_config(fields)
    with pytest.raises(ValueError, match="128 experts, got 200"):
        MoEShape.from_config(profiles()["qwen3-30b-a3b"] | {"num_experts_per_tok": 200})


def test_experts_that_only_the_class_knows_of_are_refused():
    fields = {k: v for k, v in profiles()["mixtral-8x7b"].items() if k != "num_local_experts"}
    with pytest.raises(ValueError, match="its class has 8 experts; none of num_experts, num_local_experts"):
        MoEShape.from_config(fields)


def test_the_number_of_experts_of_a_token_goes_by_many_names():
    for fields in ({"moe_topk": [8] * 32}, {"num_selected_experts": 8}, {"moe_k": 8}):
        assert formula.experts_of({"num_experts": 64} | fields) == (64, 8)
    with pytest.raises(ValueError, match="says how many"):
        formula.experts_of({"num_experts": 64, "moe_topk": [8, 4]})


def test_fields_of_the_wrong_kind_are_named():
    with pytest.raises(ValueError, match="hidden_size"):
        MoEShape.from_config(profiles()["mixtral-8x7b"] | {"hidden_size": None})


def test_configs_come_as_names_files_folders_mappings_and_objects(tmp_path):
    from transformers import Qwen3MoeConfig

    fields = profiles()["qwen3-30b-a3b"]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    config = Qwen3MoeConfig(**{k: v for k, v in fields.items() if k != "model_type"})
    for way in (tmp_path, tmp_path / "config.json", str(tmp_path), fields, config, "Qwen3-30B-A3B"):
        assert MoEShape.from_config(way).total_params == COUNTS["qwen3-30b-a3b"][0]
    with pytest.raises(ValueError, match="no profile of that name"):
        MoEShape.from_config("qwen9-1000b")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        MoEShape.from_config(tmp_path)
    with pytest.raises(TypeError, match="config"):
        MoEShape.from_config(3)


def test_layers_without_experts_are_counted_not_assumed():
    fields = profiles()["qwen3-30b-a3b"] | {"mlp_only_layers": [0, 1, 2]}
    assert MoEShape.from_config(fields).moe_layers == 45
    assert formula.counts(fields).moe_layers == 45
    assert formula.counts(fields | {"decoder_sparse_step": 2}).moe_layers == 23  # 1, 3, 5 ... 47, less layer 1


def test_bytes_follow_quantisation():
    mx = MoEShape.from_config("gpt-oss-20b")  # as it is shipped
    assert (mx.weight_bytes, mx.expert_weight_bytes) == (2, 4.25 / 8)
    assert MoEShape.from_config(profiles()["gpt-oss-20b"] | {"quantization_config": None}).expert_weight_bytes == 2
    assert MoEShape.from_config("deepseek-v3").weight_bytes == 1
    mixtral = profiles()["mixtral-8x7b"]
    weights = {"group_0": {"weights": {"num_bits": 4}}}
    for how, size in (
        ({"quant_method": "fp8"}, 1),
        ({"quant_method": "awq", "bits": 4}, 0.5),
        ({"quant_method": "gptq", "bits": 8}, 1),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5),
        ({"quant_method": "compressed-tensors", "config_groups": weights}, 0.5),
    ):
        shape = MoEShape.from_config(mixtral | {"quantization_config": how}, build=False)
        assert (shape.weight_bytes, shape.expert_weight_bytes) == (size, size), how
    with pytest.raises(ValueError, match="'hqq' does not say how many bits"):
        MoEShape.from_config(mixtral | {"quantization_config": {"quant_method": "hqq"}}, build=False)
    assert MoEShape.from_config("deepseek-v3", weight_bytes=1).dense_bytes == pytest.approx(16.191e9, rel=1e-3)
    assert MoEShape.from_config("qwen2-0.5b").notes[-1].startswith("a dense model")


def test_the_cache_of_a_token():
    assert MoEShape.from_config("qwen2-57b-a14b").kv_bytes_per_token == 2 * 28 * 4 * 128 * 2
    assert MoEShape.from_config("deepseek-v3").kv_bytes_per_token == 61 * (512 + 64) * 2
    base = {"num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    for more, layers in (
        ({}, 8),
        ({"full_attention_interval": 4}, 2),  # Qwen3-Next
        ({"attn_layer_period": 8, "attn_layer_offset": 4}, 1),  # Jamba
        ({"layer_types": ["linear_attention", "full_attention", "sliding_attention", "mamba"] * 2}, 4),
    ):
        assert formula.kv_numbers_per_token(base | more) == 2 * layers * 2 * 16, more


def test_hardware_by_name_file_and_measurement(tmp_path):
    assert Hardware.from_name("A800-80GB", count=2).bandwidth == pytest.approx(2.039e12)
    for name in ("h100-sxm", "h200", "l40", "l40s", "b200", "rtx-4090", "mi300x"):
        assert Hardware.from_name(name).ridge > 100
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"tflops": 100, "tb_per_s": 1}))
    assert Hardware.from_name(str(path)).ridge == 100
    path.write_text(json.dumps({"tflops": 100}))
    with pytest.raises(ValueError, match="tb_per_s"):
        Hardware.from_name(str(path))
    for field, value in (("tflops", 312e12), ("tb_per_s", 2039), ("tflops", 0)):  # FLOP/s, GB/s
        path.write_text(json.dumps({"tflops": 312, "tb_per_s": 2.039} | {field: value}))
        with pytest.raises(ValueError, match=f"mine: expected the number '{field}', at most"):
            Hardware.from_name(str(path))
    with pytest.raises(ValueError, match="expected one of .*, or a JSON file"):
        Hardware.from_name("abacus")
    with pytest.raises(ValueError, match="count"):
        Hardware.from_name("h200", count=0)
    here = Hardware.calibrate(seconds=0.05, dtype="float32")
    assert here.flops > 1e8
    assert here.bandwidth > 1e8


def test_bounds_are_the_times_that_memory_needs():
    target, draft = MoEShape.from_config("qwen2-57b-a14b"), MoEShape.from_config("qwen2-0.5b")
    limits = physical_bounds(target, draft, Hardware.from_name("a800-80gb", count=2), max_reject=0.2)
    assert limits["expert_load"] == pytest.approx((0.37798, 5 * 0.37798), abs=5e-5)
    assert limits["bias"] == pytest.approx((3.6975, 5 * 3.6975), abs=5e-4)
    assert limits["draft_bias"][0] == pytest.approx(0.48458, abs=1e-5)
    assert limits["reject_bias"] == (0, 0.2)


def test_the_prior_is_the_roofline_and_says_that_it_is_a_prior():
    target, draft = MoEShape.from_config("qwen2-57b-a14b"), MoEShape.from_config("qwen2-0.5b")
    two = Hardware.from_name("a800-80gb", count=2)
    model = roofline_model(target, draft, two)
    assert model.source == PRIOR
    found = model.target_efficiency([1, 4, 16, 32], 4)
    assert found == pytest.approx([0.4903, 0.5476, 0.8977, 0.9879], abs=1e-4)
    # Beyond every ridge a step takes as long as its multiplications.
    tokens = 20_000
    flops = 2 * tokens * (target.dense_params + target.top_k * target.expert_params)
    assert float(model.target_time(tokens)) == pytest.approx(1e3 * flops / (2 * two.flops), rel=1e-3)
    # Experts of four bits are read faster, and so are bound by computing earlier.
    narrow = MoEShape.from_config("gpt-oss-20b")
    small = roofline_model(narrow, None, two)
    for tokens in (16, 256, 2048):
        awake = float(small.active_experts(tokens))
        read = awake * narrow.expert_bytes / (two.bandwidth * 2)
        multiplied = 2 * tokens * narrow.top_k * narrow.expert_params / (two.flops * 2)
        parts = small.target_parts(tokens)
        found = float(parts["expert load"] + parts["expert growth"]) / 1e3
        assert found == pytest.approx(max(read, multiplied), rel=0.02), tokens
    # A draft that is a mixture reads the experts that its batch wakes.
    itself = roofline_model(target, target, Hardware.from_name("h200"))
    for batch in (1, 16, 64):
        assert float(itself.draft_time(batch)) == pytest.approx(float(itself.target_time(batch)), rel=1e-6)
    wide = physical_bounds(target, target, two)["draft_bias"]
    assert wide[0] < 1e3 * (target.dense_bytes + target.num_experts * target.expert_bytes) / two.bandwidth < wide[1]
    offloaded = roofline_model(target, draft, two, expert_bandwidth=64e9)
    assert offloaded.expert_load == pytest.approx(1e3 * target.expert_bytes / 64e9)
    assert roofline_model(target, None, two).draft_bias == 0


def test_profiles_need_no_torch():
    assert shapes.read_config("gpt-oss-120b")[1]["num_local_experts"] == 128
