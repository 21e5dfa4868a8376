"""Choosing the draft length while serving: goodput with the acceptance as it is now, and times as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from thrifty._common.checks import flag, number, whole
from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.model import SpeculationModel
from thrifty.inference.speculation.schedule import best_gammas, goodput

#: Acceptances that are taken as seen before the first: Beta(4, 1) at every position.
PRIOR = (4.0, 1.0)


class GammaController:
    """Adapts the draft length to acceptance and load.

    Survival is counted by position and forgotten exponentially; every ``every`` rounds the length is chosen anew by
    goodput, and changed only for a gain. Where it is 0, a round with one draft token now and then finds out whether
    that has changed; such probes become rarer while they find nothing. The same observations give the same choices.

    Args:
        model: The cost model.
        max_gamma: The longest draft.
        every: Rounds between decisions.
        forget: What a count is worth a round later.
        min_switch: Gain for which the length is changed.
        min_gain: Gain over plain decoding for which anything is drafted.
        probe: First and last number of plain rounds between probes.
        correct: Follow what drafting costs beside verification, as measured (exponential moving average).

    Raises:
        ValueError: ``max_gamma`` is below 1.

    Example:
        >>> model = SpeculationModel(64, 8, 75.0, 1.02, 2.0, 0.05, 0.3, 0.1, 1.0, 0.01, 0.05, 0.001)
        >>> controller = GammaController(model, max_gamma=4)
        >>> first = controller.gamma(16)
        >>> for _ in range(64):  # nothing is accepted
        ...     controller.observe(16, controller.gamma(16), (16, 0, 0, 0, 0)[: controller.gamma(16) + 1])
        >>> first, controller.gamma(16)
        (4, 0)

    Source:
        Liu et al., "Optimizing Speculative Decoding for Serving Large Language Models Using Goodput", arXiv 2406.14066;
        the probes and the switching are ours.
    """

    def __init__(
        self,
        model: SpeculationModel,
        *,
        max_gamma: int = 7,
        every: int = 8,
        forget: float = 0.98,
        min_switch: float = 0.02,
        min_gain: float = 0.03,
        probe: tuple[int, int] = (16, 256),
        correct: bool = True,
    ) -> None:
        if not isinstance(model, SpeculationModel):
            raise TypeError(f"model: expected a SpeculationModel, got {type(model).__name__}")
        whole("max_gamma", max_gamma)
        whole("every", every)
        if not 0 < number("forget", forget, "a share in (0, 1]") <= 1:
            raise ValueError(f"forget: expected a share in (0, 1], got {forget}")
        number("min_switch", min_switch, "a share of at least 0", least=0)
        number("min_gain", min_gain, "a share of at least 0", least=0)
        flag("correct", correct)
        if isinstance(probe, str) or len(probe) != 2:
            raise ValueError(f"probe: expected the rounds before the first and the last probe, got {probe!r}")
        for rounds in probe:
            whole("probe", rounds, what="two whole numbers of rounds")
        self.model, self.max_gamma, self.every, self.forget = model, max_gamma, every, forget
        self.min_switch, self.min_gain, self.correct = min_switch, min_gain, correct
        self._probe = probe
        self._survived = np.full(max_gamma, PRIOR[0])
        self._tried = np.full(max_gamma, sum(PRIOR))
        self._draft = 1.0  # what drafting costs beside the target, measured over predicted
        self._current: dict[int, int] = {}  # chosen at each batch size
        self._rounds = 0
        self._decided: dict[int, int] = {}
        self._plain, self._pause = 0, probe[0]
        self._probing = False

    def gamma(self, batch: int) -> int:
        """Return the draft length of the next round for a batch size."""
        if batch not in self._current or self._rounds - self._decided[batch] >= self.every:
            self._decide(batch)
        chosen = self._current[batch]
        self._probing = chosen == 0 and self._plain >= self._pause
        return 1 if self._probing else chosen

    def observe(
        self,
        batch: int,
        gamma: int,
        accepted: Sequence[int],
        *,
        verify_ms: float | None = None,
        draft_ms: float | None = None,
    ) -> None:
        """Learn from a round.

        Args:
            batch: Rows that took part.
            gamma: Draft tokens of each.
            accepted: How many rows accepted exactly 0, 1, ... γ.
            verify_ms: The target's pass.
            draft_ms: All draft steps.

        Raises:
            ValueError: ``accepted`` holds another number of counts.
        """
        if len(accepted) != gamma + 1:
            raise ValueError(f"accepted: expected {gamma + 1} counts for gamma={gamma}, got {len(accepted)}")
        self._rounds += 1
        self._survived *= self.forget
        self._tried *= self.forget
        reached = np.cumsum(np.asarray(accepted, float)[::-1])[::-1]  # rows that accepted at least 0, 1, ...
        for i in range(min(gamma, self.max_gamma)):  # the chance at a position, given all before
            self._tried[i] += reached[i]
            self._survived[i] += reached[i + 1]
        if self.correct and verify_ms and draft_ms and gamma:
            # A common factor of all times changes no choice: only their ratio counts.
            predicted = gamma * self.model.draft_time(batch) / self.model.target_time(batch, self.model.width(gamma))
            if predicted:
                self._draft += 0.1 * (draft_ms / verify_ms / float(predicted) - self._draft)
        if gamma == 0:
            self._plain += 1
        elif self._probing:
            self._plain = 0
            self._decide(batch)
            found = self._current[batch] > 0
            self._pause = self._probe[0] if found else min(2 * self._pause, self._probe[1])

    def acceptance(self) -> Acceptance:
        """Return the acceptance as it is seen now."""
        return Acceptance.from_survival(np.cumprod(self._survived / self._tried).tolist())

    def _decide(self, batch: int) -> None:
        """Choose the best length for a batch size; stay with the present one unless the gain is worth a change."""
        lengths = np.arange(self.max_gamma + 1)
        names = ("draft_bias", "draft_slope", "draft_load", "kv_draft")
        model = replace(self.model, **{name: getattr(self.model, name) * self._draft for name in names})
        table = goodput(model, np.array([batch]), lengths, self.acceptance())
        best = int(best_gammas(table, min_gain=self.min_gain)[0])
        now = self._current.get(batch)
        if now is None or table[best, 0] > (1 + self.min_switch) * table[now, 0] or (best == 0 and now > 0):
            self._current[batch] = best
        self._decided[batch] = self._rounds
