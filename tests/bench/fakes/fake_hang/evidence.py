import subprocess
import sys
import time

from thrifty.bench.claims import Claim, Measurement, Target

CLAIMS = (Claim("never-reached", "It ends.", "quality", "ratio", ("ours",), Target("<=", 1.0)),)


def run(ctx):
    evidence = ctx.evidence("a made-up workload")
    evidence.row("quick rival", {"error": Measurement.of(0.5, "error")})
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    evidence.row("its child", {"pid": Measurement.of(child.pid, "pid")})
    time.sleep(600)
