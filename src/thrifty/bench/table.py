"""What a run found, in words and in a terminal: one table a method, then its claims.

The first half says things in words (numbers, statuses, gates) and is shared with ``thrifty.bench.report``; the second
half lays them out with rich, which prints plain text where there is no terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from thrifty.bench.evidence import NEEDS_FULL


class Look(NamedTuple):
    """How a status is shown: never by its colour alone."""

    sign: str
    style: str
    meaning: str


#: Every status of a claim, the best news first.
STATUSES: dict[str, Look] = {
    "holds": Look("✓", "green", "The median reaches the target, and the quality that guards the saving is kept."),
    "falls short": Look("✗", "red", "It was measured, and the median misses the target."),
    "cheaper but worse": Look("▼", "yellow", "The saving is there, but some run is worse than the gate allows."),
    "reported": Look("•", "cyan", "A number without a target: nothing was promised."),
    "cannot show": Look(
        "–", "bright_black", "This run lacked the hardware, the data or the time; the reason says which."
    ),
}

_OPERATORS = {"<": "<", "<=": "≤", ">=": "≥", "==": "="}
_GATED_BY = {
    "run": " in any run",
    "mean": " in the mean",
    "sd": " in the mean, beyond one standard deviation",
    "interval": " in the mean, beyond its 95 % interval",
}
_SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def number(value: float, digits: int = 3) -> str:
    """Write a number as a person would: whole numbers exactly, others to ``digits`` significant digits.

    A trailing zero means that something was rounded away: ``0.7`` is exactly that, ``0.700`` is not.

    Example:
        >>> number(0.66666), number(12345), number(1.5e-5)
        ('0.667', '12,345', '1.5e-5')
    """
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value):,}"
    exact = float(f"{value:.{digits}g}") == value
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    power = int(exponent)
    if -3 <= power < 6:
        text = f"{value:,.{max(0, digits - 1 - power)}f}"
        return text.rstrip("0").rstrip(".") if exact and "." in text else text
    return f"{mantissa.rstrip('0').rstrip('.') if exact else mantissa}e{power}"


def quantity(value: float, unit: str, digits: int = 3) -> str:
    """Write a number with its unit: ``1.23 ms``, ``0.667×``, ``12%``."""
    unit, size = scaled(unit, value)
    text = number(value / size, digits)
    return text + (f" {unit}" if unit not in ("", "×", "%") else unit)


def scaled(unit: str, value: float) -> tuple[str, float]:
    """Return the unit to print ``value`` in, and its size: seconds become ms, µs or ns, a ratio is ``×``."""
    if unit == "s" and value:
        fits = (name for name, size in _SECONDS.items() if abs(value) >= size)
        name = next(fits, "ns")
        return name, _SECONDS[name]
    return "×" if unit == "ratio" else unit, 1.0


def interval(low: float, high: float, size: float = 1.0) -> str:
    """Write the lowest and the highest run: ``1.8–2.1``."""
    return f"{number(low / size)}{'–' if low >= 0 else ' to '}{number(high / size)}"


def measured(claim: Mapping[str, Any]) -> str:
    """Say what was measured for a claim, or nothing where nothing was."""
    value, unit = claim["measured"], claim["unit"]
    if value is None:
        return ""
    text = quantity(value, unit)
    if claim["target"]:  # a near miss must not look like a hit
        goal = claim["target"]["value"]
        digits = next((d for d in range(3, 12) if value == goal or f"{value:.{d}g}" != f"{goal:.{d}g}"), 12)
        text = quantity(value, unit, digits)
    runs, (low, high) = claim["runs"], claim["spread"]
    if runs == 1:
        return text
    return f"{text} ({interval(low, high, scaled(unit, value)[1]) + ' over ' if low != high else ''}{runs} runs)"


def target(claim: Mapping[str, Any]) -> str:
    """Say what a claim's number had to be, or nothing where nothing was promised."""
    goal = claim["target"]
    return f"{_OPERATORS[goal['op']]} {quantity(goal['value'], claim['unit'])}" if goal else ""


