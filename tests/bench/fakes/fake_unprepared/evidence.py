"""A method whose experiment fails before it begins."""

from thrifty.bench.claims import Claim

CLAIMS = (Claim("never-begun", "It works.", "quality", "ratio", ("ours",)),)


def prepare():
    raise KeyError("kernels")
