"""The ledger of decisions from a table: fitting a tree, and recourse from it."""

from __future__ import annotations

from thrifty._common.checks import whole
from thrifty._common.ledger import Resource, Task, Workload
from thrifty.advise.account import Account, Part
from thrifty.advise.advice import Advice
from thrifty.advise.offers import offers, pairs

_FORMULAS = {
    "fitting a tree": "2e-8 s · rows · features · log2(rows): CART sorts each feature",
    "recourse by gradients": "1.6e-2 s · queries, the authors' library on one thread",
}


def advise_decisions(*, rows: int, features: int, queries: int = 0, depth: int = 4) -> Advice:
    """Say what a decision tree on a table, and recourse from it, would cost and save.

    Args:
        rows: Of the table.
        features: Columns.
        queries: People who ask what would have changed their decision.
        depth: Of the tree.

    Raises:
        ValueError: A number is not positive.

    Example:
        >>> advice = advise_decisions(rows=5000, features=30, queries=1000)
        >>> {offer.method: offer.delta.total(Resource.SECONDS) < 0 for offer in advice.offers if offer.applies}
        {'ellice': True, 'trees': False}
    """
    for name, value in (("rows", rows), ("features", features), ("depth", depth)):
        whole(name, value)
    whole("queries", queries, least=0)
    fit = 2e-8 * rows * features * max(1.0, (rows).bit_length())
    seconds = {"fitting a tree": fit} | ({"recourse by gradients": 1.6e-2 * queries} if queries else {})
    parts = tuple(Part(name, Resource.SECONDS, amount, _FORMULAS[name]) for name, amount in seconds.items())
    job = Workload(
        Task.TABULAR_CLASSIFICATION,
        {"rows": rows, "features": features, "depth": depth} | ({"queries": queries} if queries else {}),
    )
    now = Account(parts, seconds)
    found = offers(job, now)
    return Advice(f"decisions on {rows} rows of {features} features", now, found, pairs(found, now))
