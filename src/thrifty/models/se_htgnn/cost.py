"""What the model changes in training on a temporal graph, for the adviser: parameters, activations, FLOPs."""

from __future__ import annotations

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload


def predict(workload: Workload) -> LedgerDelta:
    """Predict how the model changes weights, activations and FLOPs against HTGNN of equal depth and width.

    Args:
        workload: A ``"temporal graph forecasting"`` with ``nodes`` (of a snapshot), ``edges`` (of a snapshot, over all
            relations), ``relations`` (R), ``hidden`` (d), and optionally ``types`` (of nodes; 2), ``window`` (T; 7),
            ``layers`` (1), ``batch`` (windows a step; 16), ``steps`` (updates; 1) and ``bytes_a_number`` (4).

    Returns:
        Bytes of weights and of activations, and FLOPs of all steps, as changes against HTGNN.

    Raises:
        ValueError: A fact is missing.

    Example:
        >>> facts = {"nodes": 123, "edges": 851, "relations": 6, "hidden": 16}
        >>> delta = predict(Workload("temporal graph forecasting", facts))
        >>> round(delta.total(Resource.WEIGHTS) / 4)
        -16932
    """
    if workload.task != Task.GRAPH_FORECASTING:
        return LedgerDelta.not_applicable(f"it forecasts on graphs of typed nodes over time; {workload.task} has none")
    N, E, R, d = (workload.number(name) for name in ("nodes", "edges", "relations", "hidden"))
    types, T, L = workload.number("types", 2), workload.number("window", 7), workload.number("layers", 1)
    B, updates, width = workload.number("batch", 16), workload.number("steps", 1), workload.number("bytes_a_number", 4)
    ours = L * R * (3 * d + 9) + T + 1
    theirs = L * (T * R * (d * d + 2 * d) + T * (d * d + 2 * d) + types * (6 * d * d + 3 * d + 1))
    frames = B + T - 1  # consecutive windows share snapshots in the first layer
    rows = R / types * N  # a node is the destination of R / types relations
    seen = (frames + (L - 1) * B * T) * rows
    pairs = L * B * T * rows
    flops = 6 * (
        (frames + (L - 1) * B * T) * (E * d + rows * 3 * d) - L * B * T * (E * d + (2 * rows + N) * d * d + N * T * d)
    )
    return LedgerDelta(
        entries=(
            Entry(Resource.WEIGHTS, width * (ours - theirs), "bytes_a_number · (L·R·(3d + 9) + T + 1 − HTGNN's)",
                  "specification, section 9: parameter counts; HTGNN's released code"),
            Entry(Resource.ACTIVATIONS, width * (3 * seen * d - 6 * pairs * d),
                  "bytes_a_number · d · (3·frames − 6·L·B·T) · R·N/types", "arXiv 2510.18467, complexity: TRned"),
            Entry(Resource.FLOPS, updates * flops,
                  "steps · 6 · (frames·(E·d + 3·d·R·N/types) − L·B·T·(E·d + n·d² + T·d))",
                  "arXiv 2510.18467, complexity of both models"),
        ),
        preconditions=(
            f"windows of {T:g} snapshots, {B:g} consecutive ones a step, all of a graph's nodes in memory",
            "against HTGNN of equal depth and width",
        ),
        code=f"SEHTGNN(data.metadata(), data.num_features(), {d:g}, num_layers={L:g}, window={T:g})",
        price=("neighbours of one relation count alike; only relations are weighed", "another model, trained anew"),
    )  # fmt: skip
