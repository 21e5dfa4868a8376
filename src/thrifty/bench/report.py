"""The report: what a run found, as one web page that needs nothing but itself.

The methods come first, each with what its claims came to; then all claims, and a section a method with its pictures,
its claims in full and its tables. The page has no script: CSS filters the claims, the rest is plain, semantic HTML.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from thrifty.bench import plots, table
from thrifty.bench.evidence import NEEDS_FULL

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>Thrifty: what was claimed, and what was measured</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#claims">Skip to the claims</a>
{head}
<main>
{overview}
{claims}
{methods}
</main>
<footer class="quiet"><p>Written by <code>thrifty bench</code> {version}. Every number on this page was measured
in the run that its section describes, or is quoted as published.</p></footer>
</body>
</html>
"""


#: Where a method has more workloads, its tables are folded away.
MOST_TABLES = 4


def render(results: Mapping[str, Any]) -> str:
    """Write the page ``index.html``.

    Args:
        results: What ``results.json`` holds.

    Returns:
        A whole HTML document that loads nothing from elsewhere.
    """
    return _PAGE.format(
        style=files("thrifty.bench").joinpath("report.css").read_text("utf-8") + _filters(),
        head=_head(results),
        overview=_overview(results["methods"]),
        claims=_summary(results["methods"]),
        methods="\n".join(_method(record) for record in results["methods"]),
        version=escape(str(results["versions"].get("thrifty", ""))),
    )


def _head(results: Mapping[str, Any]) -> str:
    methods = results["methods"]
    many = f"{len(methods)} published methods, each" if len(methods) > 1 else "A published method"
    machine = {_machine_label(key): _machine_value(key, value) for key, value in results["machine"].items()}
    run = [
        f"{results['mode']} mode",
        f"seed {results['seed']}",
        str(results["device"]),
        f"{table.number(round(sum(record['seconds'] for record in methods)))} s in all",
    ]
    return f"""<header>
<h1><span class="name">thrifty bench</span> What was claimed, and what was measured</h1>
<p class="lead">{many} beside what you would pick instead: same data, same machine, same run.</p>
<p class="quiet">{escape(" · ".join(run))}</p>
<details><summary>Machine and versions of the latest run</summary>
{_pairs(machine | results["versions"])}
</details>
</header>"""


def _machine_label(key: str) -> str:
    return key.removesuffix("_gib").replace("_", " ")


def _machine_value(key: str, value: Any) -> str:
    text = table.number(value) if isinstance(value, int | float) else str(value)
    return f"{text} GiB" if key.endswith("_gib") else text


def _overview(methods: Sequence[Mapping[str, Any]]) -> str:
    """A row a method: what it is for, and how many of its claims came to what."""
    rows = "\n".join(
        f'<tr><th scope="row"><a href="#{_slug(record["name"])}">{escape(record["name"])}</a></th>'
        f"<td>{escape(record['line'])}{_small('saves ' + record['saves'])}</td><td>{_tally(record)}</td></tr>"
        for record in methods
    )
    return f"""<section id="methods" class="overview" aria-labelledby="methods-title">
<h2 id="methods-title">Methods</h2>
<table aria-labelledby="methods-title">
<thead><tr><th scope="col">Method</th><th scope="col">What it does</th><th scope="col">Claims</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</section>"""


def _tally(record: Mapping[str, Any]) -> str:
    counts = Counter(_kind(claim) for claim in record["claims"])
    shown = [f"{_status(status)} {counts[status]}" for status in table.STATUSES if counts[status]]
    waiting = [f'<span class="quiet">{NEEDS_FULL} {counts[NEEDS_FULL]}</span>'] if counts[NEEDS_FULL] else []
    return "<br>".join(shown + waiting) + _small(record["error"] or "", "error")


def _kind(claim: Mapping[str, Any]) -> str:
    """A claim's status; those that only wait for a full run are told apart."""
    return NEEDS_FULL if table.waits(claim) else str(claim["status"])


