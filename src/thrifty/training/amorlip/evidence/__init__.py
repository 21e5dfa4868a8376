"""What `thrifty bench amorlip` measures: exactness, how near denominators come to the truth, quality, and cost.

Pairs: emoji as two styles draw them, and their English names. Towers: four convolutions and a mean of word embeddings,
from scratch. ClipLoss and SigLipLoss are open_clip's; SogCLR, FastCLIP and NeuCLIP are in ``rivals.py``. The claims'
workload is the batch of 32; the batch of 8 is the second one, with the same thresholds, fixed before anything ran on
either.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.amorlip.evidence import cost, exactness, frozen, mechanism
from thrifty.training.amorlip.evidence.contenders import CLIP, OURS, RIVALS

#: R@1 on held-out emoji, not below ClipLoss beyond the spread over seeds.
RETRIEVAL = Gate("retrieval, R@1", margin=0.0, better="higher", by="sd")
_NOT_BELOW = Target(">=", -1.0)

CLAIMS = (
    Claim(
        id="gradients-exact",
        text="Gradients in float64 are those of the closed form, and twice ClipLoss's, up to a scale of 100.",
        about="exactness",
        unit="relative",
        contenders=(OURS, CLIP),
        target=Target("<=", 1e-10),
    ),
    Claim(
        id="frozen-embeddings",
        text="On frozen embeddings the network's squared error of log Z is at least 5 times below the batch's.",
        about="mechanism",
        unit="ratio",
        contenders=(OURS,),
        target=Target(">=", 5.0),
    ),
    Claim(
        id="log-partition-error-b32",
        text="While towers train at batch 32, the squared error of log λ is at most 0.6 of the batch estimator's.",
        about="mechanism",
        unit="ratio",
        contenders=(OURS,),
        target=Target("<=", 0.6),
        budget="full",
    ),
    Claim(
        id="log-partition-error-b8",
        text="... and at batch 8.",
        about="mechanism",
        unit="ratio",
        contenders=(OURS,),
        target=Target("<=", 0.6),
        budget="full",
    ),
    Claim(
        id="retrieval",
        text="Held-out retrieval (R@1, both directions and styles) is not below ClipLoss's by more than one sd.",
        about="quality",
        unit="sd",
        contenders=(OURS, *RIVALS),
        target=_NOT_BELOW,
        published="Flickr and COCO, R@1, CC12M: 30.09, CLIP 26.10; an independent group: not above CLIP on large sets",
        budget="full",
    ),
    Claim(
        id="retrieval-b8",
        text="... and at batch 8.",
        about="quality",
        unit="sd",
        contenders=(OURS, *RIVALS),
        target=_NOT_BELOW,
        budget="full",
    ),
    Claim(
        id="zero-shot",
        text="Zero-shot accuracy over 99 sub-categories is not below ClipLoss's by more than one sd.",
        about="quality",
        unit="sd",
        contenders=(OURS, *RIVALS),
        target=_NOT_BELOW,
        published="ImageNet, CC12M: 29.93, CLIP 25.26",
        budget="full",
    ),
    Claim(
        id="zero-shot-b8",
        text="... and at batch 8.",
        about="quality",
        unit="sd",
        contenders=(OURS, *RIVALS),
        target=_NOT_BELOW,
        budget="full",
    ),
    Claim(
        id="batch-equivalent",
        text="The smallest batch with which it matches ClipLoss at four times the batch, for equal samples.",
        about="quality",
        unit="pairs",
        contenders=(OURS, CLIP),
        budget="full",
    ),
    Claim(
        id="stability-ablation",
        text="The largest sum of weights with the network alone as denominator, over that with the mixture.",
        about="mechanism",
        unit="ratio",
        contenders=(OURS,),
        budget="full",
    ),
    Claim(
        id="memory",
        text="Loss and backward pass at 4096 pairs in blocks need at most 0.35 of ClipLoss's peak.",
        about="memory",
        unit="ratio",
        contenders=(OURS, CLIP),
        target=Target("<=", 0.35),
        gate=Gate("gradient error, float32", margin=1e-4),
        published="0.26 to 0.60 % above CLIP's (whole step)",
    ),
    Claim(
        id="time",
        text="Loss and backward pass at 4096 pairs take at most 1.15 of ClipLoss's time, stage I every 8 steps.",
        about="time",
        unit="ratio",
        contenders=(OURS, CLIP),
        target=Target("<=", 1.15),
        gate=RETRIEVAL,
        published="2.16 % above CLIP's (whole step)",
        budget="full",
    ),
    Claim(
        id="time-small-batch",
        text="... and at 256 pairs at most 1.5.",
        about="time",
        unit="ratio",
        contenders=(OURS, CLIP),
        target=Target("<=", 1.5),
        gate=RETRIEVAL,
        budget="full",
    ),
    Claim(
        id="stage-one-share",
        text="Share of a training step of ViT-S/32 that fits the networks, every 8 steps.",
        about="time",
        unit="%",
        contenders=(OURS,),
        published="4.47, 2.16 and 0.23 % above CLIP's step, every 1, 8 and 32 steps",
    ),
)


def prepare() -> None:
    """Draw the emoji, once an installation."""
    from thrifty.bench.carried import UnavailableError
    from thrifty.bench.data import emoji

    try:
        emoji.load()
    except (UnavailableError, ImportError):
        return  # the run itself says what is missing


def run(ctx: Context) -> Evidence:
    """Measure: exactness and cost first, then what needs pictures."""
    evidence = ctx.evidence("emoji in two styles and their names; random features for cost; clusters for the mechanism")
    with evidence.needs("gradients-exact", "memory"):
        exactness.show(ctx, evidence)
        ctx.progress(1, 5, "memory")
        cost.memory(ctx, evidence)
    ctx.progress(2, 5, "frozen embeddings")
    frozen.show(ctx, evidence)
    ctx.progress(3, 5, "share of stage I")
    with evidence.needs("stage-one-share"):
        cost.stage_one(ctx, evidence)
    gate = None
    with evidence.needs(*(claim.id for claim in CLAIMS if claim.budget == "full")):
        gate = mechanism.show(ctx, evidence)
    if ctx.full and gate is not None:
        ctx.progress(4, 5, "time")
        cost.time(ctx, evidence, gate)
    return evidence
