"""What one run of a method's experiment found: rows for the table, findings for the claims, series for the plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from thrifty.bench.claims import Claim, Finding, Measurement, Mode, judge


@dataclass(frozen=True)
class Series:
    """One contender's points in a plot."""

    label: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Plot:
    """A picture for the report, as data (``thrifty.bench.plots`` draws it)."""

    title: str
    kind: Literal["bar", "line", "scatter"]
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False


class Evidence:
    """Collects what a run finds, in the order in which it is found.

    Args:
        claims: Every claim that the method makes. Those that the run never measures are listed as *cannot show*.
        mode: ``"quick"`` or ``"full"``.
        on_change: Called with ``self`` after each addition, so that a run that is ended early keeps what it had.
    """

    def __init__(
        self, claims: Sequence[Claim], mode: Mode, on_change: Callable[[Evidence], None] = lambda _: None
    ) -> None:
        self.workload = ""
        self._claims = {claim.id: claim for claim in claims}
        self._mode = mode
        self._on_change = on_change
        self._rows: list[dict[str, Any]] = []
        self._findings: dict[str, Finding] = {}
        self._plots: list[Plot] = []

    def row(
        self, contender: str, metrics: Mapping[str, Measurement], *, workload: str = "", error: str | None = None
    ) -> None:
        """Add a contender's numbers on one workload; ``error`` says why numbers are missing."""
        entry = {"contender": contender, "workload": workload, "error": error}
        self._rows.append(entry | {"metrics": {name: metric.to_json() for name, metric in metrics.items()}})
        self._on_change(self)

    def measured(
        self,
        claim_id: str,
        measurement: Measurement,
        *,
        gate: tuple[Sequence[float], Sequence[float]] | None = None,
        reason: str | None = None,
        limit: str | None = None,
    ) -> Finding:
        """Record a claim's numbers; see :func:`thrifty.bench.claims.judge` for the arguments."""
        finding = judge(self._claim(claim_id), measurement, gate=gate, reason=reason, limit=limit)
        self._findings[claim_id] = finding
        self._on_change(self)
        return finding

    def cannot_show(self, claim_id: str, reason: str) -> None:
        """Record that this run cannot measure a claim, and why."""
        self._findings[claim_id] = Finding(self._claim(claim_id), "cannot show", reason=reason)
        self._on_change(self)

    def plot(self, plot: Plot) -> None:
        """Add a picture to the report."""
        self._plots.append(plot)
        self._on_change(self)

    def findings(self, unmeasured: str = "this run did not measure it") -> list[Finding]:
        """Return a finding for every claim; ``unmeasured`` is the reason given for those without one."""
        return [self._findings.get(claim.id) or self._missing(claim, unmeasured) for claim in self._claims.values()]

    def to_json(self, unmeasured: str = "this run did not measure it") -> dict[str, Any]:
        """Return what ``results.json`` holds of it."""
        return {
            "workload": self.workload,
            "rows": self._rows,
            "claims": [finding.to_json() for finding in self.findings(unmeasured)],
            "plots": [asdict(plot) for plot in self._plots],
        }

    def _missing(self, claim: Claim, reason: str) -> Finding:
        needs_full = claim.budget == "full" and self._mode == "quick"
        return Finding(claim, "cannot show", reason="needs --full" if needs_full else reason)

    def _claim(self, claim_id: str) -> Claim:
        try:
            return self._claims[claim_id]
        except KeyError:
            known = ", ".join(self._claims)
            raise KeyError(f"claim_id: {claim_id!r} is not among this method's claims ({known})") from None
