"""What SUMO changes in a training run, for the adviser: bytes of optimizer state, and FLOPs of a step."""

from __future__ import annotations

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload

#: Tasks in which weights are trained by an optimizer.
TASKS = (
    Task.LM_PRETRAINING,
    Task.LM_FINETUNING,
    Task.LM_PREFERENCE,
    Task.LM_REINFORCEMENT,
    Task.IMAGE_TRAINING,
)

#: Newton-Schulz in Muon, FLOPs a step for m ≥ n: five iterations of 4 m n² + 2 n³.
_MUON_ITERATIONS = 5


def predict(workload: Workload) -> LedgerDelta:
    """Predict how SUMO changes bytes of state and FLOPs of a step, against the optimizer in use.

    Args:
        workload: A training task with ``hidden`` (rows and columns of the square weights that stand for all) and
            ``matrices`` (how many), and optionally ``rank`` (128), ``optimizer`` (``"adamw"``, ``"galore"`` or
            ``"muon"``; ``"adamw"``), ``steps`` (1) and ``bytes_a_number`` (4). Where shapes are known:
            ``matrix_numbers`` and ``matrix_sides``, the sums of rows times columns and of rows plus columns, and
            ``matrix_state``, the bytes that the optimizer in use, whichever it is, keeps for them on one of
            ``devices`` (1) that share them; ``other_numbers`` and ``other_state``, the same of all other weights, which
            get AdamW; ``adapter_rank`` (0: none).

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
    if workload.number("adapter_rank", 0):
        return LedgerDelta.not_applicable("adapters are trained: their matrices have no subspace worth the name")
    n, count = workload.number("hidden"), workload.number("matrices")
    r, steps, width = workload.number("rank", 128), workload.number("steps", 1), workload.number("bytes_a_number", 4)
    if r >= n:
        return LedgerDelta.not_applicable(f"a rank of {r:g} is not below the {n:g} rows of a weight")
    now = str(workload.facts.get("optimizer", "adamw"))
    if now == "sumo":
        return LedgerDelta.not_applicable("it is the optimizer in use")
    area, sides = workload.number("matrix_numbers", n * n * count), workload.number("matrix_sides", 2 * n * count)
    numbers = {"adamw": 2 * area, "galore": 1.5 * sides * r, "muon": area}
    # Elementwise work counts a FLOP an entry and operation; refreshes, one in K steps, are left out on both sides.
    flops = {"adamw": 12 * area, "galore": 4 * area * r, "muon": _MUON_ITERATIONS * 6 * n * area}
    if now not in numbers and "matrix_state" not in workload.facts:
        raise ValueError(f"workload: 'optimizer' must be one of {', '.join(numbers)}, got {now!r}")
    held = workload.number("matrix_state", width * numbers.get(now, 0.0))
    devices = workload.number("devices", 1)
    # The basis is kept in float32, and so are moments unless the user says otherwise.
    kept = 4 if "matrix_state" in workload.facts else width
    state = kept * (sides * r + 2 * workload.number("other_numbers", 0)) / devices
    held += workload.number("other_state", 0)
    of_a_step = 4 * area * r + 3 * sides * r * r + 2 * area
    if state >= held:
        return LedgerDelta.not_applicable(f"{now} keeps no more than it would at rank {r:g}")
    return LedgerDelta(
        entries=(
            Entry(
                Resource.OPTIMIZER_STATE,
                state - held,
                f"bytes · (Σ (rows + columns) · rank + 2 · other weights − {now}'s numbers) / devices",
                "(m + n)·r numbers a weight (arXiv 2505.24749, Table 1), confirmed by measurement: state-bytes",
            ),
            Entry(
                Resource.FLOPS,
                steps * (of_a_step - flops.get(now, flops["adamw"])) / devices,
                f"steps · Σ (4·rows·columns·rank + 3·(rows + columns)·rank² + 2·rows·columns) − {now}'s",
                "two products with the basis, QR of the moment, one addition (Algorithm 1)",
            ),
        ),
        preconditions=(
            "most parameters are matrices of attention and feed-forward blocks; the others keep AdamW's state",
        ),
        code=f"optimizer = SUMO(sumo_param_groups(model, rank={r:g}), lr=lr)",
        assumes={"optimizer": "SUMO"},
        price=("the learning rate has to be tuned again; at equal steps a full-state optimizer (Muon) can end lower",),
    )
