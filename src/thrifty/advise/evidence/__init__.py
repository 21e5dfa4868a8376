"""Whether the adviser's numbers are right: peaks and times measured here, and peaks that others published.

Small models of every family are trained for a step and the allocator's peak is held against the ledger's total; steps
of different sizes are timed and ranked; and published runs of large models on GPUs are predicted from their
configurations alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.stats import spearmanr

from thrifty.advise.account import MEMORY
from thrifty.advise.advice import Advice
from thrifty.advise.evidence import memory, published, signs, times
from thrifty.advise.evidence.families import FAMILIES
from thrifty.advise.facts import workload
from thrifty.advise.offers import offers, pairs
from thrifty.advise.show import before_and_after
from thrifty.advise.training import account
from thrifty.advise.tuning import described, training_job
from thrifty.bench.claims import Claim, Measurement, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence

CLAIMS = (
    Claim(
        id="memory-on-cpu",
        text="The predicted peak of a training step is within 10 % of the allocator's, in every family and optimizer.",
        about="accounting",
        unit="%",
        contenders=("ledger", "allocator"),
        target=Target("<=", 10.0),
    ),
    Claim(
        id="memory-on-published-gpus",
        text="The predicted peak is within 15 % of what was published of large models on GPUs.",
        about="accounting",
        unit="%",
        contenders=("ledger", "published"),
        target=Target("<=", 15.0),
    ),
    Claim(
        id="published-arithmetic",
        text="Weights and state are within 15 % of the tables that GaLore's and SUMO's authors computed.",
        about="accounting",
        unit="%",
        contenders=("ledger", "published"),
        target=Target("<=", 15.0),
    ),
    Claim(
        id="published-speed-ups",
        text="Published speed-ups of speculative decoding come in the predicted order (Spearman's correlation).",
        about="accounting",
        unit="correlation",
        contenders=("ledger", "published"),
        published="MoESD, arXiv 2505.19645: 1.19 to 2.29 on A800, H800 and L40",
    ),
    Claim(
        id="time-ranks-right",
        text="Steps come in the order of their measured seconds (Spearman's correlation of predicted and measured).",
        about="accounting",
        unit="correlation",
        contenders=("ledger", "clock"),
        target=Target(">=", 0.9),
    ),
    Claim(
        id="signs-right",
        text="Where a method is predicted to save, it saves; where it is predicted to cost, it costs.",
        about="accounting",
        unit="%",
        contenders=("ledger", "measured"),
        target=Target(">=", 90.0),
        budget="full",
    ),
)

#: Families of a quick run: plain, with windows and eager attention, without gates, with experts.
QUICK = ("llama", "gemma2", "phi", "qwen3-moe")


def run(ctx: Context) -> Evidence:
    """Hold the ledger against the allocator, the clock and the literature."""
    evidence = ctx.evidence("steps of small models on this machine, and published runs of large ones on GPUs")
    with evidence.needs("memory-on-published-gpus", "published-arithmetic"):
        _published(ctx, evidence)
    with evidence.needs("published-speed-ups"):
        _speed_ups(evidence)
    with evidence.needs("memory-on-cpu"):
        _memory(ctx, evidence)
    with evidence.needs("time-ranks-right"):
        _times(ctx, evidence)
    if ctx.full:
        with evidence.needs("signs-right"):
            _signs(ctx, evidence)
    return evidence


def _published(ctx: Context, evidence: Evidence) -> None:
    off: dict[bool, list[float]] = {True: [], False: []}
    found = list(published.points(None if ctx.full else ("qwen3-8b",)))
    for done, point in enumerate(found):
        ctx.progress(done, len(found), point.what)
        predicted = point.predicted()
        off[point.on_gpu].append(_off(predicted, point.published))
        _row(evidence, point.what, predicted, point.published, point.source)
    for claim, values in (("memory-on-published-gpus", off[True]), ("published-arithmetic", off[False])):
        near = sum(value <= 15 for value in values)
        evidence.measured(
            claim, _worst(values), reason=f"the worst of {len(values)} points, of which {near} are within 15 %"
        )
    _picture(evidence)


def _picture(evidence: Evidence) -> None:
    """Draw the front page's example: an 8B model at 32k tokens on one 80 GB card, before and after."""
    job = training_job(published.configuration("llama-8b"), length=32_768, device="h100-80gb")
    now = account(job)
    found = offers(workload(job, now), now)
    advice = Advice(described(job), now, found, pairs(found, now))
    rows = before_and_after(advice)
    points = {
        str(resource): (list(rows), [row[resource] / 2**30 for row in rows.values()])
        for resource in MEMORY
        if any(row[resource] for row in rows.values())
    }
    title = f"{advice.workload} ({advice.account.capacity / 2**30:.1f} GiB)"
    evidence.curves(title, "", "GiB at the fullest moment", points, kind="stack")


