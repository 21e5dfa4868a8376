"""What a round of speculative decoding costs a mixture of experts, and what it gains: arXiv 2505.19645, section 3.

Times are in milliseconds. One forward pass of the target over t tokens takes

    F(t) = bias + κ₁ g(t) + k₂ N(t) + κ₃ g(t K / N(t))

reading the weights that are always read, the growth of the dense part, loading N experts, and the growth of the expert
part (N: :mod:`~thrifty.inference.speculation.activation`, g: :mod:`~thrifty.inference.speculation.roofline`). A round
drafts γ tokens, verifies them and rejects; S tokens take R rounds, so that

    speed-up = (S/R) · T_T(B, 1) / (γ T_D(B) + T_T(B, width) + T_rej(B))        (equation 4)

The paper's Algorithm 1 prints another denominator (no γ, and T_T(B, 1) added); it contradicts equation 4, which it
cites, and bounds the speed-up below the published 2.29, so equation 4 stands here. The paper verifies γ tokens a
request; every engine verifies γ + 1, the last token and the drafts, and so does the default ``verify_width``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.checks import is_number, number, one_of, positive, whole
from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.activation import (
    Floats,
    check_experts,
    expected_active_experts,
    experts_of_block,
)
from thrifty.inference.speculation.modelfile import read_model, write_model
from thrifty.inference.speculation.roofline import roofline_scale, scaled_roofline

VerifyWidth = Literal["gamma+1", "gamma"]

#: The coefficients that scale with time.
TIMES = (
    "bias", "dense_slope", "expert_load", "expert_slope",
    "draft_bias", "draft_slope", "reject_bias", "reject_slope",
)  # fmt: skip


#: Those that scale with time and are no part of the paper's model.
_MORE_TIMES = ("kv_target", "kv_draft", "draft_load")


@dataclass(frozen=True)
class SpeculationModel:
    """The cost model of one target and draft on one machine.

    Args:
        num_experts: Routed experts of a layer (1: dense).
        top_k: Routed experts of a token.
        ridge: Tokens at which a weight's computing takes as long as its reading.
        growth: s > 1, growth before the ridge (infinity: none).
        bias: ms to read what every step reads.
        dense_slope: κ₁, ms a token of the dense part beyond the ridge.
        expert_load: k₂, ms for each expert that is awake (in all layers together).
        expert_slope: κ₃, ms for each token of an expert beyond the ridge.
        draft_bias: ms of a draft step.
        draft_slope: ms a token of a draft step beyond the ridge.
        reject_bias: ms of a rejection.
        reject_slope: ms of a rejection for each request.
        expert_ridge: The ridge of experts whose weights are stored otherwise (``None``: the same).
        draft_experts: Routed experts of a layer of the draft (1: dense).
        draft_top_k: Routed experts of a token of the draft.
        draft_load: ms for each of the draft's experts that is awake.
        verify_width: Tokens of a request that are verified: ``"gamma+1"`` (engines) or ``"gamma"`` (the paper).
        kv_target: ms for each request and token of its context, of the target.
        kv_draft: The same of the draft.
        block_experts: Distinct experts that 1, 2, ... consecutive tokens of one request wake, where measured.
        measured_batches: Smallest and largest batch that were measured; beyond, predictions are extrapolation.
        measured_top_k: The values of K that were measured.
        source: How the coefficients came about.

    Raises:
        ValueError: A number is out of its range.

    Example:
        >>> model = SpeculationModel.from_paper(
        ...     num_experts=64, top_k=8, bias=2, k1=0.5, k2=0.3, k3=0.2, draft_bias=0.4, draft_k=0.02,
        ...     reject_bias=0.05, reject_k=0.001, ridge=75, growth=1.02, verify_width="gamma",
        ... )
        >>> float(model.speedup(16, 4, Acceptance.from_sigma(0.9, 4)).round(4))
        3.5717

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equations 2 to 11 and Algorithm 1.
    """

    num_experts: int
    top_k: int
    ridge: float
    growth: float
    bias: float
    dense_slope: float
    expert_load: float
    expert_slope: float
    draft_bias: float
    draft_slope: float
    reject_bias: float
    reject_slope: float
    expert_ridge: float | None = None
    draft_experts: int = 1
    draft_top_k: int = 1
    draft_load: float = 0.0
    verify_width: VerifyWidth = "gamma+1"
    kv_target: float = 0.0
    kv_draft: float = 0.0
    block_experts: tuple[float, ...] | None = None
    measured_batches: tuple[float, float] | None = None
    measured_top_k: tuple[int, ...] = ()
    source: str = "given"

    def __post_init__(self) -> None:
        check_experts(self.num_experts, self.top_k)
        check_experts(self.draft_experts, self.draft_top_k)
        one_of("verify_width", self.verify_width, get_args(VerifyWidth))
        for name in (*TIMES, *_MORE_TIMES):
            number(name, getattr(self, name), "milliseconds of at least 0", least=0)
        batches = self.measured_batches
        if batches is not None and (len(batches) != 2 or not batches[0] <= batches[1]):
            raise ValueError(f"measured_batches: expected the smallest and the largest, got {batches}")
        if self.block_experts is not None and not all(map(is_number, self.block_experts)):
            raise ValueError(f"block_experts: expected numbers of experts, got {self.block_experts!r}")
        for ridge in (self.ridge, self.experts_ridge):
            scaled_roofline(0.0, ridge, self.growth)  # refuses a ridge or a growth that cannot be

    @classmethod
    def from_paper(
        cls, *, num_experts: int, top_k: int, bias: float, k1: float, k2: float, k3: float, draft_bias: float,
        draft_k: float, reject_bias: float, reject_k: float, ridge: float, growth: float, **more: Any,
    ) -> SpeculationModel:  # fmt: skip
        """Take the paper's ten parameters; ``ridge`` is its λ · RP, ``growth`` its s."""
        scale = roofline_scale(ridge, growth)
        return cls(
            num_experts, top_k, ridge, growth, bias, k1 * scale, k2, k3 * scale,
            draft_bias, draft_k * scale, reject_bias, reject_k, **more,
        )  # fmt: skip

    def paper_parameters(self) -> dict[str, float]:
        """Return the paper's parameters: coefficients of G, which is s^r ln s times our g (0 where that overflows)."""
        scale = roofline_scale(self.ridge, self.growth)
        return {
            "bias": self.bias, "k1": self.dense_slope / scale, "k2": self.expert_load, "k3": self.expert_slope / scale,
            "draft_bias": self.draft_bias, "draft_k": self.draft_slope / scale, "reject_bias": self.reject_bias,
            "reject_k": self.reject_slope, "ridge": self.ridge, "growth": self.growth,
        }  # fmt: skip

    @property
    def experts_ridge(self) -> float:
        """The ridge of the experts."""
        return self.ridge if self.expert_ridge is None else self.expert_ridge

    # Times -----------------------------------------------------------------------------------------------------------

    def active_experts(self, batch: ArrayLike, tokens: ArrayLike = 1, *, top_k: ArrayLike | None = None) -> Floats:
        """Return the experts of a layer that a pass over ``batch`` requests of ``tokens`` tokens wakes."""
        k = self.top_k if top_k is None else top_k
        if self.block_experts is not None and top_k is None:
            awake = experts_of_block(tokens, self.block_experts, self.num_experts)
            return expected_active_experts(batch, self.num_experts, k, block_experts=awake)
        return expected_active_experts(np.multiply(batch, tokens), self.num_experts, k)

    def target_time(
        self, batch: ArrayLike, tokens: ArrayLike = 1, *, top_k: ArrayLike | None = None, context: float = 0.0
    ) -> Floats:
        """Return ms of one forward pass of the target: F(B · tokens).

        Args:
            batch: Requests, B, at least 1.
            tokens: Tokens of each; broadcasts with ``batch``.
            top_k: In place of the model's own K.
            context: Tokens in the cache of each request, for the part that reads keys and values.

        Raises:
            ValueError: A batch is below 1.
        """
        return np.asarray(sum(self.target_parts(batch, tokens, top_k=top_k, context=context).values()))

    def target_parts(
        self, batch: ArrayLike, tokens: ArrayLike = 1, *, top_k: ArrayLike | None = None, context: float = 0.0
    ) -> dict[str, Floats]:
        """Return ms of one forward pass of the target by cause, which add up to :meth:`target_time`.

        Raises:
            ValueError: A batch is below 1, there are no tokens, or the context is negative.
        """
        b = _batches(batch)
        if not np.all(np.asarray(tokens) > 0) or context < 0:
            raise ValueError(f"tokens and context: expected more than 0 and at least 0, got {tokens!r} and {context!r}")
        t, k = np.multiply(b, tokens), self.top_k if top_k is None else top_k
        awake = self.active_experts(b, tokens, top_k=top_k)
        seen = np.divide(np.multiply(t, k), awake)
        return {
            "bias": np.full(np.shape(awake), self.bias),
            "dense": np.asarray(self.dense_slope * scaled_roofline(t, self.ridge, self.growth)),
            "expert load": self.expert_load * awake,
            "expert growth": np.asarray(self.expert_slope * scaled_roofline(seen, self.experts_ridge, self.growth)),
            "cache": np.asarray(self.kv_target * b * context + 0.0 * awake),
        }

    def draft_time(self, batch: ArrayLike, *, context: float = 0.0) -> Floats:
        """Return ms of one draft step for ``batch`` requests."""
        b = _batches(batch)
        growth = self.draft_slope * scaled_roofline(b, self.ridge, self.growth)
        load = self.draft_load * expected_active_experts(b, self.draft_experts, self.draft_top_k)
        return np.asarray(self.draft_bias + growth + load + self.kv_draft * b * context)

    @property
    def free_drafts(self) -> bool:
        """Whether drafting costs nothing here, as where no draft was named or measured."""
        return self.draft_bias == self.draft_slope == self.draft_load == 0

    def reject_time(self, batch: ArrayLike) -> Floats:
        """Return ms of the acceptance test for ``batch`` requests."""
        return np.asarray(self.reject_bias + self.reject_slope * _batches(batch))

    def width(self, gamma: ArrayLike) -> Floats:
        """Return the tokens of a request in a verification of ``gamma`` drafts (1 where nothing is drafted).

        Raises:
            ValueError: A draft length is negative.
        """
        lengths = np.asarray(gamma, float)
        if np.any(lengths < 0):
            raise ValueError(f"gamma: expected draft lengths of at least 0, got {gamma!r}")
        return np.asarray(np.maximum(lengths + (self.verify_width == "gamma+1"), 1.0))

    def round_time(
        self, batch: ArrayLike, gamma: ArrayLike, *, top_k: ArrayLike | None = None, context: float = 0.0
    ) -> Floats:
        """Return ms of one round: γ draft steps, the verification, the rejection; for γ = 0 one plain step."""
        lengths = np.asarray(gamma, float)
        verify = self.target_time(batch, self.width(lengths), top_k=top_k, context=context)
        return np.asarray(
            lengths * self.draft_time(batch, context=context) + verify + (lengths > 0) * self.reject_time(batch)
        )

    # What follows from them ------------------------------------------------------------------------------------------

    def target_efficiency(
        self, batch: ArrayLike, tokens: ArrayLike, *, top_k: ArrayLike | None = None, context: float = 0.0
    ) -> Floats:
        """Return T_T(B, 1) / T_T(B, tokens): 1 where verification is free, 1/tokens where computing binds.

        ``tokens`` counts what one request verifies: γ + 1 in every engine, γ in the paper's figures.

        Source:
            Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, section 3.1.
        """
        plain = self.target_time(batch, 1, top_k=top_k, context=context)
        return np.asarray(plain / self.target_time(batch, tokens, top_k=top_k, context=context))

    def speedup(
        self,
        batch: ArrayLike,
        gamma: ArrayLike,
        acceptance: Acceptance,
        *,
        top_k: ArrayLike | None = None,
        context: float = 0.0,
    ) -> Floats:
        """Return how many times faster than plain decoding speculation is; 1 for γ = 0.

        Args:
            batch: Requests decoded together, B.
            gamma: Draft tokens a round; broadcasts with ``batch``.
            acceptance: How much of a draft survives.
            top_k: In place of the model's own K (acceptance is then assumed unchanged).
            context: Tokens in each request's cache.

        Returns:
            The ratio of times a token.

        Raises:
            TypeError: ``acceptance`` is a bare number: α, σ and the engines' rate are three things.
            ValueError: A batch is below 1, or a draft length negative.

        Source:
            Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 4.
        """
        if not isinstance(acceptance, Acceptance):
            raise TypeError(f"acceptance: expected an Acceptance (from_rate, from_sigma, ...), got {acceptance!r}")
        plain = self.target_time(batch, 1, top_k=top_k, context=context)
        gained = acceptance.expected_tokens(gamma)
        return np.asarray(gained * plain / self.round_time(batch, gamma, top_k=top_k, context=context))

    def breakdown(
        self, batch: float, gamma: int, acceptance: Acceptance, *, context: float = 0.0
    ) -> dict[str, dict[str, float] | float]:
        """Return where a round's time goes beside a plain step's, in ms, and the speed-up.

        Returns:
            ``plain`` and ``round``, each by cause, ``tokens`` of a round and ``speedup``.
        """
        plain = {name: float(ms) for name, ms in self.target_parts(batch, context=context).items()}
        verify = self.target_parts(batch, self.width(gamma), context=context)
        spent = {name: float(ms) for name, ms in verify.items()}
        spent["draft"] = gamma * float(self.draft_time(batch, context=context))
        spent["reject"] = float(self.reject_time(batch)) if gamma else 0.0
        tokens = float(acceptance.expected_tokens(gamma))
        return {
            "plain": plain,
            "round": spent,
            "tokens": tokens,
            "speedup": tokens * sum(plain.values()) / sum(spent.values()),
        }

    def extrapolated(self, batch: ArrayLike, *, top_k: int | None = None) -> np.ndarray:
        """Tell where a prediction leaves what was measured (nothing was: everywhere)."""
        b = np.asarray(batch, float)
        if self.measured_batches is None:
            return np.ones(b.shape, bool)
        low, high = self.measured_batches
        elsewhere = top_k is not None and bool(self.measured_top_k) and top_k not in self.measured_top_k
        return (b < low) | (b > high) | elsewhere

    def scaled(self, factor: float) -> SpeculationModel:
        """Return the model with every time multiplied: all speed-ups stay.

        Raises:
            ValueError: ``factor`` is not above 0.
        """
        positive("factor", factor)
        return replace(self, **{name: getattr(self, name) * factor for name in (*TIMES, *_MORE_TIMES)})

    def expert_parallel(self, degree: int) -> SpeculationModel:
        """Return the model with its experts spread over so many devices, which load them at once (k₂ / degree).

        Raises:
            ValueError: ``degree`` is below 1.
        """
        whole("degree", degree, what="a number of devices")
        return replace(self, expert_load=self.expert_load / degree)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the model as JSON; :meth:`load` reads it."""
        return write_model(self, path, force=force)

    @classmethod
    def load(cls, path: str | Path) -> SpeculationModel:
        """Read a model that :meth:`save` wrote.

        Raises:
            ValueError: It is something else, of another version, or has a field that is unknown, missing or impossible.
        """
        fields = read_model(path, cls)
        try:
            return cls(**fields)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from None


def _batches(batch: ArrayLike) -> Floats:
    b = np.asarray(batch, float)
    if not np.all(b >= 1):
        raise ValueError(f"batch: expected at least one request, got {batch!r}")
    return b
