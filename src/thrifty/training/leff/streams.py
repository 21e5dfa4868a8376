"""Random streams of a federation: one root seed, and one independent stream for every purpose, round and client.

A stream is found by what it is for, not by how many were drawn before, so that a run depends neither on the order in
which replies arrive nor on whether it was interrupted.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch

#: Purposes; their order is part of what a seed means.
PURPOSES = ("participants", "blocks", "order", "dropout", "noise", "adapters", "partition")


def stream(seed: int, purpose: str, round_: int = 0, client: str = "") -> np.random.Generator:
    """Return the generator for one purpose, round and client.

    Args:
        seed: The root.
        purpose: One of :data:`PURPOSES`.
        round_: From 1; 0 for what happens once.
        client: Its name; empty for the server.
    """
    key = (PURPOSES.index(purpose), round_, zlib.crc32(client.encode()))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def torch_stream(seed: int, purpose: str, round_: int = 0, client: str = "") -> torch.Generator:
    """Return the same as torch's generator on the CPU."""
    return torch.Generator().manual_seed(int(stream(seed, purpose, round_, client).integers(2**63)))
