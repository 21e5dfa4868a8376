"""What local search on a decision tree costs, for the adviser."""

from __future__ import annotations

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload

#: Seconds a row, feature and level of one sweep took when it was measured (one thread); see the card.
SECONDS_A_STEP = 1.0e-7


def predict(workload: Workload) -> LedgerDelta:
    """Predict the seconds that hill-climbing adds to a CART fit.

    Args:
        workload: :attr:`Task.TABULAR_CLASSIFICATION` with ``rows`` and ``features``, and optionally ``depth`` of the
            tree (4) and ``moves`` until no change helps (10).

    Returns:
        The seconds added; nothing else changes, the tree keeps its size.

    Raises:
        ValueError: ``rows`` or ``features`` is missing.

    Example:
        >>> delta = predict(Workload(Task.TABULAR_CLASSIFICATION, {"rows": 20_000, "features": 10}))
        >>> round(delta.total(Resource.SECONDS), 1)
        0.8

    Source:
        One operation is found in O(n·d·depth) steps by sweeps (``sweeps.single``).
    """
    if workload.task != Task.TABULAR_CLASSIFICATION:
        return LedgerDelta.not_applicable(f"it improves decision trees for classification, not {workload.task}")
    rows, features = workload.number("rows"), workload.number("features")
    depth, moves = workload.number("depth", 4), workload.number("moves", 10)
    return LedgerDelta(
        entries=(
            Entry(
                Resource.SECONDS,
                SECONDS_A_STEP * rows * features * depth * moves,
                f"{SECONDS_A_STEP:g} s · rows · features · depth · moves",
                "one sweep a cut and feature (arXiv 2510.12726 with the sweep of this package)",
            ),
        ),
        preconditions=("the model is one decision tree that people read or that must stay small",),
        code="better, report = improve_tree(tree, X, y, k=2)",
        assumes={"model": "a decision tree"},
        price=("training errors fall; on small noisy tables test errors may not: choose k by cross-validation",),
    )
