"""What `thrifty bench streambp` measures: exactness, peak memory, reach in one budget, time, and training curves.

Text: the standard library's own source, as bytes (or hashed pairs where a large vocabulary is wanted). Models: random
Llamas of two shapes, one whose head dominates (E1) and one whose layers do (E2).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from thrifty.bench.claims import Claim, Cost, Gate, Mode, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.training.streambp.evidence import exactness, footprint, objectives, pretrained, reach, resident, speed
from thrifty.training.streambp.evidence.batches import read_text
from thrifty.training.streambp.evidence.contenders import CHECKPOINT, NATIVE, OURS, SAME_HEAD, TILED, TRL

#: In float32 two orders of summation differ by this much at most.
EXACT = Gate("gradient error, float32", margin=1e-5)


def _at_most(limit: float) -> Target:
    return Target("<=", limit)


def _cost(id_: str, text: str, about: Cost, rival: str, target: Target | None, budget: Mode = "quick") -> Claim:
    return Claim(id_, text, about, "ratio", (OURS, rival), target, EXACT, budget=budget)


CLAIMS = (
    Claim(
        id="gradients-exact",
        text="Gradients in float64 are plain autograd's (families whose norms compute in the model's precision).",
        about="exactness",
        unit="relative",
        contenders=(OURS, "plain autograd"),
        target=_at_most(1e-10),
        published="the authors' code on a small Llama: 28 % off with masked prompts, 14 % with padding",
    ),
    Claim(
        id="gradients-exact-float32-norms",
        text="Gradients in float64 are plain autograd's (families whose norms, routers or softmax use float32).",
        about="exactness",
        unit="relative",
        contenders=(OURS, "plain autograd"),
        target=_at_most(1e-6),
    ),
    Claim(
        id="collectives-once",
        text="DDP communicates each gradient once a backward pass.",
        about="exactness",
        unit="ratio",
        contenders=(OURS, "plain autograd"),
        target=Target("==", 1.0),
    ),
    _cost(
        "peak-vs-checkpointing-unpadded",
        "A step's peak is at most 0.55 of checkpointing's (E2, unpadded).",
        "memory",
        SAME_HEAD,
        _at_most(0.55),
    ),
    _cost(
        "peak-vs-checkpointing-padded",
        "A step's peak is at most 0.40 of checkpointing's (E2, padded).",
        "memory",
        SAME_HEAD,
        _at_most(0.40),
    ),
    _cost(
        "head-peak",
        "Peak at most 1.15 of checkpointing with torch's own fused head (E1).",
        "memory",
        NATIVE,
        _at_most(1.15),
    ),
    Claim(
        id="peak-resident",
        text="The saving that the allocator reports is the one that the system sees of fresh processes (E2, padded).",
        about="accounting",
        unit="relative",
        contenders=(OURS, SAME_HEAD),
        target=_at_most(0.25),
    ),
    Claim(
        id="growth-law",
        text="At a fixed chunk the peak grows affinely with the sequence.",
        about="memory",
        unit="relative",
        contenders=(OURS,),
        target=_at_most(0.03),
        gate=EXACT,
    ),
    _cost(
        "time-unpadded",
        "A step takes at most 1.25 of checkpointing's time (E2, unpadded).",
        "time",
        SAME_HEAD,
        _at_most(1.25),
        "full",
    ),
    _cost(
        "time-padded",
        "A step takes at most 1.05 of checkpointing's time (E2, padded).",
        "time",
        SAME_HEAD,
        _at_most(1.05),
    ),
    _cost(
        "head-time",
        "The fused cross-entropy takes no longer than TRL's head.",
        "time",
        speed.TRL_HEAD,
        _at_most(1.0),
    ),
    Claim(
        id="objectives-equal",
        text="Training curves of SFT, DPO and GRPO are the standard path's.",
        about="exactness",
        unit="nats",
        contenders=(OURS, CHECKPOINT),
        target=_at_most(1e-5),
    ),
    Claim(
        id="max-length",
        text="In 96 MiB sequences are at least 3 times as long as with checkpointing and full logits.",
        about="memory",
        unit="ratio",
        contenders=(OURS, CHECKPOINT),
        target=Target(">=", 3.0),
        gate=EXACT,
        published="2.8 to 5.5 times (A800-80GB, Qwen3)",
        budget="full",
    ),
    _cost(
        "max-length-vs-trl",
        "... and at least 1.6 times as long as with TRL's fused head.",
        "memory",
        TRL,
        Target(">=", 1.6),
        "full",
    ),
    _cost(
        "max-length-vs-native",
        "... and so many times as long as with torch's fused head: the layers' own gain.",
        "memory",
        NATIVE,
        None,
        "full",
    ),
    _cost(
        "batch-scaling",
        "In 96 MiB batches are at least 3 times as large (64 tokens each).",
        "memory",
        CHECKPOINT,
        Target(">=", 3.0),
        "full",
    ),
    _cost(
        "offload-stack",
        "With offloading too, sequences are longer than with offloading, TiledMLP and a fused head.",
        "memory",
        reach.OFFLOADED[TILED],
        Target(">=", 1.0),
        "full",
    ),
    Claim(
        id="pretrained-equal",
        text="SmolLM2 fine-tuned on long text: the losses of every step are the standard path's.",
        about="exactness",
        unit="nats",
        contenders=(OURS, CHECKPOINT),
        target=_at_most(1e-4),
        budget="full",
    ),
    Claim(
        id="pretrained-peak",
        text="SmolLM2 fine-tuned on long text: the peak of a step over that of checkpointing with full logits.",
        about="memory",
        unit="ratio",
        contenders=(OURS, CHECKPOINT),
        budget="full",
    ),
)


def run(ctx: Context) -> Evidence:
    """Measure: exactness first, then memory, time, and a pretrained model."""
    text = read_text(ctx.data)
    source = "the standard library's source" if ctx.data is None else ctx.data.name
    evidence = ctx.evidence(f"{source} as bytes; random Llamas: large head (E1), large layers (E2)")
    with threads(1):  # small operations, which more threads only slow down; the other core runs the fresh processes
        with ThreadPoolExecutor() as pool:
            fresh = pool.submit(resident.peaks, ctx) if ctx.device == "cpu" else None
            exactness.show(ctx, evidence)
            objectives.show(ctx, evidence, text)
            error, allocated = footprint.show(ctx, evidence, text)
            grown = fresh.result() if fresh else None
        if grown is None:
            evidence.cannot_show("peak-resident", "the system's high-water mark does not see a GPU's memory")
        else:
            resident.show(evidence, grown, allocated)
        if ctx.full:
            reach.show(ctx, evidence, text, error)
    speed.show(ctx, evidence, text, error)
    if ctx.full:
        with evidence.needs("pretrained-equal", "pretrained-peak"):
            pretrained.show(ctx, evidence)
    return evidence
