"""What a machine can do at best: FLOP/s and bytes/s, from a table, a file of the user's, or measured here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from thrifty._common.checks import one_of, positive
from thrifty._common.extras import require
from thrifty._common.profiles import devices, look_up, number
from thrifty._common.runs import device_of

#: What a file may say of one device: more is FLOP/s for TFLOP/s, or GB/s for TB/s.
MOST = {"tflops": 1e5, "tb_per_s": 100.0}


@dataclass(frozen=True)
class Hardware:
    """One device, and how many of them share the target model.

    Args:
        name: For the reader.
        flops: Dense 16-bit FLOP/s of one device.
        bandwidth: Bytes/s that one device reads from its memory.
        count: Devices over which the target is split (tensor parallel); the draft stays on one.

    Raises:
        ValueError: A number is not above 0.

    Example:
        >>> two = Hardware.from_name("a800-80gb", count=2)
        >>> round(two.ridge), two.count
        (153, 2)
    """

    name: str
    flops: float
    bandwidth: float
    count: int = 1

    def __post_init__(self) -> None:
        for field in ("flops", "bandwidth", "count"):
            if not getattr(self, field) > 0:
                raise ValueError(f"{field}: expected a number above 0, got {getattr(self, field)}")

    @property
    def ridge(self) -> float:
        """FLOP/s over bytes/s: with 16-bit weights also the tokens at which computing takes as long as reading."""
        return self.flops / self.bandwidth

    @classmethod
    def from_name(cls, name: str, count: int = 1) -> Hardware:
        """Look a device up in the table, or read a JSON file with ``tflops`` and ``tb_per_s``.

        Args:
            name: For instance ``"h100"``, ``"a100-80gb"``, ``"rtx-4090"``; or the path of a JSON file
                ``{"tflops": 312, "tb_per_s": 2.039}``.
            count: Devices over which the target is split.

        Raises:
            ValueError: The name is not in the table, or the file lacks a field or says more than any device does.
        """
        found, entry = look_up("hardware", name, devices(), also=" (or measure with Hardware.calibrate())")
        flops, bandwidth = (1e12 * number(found, entry, field, most=most) for field, most in MOST.items())
        return cls(found, flops, bandwidth, count)

    @classmethod
    def calibrate(cls, device: str = "cpu", *, dtype: str = "bfloat16", seconds: float = 1.0) -> Hardware:
        """Measure read bandwidth and matrix-product rate here, at torch's present number of threads.

        Args:
            device: ``"cpu"`` or ``"cuda"``.
            dtype: What weights are stored and multiplied in.
            seconds: About how long each of the two is measured.

        Returns:
            The best of several repeats of each.
        """
        torch = require("torch", extra="llm")
        device = device_of(device)
        one_of("dtype", dtype, ("float32", "float16", "bfloat16", "float64"))
        positive("seconds", seconds, "a number of seconds above 0")
        kind = getattr(torch, dtype)
        # A product with one vector reads its matrix once: what a decode step does, and far beyond the caches.
        side = 16384 if device.startswith("cuda") else 8192
        matrix = torch.ones(side, side, dtype=kind, device=device)
        vector = torch.ones(1, side, dtype=kind, device=device)
        square = torch.ones(side // 8, side // 8, dtype=kind, device=device)

        def wait() -> None:
            if device.startswith("cuda"):
                torch.cuda.synchronize()

        with torch.inference_mode():
            reading = _best(lambda: vector @ matrix.T, wait, seconds)
            computing = _best(lambda: square @ square, wait, seconds)
        bandwidth = matrix.numel() * matrix.element_size() / reading
        return cls(f"measured ({device}, {dtype})", 2 * (side // 8) ** 3 / computing, bandwidth)

    def split(self, count: int) -> Hardware:
        """Return the same device, with the target over ``count`` of them."""
        return replace(self, count=count)


def _best(call: Callable[[], object], wait: Callable[[], None], seconds: float) -> float:
    """Return the shortest time of a call within about ``seconds``."""
    call()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        wait()
        start = time.perf_counter()
        call()
        wait()
        best = min(best, time.perf_counter() - start)
    return best
