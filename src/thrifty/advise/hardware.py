"""What a device holds and does at best, and what optimizers keep: tables that a user extends with JSON files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from thrifty._common.profiles import devices, look_up, number, read_table

#: GB/s of 16 lanes of PCIe 4, one way: of a device whose profile does not say.
PCIE = 32.0
#: Parts of a weight's shape that an optimizer's state may be counted in.
SIZES = ("mn", "mr", "nr", "m", "n")


@dataclass(frozen=True)
class Device:
    """One accelerator.

    Args:
        name: For the reader.
        memory: Bytes that a program can have.
        flops: FLOP/s of matrix products by dtype.
        bandwidth: Bytes/s of its memory.
        link: Bytes/s that it sends to its neighbours.
        host_link: Bytes/s that it sends to the host.
    """

    name: str
    memory: float
    flops: Mapping[str, float]
    bandwidth: float
    link: float
    host_link: float


@dataclass(frozen=True)
class Optimizer:
    """What an optimizer keeps for every weight.

    Args:
        name: For the reader.
        matrix: Numbers of state of a matrix, as multiples of mn, mr, nr, m and n (m the larger side, r the rank).
        others: Numbers of state for each number of an embedding, a head, a norm or a bias.
        bytes: Of a number of state; 0: as the weights.
        copies: Bytes a number of a copy of the weights in higher precision.
    """

    name: str
    matrix: Mapping[str, float]
    others: float
    bytes: float
    copies: float

    def numbers(self, rows: int, columns: int, rank: int) -> float:
        """Return the numbers kept for one matrix."""
        n, m = sorted((rows, columns))
        r = min(rank, n)
        sizes = {"mn": m * n, "mr": m * r, "nr": n * r, "m": m, "n": n}
        return sum(times * sizes[name] for name, times in self.matrix.items())


def device(name: str, folder: str | Path | None = None) -> Device:
    """Look a device up by name, or read it from a JSON file.

    Args:
        name: ``"h100-80gb"``, an alias, or the path of a JSON file with the fields of the table.
        folder: Further JSON files, each one device, named as the device.

    Raises:
        ValueError: There is none of that name, or a field is missing or no number.

    Example:
        >>> round(device("h100").memory / 2**30, 1)
        79.2
    """
    found, entry = look_up("device", name, devices(), folder)
    needed = ("gib", "tflops", "tflops32", "tb_per_s", "link_gb_per_s")
    gib, wide, full, speed, link = (number(found, entry, field) for field in needed)
    host = number(found, {"host_gb_per_s": PCIE, **entry}, "host_gb_per_s")
    rates = {"bfloat16": wide * 1e12, "float32": full * 1e12}
    return Device(found, gib * 2**30, rates, speed * 1e12, link * 1e9, host * 1e9)


def found_at(name: str, folder: str | Path | None = None) -> str:
    """Return what names a device without its folder: a path, where the folder holds it."""
    path = Path(folder or ".") / f"{name}.json"
    return str(path) if folder is not None and path.is_file() else name


def optimizer(name: str, folder: str | Path | None = None) -> Optimizer:
    """Look an optimizer up by name, or read it from a JSON file.

    Raises:
        ValueError: There is none of that name, or a field is missing or unknown.

    Example:
        >>> optimizer("galore").numbers(4096, 11008, 128) == 2 * 11008 * 128 + 4096 * 128
        True
    """
    found, entry = look_up("optimizer", name, read_table("thrifty.advise.profiles", "optimizers"), folder)
    matrix = entry.get("matrix")
    if not isinstance(matrix, dict) or not set(matrix) <= set(SIZES):
        raise ValueError(f"{found}: expected 'matrix' with some of {', '.join(SIZES)}, got {matrix!r}")
    counts = {size: number(f"{found}, 'matrix'", matrix, size, least=0) for size in matrix}
    others, width, copies = (number(found, entry, field, least=0) for field in ("others", "bytes", "copies"))
    return Optimizer(found, counts, others, width, copies)
