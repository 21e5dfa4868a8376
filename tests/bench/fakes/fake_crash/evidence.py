from thrifty.bench.claims import Claim, Measurement, Target

CLAIMS = (Claim("never-reached", "It works.", "quality", "ratio", ("ours",), Target("<=", 1.0)),)


def run(ctx):
    evidence = ctx.evidence("a made-up workload")
    evidence.row("ours", {"error": Measurement.of(0.5, "error")})
    raise ZeroDivisionError("a fault in the experiment")
