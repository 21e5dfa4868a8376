"""A run's ledger as tables: what each round did, what each client did, how often each layer was trained."""

from __future__ import annotations

import statistics
from typing import Any

from thrifty.training.leff.rounds import ClientRecord, History

MB = 1e6


def summary(history: History) -> dict[str, Any]:
    """Return a run in numbers that JSON can carry.

    Args:
        history: The ledger.

    Returns:
        ``rounds`` (a row a round), ``clients`` (a row a client), ``coverage`` (by layer), ``down`` and ``up`` (bytes).
    """
    return {
        "layers": history.num_layers,
        "rounds": [
            {
                "round": r.round,
                "asked": len(r.clients),
                "averaged": len(r.averaged),
                "refused": len(r.refused) + sum(c.status.startswith("refused") for c in r.clients.values()),
                "failed": r.failed,
                "loss": _mean([c.metrics["loss"] for c in r.averaged if "loss" in c.metrics]),
                "down": r.down,
                "up": r.up,
                "distill_steps": r.distill_steps,
                "simulated_seconds": r.simulated_seconds,
                **{f"evaluation {name}": value for name, value in r.evaluation.items()},
            }
            for r in history.rounds
        ],
        "clients": {name: _client([record for _, record in rounds]) for name, rounds in history.by_client().items()},
        "coverage": history.coverage(),
        "down": history.down,
        "up": history.up,
    }


def _client(records: list[ClientRecord]) -> dict[str, Any]:
    done = [record for record in records if record.status == "averaged"]
    return {
        "asked": len(records),
        "averaged": len(done),
        "layers": max(len(record.block) for record in records),
        "depth": max(record.depth for record in records),
        "compute": _mean([record.compute for record in records]),
        "peak_bytes": max((record.metrics.get("peak_bytes", 0.0) for record in done), default=0.0),
        "step_seconds": _mean([record.metrics["step_seconds"] for record in done if "step_seconds" in record.metrics]),
        "loss": _mean([record.metrics["loss"] for record in done[-1:] if "loss" in record.metrics]),
        "down": sum(record.down for record in records),
        "up": sum(record.up for record in done),
    }


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None
