"""Experiment 5: real text. A byte-level mixture and a small dense draft, trained on Python's standard library."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import stdlib_text
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.inference.speculation.activation import expected_active_experts
from thrifty.inference.speculation.decode import SpeculativeDecoder
from thrifty.inference.speculation.experts import counted_experts
from thrifty.inference.speculation.measure import measure_generation, steady_rate

LENGTH, BATCH, RATE, STEPS = 128, 24, 3e-3, 450
EXPERTS, TOP_K = 16, 2


def show(ctx: Context, evidence: Evidence) -> None:
    """Train both, then measure acceptance, how a request's tokens share experts, and the speed-up."""
    text = stdlib_text.load(ctx.data)
    budget = min(150.0, ctx.remaining() / 3)
    target = _train(_target(ctx.seed), text.train, ctx.seed, budget * 0.75)
    draft = _train(_draft(ctx.seed), text.train, ctx.seed + 1, budget * 0.25)
    starts = np.random.default_rng(ctx.seed).integers(0, len(text.test) - 64, 16)
    ids = torch.as_tensor(np.stack([text.test[s : s + 64] for s in starts]).astype(np.int64))
    for gamma in (2, 4):
        for kind, settings in (("greedy", {"do_sample": False}), ("sampling", {"do_sample": True, "top_k": 0})):
            generator = torch.Generator().manual_seed(ctx.seed)
            decoder = SpeculativeDecoder(target, draft, gamma)
            out = decoder.generate(ids, max_new_tokens=64, generator=generator, **settings)
            acceptance = out.stats.acceptance()
            metrics = {
                "sigma": Measurement.of(float(acceptance.sigma(gamma)), "share"),
                "alpha": Measurement.of(acceptance.alpha, "share"),
            }
            evidence.row("ours", metrics, workload=f"bytes of source, {kind}, {gamma} drafts")
            if (kind, gamma) == ("greedy", 4):
                sigma = Measurement.of(float(acceptance.sigma(gamma)), "share")
    with threads(1):
        runs = measure_generation(target, draft, ids, [0, 4], new_tokens=48, repeats=2)
    speedup = Measurement.of(steady_rate(runs[4], 16) / steady_rate(runs[0], 16), "ratio", timed=True)
    evidence.row("ours", {"speed-up": speedup}, workload="bytes of source, batch 16, 4 drafts")
    _overlap(evidence, target, ids)
    evidence.measured("real-text", sigma, reason="a draft of 0.15 million parameters for a mixture of 5.7 million")


def _overlap(evidence: Evidence, target: Any, ids: torch.Tensor) -> None:
    """Measure U(s), the experts that s consecutive tokens of one request wake, beside independent tokens."""
    found, metrics = {}, {}
    with torch.inference_mode():
        for width in (1, 2, 4, 8):
            counts = []
            for row in ids:
                with counted_experts(target) as layers:
                    target(input_ids=row[None, -width:])
                counts.append(layers.mean())
            found[width] = float(np.mean(counts))
            independent = float(expected_active_experts(width, EXPERTS, TOP_K))
            metrics[f"{width} tokens"] = Measurement.of(found[width] / independent, "of independent")
        with counted_experts(target) as layers:
            target(input_ids=ids)
    metrics["busiest expert"] = Measurement.of(layers.imbalance(), "times the mean")
    evidence.row("experts awake", metrics, workload="consecutive tokens of one request")


def _target(seed: int) -> Any:
    config = Qwen3MoeConfig(  # type: ignore[call-arg]
        hidden_size=192, moe_intermediate_size=192, intermediate_size=384, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, head_dim=32, vocab_size=256, num_experts=EXPERTS, num_experts_per_tok=TOP_K,
        output_router_logits=True, router_aux_loss_coef=0.01, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    return _built(config, seed)


def _draft(seed: int) -> Any:
    config = Qwen3Config(
        hidden_size=96, intermediate_size=192, num_hidden_layers=1, num_attention_heads=3, num_key_value_heads=1,
        head_dim=32, vocab_size=256, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    return _built(config, seed)


def _built(config: Any, seed: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters():
            if name.endswith("gate.weight"):
                torch.nn.init.normal_(parameter, std=0.02)
    model.generation_config.pad_token_id = 0
    return model


def _train(model: Any, data: stdlib_text.Bytes, seed: int, seconds: float) -> Any:
    """Train by AdamW on windows of text, for a number of steps or as long as the time lasts."""
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    end = time.monotonic() + seconds
    for _ in range(STEPS):
        batch = torch.as_tensor(stdlib_text.windows(data, LENGTH, BATCH, rng)[:, :-1])
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if time.monotonic() > end:
            break
    model.config.output_router_logits = False
    return model.eval()
