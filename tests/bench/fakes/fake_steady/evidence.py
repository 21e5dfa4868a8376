import random

from thrifty.bench.claims import Claim, Gate, Measurement, Target

ERROR = Gate("error", margin=0.01)
PAIR = ("ours", "rival")
CLAIMS = (
    Claim("must-hold", "Ours takes half the bytes.", "bytes", "ratio", PAIR, Target("<=", 0.6), ERROR),
    Claim("must-fall-short", "Ours takes a tenth.", "bytes", "ratio", PAIR, Target("<=", 0.1), ERROR),
    Claim("cheaper-but-worse", "Half, at a price.", "bytes", "ratio", PAIR, Target("<=", 0.6), ERROR),
    Claim("only-reported", "The error.", "quality", "error", PAIR),
    Claim("needs-full", "At scale.", "quality", "ratio", PAIR, Target("<=", 1.0), budget="full"),
    Claim("no-hardware", "On a GPU.", "quality", "ratio", PAIR, Target("<=", 1.0)),
)


def run(ctx):
    evidence = ctx.evidence("a made-up workload")
    seeds = ctx.seeds(quick=3, full=5)
    ours, rival = [], []
    for done, seed in enumerate(seeds):
        ctx.progress(done, len(seeds), f"seed {seed}")
        ours.append(ctx.once("ours", seed, lambda seed=seed: random.Random(seed).random()))
        rival.append(ours[-1] + 0.005)
    evidence.row("ours", {"error": Measurement.of(ours, "error"), "size": Measurement.of(1, "MB")})
    evidence.row("rival", {"error": Measurement.of(rival, "error"), "size": Measurement.of(2, "MB")})
    ctx.attempt(evidence, "broken", lambda: 1 / 0)
    ctx.attempt(evidence, "absent", lambda: __import__("a_rival_that_nobody_has"))
    half = Measurement.of(1, "MB").over(Measurement.of(2, "MB"))
    evidence.measured("must-hold", half, gate=(ours, rival))
    evidence.measured("must-fall-short", half, gate=(ours, rival), reason="the rest is the index")
    evidence.measured("cheaper-but-worse", half, gate=([1.0], [0.5]))
    evidence.measured("only-reported", Measurement.of(ours, "error"))
    evidence.cannot_show("no-hardware", "there is no GPU here")
    print("what an experiment prints is not progress")
    return evidence
