"""What happened in a generation, round by round: times, acceptance, batch."""

from __future__ import annotations

from dataclasses import dataclass, field

from thrifty.inference.speculation.acceptance import Acceptance


@dataclass(frozen=True)
class Round:
    """One round.

    Args:
        batch: Rows that took part.
        gamma: Draft tokens of each; 0 is a plain step.
        draft_ms: All draft steps.
        verify_ms: The target's pass.
        reject_ms: The acceptance test.
        accepted: How many rows accepted exactly 0, 1, ... γ draft tokens.
        tokens: Tokens emitted, all rows together, after cutting at the end of sequences.
        total_ms: The whole round, bookkeeping included.
        prompt: Tokens of the prompt that each row read besides, which makes its times no measure of a round's.
    """

    batch: int
    gamma: int
    draft_ms: float
    verify_ms: float
    reject_ms: float
    accepted: tuple[int, ...]
    tokens: int
    total_ms: float
    prompt: int = 0

    @property
    def gained(self) -> int:
        """Tokens before any cut: of each row, the drafts that it accepted and one more."""
        return self.batch + sum(drafts * rows for drafts, rows in enumerate(self.accepted))


@dataclass
class SpeculativeStats:
    """The rounds of a generation.

    Args:
        rounds: In order.
        prefill_ms: Reading prompts of unequal length, both models; others are read by the first round.

    Example:
        >>> one = Round(4, 2, draft_ms=1.0, verify_ms=2.0, reject_ms=0.1, accepted=(1, 1, 2), tokens=9, total_ms=3.2)
        >>> stats = SpeculativeStats([one])
        >>> stats.tokens, stats.survival()
        (9, [0.75, 0.5])
    """

    rounds: list[Round] = field(default_factory=list)
    prefill_ms: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens emitted, all rows together."""
        return sum(round_.tokens for round_ in self.rounds)

    @property
    def decode_ms(self) -> float:
        """All rounds, without those that read prompts besides."""
        return sum(round_.total_ms for round_ in self.rounds if not round_.prompt)

    @property
    def rejection_share(self) -> float:
        """The acceptance test's share of the rounds' time."""
        return sum(r.reject_ms for r in self.rounds if not r.prompt) / self.decode_ms if self.decode_ms else 0.0

    def survival(self) -> list[float]:
        """Return p_i, the share of drafts of at least i tokens of which at least i were accepted, i = 1, 2, ...

        Empty if nothing was drafted.
        """
        longest = max((r.gamma for r in self.rounds), default=0)
        found = []
        for i in range(1, longest + 1):
            long_enough = [r for r in self.rounds if r.gamma >= i]
            found.append(sum(sum(r.accepted[i:]) for r in long_enough) / sum(r.batch for r in long_enough))
        return found

    def acceptance(self) -> Acceptance:
        """Return the acceptance that was measured.

        Raises:
            ValueError: Nothing was drafted.
        """
        drafted = [r for r in self.rounds if r.gamma]
        if not drafted:
            raise ValueError("stats: no data: every round was a plain step")
        survival: list[float] = []
        for p in self.survival():  # drafts of several lengths: keep the curve from rising by chance
            survival.append(min(p, survival[-1]) if survival else p)
        return Acceptance.from_survival(survival)
