"""Advice as a person reads it in a terminal, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from thrifty._common.ledger import Resource
from thrifty.advise.account import MEMORY, Account
from thrifty.advise.advice import Advice
from thrifty.advise.offers import Offer

#: What a resource's block of the bar looks like.
_STYLES = {
    Resource.WEIGHTS: "blue",
    Resource.OPTIMIZER_STATE: "magenta",
    Resource.GRADIENTS: "yellow",
    Resource.ACTIVATIONS: "red",
    Resource.KV_CACHE: "cyan",
}
_WIDTH = 44


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


def text(advice: Advice) -> RenderableType:
    """Return advice as tables and bars."""
    now = advice.account
    parts: list[RenderableType] = [Text(advice.workload, style="bold"), _ledger(now)]
    if now.memory:
        parts.append(_bars(advice))
    binding = f"What binds: {now.binding.kind} ({now.binding.words})."
    if now.capacity:
        room = f"{_gib(now.memory)} of {_gib(now.capacity)}"
        binding = f"{'Fits' if now.fits else 'Does not fit'}: {room}, fullest when {now.moment}. {binding}"
    parts.append(Text(binding + "\n"))
    parts += [_offer(offer, now) for offer in advice.offers if offer.applies]
    others = [offer for offer in advice.offers if not offer.applies]
    if others:
        table = Table("does not apply", "because", box=None, pad_edge=False, header_style="bold")
        for offer in others:
            table.add_row(offer.method, "; ".join(offer.why))
        parts.append(table)
    if advice.reach:
        parts.append(_reach(advice))
    return Group(*parts)


def show(advice: Advice, console: Console | None = None) -> None:
    """Print advice."""
    (console or Console()).print(text(advice), highlight=False)


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
        if now.rate:
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


def _bars(advice: Advice) -> Table:
    now, rows = advice.account, before_and_after(advice)
    scale = max([now.capacity, *(sum(max(0.0, x) for x in row.values()) for row in rows.values())])
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, row in rows.items():
        table.add_row(name, _gib(sum(row.values())), bar(row, scale))
    if now.capacity:
        table.add_row("device", _gib(now.capacity), Text("─" * round(_WIDTH * now.capacity / scale)))
    used = [resource for resource in MEMORY if any(row[resource] for row in rows.values())]
    table.caption = ", ".join(f"{resource.value[0]} {resource}" for resource in used)
    return table


def _offer(offer: Offer, now: Account) -> Text:
    said = Text()
    word = "saves" if offer.saving >= 0 else "costs"
    said.append(f"{offer.method}", style="bold green")
    said.append(f": {word} {abs(offer.saving):.0%} of the binding resource")
    if offer.memory != now.memory:
        said.append(f"; memory {_gib(now.memory)} -> {_gib(offer.memory)}")
    if now.time and offer.seconds != now.time:
        said.append(f"; time {_seconds(now.time)} -> {_seconds(offer.seconds)}")
    said.append(f"\n  switch on   {offer.code}")
    for title, lines in (("holds if", offer.why), ("price", offer.price), ("its card", offer.risk)):
        for line in lines:
            said.append(f"\n  {title:<11} {line}")
    for entry in offer.delta.entries:
        said.append(f"\n  {_amount(entry.resource, entry.amount):>12} {entry.resource}: {entry.formula}", style="dim")
    said.append("\n")
    return said


def _reach(advice: Advice) -> Table:
    table = Table("largest that fits", "sequence", "batch", "model", box=None, pad_edge=False, header_style="bold")
    for reach in advice.reach:
        size = f"{reach.parameters / 1e9:.3g} B" if reach.parameters else "none"
        table.add_row(reach.method, f"{reach.sequence:,}", f"{reach.batch:,}", size)
    return table


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
    if abs(seconds) >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds:.3g} s" if abs(seconds) >= 0.1 else f"{seconds * 1e3:.3g} ms"
