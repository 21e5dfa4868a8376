"""The currency in which methods tell the adviser what they cost and save.

A method's ``cost.py`` has one pure function, ``predict(workload) -> LedgerDelta``. A workload is what the user could
say of it; a ledger is where its bytes, FLOPs, steps and seconds go; a delta is what a method would change, entry by
entry, each with the formula that gave the number and the source of that formula. Deltas add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Resource(StrEnum):
    """What can be spent. Bytes are told apart by what they hold, since a method saves one kind and not the other."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    ACTIVATIONS = "activations"
    KV_CACHE = "KV cache"
    DATA = "stored data"
    TRANSFER = "transferred"
    EXAMPLES = "labelled examples"
    FLOPS = "FLOPs"
    STEPS = "steps"
    SECONDS = "seconds"
    ERRORS = "errors"

    @property
    def unit(self) -> str:
        """Return the unit in which amounts are counted."""
        return _UNITS.get(self, "bytes")


_UNITS = {
    Resource.EXAMPLES: "examples",
    Resource.FLOPS: "FLOP",
    Resource.STEPS: "steps",
    Resource.SECONDS: "s",
    Resource.ERRORS: "errors",
}


@dataclass(frozen=True)
class Entry:
    """One line of a ledger.

    Args:
        resource: What is spent (or, in a delta, changed: negative is saved).
        amount: How much, in ``resource.unit``.
        formula: How the amount was computed, with the names that the workload uses.
        source: Where the formula comes from: a paper and its equation, or the measurement behind it.
    """

    resource: Resource
    amount: float
    formula: str
    source: str


@dataclass(frozen=True)
class Ledger:
    """Where a workload's resources go."""

    entries: tuple[Entry, ...] = ()

    def total(self, resource: Resource) -> float:
        """Return the sum over the entries of one resource, in its unit."""
        return sum(entry.amount for entry in self.entries if entry.resource is resource)

    def __add__(self, other: Ledger | LedgerDelta) -> Ledger:
        return Ledger(self.entries + other.entries)


@dataclass(frozen=True)
class LedgerDelta:
    """What a method would change.

    Args:
        entries: The changes; an amount below zero is a saving.
        applies: Whether the method fits the workload at all.
        preconditions: What must be true for the numbers to hold, or why the method does not apply.
        price: What is paid in return, in words.
    """

    entries: tuple[Entry, ...] = ()
    applies: bool = True
    preconditions: tuple[str, ...] = ()
    price: tuple[str, ...] = ()

    def total(self, resource: Resource) -> float:
        """Return the sum over the entries of one resource, in its unit."""
        return Ledger(self.entries).total(resource)

    def __add__(self, other: LedgerDelta) -> LedgerDelta:
        """Join two methods' changes: amounts add, and the sum applies only where both do."""
        return replace(
            self,
            entries=self.entries + other.entries,
            applies=self.applies and other.applies,
            preconditions=self.preconditions + other.preconditions,
            price=self.price + other.price,
        )

    @classmethod
    def not_applicable(cls, reason: str) -> LedgerDelta:
        """Return the delta of a method that does not fit, and why."""
        return cls(applies=False, preconditions=(reason,))


class Task(StrEnum):
    """What a workload does. A member is its own name in the field's words, so plain strings compare equal."""

    TABULAR_CLASSIFICATION = "tabular classification"
    LM_PRETRAINING = "language-model pre-training"
    LM_FINETUNING = "language-model fine-tuning"
    LM_PREFERENCE = "language-model preference optimisation"
    LM_REINFORCEMENT = "language-model reinforcement learning"
    LM_SERVING = "language-model serving"
    IMAGE_TRAINING = "image-model training"
    IMAGE_INFERENCE = "image-model inference"
    IMAGE_CLASSIFICATION = "image classification"
    IMAGE_EMBEDDING = "image embedding"
    SEQUENCE_CLASSIFICATION = "sequence classification"
    SEQUENCE_REGRESSION = "sequence regression"
    FORECASTING = "time-series forecasting"


@dataclass(frozen=True)
class Workload:
    """What is known of a user's workload.

    Facts that more than one method may ask for have one name each:

    ==================  =====================================================================
    ``rows``            of a table; ``features`` its columns, ``queries`` rows to be answered
    ``parameters``      numbers in the model's weights
    ``layers``          blocks, each ``hidden`` wide, with ``feed_forward`` units in the middle
    ``matrices``        weights of ``hidden`` rows and columns that stand for all
    ``vocabulary``      tokens that a language model knows
    ``state``           channels of a recurrent layer's state; ``input`` the width that it reads
    ``sequence``        tokens or time steps of one example
    ``batch``           examples a step
    ``steps``           updates of the weights in the whole run; ``epochs`` passes over the data
    ``pool``            examples at hand, of which ``selected`` are trained on
    ``images``          that pass through the model, each ``image_size`` pixels wide
    ``bytes_a_number``  of what is stored: 4 in float32, 2 in bfloat16
    ``optimizer``       in use now; so ``rnn`` and ``selection``, by name
    ==================  =====================================================================

    A setting of a method's own (``rank``, ``depth``, ``keep``) has the name that the method gives it.

    Args:
        task: What is done.
        facts: Named numbers and names.

    Example:
        >>> table = Workload(Task.TABULAR_CLASSIFICATION, {"rows": 20_000, "features": 10})
        >>> table.number("rows"), table.number("depth", 4)
        (20000, 4)
    """

    task: Task | str
    facts: Mapping[str, float | str] = field(default_factory=dict)

    def number(self, name: str, default: float | None = None) -> float:
        """Return a fact that is a number.

        Raises:
            ValueError: It is missing and has no default, or is not a number.
        """
        value = self.facts.get(name, default)
        if value is None:
            known = ", ".join(self.facts) or "none"
            raise ValueError(f"workload: {name!r} is needed for this prediction; the facts given are: {known}")
        if isinstance(value, str):
            raise ValueError(f"workload: {name!r} must be a number, got {value!r}")
        return value
