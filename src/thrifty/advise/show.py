"""Advice as a person reads it in a terminal, and as JSON."""

from __future__ import annotations

import io
import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from thrifty._common.ledger import Resource
from thrifty.advise.account import MEMORY, Account
from thrifty.advise.advice import Advice
from thrifty.advise.offers import Offer
from thrifty.bench import registry

#: What a resource's block of the bar looks like.
_STYLES = {
    Resource.WEIGHTS: "blue",
    Resource.OPTIMIZER_STATE: "magenta",
    Resource.GRADIENTS: "yellow",
    Resource.ACTIVATIONS: "red",
    Resource.KV_CACHE: "cyan",
}
_WIDTH = 44
#: A bar shorter than this says nothing beside its name: it gets a line of its own.
_SHORT = 16
#: What stands for characters that a terminal does not have.
_PLAIN = str.maketrans({"·": "*", "−": "-", "×": "x", "─": "-", "Σ": "sum", "²": "^2", "³": "^3", "≥": ">=", "–": "-"})


def to_json(advice: Advice) -> dict[str, Any]:
    """Return advice as what JSON can carry."""
    found = asdict(advice)
    found["account"] |= {
        "memory": advice.account.memory,
        "time": advice.account.time,
        "fits": advice.account.fits,
        "binding": asdict(advice.account.binding),
    }
    return {"schema": "thrifty.advice", "version": 1, **found}


def text(advice: Advice, width: int = 100) -> RenderableType:
    """Return advice as tables and bars, for a terminal so many characters wide."""
    now = advice.account
    parts: list[RenderableType] = [Text(advice.workload, style="bold"), _ledger(now)]
    if now.memory:
        parts += _bars(advice, width)
    binding = f"The binding resource, of which a saving counts most, is {now.binding.kind} ({now.binding.words})."
    if now.capacity:
        room = f"{_gib(now.memory)} of {_gib(now.capacity)}"
        binding = f"{'Fits' if now.fits else 'Does not fit'}: {room}, fullest when {now.moment}. {binding}"
    parts.append(Text(binding))
    parts += [Text(f"Note: {note}.") for note in advice.notes]
    parts.append(Text())
    parts += [_offer(offer, now) for offer in advice.offers if offer.applies]
    parts += [_pair(pair, now) for pair in advice.pairs if pair.applies]
    parts += _declined(advice)
    if advice.reach:
        parts += _reach(advice)
    return Group(*parts)


def show(advice: Advice, console: Console | None = None) -> None:
    """Print advice; where the terminal lacks a character, something like it."""
    console = console or Console()
    if console.encoding.startswith("utf"):
        console.print(text(advice, console.width), highlight=False)
        return
    plain = Console(file=io.StringIO(), width=console.width, color_system=None)
    plain.print(text(advice, console.width), highlight=False)
    said: str = plain.file.getvalue()  # type: ignore[attr-defined]
    (console.file or sys.stdout).write(said.translate(_PLAIN).encode("ascii", "replace").decode())


def bar(amounts: dict[Resource, float], scale: float, width: int = _WIDTH) -> Text:
    """Return a stacked bar: a block a resource, ``scale`` being the whole width.

    Example:
        >>> bar({Resource.WEIGHTS: 20.0, Resource.GRADIENTS: 10.0}, 60.0, width=12).plain
        'wwwwgg'
    """
    drawn, spent, total = Text(), 0, 0.0
    for resource, amount in amounts.items():
        total += max(0.0, amount)
        end = round(width * total / scale)
        drawn.append(resource.value[0] * (end - spent), style=f"bold white on {_STYLES[resource]}")
        spent = end
    return drawn


def _ledger(now: Account) -> Table:
    table = Table("part", "amount", "formula", box=None, pad_edge=False, header_style="bold")
    table.columns[1].justify = "right"
    for part in now.parts:
        table.add_row(part.name, _amount(part.resource, part.amount), part.formula)
    for name, seconds in now.seconds.items():
        if now.capacity or now.rate:
            table.add_row(f"seconds of {name}", _seconds(seconds), "at best, at the device's stated rates")
    return table


def before_and_after(advice: Advice) -> dict[str, dict[Resource, float]]:
    """Return the bytes of each kind now, with each method that changes them, and with the best pair."""
    now = advice.account
    before = {resource: now.total(resource) for resource in MEMORY}
    changing = [offer for offer in (*advice.offers, *advice.pairs[:1]) if offer.applies and offer.memory != now.memory]
    return {"now": before} | {
        offer.method: {resource: before[resource] + offer.delta.total(resource) for resource in MEMORY}
        for offer in changing
    }