def gate(claim: Mapping[str, Any]) -> str:
    """Say which quality the saving may not cost, and whether it did."""
    rule = claim["gate"]
    if not rule:
        return ""
    worse = "higher" if rule["better"] == "lower" else "lower"
    bound = f"at most {number(rule['margin'])} {worse}" if rule["margin"] else f"no {worse}"
    outcome = {True: "passed", False: "not passed", None: "not run"}[rule["passed"]]
    whose = f"{rule['than']}'s" if rule.get("than") else "the rival's"
    return f"{rule['metric']} {bound} than {whose}{_GATED_BY[rule.get('by', 'run')]}: {outcome}"


def against(claim: Mapping[str, Any]) -> str:
    """Say who was compared: ours, then the rivals."""
    ours, *rivals = claim["contenders"]
    return f"{ours} against {', '.join(rivals)}" if rivals else str(ours)


def facts(record: Mapping[str, Any]) -> str:
    """Say in a line how a method was run."""
    parts = [
        f"{record['mode']} mode",
        f"seed {record['seed']}",
        str(record["device"]),
        f"{number(record['seconds'])} of {number(record['budget'])} s",
    ]
    if record["resumed"]:
        parts.append(f"{record['resumed']} resumed from earlier runs")
    return " · ".join(parts)


def ceilings(record: Mapping[str, Any]) -> str:
    """Say how fast the machine was at best in the same run, or nothing where that was not measured."""
    best = [quantity(entry["median"], entry["unit"]) for entry in record["ceilings"].values()]
    return f"at best this machine reached {' and '.join(best)} in the same run" if best else ""


def waits(claim: Mapping[str, Any]) -> bool:
    """Tell whether a claim was left out only because the run was a quick one."""
    return bool(claim["reason"] == NEEDS_FULL)


