from thrifty.bench.claims import Claim, Target
from thrifty.bench.data import keel

CLAIMS = (Claim("needs-data", "It reads a table.", "quality", "ratio", ("ours",), Target("<=", 1.0)),)


def run(ctx):
    evidence = ctx.evidence("a table")
    keel.load("iris")
    return evidence
