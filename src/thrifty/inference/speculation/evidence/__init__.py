"""What `thrifty bench speculation` measures, on a real mixture of experts whose weights are far larger than the caches.

1: target efficiency over the batch. 2: what a fit to few rows predicts, of passes and of whole generations. 3: a
schedule, run live. 4: whole generations: lossless, beside a dense model, beside the equation and beside transformers'
assisted generation. 5: real text. Weights are random and costs are real; bfloat16, and one thread where passes are
compared with each other.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.inference.speculation.evidence import efficiency, endtoend, fitting, generation, scheduling, text

SAME = Gate("greedy tokens that differ", margin=0.0)

CLAIMS = (
    Claim(
        id="lossless",
        text="Greedy speculation of a ragged batch gives the target's own tokens, in float32: tokens that differ.",
        about="exactness",
        unit="tokens",
        contenders=("ours", "generate"),
        target=Target("==", 0),
    ),
    Claim(
        id="rises-then-falls",
        text="K = 4, 8, 16 of 32: the efficiency of verification rises with the batch, to 1.2 times that at batch 1.",
        about="mechanism",
        unit="ratio",
        contenders=("K=4", "K=8", "K=16"),
        target=Target(">=", 1.2),
        published="rises, then falls (Figure 2)",
    ),
    Claim(
        id="then-falls",
        text="... and then falls, at batch 128 to at most 0.8 of its peak.",
        about="mechanism",
        unit="ratio",
        contenders=("K=4", "K=8", "K=16"),
        target=Target("<=", 0.8),
        published="rises, then falls (Figure 2)",
    ),
    Claim(
        id="dense-only-falls",
        text="With K = E, the dense model, it only falls: the largest step from one batch size to the next.",
        about="mechanism",
        unit="ratio",
        contenders=("dense",),
        target=Target("<=", 1.0),
        published="OPT-30B: falls only",
    ),
    Claim(
        id="active-experts",
        text="The experts that wake are those of equation 8: worst error over all passes, a pass being one draw.",
        about="exactness",
        unit="relative",
        contenders=("measured", "equation 8"),
    ),
    Claim(
        id="sparser-is-broader",
        text="The peak's batch doubles as K halves, from K = 16 to 2: doublings for each halving.",
        about="mechanism",
        unit="doublings",
        contenders=("K=2", "K=4", "K=8", "K=16"),
        target=Target(">=", 1.0),
        budget="full",
    ),
    Claim(
        id="fit-error",
        text="Fitted to 22 speed-ups, the error on the others is at most a third of a roofline's without experts.",
        about="quality",
        unit="ratio",
        contenders=("ours", "roofline without experts"),
        target=Target("<=", 1 / 3),
        published="21 of 228 rows suffice",
        budget="full",
    ),
    Claim(
        id="accounting",
        text="A round takes what equation 4 makes of separately timed parts: relative error of the wall clock.",
        about="time",
        unit="relative",
        contenders=("ours", "equation 4"),
        target=Target("<=", 0.05),
        gate=SAME,
    ),
    Claim(
        id="moe-beats-dense-at-medium-batch",
        text="At batch 16 and 32 the mixture's speed-up, end to end, is at least 1.25 times the dense model's.",
        about="time",
        unit="ratio",
        contenders=("K=4", "dense"),
        target=Target(">=", 1.25),
        gate=SAME,
        published="the mixture is ahead from batch 16 on",
        budget="full",
    ),
    Claim(
        id="prediction",
        text="A model fitted to single passes predicts speed-ups of whole generations: the largest error.",
        about="quality",
        unit="relative",
        contenders=("ours", "measured"),
        target=Target("<=", 0.10),
        budget="full",
    ),
    Claim(
        id="schedule",
        text="A schedule from 20 timed passes reaches, live, at least 0.97 of the best of every length and batch.",
        about="time",
        unit="of the best",
        contenders=("ours", "exhaustive grid"),
        target=Target(">=", 0.97),
        gate=SAME,
        budget="full",
    ),
    Claim(
        id="vs-assisted-generation",
        text="At batch 1 it takes no longer than transformers' assisted generation with as many drafts.",
        about="time",
        unit="ratio",
        contenders=("ours", "assisted generation"),
        target=Target("<=", 1.0),
        gate=SAME,
        budget="full",
    ),
    Claim(
        id="no-cost-when-off",
        text="Without drafts it takes at most 1.02 of what transformers' own loop takes.",
        about="time",
        unit="ratio",
        contenders=("ours, no drafts", "generate"),
        target=Target("<=", 1.02),
        gate=SAME,
        budget="full",
    ),
    Claim(
        id="vs-rolling-back-together",
        text="At batch 16 it is at least 1.3 times as fast as rolling all rows back to the one that accepted least.",
        about="time",
        unit="ratio",
        contenders=("ours", "all rows rolled back to the shortest"),
        target=Target(">=", 1.3),
        gate=Gate("share of rows that part in bfloat16", margin=0.0),
        budget="full",
    ),
    Claim(
        id="real-text",
        text="Bytes of Python source, greedy, 4 drafts: tokens of a round over the most that it could give.",
        about="quality",
        unit="share",
        contenders=("ours",),
        budget="full",
    ),
)


def run(ctx: Context) -> Evidence:
    """Measure: exactness, which gates the times, then passes, then whole generations."""
    evidence = ctx.evidence("a mixture of 32 experts in 4 layers, 209 MB in bfloat16, random weights")
    differing = endtoend.show_lossless(ctx, evidence)
    ctx.progress(1, 7, "target efficiency")
    efficiency.show(ctx, evidence)
    ctx.progress(2, 7, "accounting")
    endtoend.show_accounting(ctx, evidence, differing)
    if ctx.full:
        ctx.progress(3, 7, "whole generations")
        generations = endtoend.show_pairs(ctx, evidence, differing)
        ctx.progress(4, 7, "fits")
        fitting.show(ctx, evidence, generations)
        ctx.progress(5, 7, "rivals")
        generation.show(ctx, evidence)
        ctx.progress(6, 7, "schedules, live")
        scheduling.show(ctx, evidence, differing)
        ctx.progress(7, 7, "real text")
        text.show(ctx, evidence)
    return evidence
