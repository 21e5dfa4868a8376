"""The largest sequence, batch and model that fit a device, as things are and with methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from thrifty._common.ledger import LedgerDelta
from thrifty.advise.facts import workload
from thrifty.advise.job import MOST, Training
from thrifty.advise.offers import Offer, delta_of
from thrifty.advise.training import account
from thrifty.bench import registry


@dataclass(frozen=True)
class Reach:
    """The largest of each that fits the device, everything else as it is (0: none fits)."""

    method: str
    sequence: int
    batch: int
    parameters: int


def reaches(job: Training, found: Sequence[Offer]) -> list[Reach]:
    """Return what fits as it is, with each method that applies, and with each pair of those that save memory."""
    helpful = [offer for offer in found if offer.applies and offer.memory < account(job).memory]
    named: dict[str, tuple[str, ...]] = {"as it is": ()} | {offer.method: (offer.method,) for offer in helpful}
    named |= {
        f"{one.method} + {other.method}": (one.method, other.method)
        for one, other in combinations(helpful, 2)
        if not one.delta.conflicts(other.delta)
    }
    return [_reach(job, name, methods) for name, methods in named.items()]


def _reach(job: Training, name: str, methods: Sequence[str]) -> Reach:
    def fits(tried: Training) -> bool:
        now = account(tried)
        if not methods:
            return now.fits
        asked = workload(tried, now)
        delta = LedgerDelta()
        for method in methods:
            change = delta_of(registry.get(method), asked)
            delta += change if change.applies else LedgerDelta()
        return now.memory_after(delta) <= now.capacity

    return Reach(name, longest(job, fits), widest(job, fits), deepest(job, fits))


def longest(job: Training, fits: Callable[[Training], bool]) -> int:
    """Return the largest sequence that fits (0: none)."""
    share = job.generated / job.length
    most = job.model.positions or MOST["length"]
    return _largest(lambda n: fits(replace(job, length=n, generated=int(share * n))), job.length, most)


def widest(job: Training, fits: Callable[[Training], bool]) -> int:
    """Return the largest batch that fits (0: none)."""
    return _largest(lambda n: fits(replace(job, batch=n)), job.batch, MOST["batch"])


def deepest(job: Training, fits: Callable[[Training], bool]) -> int:
    """Return the weights of the deepest model of this width that fits (0: none)."""
    layers = _largest(lambda n: fits(replace(job, layers=n)), job.depth, 1 << 12)
    return round(replace(job, layers=layers).parameters) if layers else 0


def _largest(fits: Callable[[int], bool], start: int, ceiling: int) -> int:
    """Double or halve from the start, then bisect; what fits is assumed to shrink as the number grows."""
    low, high = 0, start
    if fits(start):
        while high < ceiling and fits(high):
            low, high = high, 2 * high
        if high >= ceiling and fits(ceiling):
            return ceiling
    else:
        while high > 1 and not fits(high // 2):
            high //= 2
        low = high // 2
    while high - low > max(1, low // 500):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
