"""A result as a person reads it: how good it is, what each player plays most, and where."""

from __future__ import annotations

from typing import Any

import numpy as np

from thrifty.solvers.games.actions import BlottoSet, DagPathSet, SpanningTreeSet
from thrifty.solvers.games.result import CCEResult


def facts_of(result: CCEResult, top: int = 10) -> dict[str, Any]:
    """Return what JSON says of a result.

    Args:
        result: Of play.
        top: How many actions of each player.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto, solve_cce
        >>> facts = facts_of(solve_cce(ColonelBlotto([3, 3], [1, 2, 3]), "full", 100))
        >>> facts["rounds"], len(facts["players"])
        (100, 2)
    """
    facts: dict[str, Any] = {
        "gap": result.gap,
        "gaps": result.gaps.tolist(),
        "expected_gaps": result.expected_gaps.tolist(),
        "rounds": result.rounds,
        "seconds": result.seconds,
        "feedback": list(result.feedback),
        "zero_sum": bool(result.game.zero_sum),
        "exploitability": result.exploitability if hasattr(result.game, "expected_losses") else None,
        "players": [
            {
                "average_loss": float(result.average_loss[i]),
                "log10_actions": actions.log_size / np.log(10),
                "marginals": marginals.tolist(),
                "top": None
                if result.history is None
                else [
                    {"action": actions.describe(taken), "share": float(share)} for taken, share in result.top(i, top)
                ],
            }
            for i, (actions, marginals) in enumerate(zip(result.game.sets, result.marginals, strict=True))
        ],
        "trace": {
            "rounds": result.trace.rounds.tolist(),
            "seconds": result.trace.seconds.tolist(),
            "gap": result.trace.gap.tolist(),
            "expected_gap": np.maximum(result.trace.expected_gaps.max(axis=1), 0.0).tolist(),
        },
    }
    return facts


def summary(result: CCEResult) -> str:
    """Return the certificate in words."""
    lines = [
        f"gap {result.gap:.6g} after {result.rounds} rounds, {result.seconds:.1f} s of play: nobody would save more a "
        "round by any fixed action",
        f"  of expected losses: {max(0.0, float(result.expected_gaps.max())):.6g}",
    ]
    for i, (gap, loss, actions) in enumerate(zip(result.gaps, result.average_loss, result.game.sets, strict=True)):
        lines.append(
            f"player {i}: gap {gap:.6g}, average loss {loss:.6g}, {result.feedback[i]} feedback, "
            f"10^{actions.log_size / np.log(10):.1f} actions"
        )
    if result.game.zero_sum:
        lines.append(f"zero-sum: the average laws are a Nash equilibrium up to {result.exploitability:.6g}")
    return "\n".join(lines)


def strategies(result: CCEResult, top: int = 10) -> str:
    """Return every player's most frequent actions, and where its average law puts weight."""
    parts = []
    for i, (actions, marginals) in enumerate(zip(result.game.sets, result.marginals, strict=True)):
        lines = [f"player {i}"]
        if result.history is not None:
            lines += [f"  {share:7.2%}  {actions.describe(taken)}" for taken, share in result.top(i, top)]
        parts.append("\n".join([*lines, *_where(actions, marginals, top)]))
    return "\n\n".join(parts)


def _where(actions: Any, marginals: Any, top: int) -> list[str]:
    """Return soldiers of each battlefield, or the likeliest coordinates."""
    if isinstance(actions, BlottoSet):
        chances = marginals.reshape(actions.battlefields, actions.soldiers + 1)
        units = np.arange(actions.soldiers + 1)
        lines = ["  battlefield  mean  soldiers (probability), likeliest first"]
        for h, row in enumerate(chances):
            order = np.argsort(-row, kind="stable")[: min(top, 6)]
            likely = "  ".join(f"{s} ({row[s]:.2f})" for s in order)
            lines.append(f"  {h:11d}  {row @ units:4.1f}  {likely}")
        return lines
    lines = [f"  {'probability':>11}  {'edge' if hasattr(actions, 'edges') else 'coordinate'}"]
    for j in np.argsort(-marginals, kind="stable")[:top]:
        lines.append(f"  {marginals[j]:11.4f}  {coordinate(actions, int(j))}")
    return lines


def coordinate(actions: Any, j: int) -> str:
    """Return a coordinate in words."""
    if isinstance(actions, (DagPathSet, SpanningTreeSet)):
        a, b = actions.edges[j]
        return f"{a} -> {b}" if isinstance(actions, DagPathSet) else f"{a} - {b}"
    return str(j)