def _summary(methods: Sequence[Mapping[str, Any]]) -> str:
    claims = [(record, claim) for record in methods for claim in record["claims"]]
    counts = Counter(_kind(claim) for _, claim in claims)
    kinds = {status: _status(status) for status in table.STATUSES} | {NEEDS_FULL: NEEDS_FULL}
    choices = "".join(
        f'<label><input type="radio" name="show" id="show-{_slug(kind)}">{shown} {counts[kind]}</label>'
        for kind, shown in kinds.items()
        if counts[kind]
    )
    measured = len(claims) - counts[NEEDS_FULL]
    meanings = "".join(
        f"<dt>{_status(name)}</dt><dd>{escape(look.meaning)}</dd>" for name, look in table.STATUSES.items()
    )
    titles = ("Status", "Method", "Claim", "Measured", "Target")
    columns = "".join(f'<th scope="col" role="columnheader">{title}</th>' for title in titles)
    # the roles keep it a table for screen readers where a narrow page stacks its cells
    return f"""<section id="claims" class="claims" tabindex="-1" aria-labelledby="claims-title">
<h2 id="claims-title">All claims</h2>
<fieldset class="filter"><legend class="hidden">Show claims by status</legend>
<label><input type="radio" name="show" id="show-run" checked>this run {measured}</label>{choices}
<label><input type="radio" name="show">all {len(claims)}</label></fieldset>
<table role="table" aria-labelledby="claims-title">
<thead role="rowgroup"><tr role="row">{columns}</tr></thead>
<tbody role="rowgroup">
{chr(10).join(_summary_row(record, claim) for record, claim in claims)}
</tbody>
</table>
<details><summary>How to read this</summary>
<dl>{meanings}</dl>
<p>A claim is written down, with its target, before anything is measured. A claim about time, memory, bytes, steps or
parameters also names the quality that the saving may not cost: its <em>gate</em>. The gate passes only if no run is
worse than the rival by more than the stated margin. Numbers are medians; in brackets stand the lowest and the highest
run. <em>Published</em> is what the paper printed, on its own machine and data; <em>limit</em> is how far the number is
from the best possible.</p>
</details>
</section>"""


def _filters() -> str:
    """Hide what was not chosen; at first, the claims that wait for a full run."""
    hidden = {slug: f":not(.{slug})" for slug in map(_slug, (*table.STATUSES, NEEDS_FULL))}
    hidden["run"] = f".{_slug(NEEDS_FULL)}"
    return "".join(
        f".claims:has(#show-{choice}:checked) tbody tr{those} {{ display: none; }}\n"
        for choice, those in hidden.items()
    )


def _summary_row(record: Mapping[str, Any], claim: Mapping[str, Any]) -> str:
    method = f'<a href="#{_slug(record["name"])}">{escape(record["name"])}</a>'
    text = f'<a href="#{_anchor(record, claim)}">{escape(claim["text"])}</a>'
    cell = '<td role="cell"'
    return (
        f'<tr role="row" class="{_slug(_kind(claim))}">{cell}>{_status(claim["status"])}</td>{cell}>{method}</td>'
        f'{cell}>{text}</td>{cell} data-label="measured">{escape(table.measured(claim))}</td>'
        f'{cell} data-label="target">{escape(table.target(claim))}</td></tr>'
    )


def _method(record: Mapping[str, Any]) -> str:
    slug = _slug(record["name"])
    about = {
        "saves": record["saves"],
        "workload": record["workload"],
        "run": table.facts(record),
        "ceilings": table.ceilings(record),
        "versions": " · ".join(f"{name} {version}" for name, version in record["versions"].items()),
    }
    error = f'<p class="error">✗ {escape(record["error"])}</p>' if record["error"] else ""
    parts = [
        f'<section id="{slug}" class="method" tabindex="-1" aria-labelledby="{slug}-title">',
        f'<h2 id="{slug}-title"><span class="name">{escape(record["name"])}</span> {escape(record["title"])}</h2>',
        f'<p class="lead">{escape(record["line"])}</p>',
        _pairs(about),
        error,
        _plots(record),
        _findings(record),
        _tables(record),
        '<p class="back quiet"><a href="#methods">Back to all methods</a></p>',
        "</section>",
    ]
    return "\n".join(filter(None, parts))


def _plots(record: Mapping[str, Any]) -> str:
    drawn = [_figure(plot, f"{record['name']} {place}") for place, plot in enumerate(record["plots"])]
    return f'<div class="plots">{"".join(drawn)}</div>' if drawn else ""


