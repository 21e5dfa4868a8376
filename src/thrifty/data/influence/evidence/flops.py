"""The paper's cost formula against its own figures, and the count that forward mode really needs."""

from __future__ import annotations

from thrifty.bench.claims import Measurement
from thrifty.bench.evidence import Evidence
from thrifty.data.influence.cost import Count, exact_flops, forward_flops, influence_flops
from thrifty.data.influence.evidence.comparison import EXACT, OURS, RDS

#: Pool, landmarks, parameters of Llama2-7B, and blocks of the four models.
POOL, LANDMARKS, SEVEN_B = 200_000, 4096, 7e9
BLOCKS = {"Llama2-7B": 32, "Llama3.2-3B": 28, "Qwen2.5-1.5B": 28, "Qwen2.5-3B": 36}

#: The range of speed-ups over RDS+ that the paper prints.
PUBLISHED_RANGE = (2.9, 3.5)


def ratio(layers: int, count: Count) -> float:
    """Return FLOPs of RDS+ over ours."""
    return forward_flops(1.0, POOL) / influence_flops(1.0, POOL, LANDMARKS, layers=layers, count=count)


def show(evidence: Evidence) -> None:
    """Compare every published figure with the formula's, rounded as it was printed."""
    ours = influence_flops(SEVEN_B, POOL, LANDMARKS, layers=32, count="paper")
    ratios = [round(ratio(layers, "paper"), 1) for layers in BLOCKS.values()]
    pairs = [
        (round(ours / 1e12), 872),
        (round(forward_flops(SEVEN_B, POOL) / 1e12), 2800),
        (round(exact_flops(SEVEN_B, POOL) / 1e12), 8400),
        (min(ratios), PUBLISHED_RANGE[0]),
        (max(ratios), PUBLISHED_RANGE[1]),
    ]
    evidence.measured("flop-model", Measurement.of(sum(a != b for a, b in pairs), "figures"))
    honest = [ratio(layers, "forward_ad") for layers in BLOCKS.values()]
    rough = [ratio(layers, "finite_difference") for layers in BLOCKS.values()]
    reason = f"with finite differences {min(rough):.2f} to {max(rough):.2f}"
    evidence.measured("flops-honest", Measurement.of(honest, "ratio"), reason=reason)
    counted: dict[str, float] = {
        EXACT: exact_flops(SEVEN_B, POOL),
        RDS: forward_flops(SEVEN_B, POOL),
        f"{OURS}, as published": ours,
        f"{OURS}, forward mode": influence_flops(SEVEN_B, POOL, LANDMARKS, layers=32),
        f"{OURS}, finite differences": influence_flops(SEVEN_B, POOL, LANDMARKS, layers=32, count="finite_difference"),
    }
    for name, spent in counted.items():
        evidence.row(
            name,
            {"cost a token": Measurement.of(spent / 1e12, "TFLOP")},
            workload="Llama2-7B, 200 000 examples (formula)",
        )
    points = {"cost": (counted, [spent / 1e12 for spent in counted.values()])}
    evidence.curves("Selecting from 200 000 examples with Llama2-7B", "", "TFLOP a token", points, kind="bar")
