"""What a user would reach for instead: other rules for the draft length, other cost models, other roll-backs.

Clean-room, small, for the evidence: the EMA policy of SGLang's adaptive mode with its default table, the one-sided
threshold of vLLM's first engine, cost models without experts, and rolling all rows back to the shortest acceptance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.activation import Floats
from thrifty.inference.speculation.rows import Row

#: Candidate steps of SGLang's adaptive mode by the smallest batch of a range: off from 64 on.
EMA_TABLE = {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}


def ema_gamma(batch: int, acceptance: Acceptance, *, up: float = -0.25, down: float = 0.0) -> int:
    """Return the draft length at which the EMA policy comes to rest.

    A step down while ema ≤ previous − 0.5 + down, up while ema > current − 0.5 + up, with the mean of accepted drafts
    at the present length in place of its moving average.
    """
    candidates = next(c for low, c in sorted(EMA_TABLE.items(), reverse=True) if batch >= low)
    place = len(candidates) // 2
    for _ in range(2 * len(candidates)):
        ema = float(acceptance.expected_tokens(candidates[place])) - 1
        if place and ema <= candidates[place - 1] - 0.5 + down:
            place -= 1
        elif place < len(candidates) - 1 and ema > candidates[place] - 0.5 + up:
            place += 1
        else:
            break
    return candidates[place]


def threshold_gamma(batch: int, gamma: int = 4, off_above: int = 16) -> int:
    """Return the length of the rule that drafts a fixed number up to some batch size, and nothing above."""
    return gamma if batch <= off_above else 0


def without_experts(rows: Sequence[Row]) -> list[Row]:
    """Return the rows as a model without experts sees them: every weight is read always, and sees all tokens."""
    return [replace(row, num_experts=1, top_k=1) for row in rows]


def linear_speedups(rows: Sequence[Row], asked: Sequence[Row]) -> Floats:
    """Fit T = 1 + b · tokens and a constant draft step to speed-ups, as goodput schedulers do; predict others."""

    def predict(x: Floats, of: Sequence[Row]) -> Floats:
        b, draft = x
        columns = (np.array([getattr(row, n) for row in of], float) for n in ("batch_size", "gamma", "sigma"))
        batch, gamma, sigma = columns
        round_ = gamma * draft + 1 + b * batch * (gamma + 1)
        return np.asarray(sigma * (gamma + 1) * (1 + b * batch) / round_)

    measured = np.array([row.speedup for row in rows], float)
    found = least_squares(lambda x: predict(x, rows) - measured, [0.01, 0.1], bounds=(0, np.inf))
    return predict(found.x, asked)


def rolling_back_together(decoder: Any) -> Any:
    """Return the decoder with all rows rolled back to the one that accepted least, as batched assisted decoding does.

    It stays lossless: a row that accepted more goes on with its next draft token.
    """
    from thrifty.inference.speculation.decode.batch import Batch

    class Together(type(decoder)):  # type: ignore[misc]
        def _round(self, batch: Batch, output: Any, unread: int) -> Any:
            accept = batch.accept

            def shortest(drafts: Any, q: Any, logits: Any) -> Any:
                before = batch.length
                accepted, block = accept(drafts, q, logits)
                fewest = accepted.min().expand_as(accepted).clone()
                batch.length = before + fewest + 1
                return fewest, block

            batch.accept = shortest  # type: ignore[method-assign]
            try:
                return super()._round(batch, output, unread)
            finally:
                batch.accept = accept  # type: ignore[method-assign]

    return Together(decoder.target, decoder.draft, decoder.gamma, experts=decoder.experts)
