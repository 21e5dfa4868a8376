"""What `thrifty bench coreset` measures: whether the ratio tells staleness, quality at a tenth of the data, and cost.

The claims' workload is digits; digits with a fifth of the labels changed, mnist1d and clothes are further ones, with
the same thresholds, fixed before anything ran on them. All contenders share network, steps, rate, batches and budget;
nothing was tuned.
"""

from __future__ import annotations

from scipy.stats import spearmanr

from thrifty.bench.claims import Claim, Gate, Measurement, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.data.coreset.evidence import costs, training, workloads
from thrifty.data.coreset.evidence.training import FULL, OURS
from thrifty.data.coreset.signal import KINDS

FIXED = "GradMatch, every 20"
MATCHED = "GradMatch, as often as ERACS"
RANDOM_MATCHED = "random, as often as ERACS"
CONTENDERS = (
    OURS, FIXED, MATCHED, "GradMatch, every 3", "GradMatch, every 5", "GradMatch, every 8", RANDOM_MATCHED,
    "random, every 5", "random, never", "CRAIG, every 20", "GLISTER, every 20", "CREST", "InfoBatch", FULL,
)  # fmt: skip
#: What a quick run has time for, and a full one on the further sets.
FEW = (OURS, FIXED, MATCHED, RANDOM_MATCHED, "InfoBatch", FULL)
_ACCURACY = Gate("accuracy", margin=1.0, better="higher", by="mean")

CLAIMS = (
    Claim(
        id="snr-tracks-staleness",
        text="Spearman's correlation of the spectral ratio and the gradient discrepancy, over epochs, is below −0.6.",
        about="mechanism",
        unit="correlation",
        contenders=(FIXED,),
        target=Target("<=", -0.6),
    ),
    Claim(
        id="vs-fixed-20",
        text="The mean gradient discrepancy is at least 30 % below that of GradMatch every 20 epochs.",
        about="quality",
        unit="ratio",
        contenders=(OURS, FIXED),
        target=Target("<=", 0.7),
    ),
    Claim(
        id="vs-fixed-20-noise",
        text="With a fifth of the labels changed, test accuracy is at least 2 points above that of every 20 epochs.",
        about="quality",
        unit="points",
        contenders=(OURS, FIXED),
        target=Target(">=", 2.0),
        published="CIFAR-10, 10 %: 91.37, GradMatch 89.41",
    ),
    *(
        Claim(
            id=f"vs-fixed-20-{name}",
            text=f"... the mean gradient discrepancy, on {name}.",
            about="quality",
            unit="ratio",
            contenders=(OURS, FIXED),
            target=Target("<=", 0.7),
            budget="full",
        )
        for name in ("mnist1d", "clothes")
    ),
    Claim(
        id="matched-count",
        text="Test accuracy above that of GradMatch with as many selections, evenly spaced.",
        about="quality",
        unit="points",
        contenders=(OURS, MATCHED),
    ),
    Claim(
        id="accuracy-at-budget",
        text="Test accuracy above that of random subsets drawn as often: what the gradients are worth.",
        about="quality",
        unit="points",
        contenders=(OURS, RANDOM_MATCHED),
    ),
    Claim(
        id="monitor-cost",
        text="A check takes at most 15 % of one by the gradient of all data, at a tenth of the data.",
        about="time",
        unit="ratio",
        contenders=(OURS, costs.FULL_CHECK),
        target=Target("<=", 0.15),
        gate=Gate("correlation with the discrepancy", margin=0.0),
        published="CIFAR-10: 1.45 s against 14.39 s",
    ),
    Claim(
        id="selection-speed",
        text="Batch matching pursuit is at least 20 times as fast as one solved anew at each pick.",
        about="time",
        unit="ratio",
        contenders=(OURS, costs.RESOLVED),
        target=Target(">=", 20.0),
        gate=Gate("residual", margin=1e-6),
    ),
    Claim(
        id="end-to-end",
        text="Checks and selections take at most 40 % of the time of a run.",
        about="time",
        unit="share",
        contenders=(OURS, MATCHED),
        target=Target("<=", 0.4),
        gate=_ACCURACY,
    ),
    Claim(
        id="not-slower-than-full",
        text="A run takes less time than training on all data, where the network's passes dominate.",
        about="time",
        unit="ratio",
        contenders=(OURS, FULL),
        target=Target("<", 1.0),
        gate=_ACCURACY,
        published="CIFAR-100: 7.4 times as fast",
        budget="full",
    ),
)

#: Of a run: its column in the table, and its unit.
_COLUMNS = (
    ("accuracy", "test accuracy", "%"),
    ("updates", "selections after the first", "times"),
    ("discrepancy", "mean discrepancy", "1 - cosine"),
    ("steps", "steps", "steps"),
    ("seconds", "time", "s"),
    ("overhead", "share of checks and selections", "of the time"),
)


