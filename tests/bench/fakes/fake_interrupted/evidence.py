import os
from pathlib import Path

from thrifty.bench.claims import Claim, Measurement

CLAIMS = (Claim("computed", "How many seeds were computed in this run.", "accounting", "seeds", ("ours",)),)


def run(ctx):
    evidence = ctx.evidence("a made-up workload")
    computed = []
    for seed in ctx.seeds(quick=1, full=4):
        if seed == 2 and not (stopped := Path(os.environ["FAKE_STOPPED"])).exists():
            stopped.touch()
            os._exit(1)
        ctx.once("ours", seed, lambda seed=seed: computed.append(seed))
    evidence.measured("computed", Measurement.of(len(computed), "seeds"))
    return evidence
