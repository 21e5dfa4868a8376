"""What `thrifty bench leff` measures: counts, bytes and time of a client, what stand-ins are worth, and accuracy.

Workload: 4000 rated sentences of four domains among eight clients that can train 1, 1, 1, 1, 2, 2, 3 and 6 of MiniLM's
six layers; Dirichlet over domain and label. Second workload: SmolLM2 on four domains. Thresholds were fixed before
anything ran on either.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.leff.evidence import accuracy, counts, footprint, mechanism, speed
from thrifty.training.leff.evidence.contenders import FEDAVG, FEDLORA, HEAD, OURS

#: Accuracy at alpha 1, within two points of FedAvg's in the mean over seeds.
ACCURACY = Gate("accuracy at alpha 1", margin=2.0, better="higher", by="mean", than=FEDAVG)

CLAIMS = (
    Claim(
        id="published-parameter-counts",
        text="Trained parameters of GPT-2 (two sizes), DeBERTaV3 (two) and Llama 3.1 8B are the published ones.",
        about="exactness",
        unit="parameters",
        contenders=(OURS,),
        target=Target("==", 0),
        published="7 681 538 of DeBERTaV3 base, 743 452 672 of Llama 3.1 8B",
    ),
    Claim(
        id="distilled-context",
        text="The error of a block's gradient under a distilled context is at most 0.7 of that under dropped layers.",
        about="mechanism",
        unit="ratio",
        contenders=(OURS, mechanism.DROPPED),
        target=Target("<=", 0.7),
    ),
    Claim(
        id="sampler-entropy",
        text="Entropy of the blocks' probabilities by the rescaled softmax, over that of uniform ones.",
        about="mechanism",
        unit="of uniform",
        contenders=(OURS,),
    ),
    Claim(
        id="bytes-per-round",
        text="Bytes to and from a client with capacity 1 in a round, over FedAvg's (embeddings stay frozen in both).",
        about="bytes",
        unit="ratio",
        contenders=(OURS, FEDAVG),
    ),
    Claim(
        id="straggler",
        text="Simulated round of eight unequal clients over that of full training on all of them.",
        about="time",
        unit="ratio",
        contenders=(OURS, FEDAVG),
    ),
    Claim(
        id="aggregation-time",
        text="Averaging 16 replies takes at most 1.2 of the time of Flower's FedAvg.",
        about="time",
        unit="ratio",
        contenders=(OURS, "Flower's FedAvg"),
        target=Target("<=", 1.2),
        gate=Gate("difference of the means", margin=1e-5),
    ),
    Claim(
        id="client-memory",
        text="Weights, gradients and moments of a one-layer block take at most 0.25 of FedAvg's blocks.",
        about="memory",
        unit="ratio",
        contenders=(OURS, FEDAVG),
        target=Target("<=", 0.25),
        gate=ACCURACY,
        published="2.136 GB of DeBERTaV3 base where FedAvg has 3.841 (whole step)",
        budget="full",
    ),
    Claim(
        id="step-time-full",
        text="A step with a one-layer block takes at most 0.6 of one of full fine-tuning.",
        about="time",
        unit="ratio",
        contenders=(OURS, FEDAVG),
        target=Target("<=", 0.6),
        gate=ACCURACY,
        budget="full",
    ),
    Claim(
        id="step-time-lora",
        text="... and at most 0.85 of one of LoRA on all linear layers.",
        about="time",
        unit="ratio",
        contenders=(OURS, FEDLORA),
        target=Target("<=", 0.85),
        gate=ACCURACY,
        budget="full",
    ),
    Claim(
        id="distillation-time",
        text="Distilling a round's stand-ins takes the server at most twice a one-layer client's pass over its data.",
        about="time",
        unit="ratio",
        contenders=(OURS,),
        target=Target("<=", 2.0),
        gate=ACCURACY,
        budget="full",
    ),
    Claim(
        id="accuracy",
        text="At alpha 1 accuracy is at most 2 points below FedAvg's.",
        about="quality",
        unit="points",
        contenders=(OURS, FEDAVG),
        target=Target(">=", -2.0),
        published="GLUE, alpha 0.05: 63.84, FedAvg 65.88",
        budget="full",
    ),
    Claim(
        id="accuracy-over-head",
        text="... and at least 3 points above training the head alone.",
        about="quality",
        unit="points",
        contenders=(OURS, HEAD),
        target=Target(">=", 3.0),
        budget="full",
    ),
    Claim(
        id="accuracy-skewed",
        text="At alpha 0.05 accuracy is at most 2 points below FedAvg's.",
        about="quality",
        unit="points",
        contenders=(OURS, FEDAVG),
        target=Target(">=", -2.0),
        published="GLUE, alpha 0.05: 63.84, FedAvg 65.88",
        budget="full",
    ),
    Claim(
        id="accuracy-skewed-over-head",
        text="... and at least 3 points above training the head alone.",
        about="quality",
        unit="points",
        contenders=(OURS, HEAD),
        target=Target(">=", 3.0),
        budget="full",
    ),
    Claim(
        id="accuracy-skewed-fedlora",
        text="... by how much it is above FedLoRA's.",
        about="quality",
        unit="points",
        contenders=(OURS, FEDLORA),
        published="GLUE, alpha 0.05: 63.84, FedLoRA 54.57",
        budget="full",
    ),
    Claim(
        id="language-model",
        text="SmolLM2 on four domains: the loss is at most 0.05 nats a token above FedAvg's.",
        about="quality",
        unit="nats",
        contenders=(OURS, FEDAVG),
        target=Target("<=", 0.05),
        published="GPT-2 medium, E2E: BLEU .5799, FedAvg .5878",
        budget="full",
    ),
)


def run(ctx: Context) -> Evidence:
    """Measure: what is counted first, then time, then accuracy, the arms that may go last."""
    evidence = ctx.evidence("VADER sentences among eight clients, MiniLM; SmolLM2 on four domains")
    counts.show(evidence)
    with evidence.needs(*(claim.id for claim in CLAIMS)):
        ctx.progress(1, 6, "a client's bytes")
        beside = (FEDLORA,) if ctx.full else ()  # PEFT takes seconds to import
        blocks = footprint.show(evidence, ctx.data, (OURS, FEDAVG, *beside))
        mechanism.samplers(ctx, evidence)
        ctx.progress(2, 6, "contexts")
        mechanism.contexts(ctx, evidence)
        ctx.progress(3, 6, "time")
        speed.aggregation(ctx, evidence)
        if ctx.full:
            ratios = speed.steps(ctx, evidence)
            distilling = speed.distillation(ctx, evidence, ratios["seconds"])
            gated = {
                "client-memory": blocks,
                "step-time-full": ratios["full"],
                "step-time-lora": ratios["lora"],
                "distillation-time": distilling,
            }
            ctx.progress(4, 6, "accuracy")
            accuracy.show(ctx, evidence, gated)
    return evidence
