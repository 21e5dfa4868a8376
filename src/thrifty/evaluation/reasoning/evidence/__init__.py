"""What `thrifty bench reasoning` measures: the generator, the metric, the aligner, and models trained and carried.

E1: problems through the gate, and how fast. E2: reasoners of known behaviour. E3: what wording may not change, and what
overlap with the question does. E4: labels that are known. E5: a small model trained here on shortest or on exhaustive
proofs, and SmolLM2. E6, Inspect and an endpoint end to end, is a test and no claim.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.evaluation.reasoning.evidence import alignment, generation, models, reasoners

CLAIMS = (
    Claim(
        id="gate",
        text="Read back from its text, every problem is consistent and its shortest proof the one it was made with.",
        about="exactness",
        unit="faults",
        contenders=("ours",),
        target=Target("==", 0),
        published="the published generator: 24 of 120 connected problems with agent overlap are faulty",
    ),
    Claim(
        id="generator-speed",
        text="A bundle of 28 variants takes at most a tenth of the time of the published sampling with rejection.",
        about="time",
        unit="ratio",
        contenders=("ours", "gradient ascent with rejection"),
        target=Target("<=", 0.1),
        gate=Gate("faults", margin=0.0),
        published="5.3 s a problem, 62 % rejected",
    ),
    Claim(
        id="sampling-speed",
        text="The quantities of a bundle alone take at most a tenth of the time of the published sampling.",
        about="time",
        unit="ratio",
        contenders=("ours", "gradient ascent with rejection"),
        target=Target("<=", 0.1),
        gate=Gate("faults", margin=0.0),
    ),
    Claim(
        id="ceiling-floor",
        text="An exhaustive reasoner's efficiency is 1.00 / 0.74 / 0.51 by amount, disconnected: largest deviation.",
        about="accounting",
        unit="efficiency",
        contenders=("exhaustive", "optimal"),
        target=Target("<=", 0.05),
        published="1.00 / 0.74 / 0.51 on 40 replayed problems",
    ),
    Claim(
        id="optimal-is-one",
        text="The shortest proof, written out, scores exactly 1: largest deviation over every condition.",
        about="exactness",
        unit="efficiency",
        contenders=("optimal",),
        target=Target("==", 0),
    ),
    Claim(
        id="invariant-to-verbosity",
        text="Paraphrase, repetition and filler leave efficiency exactly as it is: proofs in which it changes.",
        about="exactness",
        unit="proofs",
        contenders=("efficiency", "token ratio"),
        target=Target("==", 0),
    ),
    Claim(
        id="tracks-waste",
        text="Rank correlation of efficiency with the share of steps truly wasted, over noisy proofs.",
        about="quality",
        unit="correlation",
        contenders=("efficiency", "token ratio"),
        target=Target(">=", 0.99),
    ),
    Claim(
        id="aligner-f1",
        text="Steps with known labels, names that contain one another, small numbers: F1 of the worst label.",
        about="quality",
        unit="F1",
        contenders=("grammar", "official"),
        target=Target(">=", 0.98),
    ),
    Claim(
        id="semantic-heuristic-signature",
        text="A reasoner led by shared words wastes most where distractors share most: smallest loss, step by step.",
        about="mechanism",
        unit="efficiency",
        contenders=("best first",),
        target=Target(">=", 0.0),
        published="precision 0.60 / 0.44 / 0.48 / 0.34 for none, things, agents, both",
    ),
    Claim(
        id="trained-lm",
        text="Trained on shortest proofs, not on exhaustive ones, a model is more efficient: precision gained.",
        about="quality",
        unit="precision",
        contenders=("trained on shortest", "trained on exhaustive"),
        target=Target(">=", 0.01),
        gate=Gate("wrong answers", margin=0.05, by="mean"),
        budget="full",
    ),
    Claim(
        id="lm-decline",
        text="SmolLM2-135M-Instruct: by how much accuracy falls from base problems to the easiest with distractors.",
        about="quality",
        unit="share",
        contenders=("SmolLM2",),
        budget="full",
    ),
)


def run(ctx: Context) -> Evidence:
    """Measure: the generator, simulated reasoners, the aligner; in full, models."""
    evidence = ctx.evidence("word problems with distractors, made here; every condition of the paper")
    made = generation.show(ctx, evidence)
    ctx.progress(1, 4, "reasoners of known behaviour")
    reasoners.show(ctx, evidence, made[:60])
    ctx.progress(2, 4, "labels that are known")
    alignment.show(ctx, evidence)
    if ctx.full:
        ctx.progress(3, 4, "models")
        models.show_trained(ctx, evidence)
        models.show_carried(ctx, evidence)
    return evidence
