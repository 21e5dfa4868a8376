"""What play by kernels costs beside play over a list of all actions, for the adviser."""

from __future__ import annotations

import math

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Workload

#: The workload that it is for.
TASK = "equilibria of Colonel Blotto games"
#: Seconds a round and step of the kernel: an estimate, of runs on a machine that others used too (one thread).
SECONDS_A_STEP = 1.0e-8
#: Seconds a round and battlefield of a listed action, likewise.
SECONDS_A_LISTED = 2.0e-8


def predict(workload: Workload) -> LedgerDelta:
    """Predict the seconds and bytes that kernels save over a list of all allocations, from semi-bandit feedback.

    Args:
        workload: ``"equilibria of Colonel Blotto games"`` with ``soldiers``, ``battlefields``, and optionally
            ``players`` (2) and ``rounds`` (10 000).

    Returns:
        Seconds and bytes, below zero where kernels save them.

    Raises:
        ValueError: ``soldiers`` or ``battlefields`` is missing.

    Example:
        >>> delta = predict(Workload(TASK, {"soldiers": 20, "battlefields": 6}))
        >>> delta.total(Resource.SECONDS) < 0, round(delta.total(Resource.HOST) / 1e6, 1)
        (True, -1.7)

    Source:
        A round costs O(n² k) by kernels; a list has C(n + k - 1, k - 1) actions of k numbers, and a weight each.
    """
    if workload.task != TASK:
        return LedgerDelta.not_applicable(f"it finds equilibria of games with structure, not {workload.task}")
    n, k = workload.number("soldiers"), workload.number("battlefields")
    players, rounds = workload.number("players", 2), workload.number("rounds", 10_000)
    steps, listed = n**2 * k / 2, float(math.comb(int(n + k - 1), int(k - 1)))
    seconds = rounds * players * (SECONDS_A_STEP * steps - SECONDS_A_LISTED * listed * k)
    return LedgerDelta(
        entries=(
            Entry(
                Resource.SECONDS,
                seconds,
                f"rounds · players · ({SECONDS_A_STEP:g} s · n² k / 2 − {SECONDS_A_LISTED:g} s · C(n+k−1, k−1) · k)",
                "estimated from runs beside the same learner over a list",
            ),
            Entry(
                Resource.HOST, -listed * (4 * k + 8), "− C(n+k−1, k−1) · (4 k + 8) bytes", "a list and a law over it"
            ),
        ),
        preconditions=("a player's loss is a sum over battlefields",),
        code=f'solve_cce(ColonelBlotto([{n:g}] * {players:g}, values), "semi-bandit", horizon={rounds:g})',
        price=(
            "the gap falls with the root of the number of rounds; with full feedback in expectation, with the number",
        ),
    )
