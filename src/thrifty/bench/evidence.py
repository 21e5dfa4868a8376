"""What one run of a method's experiment found: rows for the table, findings for the claims, series for the plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

from thrifty.bench.carried import UnavailableError
from thrifty.bench.claims import Claim, Finding, Measurement, Mode, judge

#: Why a quick run cannot show a claim whose budget is a full run's.
NEEDS_FULL = "needs --full"


@dataclass(frozen=True)
class Series:
    """One contender's points in a plot."""

    label: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Plot:
    """A picture for the report, as data (``thrifty.bench.plots`` draws it)."""

    title: str
    kind: Literal["bar", "stack", "line", "scatter"]
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

    Raises:
        ValueError: Two claims have the same id.
    """

    def __init__(
        self, claims: Sequence[Claim], mode: Mode, on_change: Callable[[Evidence], None] = lambda _: None
    ) -> None:
        self.workload = ""
        self._claims = {claim.id: claim for claim in claims}
        if len(self._claims) < len(claims):
            raise ValueError(f"claims: two have the same id among {', '.join(claim.id for claim in claims)}")
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
        gate: tuple[Sequence[float], Sequence[float]] | float | None = None,
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

    @contextmanager
    def needs(self, *claim_ids: str) -> Iterator[None]:
        """Where data or a package is absent, end the block; those of its claims not yet measured cannot be shown."""
        try:
            yield
        except (UnavailableError, ImportError) as error:
            for claim_id in claim_ids:
                if claim_id not in self._findings:
                    self.cannot_show(claim_id, str(error))

    def curves(
        self,
        title: str,
        x_label: str,
        y_label: str,
        points: Mapping[str, tuple[Iterable[Any], Iterable[Any]]],
        *,
        kind: Literal["bar", "stack", "line", "scatter"] = "line",
        log_x: bool = False,
        log_y: bool = False,
    ) -> None:
        """Add a picture to the report: by contender, its places (numbers, or the names of bars) and its values."""
        series = tuple(
            Series(label, tuple(x if isinstance(x, str) else float(x) for x in xs), tuple(map(float, ys)))
            for label, (xs, ys) in points.items()
        )
        self._plots.append(Plot(title, kind, x_label, y_label, series, log_x, log_y))
        self._on_change(self)

    def findings(self, unmeasured: str = "this run did not measure it") -> list[Finding]:
        """Return a finding for every claim.

        One that was not measured cannot be shown, because of the contender of its that failed, or else for the reason
        ``unmeasured``.
        """
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
        if claim.budget == "full" and self._mode == "quick":
            reason = NEEDS_FULL
        elif failed := [row for row in self._rows if row["error"] and row["contender"] in claim.contenders]:
            reason = f"{failed[0]['contender']}: {failed[0]['error']}"
        return Finding(claim, "cannot show", reason=reason)

    def _claim(self, claim_id: str) -> Claim:
        try:
            return self._claims[claim_id]
        except KeyError:
            known = ", ".join(self._claims)
            raise KeyError(f"claim_id: {claim_id!r} is not among this method's claims ({known})") from None
