"""What ``thrifty bench influence`` measures: losses after fine-tuning, propagation, backward passes, time, FLOPs.

Data: sentences of four domains (tweets are the task). Models: a byte-level Llama pre-trained here, the pretrained
sentence encoder MiniLM, and SmolLM2-135M. The second and third workload were chosen, with their
targets, before the first run.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Mode, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.data.influence.evidence import byte_run, flops, larger_runs, speed
from thrifty.data.influence.evidence.comparison import EXACT, LESS, OURS, RANDOM, RDS

LOSS = Gate("test loss", margin=0.0, by="interval", than=RDS)

#: For two ways to compute the same numbers, in float32.
SAME = Gate("largest difference of the results over their largest number", margin=1e-4)


def _loss(id_: str, text: str, contenders: tuple[str, ...], target: Target | None, budget: Mode = "full") -> Claim:
    return Claim(id_, text, "quality", "nats", contenders, target, budget=budget)


CLAIMS = (
    Claim(
        id="flop-model",
        text="Published costs and speed-ups that the paper's own formula, as printed, does not give.",
        about="exactness",
        unit="figures",
        contenders=(OURS, "the paper"),
        target=Target("==", 0.0),
        published="872, 2800 and 8400 TFLOP a token; 2.9 to 3.5 times less than RDS+",
    ),
    Claim(
        id="flops-honest",
        text="FLOPs of RDS+ over ours at the paper's setting, with a product counted as 1 + 2V forward passes.",
        about="FLOPs",
        unit="ratio",
        contenders=(OURS, RDS),
        published="3.2, counting a product as one forward pass",
    ),
    Claim(
        id="backward-passes",
        text="At most 12 % of the backward passes of exact gradients (byte model).",
        about="backward passes",
        unit="ratio",
        contenders=(OURS, EXACT),
        target=Target("<=", 0.12),
        gate=LOSS,
    ),
    _loss(
        "below-random",
        "Test loss less that of random selection (byte model).",
        (OURS, RANDOM),
        Target("<", 0.0),
        "quick",
    ),
    _loss(
        "loss-order",
        "Upper end of the 95 % interval of our loss less random's: below 0 (byte model).",
        (OURS, RANDOM),
        Target("<", 0.0),
    ),
    _loss(
        "loss-order-exact",
        "Loss of exact selection less ours, mean over seeds (byte model).",
        (EXACT, OURS),
        Target("<=", 0.0),
    ),
    _loss(
        "vs-rds",
        "Lower end of the 95 % interval of our loss less RDS+'s: not above 0 (byte model).",
        (OURS, RDS),
        Target("<=", 0.0),
    ),
    Claim(
        id="vs-less",
        text="Lower end of the 95 % interval of our loss less that of LESS, one checkpoint: not above 0 (byte model).",
        about="quality",
        unit="nats",
        contenders=(OURS, LESS),
        target=Target("<=", 0.0),
        published="the quality of LESS",
        budget="full",
    ),
    Claim(
        id="propagation-quality",
        text="Correlation of propagated with exact scores, off the landmarks, mean over targets (byte model).",
        about="quality",
        unit="correlation",
        contenders=(OURS, EXACT),
        target=Target(">=", 0.3),
        budget="full",
    ),
    Claim(
        id="propagation-vs-rds",
        text="That of the same regression on RDS+ features, less ours.",
        about="quality",
        unit="correlation",
        contenders=(OURS, RDS),
        target=Target("<", 0.0),
        published="JVP embeddings recover gradients better than RDS+ features",
        budget="full",
    ),
    Claim(
        id="propagation-rises",
        text="Least gain of correlation from 64 to 128 and from 128 to 256 landmarks, mean over seeds.",
        about="quality",
        unit="correlation",
        contenders=(OURS,),
        target=Target(">=", 0.0),
        budget="full",
    ),
    _loss(
        "weights-effect",
        "Our loss with the selection's weights, less that without (byte model).",
        (OURS,),
        None,
    ),
    _loss(
        "encoder-order", "Test loss less random's: sentiment by a pretrained encoder.", (OURS, RANDOM), Target("<", 0.0)
    ),
    _loss(
        "encoder-vs-rds",
        "Lower end of the 95 % interval of our loss less RDS+'s (encoder).",
        (OURS, RDS),
        Target("<=", 0.0),
    ),
    _loss("smollm2-order", "Test loss less random's: SmolLM2-135M on tweets.", (OURS, RANDOM), Target("<", 0.0)),
    _loss("smollm2-vs-rds", "Our loss less RDS+'s: SmolLM2-135M on tweets.", (OURS, RDS), None),
    _loss("smollm2-exact-vs-rds", "Exact selection's loss less RDS+'s: SmolLM2-135M on tweets.", (EXACT, RDS), None),
    *(
        Claim(
            id=f"selection-time-{layers}",
            text=f"Selecting takes at most {limit:.2f} of a loop of single gradients' time ({layers} blocks).",
            about="time",
            unit="ratio",
            contenders=(speed.OURS, speed.LOOP),
            target=Target("<=", limit),
            gate=LOSS,
            budget="full",
        )
        for layers, limit in ((6, 0.55), (24, 0.40))
    ),
    Claim(
        id="vs-rds-time",
        text="Our selection's time over RDS+'s (24 blocks).",
        about="time",
        unit="ratio",
        contenders=(speed.OURS, speed.RDS),
        published="2.9 to 3.5 times fewer FLOPs, by the paper's count",
        budget="full",
    ),
    *(
        Claim(id_, text, "time", "ratio", contenders, Target("<=", limit), SAME, budget="full")
        for id_, text, contenders, limit in (
            (
                "exact-path-time",
                "All gradients exactly: at most half the time of the loop (6 blocks).",
                (speed.EXACT, speed.LOOP),
                0.5,
            ),
            (
                "embedding-batched",
                "Embedding in batches: at most a quarter of one by one.",
                ("batches of 32", "one by one"),
                0.25,
            ),
            (
                "regression-shared",
                "One factor for 100 targets: at most 1/30 of one a target.",
                ("one factor", "one a target"),
                1 / 30,
            ),
        )
    ),
)


def run(ctx: Context) -> Evidence:
    """Measure: the formula, the byte model's seeds, then (full) times, the encoder and SmolLM2."""
    evidence = ctx.evidence("tweets as the task, a pool of tweets, reviews and editorials; selecting a tenth of it")
    flops.show(evidence)
    with threads(1):  # operations are small: more threads only wait for each other
        gate = byte_run.show(ctx, evidence)
    if ctx.full:
        speed.show(ctx, evidence, gate)
        larger_runs.show_encoder(ctx, evidence)
        larger_runs.show_smollm2(ctx, evidence)
    return evidence
