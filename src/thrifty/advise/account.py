"""Where a workload's bytes, FLOPs and seconds go: the ledger before any method, and which resource binds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from thrifty._common.ledger import Ledger, LedgerDelta, Resource

#: Resources that occupy a device's memory.
MEMORY = (
    Resource.WEIGHTS,
    Resource.GRADIENTS,
    Resource.OPTIMIZER_STATE,
    Resource.ACTIVATIONS,
    Resource.KV_CACHE,
)


@dataclass(frozen=True)
class Part:
    """One line of the ledger: what it is, which resource it takes, how much, and by which formula."""

    name: str
    resource: Resource
    amount: float
    formula: str


@dataclass(frozen=True)
class Account:
    """The ledger of a workload.

    Args:
        parts: Bytes at the peak on one device, FLOPs and traffic of a step, and whatever else is spent.
        seconds: At best, by what takes them; eager code overlaps nothing, so they add up.
        capacity: Bytes that the device has; 0 where memory is not what the workload is about.
        rate: FLOP/s of the device.
        moment: When memory is fullest.
    """

    parts: tuple[Part, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)
    capacity: float = 0.0
    rate: float = 0.0
    moment: str = ""

    def total(self, resource: Resource) -> float:
        """Return the sum over one resource."""
        return sum(part.amount for part in self.parts if part.resource is resource)

    @property
    def memory(self) -> float:
        """Bytes on one device at the peak."""
        return sum(part.amount for part in self.parts if part.resource in MEMORY)

    @property
    def time(self) -> float:
        """Seconds of a step (or of the whole workload, where there are no steps)."""
        return sum(self.seconds.values())

    @property
    def fits(self) -> bool:
        """Whether the device has the memory."""
        return not self.capacity or self.memory <= self.capacity

    @property
    def binding(self) -> Binding:
        """What limits the workload: memory where it does not fit, else whatever takes most of the time."""
        if self.capacity and not self.fits:
            largest = max(MEMORY, key=self.total)
            return Binding("memory", f"the largest part: {largest}")
        if self.seconds:
            worst = max(self.seconds, key=lambda name: self.seconds[name])
            return Binding("time", worst)
        return Binding("resource", str(max((part for part in self.parts), key=lambda part: part.amount).resource))

    def memory_after(self, delta: LedgerDelta | Ledger) -> float:
        """Return the peak with a method's changes."""
        return self.memory + sum(delta.total(resource) for resource in MEMORY)

    def time_after(self, delta: LedgerDelta | Ledger) -> float:
        """Return the seconds with a method's changes: FLOPs at the device's rate, and seconds as they are."""
        flops = delta.total(Resource.FLOPS) / self.rate if self.rate else 0.0
        return max(0.0, self.time + flops + delta.total(Resource.SECONDS))


@dataclass(frozen=True)
class Binding:
    """The binding resource: ``"memory"``, ``"time"`` or ``"resource"``, and what it is in words."""

    kind: str
    words: str
