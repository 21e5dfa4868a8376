"""What the adviser answers: a workload's ledger, what would change it, and how far each would reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thrifty.advise.account import Account
from thrifty.advise.offers import Offer
from thrifty.advise.reach import Reach


@dataclass(frozen=True)
class Advice:
    """What ``thrifty advise`` found.

    Args:
        workload: One line that says what was asked.
        account: The ledger now.
        offers: Methods, by their saving on the binding resource; those that do not apply come last.
        pairs: Two that apply, together; those that cannot go together come last, and say why.
        reach: The largest sequence, batch and model, now and with each of them; empty where memory is not counted.
        notes: What the numbers rest on that a user may not expect.
    """

    workload: str
    account: Account
    offers: Sequence[Offer]
    pairs: Sequence[Offer] = ()
    reach: Sequence[Reach] = ()
    notes: Sequence[str] = ()

    @property
    def best(self) -> Offer | None:
        """The offer that saves most of the binding resource, if any does."""
        first = next((offer for offer in self.offers if offer.applies), None)
        useful = first is not None and first.saving > 0 and (first.fits or not self.account.fits)
        return first if useful else None