def _speed_ups(evidence: Evidence) -> None:
    found = [(point, point.predicted()) for point in published.speed_ups()]
    for point, predicted in found:
        numbers = {"predicted": predicted, "measured": point.published}
        metrics = {name: Measurement.of(number, "times") for name, number in numbers.items()}
        evidence.row(point.what, metrics, workload=point.source)
    rank = spearmanr([point.published for point, _ in found], [predicted for _, predicted in found]).statistic
    over = [predicted / point.published for point, predicted in found]
    said = f"{len(found)} settings; from limits alone, {min(over):.1f} to {max(over):.1f} times as large as published"
    evidence.measured("published-speed-ups", Measurement.of(float(rank), "correlation"), reason=said)


def _memory(ctx: Context, evidence: Evidence) -> None:
    off = []
    families = tuple(FAMILIES) if ctx.full else QUICK
    source = "peak of a step, by the allocator, here"

    def found(what: str, pair: Sequence[float]) -> None:
        off.append(_off(pair[1], pair[0]))
        _row(evidence, what, pair[1], pair[0], source)

    for done, family in enumerate(families):
        ctx.progress(done, len(families), f"a step of {family}")
        for mode in memory.MODES:
            found(f"{family}, {mode}", ctx.once(f"{family}, {mode}", ctx.seed, memory.family, family, mode))
    for state in memory.OPTIMIZERS if ctx.full else ("adamw", "sumo"):
        whole = ctx.attempt(evidence, state, memory.whole_step, state, workload="a step with its optimizer")
        if whole is not None:
            found(f"llama, {state}, whole step", whole)
    if ctx.full:
        for mode in memory.MODES:
            real = ctx.once(f"smollm2, {mode}", ctx.seed, memory.smollm2, mode)
            found(f"SmolLM2-135M-Instruct, {mode}", real)
    evidence.measured("memory-on-cpu", _worst(off), reason=f"the worst of {len(off)} steps, each in a row")


def _times(ctx: Context, evidence: Evidence) -> None:
    place = times.here(ctx)
    grid = times.GRID if ctx.full else times.GRID[:7]
    calls = {
        f"{a} layers, {b} wide, {c} tokens{', checkpoints' if d else ''}": times.step(a, b, c, d) for a, b, c, d in grid
    }
    foretold = {
        name: times.predicted(place, times.configuration(layers, hidden), tokens, checkpointing)
        for name, (layers, hidden, tokens, checkpointing) in zip(calls, grid, strict=True)
    }
    for layers, hidden, context in ((2, 64, 128), (4, 256, 512), (4, 512, 2048)):
        name = f"decoding, {layers} layers, {hidden} wide, {context} tokens"
        calls[name] = times.decode(layers, hidden, context)
        foretold[name] = times.predicted_decode(place, times.configuration(layers, hidden), context)
    if ctx.full:
        for what, call, at_best in times.smollm2(place):
            calls[what], foretold[what] = call, at_best
    measured = ctx.time(calls, repeats=5 if ctx.full else 2, at_most=60.0 if ctx.full else 6.0)
    seconds = [measured[name].seconds.median for name in calls]
    for name in calls:
        evidence.row(
            name,
            {"measured": measured[name].seconds, "predicted, at best": Measurement.of(foretold[name], "s")},
            workload="seconds",
        )
    evidence.curves(
        "seconds of a step", "predicted, at best (s)", "measured (s)", {"steps": (list(foretold.values()), seconds)},
        kind="scatter", log_x=True, log_y=True,
    )  # fmt: skip
    rank = float(spearmanr(list(foretold.values()), seconds).statistic)
    evidence.measured("time-ranks-right", Measurement.of(rank, "correlation", timed=True))


def _signs(ctx: Context, evidence: Evidence) -> None:
    found = list(signs.signs(ctx))
    for sign in found:
        without, with_it = sign.measured
        evidence.row(
            sign.what,
            {
                "measured change": Measurement.of(100 * (with_it / without - 1), "%"),
                "predicted": Measurement.of(float(np.sign(sign.predicted)), "sign"),
            },
            workload="with a method, against without",
        )
    share = 100 * sum(sign.right for sign in found) / len(found)
    wrong = ", ".join(sign.what for sign in found if not sign.right)
    evidence.measured("signs-right", Measurement.of(share, "%"), reason=f"wrong: {wrong}" if wrong else None)


def _row(evidence: Evidence, what: str, predicted: float, measured: float, source: str) -> None:
    numbers = {
        "predicted": Measurement.of(predicted / 2**20, "MiB"),
        "measured": Measurement.of(measured / 2**20, "MiB"),
        "off by": Measurement.of(100 * (predicted / measured - 1), "%"),
    }
    evidence.row(what, numbers, workload=source)


def _off(predicted: float, measured: float) -> float:
    return 100 * abs(predicted / measured - 1)


def _worst(off: Iterable[float]) -> Measurement:
    return Measurement.of(max(off), "%")
