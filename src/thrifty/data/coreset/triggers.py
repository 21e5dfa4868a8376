"""When to choose anew: rules that look at the signal-to-noise ratio, at the clock, or at what a caller gives."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from thrifty._common.checks import number, one_of, whole
from thrifty.data.coreset.signal import KINDS

_log = logging.getLogger(__name__)
TRIGGERS = ("below", "relative_drop", "percentile", "interval", "never")
#: Of them, those that look at the ratio.
WATCHING = ("below", "relative_drop", "percentile")
#: Checks after which a trigger that answered always or never alike is reported.
MANY = 10


@dataclass(frozen=True)
class Check:
    """What a trigger is told.

    Args:
        epoch: That is about to begin, from 1.
        snr: Of the subset, with the weights as they are; NaN if none was asked for.
        reference: The ratio just after the last selection; NaN before it is known.
        earlier: The ratios of earlier checks, oldest first.
        coreset: Whose subset it is, where there is one.
    """

    epoch: int
    snr: float
    reference: float
    earlier: Sequence[float]
    coreset: Any = None


Trigger = Callable[[Check], bool]


@dataclass
class RepresentativenessMonitor:
    """Decides when a subset has gone stale.

    Args:
        kind: Which signal-to-noise ratio; see :func:`gradient_snr`.
        threshold: τ: for ``"below"`` the ratio itself; for ``"relative_drop"`` the share lost since the last
            selection; for ``"percentile"`` the quantile (0 to 1) of the last checks.
        trigger: ``"below"`` (SNR < τ, the paper's algorithm 1), ``"relative_drop"`` (1 − SNR / SNR at the last
            selection > τ, which fits its ablation), ``"percentile"``, ``"interval"`` (at each check), ``"never"``, or a
            function of a :class:`Check`.
        every: C, epochs between two checks.
        cooldown: Checks after a selection that are passed over.
        min_gap: Epochs between two selections at least.
        max_updates: Selections at most (the first is not counted).
        window: Checks that ``"percentile"`` looks at.
        weighted: Weigh the gradients in the ratio.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> monitor = RepresentativenessMonitor(threshold=0.3, every=3)
        >>> [epoch for epoch in range(1, 11) if monitor.due(epoch)]
        [3, 6, 9]
        >>> monitor.decide(3, 0.5), monitor.decide(6, 0.2)
        (False, True)

    Source:
        The paper's algorithm 1; its text and its ablation contradict it, hence the other two rules.
    """

    kind: str = "spectral"
    threshold: float = 0.3
    trigger: str | Trigger = "below"
    every: int = 3
    cooldown: int = 0
    min_gap: int = 0
    max_updates: int | None = None
    window: int = 10
    weighted: bool = False
    _reference: float = field(default=math.nan, init=False)
    _seen: list[float] = field(default_factory=list, init=False)
    _checks: int = field(default=0, init=False)
    _updates: int = field(default=0, init=False)
    _rest: int = field(default=0, init=False)
    _last: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        if not callable(self.trigger):
            one_of("trigger", self.trigger, TRIGGERS)
        number("threshold", self.threshold, "a number of at least 0", least=0.0)
        if self.trigger == "percentile" and not 0 < self.threshold < 1:
            raise ValueError(f"threshold: expected a quantile in (0, 1) for percentile, got {self.threshold!r}")
        for name in ("every", "window"):
            whole(name, getattr(self, name))
        for name in ("cooldown", "min_gap"):
            whole(name, getattr(self, name), least=0)
        if self.max_updates is not None:
            whole("max_updates", self.max_updates, least=0)

    @property
    def watches(self) -> bool:
        """Whether the ratio is needed at a check."""
        return callable(self.trigger) or self.trigger in WATCHING

    @property
    def updates(self) -> int:
        """Selections asked for so far."""
        return self._updates

    def due(self, epoch: int) -> bool:
        """Tell whether there is a check before an epoch, counted from 1."""
        return self.trigger != "never" and epoch % self.every == 0

    def decide(self, epoch: int, snr: float = math.nan, coreset: Any = None) -> bool:
        """Tell whether to choose anew, and remember the check.

        Args:
            epoch: That is about to begin, from 1.
            snr: Of the subset; not needed where :attr:`watches` is False.
            coreset: For a trigger that looks at more than the ratio.
        """
        check = Check(epoch, snr, self._reference, tuple(self._seen), coreset)
        self._checks += 1
        if self.watches:
            self._seen.append(snr)
        wanted = bool(self.trigger(check) if callable(self.trigger) else self._rule(check))
        resting, self._rest = self._rest > 0, max(0, self._rest - 1)
        spent = self.max_updates is not None and self._updates >= self.max_updates
        if not wanted or resting or spent or (self._updates and epoch - self._last < self.min_gap):
            self._report()
            return False
        self._updates, self._last, self._rest = self._updates + 1, epoch, self.cooldown
        self._report()
        return True

    def selected(self, snr: float, coreset: Any = None) -> None:
        """Be told the ratio of a subset that was just chosen; a trigger with a method of this name is told of it."""
        self._reference = snr
        if hasattr(self.trigger, "selected"):
            self.trigger.selected(coreset)

    def _rule(self, check: Check) -> bool:
        if self.trigger == "interval":
            return True
        if self.trigger == "below":
            return check.snr < self.threshold
        if self.trigger == "relative_drop":
            if not math.isfinite(check.reference) or check.reference <= 0:
                return math.isfinite(check.snr) and math.isinf(check.reference)
            return 1 - check.snr / check.reference > self.threshold
        recent = check.earlier[-self.window :]
        return len(recent) > 1 and check.snr < float(np.quantile(recent, self.threshold))

    def _report(self) -> None:
        if self._checks != MANY or self._updates not in (0, MANY) or not self.watches:
            return
        low, mid, high = np.quantile(self._seen, (0.1, 0.5, 0.9))
        _log.warning(
            "threshold %g: the trigger %s at %d checks; the ratio's quantiles 0.1, 0.5, 0.9 were %.3g, %.3g, %.3g "
            "(see calibrate)",
            self.threshold, "never fired" if self._updates == 0 else "always fired", MANY, low, mid, high,
        )  # fmt: skip

    def calibrate(self, ratios: Sequence[float], updates: int) -> Self:
        """Return a monitor whose threshold would have fired about so often on these ratios.

        Args:
            ratios: At the checks of a run, for instance of one with ``trigger="never"`` watched by a history.
            updates: How many of the checks shall fire.

        Raises:
            ValueError: The rule has no threshold of the ratio, or there are fewer ratios than updates.

        Example:
            >>> RepresentativenessMonitor().calibrate([0.5, 0.2, 0.4, 0.1], updates=2).threshold
            0.4
        """
        if self.trigger != "below":
            raise ValueError(f'trigger: expected "below" to calibrate, got {self.trigger!r}')
        if not 0 <= whole("updates", updates, least=0) <= len(ratios):
            raise ValueError(f"updates: expected at most the {len(ratios)} checks, got {updates}")
        ordered = sorted(ratios)
        threshold = ordered[updates] if updates < len(ordered) else ordered[-1] * (1 + 1e-9) + 1e-12
        return replace(self, threshold=float(threshold))

    def state_dict(self) -> dict[str, Any]:
        """Return what the monitor needs to go on, as plain values."""
        keep = getattr(self.trigger, "state_dict", None)
        held = {name: getattr(self, name) for name in _STATE}
        return held | {"_seen": list(self._seen), "trigger": None if keep is None else keep()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        for name in _STATE:
            setattr(self, name, state[name])
        self._seen = list(state["_seen"])
        if state["trigger"] is not None:
            self.trigger.load_state_dict(state["trigger"])  # type: ignore[union-attr]


_STATE = ("_reference", "_checks", "_updates", "_rest", "_last")
