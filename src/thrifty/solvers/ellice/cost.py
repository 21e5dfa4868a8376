"""What recourse over an ellipsoid costs, for the adviser."""

from __future__ import annotations

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload

#: Seconds a query of the exact solver without bounds, per feature, of this package on one thread; see the card.
SECONDS_A_FEATURE = 1.5e-6
#: Seconds a query that descends by gradients, as the authors' library does.
SECONDS_A_DESCENT = 1.6e-2


def predict(workload: Workload) -> LedgerDelta:
    """Predict the seconds that exact recourse saves over descending by gradients.

    Args:
        workload: :attr:`Task.TABULAR_CLASSIFICATION` with ``queries``, ``features`` and ``rows``.

    Returns:
        Seconds saved on the queries, and spent on the Hessian.

    Raises:
        ValueError: ``queries``, ``features`` or ``rows`` is missing.

    Example:
        >>> facts = {"queries": 1000, "features": 30, "rows": 5000}
        >>> round(predict(Workload(Task.TABULAR_CLASSIFICATION, facts)).total(Resource.SECONDS))
        -16

    Source:
        Fit O(n m²) + O(m³), a query O(m): one Cholesky factor, then closed forms.
    """
    if workload.task != Task.TABULAR_CLASSIFICATION:
        return LedgerDelta.not_applicable(f"it gives recourse from binary tabular classifiers, not {workload.task}")
    queries, features, rows = (workload.number(name) for name in ("queries", "features", "rows"))
    m = features + 1
    return LedgerDelta(
        entries=(
            Entry(
                Resource.SECONDS,
                queries * (SECONDS_A_FEATURE * features - SECONDS_A_DESCENT),
                f"queries · ({SECONDS_A_FEATURE:g} s · features − {SECONDS_A_DESCENT:g} s)",
                "measured beside the package ellice 0.1.4 on load_breast_cancer",
            ),
            Entry(Resource.FLOPS, 2 * rows * m**2 + m**3 / 3, "2 · rows · m² + m³/3, m = features + 1", "one Hessian"),
        ),
        preconditions=("the decision is binary, by a model whose last layer is linear",),
        code=f"ElliCE(model).fit(X, y).explain(asking)  # {queries:g} rows",
        assumes={"model": "one whose last layer is linear"},
        price=("answers are farther from the person than those that ignore retraining; the price grows with epsilon",),
    )