def _figure(plot: Mapping[str, Any], name: str) -> str:
    try:
        picture = plots.draw(plot, name=name)
    except ImportError as absent:
        picture = f'<p class="quiet">Not drawn: {escape(str(absent))}</p>'
    return f"<figure><figcaption>{escape(plot['title'])}</figcaption>{picture}</figure>"


def _tables(record: Mapping[str, Any]) -> str:
    """Every number, a table a workload; many of them are folded away."""
    if not record["rows"]:
        return ""
    groups = list(table.by_workload(record["rows"]))
    title = f"{len(groups)} workload{'s' if len(groups) > 1 else ''}"
    note = table.runs_note(record["rows"])
    return "\n".join(
        [
            "<h3>Side by side</h3>",
            f"<details{' open' if len(groups) <= MOST_TABLES else ''}><summary>{title}</summary>",
            *(_rows(record, *group) for group in groups),
            f'<p class="quiet">{escape(note)}</p>' if note else "",
            "</details>",
        ]
    )


def _rows(record: Mapping[str, Any], workload: str, rows: Sequence[Mapping[str, Any]]) -> str:
    shown = table.columns(rows)
    headings = "".join(
        f'<th scope="col">{escape(metric)}{_small(unit)}</th>' for metric, unit in (column.heading for column in shown)
    )
    body = "\n".join(
        f'<tr><th scope="row">{escape(row["contender"])}{_small(row["error"] or "", "error")}</th>'
        + "".join(_cell(column, row) for column in shown)
        + "</tr>"
        for row in rows
    )
    caption = f"<caption>{escape(workload)}</caption>" if workload else ""
    label = escape(f"{record['name']}: contenders side by side{', ' + workload if workload else ''}")
    return f"""<div class="scroll rows" role="region" aria-label="{label}" tabindex="0"><table>{caption}
<thead><tr><th scope="col">Contender</th>{headings}</tr></thead>
<tbody>
{body}
</tbody></table></div>"""


def _cell(column: table.Column, row: Mapping[str, Any]) -> str:
    entry = column.find(row)
    return f"<td>{column.median(entry)}{_small(column.spread(entry))}</td>" if entry else "<td>–</td>"


def _small(text: str, kind: str = "") -> str:
    return f"<small{f' class={kind}' if kind else ''}>{escape(text)}</small>" if text else ""


def _findings(record: Mapping[str, Any]) -> str:
    shown = {
        waiting: "\n".join(_finding(record, claim) for claim in record["claims"] if table.waits(claim) == waiting)
        for waiting in (False, True)
    }
    now = f'<h3>Claims</h3>\n<ul class="findings">\n{shown[False]}\n</ul>' if shown[False] else ""
    later = f"<details><summary>Claims that need a full run: thrifty bench {escape(record['name'])} --full</summary>"
    return now + (f'{later}\n<ul class="findings">\n{shown[True]}\n</ul></details>' if shown[True] else "")


def _finding(record: Mapping[str, Any], claim: Mapping[str, Any]) -> str:
    details = {
        "measured": table.measured(claim),
        "target": table.target(claim),
        "compared": table.against(claim),
        "gate": table.gate(claim),
        "published": claim["published"],
        "limit": claim["limit"],
        "clock": "timed, so that two runs with one seed differ" if claim["timed"] else "",
        "reason": claim["reason"],
    }
    return (
        f'<li id="{_anchor(record, claim)}" class="{_slug(claim["status"])}">{_status(claim["status"])}\n'
        f"<h4>{escape(claim['text'])} <code>{escape(claim['id'])}</code></h4>\n{_pairs(details)}</li>"
    )


def _status(status: str) -> str:
    sign = table.STATUSES[status].sign
    return f'<span class="status {_slug(status)}"><span aria-hidden="true">{sign}</span>{escape(status)}</span>'


def _pairs(pairs: Mapping[str, Any]) -> str:
    """Write a list of terms; those with nothing to say are left out."""
    told: Iterable[tuple[str, Any]] = ((term, text) for term, text in pairs.items() if text not in (None, ""))
    return "<dl>" + "".join(f"<dt>{escape(term)}</dt><dd>{escape(str(text))}</dd>" for term, text in told) + "</dl>"


def _anchor(record: Mapping[str, Any], claim: Mapping[str, Any]) -> str:
    return f"{_slug(record['name'])}-claim-{_slug(claim['id'])}"


def _slug(text: str) -> str:
    """Make a name fit to be an identifier and a class."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