@dataclass(frozen=True)
class Column:
    """One metric of a table, printed in one unit."""

    metric: str
    stored: str
    unit: str
    size: float

    @property
    def heading(self) -> tuple[str, str]:
        """The metric and its unit, which goes unsaid where the metric says it (``training errors``)."""
        return self.metric, "" if self.unit == self.metric.split()[-1] else self.unit

    def find(self, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the row's entry for this metric, if it has one in this unit."""
        entry: Mapping[str, Any] | None = row["metrics"].get(self.metric)
        return entry if entry and entry["unit"] == self.stored else None

    def median(self, entry: Mapping[str, Any]) -> str:
        """Write the middle run."""
        return number(entry["median"] / self.size)

    def spread(self, entry: Mapping[str, Any]) -> str:
        """Write the lowest and highest run, or nothing where they agree."""
        low, high = entry["min"], entry["max"]
        return interval(low, high, self.size) if entry["runs"] > 1 and low != high else ""


def columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the metrics that the rows name, in the order in which they first do."""
    medians: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for name, entry in row["metrics"].items():
            medians.setdefault((name, entry["unit"]), []).append(abs(entry["median"]))
    # the smallest number decides on the unit, so that none of them vanishes in zeros
    units = {key: scaled(key[1], min(filter(None, seen), default=0.0)) for key, seen in medians.items()}
    return [Column(name, unit, *units[name, unit]) for name, unit in medians]


def by_workload(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Split rows by the workload that they name, in the order in which workloads first appear."""
    first = {row["workload"]: place for place, row in reversed(list(enumerate(rows)))}
    ordered = sorted(rows, key=lambda row: first[row["workload"]])
    for workload, group in groupby(ordered, key=lambda row: row["workload"]):
        yield str(workload), list(group)


def runs_note(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say of how many runs the medians are, or nothing where each is a single run."""
    runs = sorted({entry["runs"] for row in rows for entry in row["metrics"].values()})
    if not runs or runs == [1]:
        return ""
    several = str(runs[0]) if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    return f"median of {several} runs, lowest–highest beneath where they differ"


def method_table(record: Mapping[str, Any]) -> RenderableType:
    """Lay out what a run found of one method: who did how well, then what that says of the claims.

    Args:
        record: An entry of ``methods`` in ``results.json``.

    Returns:
        A renderable for ``rich.console.Console.print``; it fits the console's width.
    """
    parts: list[RenderableType] = [Text.assemble((record["name"], "bold"), "  ", record["title"])]
    notes = [record["workload"], facts(record), ceilings(record)]
    parts += [Text(note, style="bright_black") for note in notes if note]
    if record["error"]:
        parts.append(Text(f"✗ {record['error']}", style="red"))
    parts.append("")
    parts += [_Rows(workload, rows) for workload, rows in by_workload(record["rows"])]
    if note := runs_note(record["rows"]):
        parts.append(Text(note, style="bright_black"))
        parts.append("")
    if record["claims"]:
        parts.append(_claims(record["claims"]))
    if waiting := [claim["id"] for claim in record["claims"] if waits(claim)]:
        more = f"{len(waiting)} more with thrifty bench {record['name']} --full: {', '.join(waiting)}"
        parts += [Text(more, style="bright_black"), ""]
    return Group(*parts)


@dataclass(frozen=True)
class _Rows:
    """The contenders on one workload; metrics that the console is too narrow for continue below."""

    workload: str
    rows: Sequence[Mapping[str, Any]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.workload:
            yield Text(self.workload, style="italic")
        left, rows = columns(self.rows), self.rows
        while True:
            fit = max(1, len(left))
            while fit > 1 and self._width(console, options, self._table(left[:fit], rows)) > options.max_width:
                fit -= 1
            yield self._table(left[:fit], rows)
            left = left[fit:]
            yield ""
            if not left:
                return
            # what continues below need not repeat why a contender has no numbers
            rows = [{**row, "error": None} for row in self.rows if any(column.find(row) for column in left)]

    @staticmethod
    def _width(console: Console, options: ConsoleOptions, table: Table) -> int:
        return Measurement.get(console, options.update(width=10_000), table).maximum

    def _table(self, shown: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="")
        table.add_column("contender", max_width=30, overflow="fold", header_style="bright_black")
        for column in shown:
            metric, unit = column.heading
            heading = Text("\n".join(textwrap.wrap(metric, 12, break_long_words=False)))
            table.add_column(heading.append(f"\n{unit}", style="bright_black"), justify="right", no_wrap=True)
        for row in rows:
            name = Text(row["contender"])
            if row["error"]:
                name.append(f"\n{row['error']}", style="red")
            table.add_row(name, *(self._cell(column, row) for column in shown))
        return table

    @staticmethod
    def _cell(column: Column, row: Mapping[str, Any]) -> Text:
        entry = column.find(row)
        if entry is None:
            return Text("–", style="bright_black")
        spread = column.spread(entry)
        return Text.assemble(column.median(entry), (f"\n{spread}" if spread else "", "bright_black"))


def _claims(claims: Sequence[Mapping[str, Any]]) -> Table:
    table = Table.grid(padding=(0, 2, 1, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for claim in (claim for claim in claims if not waits(claim)):
        look = STATUSES[claim["status"]]
        told = Text.assemble(claim["text"], (f"  {claim['id']}", "bright_black"))
        found = [f"measured {text}" for text in [measured(claim)] if text]
        wanted = [f"target {text}" for text in [target(claim)] if text]
        lines = {"": ", ".join(found + wanted), "gate": gate(claim)}
        lines |= {name: claim[name] or "" for name in ("published", "limit", "reason")}
        for name, line in lines.items():
            if line:
                told.append(f"\n{name + ': ' if name else ''}{line}", style="" if not name else "bright_black")
        table.add_row(Text(f"{look.sign} {claim['status']}", style=look.style), told)
    return table
