"""What SUMO changes in a training run, for the adviser: bytes of optimizer state, and FLOPs of a step."""

from __future__ import annotations

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload

#: Tasks in which weights are trained by an optimizer.
TASKS = (Task.LM_PRETRAINING, Task.LM_FINETUNING, Task.IMAGE_TRAINING)

#: Newton-Schulz in Muon, FLOPs a step for m ≥ n: five iterations of 4 m n² + 2 n³.
_MUON_ITERATIONS = 5


def predict(workload: Workload) -> LedgerDelta:
    """Predict how SUMO changes bytes of state and FLOPs of a step, against the optimizer in use.

    Args:
        workload: A training task with ``hidden`` (rows and columns of the square weights that stand for all) and
            ``matrices`` (how many), and optionally ``rank`` (128), ``optimizer`` (``"adamw"``, ``"galore"`` or
            ``"muon"``; ``"adamw"``), ``steps`` (1) and ``bytes_a_number`` (4).

    Returns:
        Bytes of optimizer state and FLOPs over all steps, as changes.

    Raises:
        ValueError: A fact is missing, or ``optimizer`` is unknown.

    Example:
        >>> delta = predict(Workload(Task.LM_FINETUNING, {"hidden": 4096, "matrices": 224}))
        >>> round(delta.total(Resource.OPTIMIZER_STATE) / 1e9, 1)
        -29.1
    """
    if workload.task not in TASKS:
        return LedgerDelta.not_applicable(f"it is an optimizer of weight matrices; {workload.task} trains none")
    n, count = workload.number("hidden"), workload.number("matrices")
    r, steps, width = workload.number("rank", 128), workload.number("steps", 1), workload.number("bytes_a_number", 4)
    if r >= n:
        return LedgerDelta.not_applicable(f"a rank of {r:g} is not below the {n:g} rows of a weight")
    now = workload.facts.get("optimizer", "adamw")
    numbers = {"adamw": 2 * n * n, "galore": 3 * n * r, "muon": n * n}
    # Elementwise work counts a FLOP an entry and operation; refreshes, one in K steps, are left out on both sides.
    flops = {"adamw": 12 * n * n, "galore": 4 * n * n * r, "muon": _MUON_ITERATIONS * 6 * n**3}
    if now not in numbers:
        raise ValueError(f"workload: 'optimizer' must be one of {', '.join(numbers)}, got {now!r}")
    of_a_step = 4 * n * n * r + 6 * n * r * r + 2 * n * n
    return LedgerDelta(
        entries=(
            Entry(
                Resource.OPTIMIZER_STATE,
                width * count * (2 * n * r - numbers[str(now)]),
                f"bytes_a_number · matrices · (2 · hidden · rank − {now}'s numbers)",
                "(m + n)·r numbers a weight (arXiv 2505.24749, Table 1), confirmed by measurement: state-bytes",
            ),
            Entry(
                Resource.FLOPS,
                steps * count * (of_a_step - flops[str(now)]),
                f"steps · matrices · (4·hidden²·rank + 6·hidden·rank² + 2·hidden² − {now}'s)",
                "two products with the basis, QR of the moment, one addition (Algorithm 1)",
            ),
        ),
        preconditions=(
            "most parameters are matrices of attention and feed-forward blocks; the others keep AdamW's state",
        ),
        price=("the learning rate has to be tuned again; at equal steps a full-state optimizer (Muon) can end lower",),
    )
