"""The proof with the fewest distinct steps, as an integer programme (HiGHS, through SciPy).

Source: arXiv 2510.25626; order variables against circles as in Miller, Tucker, Zemlin, J. ACM 7 (1960).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thrifty.evaluation.reasoning.logic.hypergraph import Hypergraph


def fewest_edges(
    graph: Hypergraph, goal: int, edges: Sequence[int], time_limit: float, excluded: Sequence[frozenset[int]]
) -> list[int] | None:
    """Solve the integer programme over x (edges), y (theorems) and π (their order); ``None``: not to optimality.

    min Σ x_e with y_goal = 1; Σ_{e into v} x_e ≥ y_v; y_u ≥ x_e for each premise u of e that is no axiom; and
    π_head ≥ π_u + 1 − (n + 1)(1 − x_e), which forbids circles. An excluded proof's edges may not all be used.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import, and rarely needed
    from scipy.sparse import coo_array

    heads = list(dict.fromkeys(graph.edges[number].head for number in edges))
    place = {node: at for at, node in enumerate(heads)}
    m, n = len(edges), len(heads)
    cells: list[tuple[int, int, float]] = []
    low: list[float] = []

    def row(bound: float, *terms: tuple[int, float]) -> None:
        cells.extend((len(low), column, value) for column, value in terms)
        low.append(bound)

    into: dict[int, list[int]] = {}
    for column, number in enumerate(edges):
        into.setdefault(graph.edges[number].head, []).append(column)
    for head, columns in into.items():
        row(0, *((column, 1.0) for column in columns), (m + place[head], -1.0))
    for column, number in enumerate(edges):
        edge = graph.edges[number]
        for end in dict.fromkeys(edge.tail):
            if end in place and end not in graph.given:
                row(0, (m + place[end], 1.0), (column, -1.0))
                ordered = ((m + n + place[edge.head], 1.0), (m + n + place[end], -1.0), (column, -(n + 1.0)))
                row(-float(n), *ordered)
    column_of = {number: column for column, number in enumerate(edges)}
    for proof in excluded:
        row(1 - len(proof), *((column_of[number], -1.0) for number in proof))
    rows, columns_, values = zip(*cells, strict=True)
    matrix = coo_array((values, (rows, columns_)), shape=(len(low), m + 2 * n)).tocsr()
    lower, upper = np.zeros(m + 2 * n), np.concatenate([np.ones(m + n), np.full(n, float(n))])
    lower[m + place[goal]] = 1
    result = milp(
        np.concatenate([np.ones(m), np.zeros(2 * n)]),
        integrality=np.concatenate([np.ones(m + n), np.zeros(n)]),
        bounds=Bounds(lower, upper),
        constraints=LinearConstraint(matrix, np.array(low), np.inf),
        options={"time_limit": time_limit, "mip_rel_gap": 0.0},
    )
    if result.status != 0 or result.x is None:
        return None
    return [number for number, share in zip(edges, result.x[:m], strict=True) if share > 0.5]