def _bars(advice: Advice, width: int) -> list[RenderableType]:
    """Return a bar a row, each after its name and bytes; below them where the terminal is narrow."""
    now, rows = advice.account, before_and_after(advice)
    scale = max([now.capacity, *(sum(max(0.0, x) for x in row.values()) for row in rows.values())])
    named = {name: _gib(sum(row.values())) for name, row in rows.items()}
    if now.capacity:
        named["device"] = _gib(now.capacity)
    room = width - max(map(len, named)) - max(map(len, named.values())) - 6
    below = room < _SHORT
    long = max(1, min(_WIDTH, width - 4 if below else room))
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, amount in named.items():
        drawn = bar(rows[name], scale, long) if name in rows else Text("─" * round(long * now.capacity / scale))
        if below:
            table.add_row(Text(f"{name} {amount}"))
            table.add_row(drawn)
        else:
            table.add_row(name, amount, drawn)
    used = [resource for resource in MEMORY if any(row[resource] for row in rows.values())]
    return [table, Text(", ".join(f"{resource.value[0]} {resource}" for resource in used), style="dim")]


def _offer(offer: Offer, now: Account) -> Text:
    said = _headline(offer, now)
    for title, lines in (("holds if", offer.why), ("price", offer.price), ("its card", offer.risk)):
        for line in lines:
            said.append(f"\n  {title:<11} {line}")
    for entry in offer.delta.entries:
        said.append(
            f"\n  {_amount(entry.resource, entry.amount):>12} {entry.resource}: {entry.formula} ({entry.source})",
            style="dim",
        )
    said.append("\n")
    return said


def _pair(pair: Offer, now: Account) -> Text:
    return _headline(pair, now).append("\n  holds at the prices and conditions of both\n")


def _headline(offer: Offer, now: Account) -> Text:
    """Return what an offer does to memory and time, and the line that switches it on."""
    kind = now.binding.kind
    said = Text(offer.method, style="bold green")
    if offer.saving >= 0.005:
        did = f"saves {offer.saving:.0%} of the {kind}"
    elif kind == "time" and offer.seconds > now.time:
        did = f"takes {_seconds(offer.seconds - now.time)} more"
        did += "".join(f"; it saves {registry.get(name).saves}" for name in offer.method.split(" + "))
    else:
        did = f"leaves the {kind} about as it is"
    said.append(f": {did}", style="not bold default")
    if offer.memory != now.memory:
        said.append(f"; memory {_gib(now.memory)} -> {_gib(offer.memory)}", style="not bold default")
        if now.capacity and offer.fits != now.fits:
            last = ", and then it fits" if offer.fits else ", and then it does not fit"
            said.append(last, style="not bold default")
    if now.time and abs(offer.seconds / now.time - 1) >= 0.005:
        before, after = _both(now.time, offer.seconds)
        said.append(f"; time {before} -> {after}", style="not bold default")
    return said.append(f"\n  switch on   {offer.code}", style="not bold default")


def _declined(advice: Advice) -> list[RenderableType]:
    """Return who does not apply and why; who is for other tasks, in one line."""
    near = [offer for offer in advice.offers if not offer.applies and offer.related]
    apart = [pair for pair in advice.pairs if not pair.applies]
    far = [offer.method for offer in advice.offers if not offer.related]
    parts: list[RenderableType] = []
    for title, offers in (("does not apply", near), ("do not go together", apart)):
        if offers:
            table = Table(title, "because", box=None, pad_edge=False, header_style="bold")
            for offer in offers:
                table.add_row(offer.method, "; ".join(offer.why))
            parts.append(table)
    if far:
        parts.append(Text(f"For other tasks: {', '.join(far)} (`thrifty list` says which).", style="dim"))
    return parts


def _reach(advice: Advice) -> list[RenderableType]:
    table = Table("largest that fits", "sequence", "batch", "model", box=None, pad_edge=False, header_style="bold")
    for reach in advice.reach:
        size = f"{reach.parameters / 1e9:.3g} B" if reach.parameters else "none"
        table.add_row(reach.method, *(f"{n:,}" if n else "none" for n in (reach.sequence, reach.batch)), size)
    said = "Each alone: tokens of a sequence, examples at once, weights of a model; all else as above."
    return [table, Text(said, style="dim")]


def _amount(resource: Resource, amount: float) -> str:
    if resource.unit == "bytes":
        return _gib(amount)
    if resource.unit == "s":
        return _seconds(amount)
    if resource.unit == "FLOP":
        return f"{amount:.3g} FLOP"
    return f"{amount:,.0f} {resource.unit}"


def _gib(amount: float) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if abs(amount) >= size / 10:
            return f"{amount / size:.1f} {unit}"
    return f"{amount / 2**10:.1f} KiB"


def _seconds(seconds: float) -> str:
    return _both(seconds)[0]


def _both(*seconds: float) -> list[str]:
    """Return times in the unit that suits the longest."""
    longest = max(map(abs, seconds))
    units = (("h", 3600.0, 3600.0), ("min", 60.0, 120.0), ("s", 1.0, 0.1), ("ms", 1e-3, 0.0))
    unit, size = next((unit, size) for unit, size, least in units if longest >= least)
    return [f"{each / size:.3g} {unit}" for each in seconds]
