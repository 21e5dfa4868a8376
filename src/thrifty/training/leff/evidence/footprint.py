"""What a weak client holds, computes and sends: counted on the tensors themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from thrifty.bench.claims import Measurement
from thrifty.bench.evidence import Evidence
from thrifty.bench.memory import allocated_peak
from thrifty.training.leff.capacity import compute_share, tensor_bytes
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.context import lay_out
from thrifty.training.leff.evidence import sentences
from thrifty.training.leff.evidence.contenders import FEDAVG, FEDLORA, OURS, RANK
from thrifty.training.leff.evidence.speed import Stepper
from thrifty.training.leff.sampling import block_layers

MB = 1e6


def show(evidence: Evidence, data: Path | None, names: Sequence[str]) -> Measurement:
    """Count bytes of state, peak and traffic of one client, and the rounds' simulated times; return the block ratio.

    Args:
        evidence: Where rows and findings go.
        data: A user's own table.
        names: Contenders; LEFF and FedAvg among them.
    """
    model = sentences.make_model(0)
    batch = sentences.labelled_batches(sentences.load(data)["train"], 1, 16)[0]
    steppers = {name: Stepper(name, model, batch) for name in names}
    blocks: dict[str, float] = {}
    for name, stepper in steppers.items():
        peak = allocated_peak(stepper)
        state = stepper.block_bytes()
        blocks[name] = state
        sent = tensor_bytes(stepper.trained)
        received = sent if name != OURS else tensor_bytes(stepper.received)
        evidence.row(
            name,
            {
                "block's weights, gradients, moments": Measurement.of(state / MB, "MB"),
                "step's peak beside them": Measurement.of(peak / MB, "MB"),
                "up a round": Measurement.of(sent / MB, "MB"),
                "down a round": Measurement.of(received / MB, "MB"),
            },
            workload="MiniLM, a client with capacity 1" + (f" (rank {RANK})" if name == FEDLORA else ""),
        )
    travels = {n: tensor_bytes(s.trained) + (tensor_bytes(s.received) if n == OURS else tensor_bytes(s.trained))
               for n, s in steppers.items()}  # fmt: skip
    evidence.measured(
        "bytes-per-round",
        Measurement.of(travels[OURS], "").over(Measurement.of(travels[FEDAVG], "")),
        reason=f"FedLoRA's are {travels[FEDLORA] / travels[FEDAVG]:.3f} of FedAvg's" if FEDLORA in travels else None,
    )
    _rounds(evidence)
    return Measurement.of(blocks[OURS], "").over(Measurement.of(blocks[FEDAVG], ""))


def _rounds(evidence: Evidence) -> None:
    """Compare simulated rounds: the slowest client of each, by declared speed and counted arithmetic."""
    layers, config = 6, LeffConfig()

    def slowest(shares: list[float]) -> float:
        return max(share / speed for share, speed in zip(shares, sentences.SPEEDS, strict=True))

    worst = [
        max(compute_share(lay_out(block_layers(k, n, layers), layers, config)) for k in range(layers - n + 1))
        for n in sentences.CAPACITIES
    ]
    ours, full = slowest(worst), slowest([1.0] * len(sentences.SPEEDS))
    for name, seconds in ((OURS, ours), (FEDAVG, full)):
        evidence.row(name, {"round": Measurement.of(seconds, "full steps")}, workload="simulated round, slowest client")
    evidence.measured("straggler", Measurement.of(ours / full, "ratio"))
