"""What `thrifty bench sumo` measures: SUMO beside what a user could pick instead, at its own tuned rate each.

The byte model is the workload that was tuned for; the digits are a second one, chosen with its target before anything
ran on it.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.sumo.evidence import finetune, footprint, mechanism, speed, training

GALORE_GATE = Gate("byte model, held-out loss", margin=0.02)

CLAIMS = (
    Claim(
        id="state-bytes",
        text="A square weight keeps two thirds of the state that GaLore keeps at the same rank.",
        about="bytes",
        unit="ratio",
        contenders=("SUMO", "GaLore"),
        target=Target("<=", 2 / 3),
        gate=GALORE_GATE,
        published="LLaMA-1B: weights and states 3.84 GB, GaLore 4.38 GB",
    ),
    Claim(
        id="total-bytes",
        text="Weights, gradients and state together, over AdamW's, for LLaMA shapes from 60M to 7B.",
        about="bytes",
        unit="ratio",
        contenders=("SUMO", "AdamW"),
    ),
    Claim(
        id="step-time-vs-muon",
        text="A step between refreshes takes at most 0.35 of torch.optim.Muon's.",
        about="time",
        unit="ratio",
        contenders=("SUMO", "Muon"),
        target=Target("<=", 0.35),
        gate=Gate("byte model, held-out loss", margin=0.05),
    ),
    Claim(
        id="step-time-vs-galore",
        text="A step between refreshes takes no longer than galore-torch's.",
        about="time",
        unit="ratio",
        contenders=("SUMO", "GaLore"),
        target=Target("<=", 1.0),
        gate=GALORE_GATE,
    ),
    Claim(
        id="spread-step-time-vs-galore",
        text="With the refreshes spread over the interval, a step takes at most half of galore-torch's.",
        about="time",
        unit="ratio",
        contenders=("SUMO", "GaLore"),
        target=Target("<=", 0.5),
        gate=GALORE_GATE,
    ),
    Claim(
        id="refresh-time-vs-galore",
        text="A refresh of the subspace takes at most a tenth of galore-torch's.",
        about="time",
        unit="ratio",
        contenders=("SUMO", "GaLore"),
        target=Target("<=", 0.1),
        gate=GALORE_GATE,
    ),
    Claim(
        id="loss-vs-galore",
        text="SUMO reaches GaLore's final loss in at most 0.8 of its steps (byte model).",
        about="steps",
        unit="ratio",
        contenders=("SUMO", "GaLore"),
        target=Target("<=", 0.8),
        gate=GALORE_GATE,
        published="QNLI: 1.6 times fewer steps than GaLore to equal accuracy",
    ),
    Claim(
        id="loss-vs-galore-digits",
        text="SUMO reaches GaLore's final loss in at most 0.8 of its steps (digits).",
        about="steps",
        unit="ratio",
        contenders=("SUMO", "GaLore"),
        target=Target("<=", 0.8),
        gate=Gate("digits, held-out loss", margin=0.02),
    ),
    Claim(
        id="svd-vs-newton-schulz",
        text="Up to condition number 1e4 the exact factor's worst error is below 1 % of Newton-Schulz's best.",
        about="exactness",
        unit="ratio",
        contenders=("SUMO", "SUMO, Newton-Schulz"),
        target=Target("<=", 0.01),
    ),
    Claim(
        id="svd-loss-vs-newton-schulz",
        text="The loss with the exact factor, less that with Newton-Schulz (byte model).",
        about="quality",
        unit="nats",
        contenders=("SUMO", "SUMO, Newton-Schulz"),
        target=Target("<", 0.0),
        published="GLUE, RoBERTa-base, rank 4: 1.6 points better on average",
        budget="full",
    ),
    Claim(
        id="transport-effect",
        text="The loss with the moment carried into the new basis, less that without (byte model).",
        about="quality",
        unit="nats",
        contenders=("SUMO", "SUMO, no transport"),
        budget="full",
    ),
    Claim(
        id="full-rank-rivals",
        text="SUMO's loss, less that of the better of AdamW and Muon, which keep full-size state (byte model).",
        about="quality",
        unit="nats",
        contenders=("SUMO", "AdamW", "Muon"),
    ),
    Claim(
        id="lr-robustness",
        text="Share of the grid of learning rates that ends within 5 % of the best loss.",
        about="quality",
        unit="%",
        contenders=("SUMO", "GaLore", "Muon", "AdamW"),
        budget="full",
    ),
    Claim(
        id="finetuning-smollm2",
        text="SUMO's loss after fine-tuning SmolLM2-135M on Python source, less GaLore's.",
        about="quality",
        unit="nats",
        contenders=("SUMO", "GaLore", "AdamW"),
        budget="full",
    ),
)


def run(ctx: Context) -> Evidence:
    """Measure: what the gates need first, then bytes and times, then the rest."""
    evidence = ctx.evidence("a byte-level transformer on the standard library's source; digits; square weights")
    mechanism.show(ctx, evidence)
    runs = training.show_language(ctx, evidence)
    gates = training.gates(runs)
    footprint.show(ctx, evidence, gates.get("GaLore"))
    if {"GaLore", "Muon"} <= set(gates):
        speed.show(ctx, evidence, gates)
    training.show_digits(ctx, evidence)
    if ctx.full:
        training.show_rates(ctx, evidence)
        with evidence.needs("finetuning-smollm2"):
            finetune.show(ctx, evidence)
    return evidence