def run(ctx: Context) -> Evidence:
    """Train every contender on every workload, then time checks and selections."""
    evidence = ctx.evidence("scikit-learn's digits, a tenth a selection, 120 epochs, a network of 64-128-64-10")
    seeds = ctx.seeds(quick=2, full=5)
    names = CONTENDERS if ctx.full else FEW
    clean = _trained(ctx, evidence, workloads.digits(), names, seeds)
    _staleness(evidence, clean)
    if OURS in clean and FIXED in clean:
        evidence.measured("vs-fixed-20", _ratio(clean, "discrepancy"))
        _against(evidence, "matched-count", clean, MATCHED)
        _against(evidence, "accuracy-at-budget", clean, RANDOM_MATCHED)
        share = Measurement.of([found["overhead"] for found in clean[OURS]], "share", timed=True)
        evidence.measured("end-to-end", share, gate=_accuracies(clean, MATCHED))
    noisy = _trained(ctx, evidence, workloads.digits(0.2), names if ctx.full else (OURS, FIXED), seeds)
    _against(evidence, "vs-fixed-20-noise", noisy, FIXED)
    costs.monitor_cost(ctx, evidence, _correlations(clean, "spectral"))
    costs.selection_speed(ctx, evidence)
    if ctx.full:
        _further(ctx, evidence, seeds)
    return evidence


def _further(ctx: Context, evidence: Evidence, seeds: list[int]) -> None:
    """Train on the further sets."""
    with evidence.needs("vs-fixed-20-mnist1d"):
        if not ctx.late(evidence, "vs-fixed-20-mnist1d", needs=240):
            found = _trained(ctx, evidence, workloads.mnist1d(), FEW, seeds)
            evidence.measured("vs-fixed-20-mnist1d", _ratio(found, "discrepancy"))
    with evidence.needs("vs-fixed-20-clothes", "not-slower-than-full"):
        if not ctx.late(evidence, "vs-fixed-20-clothes", "not-slower-than-full", needs=180):
            found = _trained(ctx, evidence, workloads.clothes(), (OURS, FIXED, MATCHED, RANDOM_MATCHED, FULL), seeds)
            evidence.measured("vs-fixed-20-clothes", _ratio(found, "discrepancy"))
            times = [Measurement.of([run["seconds"] for run in found[name]], "s", timed=True) for name in (OURS, FULL)]
            evidence.measured("not-slower-than-full", times[0].over(times[1]), gate=_accuracies(found, MATCHED))


def _trained(
    ctx: Context, evidence: Evidence, workload: workloads.Workload, names: tuple[str, ...], seeds: list[int]
) -> dict[str, list[dict]]:
    """Train contenders on a workload, ours first, as others take as many selections; and add their rows."""
    ours: dict[int, int] = {}

    def compute(name: str, seed: int) -> dict:
        found = training.run(workload, name, seed, ours.get(seed))
        if name == OURS:
            ours[seed] = found["updates"]
        return found

    found: dict[str, list[dict]] = {}
    for name in names:
        # One seed of those on all data is what a quick run has time for.
        few = seeds if ctx.full or name not in (FULL, "InfoBatch") else seeds[:1]
        found |= ctx.runs(evidence, [name], few, compute, workload=workload.name)
        if name == OURS and OURS in found:  # also where they came from an interrupted run
            ours |= {seed: run["updates"] for seed, run in zip(seeds, found[OURS], strict=True)}
    for name, runs in found.items():
        known = [column for column in _COLUMNS if runs[0][column[0]] is not None]
        evidence.row(
            name,
            {
                label: Measurement.of([run[key] for run in runs], unit, timed=key in ("seconds", "overhead"))
                for key, label, unit in known
            },
            workload=workload.name,
        )
    return found


def _correlations(found: dict[str, list[dict]], kind: str) -> list[float]:
    """Return Spearman's correlation of ratio and discrepancy over the epochs of each run of the fixed schedule."""
    at = KINDS.index(kind)
    return [
        float(spearmanr([ratios[at] for ratios in run["ratios"]], run["discrepancies"]).statistic)
        for run in found.get(FIXED, [])
    ]


def _staleness(evidence: Evidence, found: dict[str, list[dict]]) -> None:
    if FIXED not in found:
        return
    for kind in KINDS:
        measured = Measurement.of(_correlations(found, kind), "correlation")
        evidence.row(f"{kind} ratio", {"correlation with discrepancy": measured}, workload=FIXED)
        if kind == "spectral":
            evidence.measured("snr-tracks-staleness", measured)
    first = found[FIXED][0]
    epochs = range(1, len(first["discrepancies"]) + 1)
    evidence.curves(
        "GradMatch every 20 epochs: the subset goes stale between selections",
        "epoch",
        "after it",
        {
            "spectral ratio": (epochs, [ratios[0] for ratios in first["ratios"]]),
            "discrepancy": (epochs, first["discrepancies"]),
        },
    )


def _ratio(found: dict[str, list[dict]], key: str) -> Measurement:
    ours, theirs = (Measurement.of([run[key] for run in found[name]], "") for name in (OURS, FIXED))
    return ours.over(theirs)


def _accuracies(found: dict[str, list[dict]], rival: str) -> tuple[list[float], list[float]]:
    ours, theirs = ([run["accuracy"] for run in found[name]] for name in (OURS, rival))
    return ours, theirs


def _against(evidence: Evidence, claim: str, found: dict[str, list[dict]], rival: str) -> None:
    if OURS in found and rival in found:
        ours, theirs = (Measurement.of(values, "points") for values in _accuracies(found, rival))
        evidence.measured(claim, ours.minus(theirs))
