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
    HOST = "host memory"
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
        code: The line that switches it on for this workload; empty: the one of the method's card.
        assumes: What a part of the workload is with it, by part (``{"optimizer": "SUMO"}``): two methods that make
            different things of one part do not go together.
    """

    entries: tuple[Entry, ...] = ()
    applies: bool = True
    preconditions: tuple[str, ...] = ()
    price: tuple[str, ...] = ()
    code: str = ""
    assumes: Mapping[str, str] = field(default_factory=dict)

    def total(self, resource: Resource) -> float:
        """Return the sum over the entries of one resource, in its unit."""
        return Ledger(self.entries).total(resource)

    def __add__(self, other: LedgerDelta) -> LedgerDelta:
        """Join two methods' changes: amounts add, and the sum applies only where both do and go together."""
        apart = self.conflicts(other)
        return replace(
            self,
            entries=self.entries + other.entries,
            applies=self.applies and other.applies and not apart,
            preconditions=self.preconditions + other.preconditions + apart,
            price=self.price + other.price,
            code="; ".join(code for code in (self.code, other.code) if code),
            assumes={**self.assumes, **other.assumes},
        )

    def conflicts(self, other: LedgerDelta) -> tuple[str, ...]:
        """Return in words what two methods make different things of; empty where they go together.

        Example:
            >>> LedgerDelta(assumes={"optimizer": "SUMO"}).conflicts(LedgerDelta(assumes={"optimizer": "Muon"}))
            ('the optimizer would be both SUMO and Muon',)
        """
        return tuple(
            f"the {part} would be both {made} and {other.assumes[part]}"
            for part, made in self.assumes.items()
            if other.assumes.get(part, made) != made
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
    LM_SELECTION = "choosing what to fine-tune on"
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
    GRAPH_FORECASTING = "temporal graph forecasting"


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
    ``embedding``       width of the embeddings of a two-tower model (CLIP)
    ``frames``          of video, each ``height`` x ``width`` pixels, ``video_bytes`` in all
    ``bytes_a_number``  of what is stored: 4 in float32, 2 in bfloat16
    ``optimizer``       in use now; so ``rnn`` and ``selection``, by name
    ``devices``         that share the model
    ``clients``         of a round of a federation; ``sent_bytes`` that each sends and receives
    ==================  =====================================================================

    The adviser, which reads a model's configuration, tells of a training step what shapes say:

    ======================  =================================================================
    ``layer_parameters``    weights of a layer, all experts counted
    ``matrix_numbers``      rows times columns, summed over the weights of the layers
    ``matrix_sides``        rows plus columns, likewise
    ``matrix_state``        bytes that the optimizer in use keeps of them on one device
    ``other_numbers``       of weights that are none of these; ``other_state`` likewise
    ``trained``             share of the weights whose gradients pile up on a device in a step
    ``tied``                1: the head has the embedding's weights
    ``kv_share``            keys' width over ``hidden``; ``query_share`` that of queries
    ``adapter_rank``        of what is trained in place of the weights (0: the weights)
    ``layer_token_bytes``   of a layer's graph, while it is differentiated, a token
    ``layer_pair_bytes``    likewise, a pair of tokens: attention that stores its scores
    ``step_bytes``          that a step holds at its peak, beside weights and state
    ``gradient_bytes``      of these, gradients that came in the course of the step
    ``floor_bytes``         held at moments that no pass is in: the optimizer's, generation's
    ``fused_head``          1: logits are never there for all tokens
    ``offloaded_inputs``    1: layers' inputs wait in the host's memory
    ``context_parallel``    devices that share one sequence
    ======================  =================================================================

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
