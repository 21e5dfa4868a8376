import os
import sys

CLAIMS = ()


def run(ctx):
    print("out of memory, say", file=sys.stderr, flush=True)
    os._exit(7)
