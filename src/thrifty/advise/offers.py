"""What each registered method would change: its predictor's delta, priced in the workload's own ledger.

A method takes part by having a ``cost.py``; nothing here knows any of them by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations

from thrifty._common.ledger import LedgerDelta, Resource, Workload
from thrifty.advise import cards
from thrifty.advise.account import Account
from thrifty.bench.registry import METHODS, Method

#: What a person can say whom a predictor misses a fact of.
_ASKED = {
    "pool": "it chooses what to train on: `thrifty advise data` says what that would save",
    "queries": "nobody asks for recourse: say how many do by `--queries`",
    "draft": "no smaller model is named that could draft: name one of the same vocabulary by `--draft`",
    "images": "no images are counted: say how many by `--images`",
}


@dataclass(frozen=True)
class Offer:
    """One method, or a pair, for one workload.

    Args:
        method: Its name; a pair's are joined by a plus sign.
        applies: Whether its predictor accepts the workload.
        why: What must be true for the numbers to hold, or why it does not apply.
        delta: What it changes, entry by entry, with formulas and their sources.
        memory: Bytes on one device at the peak, with it.
        seconds: Of a step (or of the whole), with it.
        saving: On the binding resource, as a share of what is spent there now; below 0 it costs.
        price: What is paid in return.
        risk: What its card measured to its disadvantage.
        code: The line that switches it on.
        fits: Whether the device has the memory, with it.
        related: Whether it is for tasks of this kind at all.
    """

    method: str
    applies: bool
    why: tuple[str, ...]
    delta: LedgerDelta
    memory: float
    seconds: float
    saving: float
    price: tuple[str, ...] = ()
    risk: tuple[str, ...] = ()
    code: str = ""
    fits: bool = True
    related: bool = True


def offers(workload: Workload, now: Account, methods: Sequence[Method] | None = None) -> list[Offer]:
    """Ask every method, and sort by what is saved on the binding resource.

    Those with which the workload does not fit come after the others, and those that do not apply come last.

    Args:
        workload: What is known of the workload.
        now: Its ledger.
        methods: Whom to ask; ``None``: all that are registered.
    """
    found = [_offer(method, workload, now) for method in (METHODS if methods is None else methods)]
    return sorted(found, key=lambda offer: (not offer.applies, not offer.fits, -offer.saving))


def pairs(found: Sequence[Offer], now: Account) -> list[Offer]:
    """Return what methods that apply would change together, two at a time; their deltas add.

    Those that make different things of one part of the workload come last, and say so.
    """
    together = []
    for one, other in combinations([offer for offer in found if offer.applies], 2):
        name, delta = f"{one.method} + {other.method}", one.delta + other.delta
        if apart := one.delta.conflicts(other.delta):
            together.append(_declined(name, apart, delta, now))
        else:
            code = "; ".join((one.code, other.code))
            risk = tuple(dict.fromkeys((*one.risk, *other.risk)))
            together.append(_accepted(name, delta, now, risk, code))
    return sorted(together, key=lambda offer: (not offer.applies, not offer.fits, -offer.saving))


def delta_of(method: Method, workload: Workload) -> LedgerDelta:
    """Return what a method would change; a fact that its predictor misses makes it not applicable."""
    predict: Callable[[Workload], LedgerDelta] = import_module(f"{method.package}.cost").predict
    try:
        return predict(workload)
    except ValueError as error:
        said = str(error).removeprefix("workload: ")
        missing = re.match(r"'?(\w+)'?(?:, \w+)* (?:is )?needed", said)
        if missing:
            unknown = f"it asks for {missing.group(1).replace('_', ' ')}, which is not known here"
            said = _ASKED.get(missing.group(1), unknown)
        return LedgerDelta.not_applicable(said)


def saving(now: Account, delta: LedgerDelta) -> float:
    """Return what is saved on the binding resource, as a share of what is spent there now."""
    kind = now.binding.kind
    if kind == "memory":
        return (now.memory - now.memory_after(delta)) / now.memory
    if kind == "time" and now.time:
        return (now.time - now.time_after(delta)) / now.time
    spent = {resource: now.total(resource) for resource in Resource}
    shares = [-delta.total(resource) / amount for resource, amount in spent.items() if amount]
    return max(shares, default=0.0)


def _offer(method: Method, workload: Workload, now: Account) -> Offer:
    if method.tasks and workload.task not in method.tasks:
        why = (f"it is for {' or '.join(method.tasks)}, not for {workload.task}",)
        return _declined(method.name, why, LedgerDelta(applies=False, preconditions=why), now, related=False)
    delta = delta_of(method, workload)
    if not delta.applies:
        return _declined(method.name, delta.preconditions, delta, now)
    return _accepted(method.name, delta, now, cards.risk(method), cards.switch_on(method, delta.code))


def _declined(name: str, why: tuple[str, ...], delta: LedgerDelta, now: Account, *, related: bool = True) -> Offer:
    return Offer(name, False, why, delta, now.memory, now.time, 0.0, fits=now.fits, related=related)


def _accepted(name: str, delta: LedgerDelta, now: Account, risk: tuple[str, ...], code: str) -> Offer:
    memory = now.memory_after(delta)
    return Offer(
        name,
        True,
        delta.preconditions,
        delta,
        memory,
        now.time_after(delta),
        saving(now, delta),
        delta.price,
        risk,
        code,
        fits=not now.capacity or memory <= now.capacity,
    )
