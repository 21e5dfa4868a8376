"""Bytes on one device at the fullest moment of a training step, by part.

Weights, gradients and optimizer state are counted from shapes; what a step allocates beyond them is rehearsed. What is
offloaded is counted apart, as bytes of the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from thrifty._common.ledger import Resource
from thrifty.advise.account import Part
from thrifty.advise.job import Training
from thrifty.advise.rehearsal import LAYERS, Mode, Phases


def allocated(job: Training) -> Phases:
    """Return what a step of this job's length and batch allocates, by phase, with the layers that are rehearsed.

    A search for the largest that fits rehearses powers of two only, and interpolates between neighbours: bytes grow
    with tokens and with their pairs, but which tensors are there at the peak changes on the way.
    """
    tokens, sequences = max(2, round(job.tokens)), job.sequences
    if job.asked is None or job.asked == (job.length, job.batch):
        return _rehearsed(job, sequences, tokens)
    if job.asked[0] != job.length:
        below = 1 << (tokens.bit_length() - 1) // 2 * 2
        return _through({n: _rehearsed(job, sequences, n) for n in (below, 2 * below, 4 * below)}, tokens)
    below = 1 << (sequences.bit_length() - 1) // 2 * 2
    return _through({n: _rehearsed(job, n, tokens) for n in (below, 4 * below)}, sequences)


def _rehearsed(job: Training, sequences: int, tokens: int) -> Phases:
    mode: Mode = "checkpoint" if job.checkpointing else "none"
    return job.model.phases(
        sequences, tokens, mode=mode, dtype=job.dtype, lora_rank=job.lora_rank, fused_head=job.fused_head
    )


def _through(seen: Mapping[int, Phases], place: int) -> Phases:
    """Return the phases at a place that the polynomial through those seen has."""
    powers = np.vander(np.array(list(seen), float), len(seen), increasing=True)
    wanted = np.vander([float(place)], len(seen), increasing=True)[0]
    found = {
        field.name: wanted @ np.linalg.solve(powers, [float(getattr(phases, field.name)) for phases in seen.values()])
        for field in fields(Phases)
    }
    return Phases(**{name: round(float(value)) for name, value in found.items()})


def held(job: Training) -> list[Part]:
    """Return what is there before a step begins: weights and optimizer state."""
    n, width = job.gpus, job.width
    twice = ", twice: policy and reference" if job.reference else ""
    shared = " / gpus" if n > 1 else ""
    kept = f"{job.optimizer.name}: Σ numbers of each matrix, {job.optimizer.others:g} of every other weight"
    parts = [
        Part(
            "weights",
            Resource.HOST if "weights" in job.offload else Resource.WEIGHTS,
            (job.parameters + job.adapters + job.reference) * width / n,
            f"parameters · bytes{shared}{twice}",
        ),
        Part(
            "optimizer state",
            Resource.HOST if "optimizer" in job.offload else Resource.OPTIMIZER_STATE,
            (job.matrix_state + job.other_state) / n,
            f"{kept}, times bytes{shared}",
        ),
    ]
    if job.gathered:
        parts.append(
            Part(
                "weights in use",
                Resource.WEIGHTS,
                job.gathered * width * (1.0 if "weights" in job.offload else 1 - 1 / n),
                "(embedding, head, this layer and the next) · bytes, gathered",
            )
        )
    return parts


@dataclass(frozen=True)
class Moment:
    """A moment of a step, and what is there then above weights and state.

    Args:
        when: In words.
        what: Name of the rest.
        gradients: Of layers that are done, or of all.
        kept: Layers' inputs, or what else layers leave for the backward pass.
        rest: Bytes that are none of the others, and ``how`` they were found.
        cache: Keys and values of tokens that other steps or devices have computed.
    """

    when: str
    what: str
    gradients: float
    kept: float
    rest: float
    cache: float = 0.0
    how: str = "rehearsed on the meta device with two layers"

    @property
    def total(self) -> float:
        """Bytes."""
        return self.gradients + self.kept + self.rest + self.cache


def fullest(job: Training) -> tuple[list[Part], str]:
    """Return what a step adds at its fullest moment, what it moves to the host, and when that moment is."""
    moment = max(_moments(job), key=lambda each: each.total)
    kind = "checkpoints" if job.checkpointing else "activations of all layers"
    each = "layers · what one leaves for its backward pass"
    parts = [
        Part("gradients", Resource.GRADIENTS, moment.gradients, "trained · bytes, of the layers that are done"),
        Part(kind, Resource.ACTIVATIONS, moment.kept, each),
        Part(moment.what, Resource.ACTIVATIONS, moment.rest, moment.how),
        Part("keys and values", Resource.KV_CACHE, moment.cache, "sequences · length · bytes a token"),
    ]
    if "checkpoints" in job.offload:
        parts.append(Part("checkpoints", Resource.HOST, job.depth * allocated(job).kept, each))
    if "optimizer" in job.offload:
        parts.append(Part("gradients", Resource.HOST, job.trained * job.width / job.gpus, "trained · bytes / gpus"))
    return [part for part in parts if part.amount], moment.when


def _moments(job: Training) -> list[Moment]:
    phases, width = allocated(job), job.width
    rehearsed = min(LAYERS, job.model.layers)
    more = job.depth - rehearsed
    outside = 0.0 if job.lora_rank else job.model.outside * width
    layer = (job.trained * width - outside) / job.depth  # a layer's gradient, as it is made
    share = 0.0 if "optimizer" in job.offload else 1 / job.gpus  # of a gradient that stays on this device
    gradients = job.trained * width * share
    # What is offloaded comes back one layer ahead: two layers' inputs are there, as in the rehearsal.
    waiting = rehearsed * phases.kept
    inputs = waiting + (0 if "checkpoints" in job.offload else more * phases.kept)
    early, done = 0.0, more * layer * share
    head, later = 0.0, (rehearsed - 1) * layer * (1 - share)
    if job.accumulated:  # gradients are all there, and new ones are added and freed one weight at a time
        early = done = gradients
        head = 0.0 if job.lora_rank else job.model.text.vocab_size * job.model.text.hidden_size * width
        later = (rehearsed - 1) * layer + head
    rotating = job.a_token / job.depth * job.length * (1 - 1 / job.context_parallel)  # one layer's, of other devices
    working = "layer working set, with its gradients"
    passes = [
        Moment("the loss is computed", "logits, loss and their gradients", early, inputs, phases.head - waiting),
        Moment("the last layer is differentiated", working, early, inputs, phases.last - waiting - head, rotating),
        Moment("the first layer is differentiated", working, done, 0.0, phases.first - later, rotating),
    ]
    return passes + _between(job, early)


def floor(job: Training) -> float:
    """Return bytes above weights, state and what is accumulated that no change of the passes would save."""
    return max((moment.total - moment.gradients * job.accumulated for moment in _between(job, 0.0)), default=0.0)


def _between(job: Training, early: float) -> list[Moment]:
    """Return the moments at which no pass runs."""
    moments = []
    if "optimizer" not in job.offload:
        temporaries = 2 * job.largest * job.width / job.gpus * bool(job.optimizer.matrix)
        gradients = job.trained * job.width / job.gpus
        moments.append(
            Moment("the optimizer steps", "the optimizer's temporaries", gradients, 0.0, temporaries, 0.0,
                   "2 · the largest weight · bytes")
        )  # fmt: skip
    if job.generated:  # TRL gathers all weights for it
        whole = (job.parameters - job.gathered) * job.width * (1 - 1 / job.gpus)
        moments.append(
            Moment("answers are generated", "other weights, gathered", early, 0.0, whole, job.a_token * job.length,
                   "parameters · bytes · (gpus − 1) / gpus")
        )  # fmt: skip
    return moments
