"""What is no tensor, no number, no setting and no decoder is refused in one line that names it."""

import math

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from thrifty.training.streambp import (
    StreamBPConfig,
    enable_streambp,
    estimate_peak_memory,
    streamed_dpo_loss,
    streamed_grpo_loss,
    streamed_linear_cross_entropy,
    streamed_token_logps,
)

NAN = math.nan
H, W, Y, M = torch.ones(2, 6, 8), torch.ones(11, 8), torch.ones(2, 6, dtype=torch.long), torch.ones(2, 6)
ONE = torch.ones(2)

LOSSES = {
    "labels": lambda h=H, w=W, y=Y, **more: streamed_linear_cross_entropy(h, w, y, **more),
    "ids": lambda h=H, w=W, y=Y, **more: streamed_token_logps(h, w, y, **more),
    "ids ": lambda h=H, w=W, y=Y, m=M, r=ONE, **more: streamed_dpo_loss(h, w, y, m, r, **more),
    "completion_ids": lambda h=H, w=W, y=Y, m=M, a=ONE, **more: streamed_grpo_loss(h, w, y, m, a, **more),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_tensors_that_are_none(loss):
    call, ids = LOSSES[loss], loss.strip()
    for given, kind, says in (
        ({"h": None}, TypeError, "hidden: expected a tensor, got NoneType"),
        ({"h": H.tolist()}, TypeError, "hidden: expected a tensor, got list"),
        ({"w": W.long()}, ValueError, "weight: expected floats, got torch.int64"),
        ({"w": W.to("meta")}, ValueError, "weight: expected it on cpu, where hidden is, got meta"),
        ({"y": Y.tolist()}, TypeError, f"{ids}: expected a tensor, got list"),
        ({"y": Y.to("meta")}, ValueError, f"{ids}: expected it on cpu"),
        ({"y": Y.float()}, ValueError, f"{ids}: expected integers"),
        ({"bias": [0.0] * 11}, TypeError, "bias: expected a tensor, got list"),
        ({"logit_scale": NAN}, ValueError, "logit_scale: expected a finite number, got nan"),
        ({"logit_scale": "a"}, ValueError, "logit_scale: expected a finite number, got 'a'"),
        ({"softcap": "a"}, ValueError, "softcap: expected a positive number"),
    ):
        with pytest.raises(kind, match=f"^{says}"):
            call(**given)


@pytest.mark.parametrize(
    ("loss", "given", "says"),
    [
        ("labels", {"label_smoothing": "a"}, "label_smoothing: expected a number"),
        ("labels", {"z_loss": -1}, "z_loss: expected a number of at least 0, got -1"),
        ("labels", {"z_loss": NAN}, "z_loss: expected a number of at least 0, got nan"),
        ("labels", {"ignore_index": 1.5}, "ignore_index: expected a whole number, got 1.5"),
        ("labels", {"ignore_index": "a"}, "ignore_index: expected a whole number"),
        ("labels", {"num_items_in_batch": "3"}, "num_items_in_batch: expected a positive number of tokens, got '3'"),
        ("labels", {"num_items_in_batch": torch.ones(2)}, r"num_items_in_batch: expected a positive .*got \(2,\)"),
        ("ids", {"mask": [1]}, "mask: expected a tensor, got list"),
        ("ids ", {"m": None}, "mask: expected a tensor, got NoneType"),
        ("ids ", {"r": None}, "ref_logps: expected a tensor, got NoneType"),
        ("ids ", {"beta": "a"}, "beta: expected a positive number, got 'a'"),
        ("ids ", {"h": H[:0], "y": Y[:0], "m": M[:0], "r": ONE[:0]}, r"ids: expected \[2 \* pairs"),
        ("completion_ids", {"m": None}, "mask: expected a tensor, got NoneType"),
        ("completion_ids", {"a": [1, 2]}, "advantages: expected a tensor, got list"),
        ("completion_ids", {"old_logps": M.to("meta")}, "old_logps: expected it on cpu"),
        ("completion_ids", {"eps_high": "a"}, "eps_high: expected a number"),
        ("completion_ids", {"max_completion_length": 1.5}, "max_completion_length: expected a whole number"),
    ],
)
def test_arguments_of_a_loss(loss, given, says):
    with pytest.raises((ValueError, TypeError), match=f"^{says}"):
        LOSSES[loss](**given)


def test_settings_that_are_none():
    for name in ("chunk_forward", "offload", "preserve_rng_state"):
        with pytest.raises(ValueError, match=f"^{name}: expected True or False, got 'no'"):
            StreamBPConfig(**{name: "no"})
    with pytest.raises(ValueError, match="offload: expected True or False, got 'false'"):
        StreamBPConfig.from_json('{"schema": "thrifty.streambp", "version": 1, "offload": "false"}')


def test_a_model_in_the_place_of_its_settings():
    config = LlamaConfig(
        vocab_size=30, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    model = LlamaForCausalLM(config)
    with pytest.raises(TypeError, match="^config: expected StreamBPConfig, got dict"):
        enable_streambp(model, {})
    for given in (None, model):
        with pytest.raises(TypeError, match="^config: expected a configuration of transformers, got"):
            estimate_peak_memory(given, 1, 16)
    with pytest.raises(TypeError, match="^settings: expected StreamBPConfig, got dict"):
        estimate_peak_memory(config, 1, 16, settings={})
    with pytest.raises(ValueError, match="^trained: expected a share"):
        estimate_peak_memory(config, 1, 16, trained=NAN)
