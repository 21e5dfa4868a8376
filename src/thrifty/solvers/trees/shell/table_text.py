"""A table of errors for four budgets, as text and as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from thrifty.solvers.trees.boxes.error_table import BUDGETS, ErrorTable


def table_text(table: ErrorTable) -> str:
    """One row for each number of changes (and of cuts removed by raising), one column for each number replaced.

    A dash: no pruning of the tree removes exactly so many cuts that way. Below: what can go at no error.
    """
    n_adjust, n_exchange, n_prune, n_raise = table.shape
    keys = [("adjust", n_adjust), ("exchange", n_exchange), ("raise", n_raise)]
    shown = [position for position, (_, n) in enumerate(keys) if n > 1 or keys[position][0] == "adjust"]
    head = [keys[position][0] for position in shown] + [f"prune {r}" for r in range(n_prune)]
    rows = [head]
    for a, e, q in np.ndindex(n_adjust, n_exchange, n_raise):
        cells = [f"{errors:g}" if np.isfinite(errors) else "-" for errors in table[a, e, :, q]]
        rows.append([str((a, e, q)[position]) for position in shown] + cells)
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    if table.status != "optimal":
        return "\n".join([*lines, "the time ran out: the entries are lower bounds"])
    return "\n".join([*lines, *_free(table)])


def _free(table: ErrorTable) -> list[str]:
    """A line for each number of changes after which more cuts can go at no error."""
    lines = []
    for (a, e), removed in np.ndenumerate(table.free_pruning()):
        if removed:
            cuts = "1 cut" if removed == 1 else f"{removed} cuts"
            lines.append(f"after {a} adjusted and {e} exchanged, {cuts} can go at no error")
    return lines


def table_to_dict(table: ErrorTable) -> dict[str, Any]:
    """Lists and numbers, ready for JSON; entries without a pruning are ``None``."""
    errors = table.errors.astype(object)
    errors[~np.isfinite(table.errors)] = None
    return {
        "budgets": list(BUDGETS),
        "errors": errors.tolist(),
        "free_pruning": table.free_pruning().tolist() if table.status == "optimal" else None,
        "status": table.status,
        "n_states": table.n_states,
    }


def parse_entry(text: str, budgets: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The entry that ``1,0,2,0`` names.

    Raises:
        ValueError: It does not hold a number for each budget, from 0 to what the budget allows.
    """
    try:
        adjust, exchange, prune, raised = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--entry: expected four whole numbers such as 1,0,2,0, got {text!r}") from None
    index = (adjust, exchange, prune, raised)
    for name, i, budget in zip(BUDGETS, index, budgets, strict=True):
        if not 0 <= i <= budget:
            raise ValueError(f"--entry: expected {name} from 0 to {budget}, got {i}")
    return index
