"""Which draft length for which batch size, and how vLLM and SGLang want to be told.

The length is chosen by goodput, tokens a millisecond for each request, exhaustively over γ and vectorised over the
batch. For a mixture of experts the best length is low, high and low again as the batch grows, so nothing here assumes
that it falls; a rule that only switches speculation off above some batch size has the wrong shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from thrifty._common.checks import number, whole
from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.activation import Floats
from thrifty.inference.speculation.model import SpeculationModel

#: A longer draft must be better than a shorter one by this share.
TIE = 0.01


@dataclass(frozen=True)
class Schedule:
    """A draft length for every batch size.

    Args:
        entries: (first batch, last batch, γ), contiguous from 1 on; γ = 0 is plain decoding.
        gains: Predicted speed-up over plain decoding at each batch size from 1 on.
        warnings: What the reader should know: why it is off, where it is extrapolated.

    Raises:
        ValueError: The entries leave a gap, overlap, or do not begin at 1.

    Example:
        >>> Schedule(((1, 3, 0), (4, 64, 4), (65, 128, 2)), (1.0,) * 128).to_vllm()
        {'num_speculative_tokens': 4, 'num_speculative_tokens_per_batch_size': [[1, 3, 0], [4, 64, 4], [65, 128, 2]]}

    Source:
        vLLM's ``num_speculative_tokens_per_batch_size`` and SGLang's ``--speculative-adaptive-config``: their names.
    """

    entries: tuple[tuple[int, int, int], ...]
    gains: tuple[float, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ends = [0, *(last for _, last, _ in self.entries)]
        starts = [first - 1 for first, _, _ in self.entries]
        if not starts or starts != ends[:-1] or any(a >= b for a, b in pairwise(ends)):
            raise ValueError(
                f"entries: expected (first, last, gamma) from batch 1 on, without gaps, got {self.entries}"
            )
        if any(gamma < 0 for _, _, gamma in self.entries):
            raise ValueError(f"entries: expected draft lengths of at least 0, got {self.entries}")

    def gamma(self, batch: int) -> int:
        """Return the draft length for a batch size; beyond the last entry, its.

        Raises:
            ValueError: ``batch`` is below 1.
        """
        if batch < 1:
            raise ValueError(f"batch: expected at least 1, got {batch}")
        return next((gamma for _, last, gamma in self.entries if batch <= last), self.entries[-1][2])

    @property
    def max_gamma(self) -> int:
        """The longest draft of any batch size."""
        return max(gamma for _, _, gamma in self.entries)

    @property
    def falls_only(self) -> bool:
        """Whether the draft length never rises with the batch."""
        lengths = [gamma for _, _, gamma in self.entries]
        return lengths == sorted(lengths, reverse=True)

    def to_vllm(
        self, num_speculative_tokens: int | None = None, *, data_parallel: int = 1
    ) -> dict[str, int | list[list[int]]]:
        """Return the part of vLLM's ``--speculative-config`` that holds the schedule.

        Args:
            num_speculative_tokens: What the engine is started with; ``None``: the schedule's longest. vLLM clamps
                longer entries to it, so they are refused here.
            data_parallel: vLLM switches the schedule off under data parallelism.

        Raises:
            ValueError: Speculation pays nowhere, an entry is longer than ``num_speculative_tokens``, or the engine
                would ignore the schedule.
        """
        if whole("data_parallel", data_parallel) > 1:
            raise ValueError(f"data_parallel: vLLM ignores a schedule under data parallelism, got {data_parallel}")
        self._pays("--speculative-config")
        most = num_speculative_tokens if num_speculative_tokens is not None else self.max_gamma
        if self.max_gamma > most:
            raise ValueError(
                f"num_speculative_tokens: the schedule drafts up to {self.max_gamma} tokens, got {most}; vLLM would "
                "clamp it: recommend with max_gamma no larger"
            )
        table = [list(entry) for entry in self.entries]
        return {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": table}

    def to_sglang(self) -> dict[str, dict[str, list[int]]]:
        """Return the content of the file for SGLang's ``--speculative-adaptive-config``.

        Keys are the first batch size of a range. Steps are γ, draft tokens γ + 1, ``--speculative-eagle-topk`` 1.

        Raises:
            ValueError: Speculation pays nowhere.
        """
        self._pays("--speculative-algorithm")
        return {str(first): {"candidate_steps": [gamma]} for first, _, gamma in self.entries}

    def _pays(self, flag: str) -> None:
        if self.max_gamma == 0:
            why = f" ({'; '.join(self.warnings)})" if self.warnings else ""
            raise ValueError(f"schedule: speculation pays at no batch size: serve without {flag}{why}")


def goodput(
    model: SpeculationModel, batches: NDArray, gammas: NDArray, acceptance: Acceptance, *, context: float = 0.0
) -> Floats:
    """Return tokens a millisecond for each request: a row a draft length, a column a batch size.

    Args:
        model: The cost model.
        batches: Batch sizes, n of them.
        gammas: Draft lengths, m of them; 0 is plain decoding.
        acceptance: How much of a draft survives.
        context: Tokens in each request's cache.

    Returns:
        Expected tokens of a round over its time, of shape (m, n).

    Raises:
        ValueError: A batch is below 1, or a draft length negative.

    Example:
        >>> model = SpeculationModel(64, 8, 75.0, 1.02, 2.0, 0.05, 0.3, 0.1, 1.0, 0.01, 0.05, 0.001)
        >>> goodput(model, np.array([1, 32]), np.array([0, 4]), Acceptance.from_rate(0.7)).round(3).tolist()
        [[0.163, 0.043], [0.157, 0.08]]

    Source:
        Liu et al., "Optimizing Speculative Decoding for Serving Large Language Models Using Goodput", arXiv 2406.14066;
        times of a round from Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 4.
    """
    lengths = np.asarray(gammas)[:, None]
    tokens = acceptance.expected_tokens(np.asarray(gammas))[:, None]
    return np.asarray(tokens / model.round_time(np.asarray(batches)[None, :], lengths, context=context))


def best_gammas(goodputs: Floats, *, min_gain: float = 0.03) -> NDArray[np.int64]:
    """Return the draft length for each column of a goodput table whose row γ stands for draft length γ.

    The shortest within 1 % of the best; 0 unless that is at least ``min_gain`` better than plain decoding.
    """
    near = goodputs >= (1 - TIE) * goodputs.max(axis=0)
    chosen = np.argmax(near, axis=0)
    gain = goodputs[chosen, np.arange(goodputs.shape[1])] / goodputs[0]
    return np.where(gain >= 1 + min_gain, chosen, 0)


def recommend_schedule(
    model: SpeculationModel,
    acceptance: Acceptance,
    *,
    max_batch: int,
    max_gamma: int = 7,
    min_gain: float = 0.03,
    context: float = 0.0,
) -> Schedule:
    """Return the draft length that gives the most tokens a second, for every batch size.

    Args:
        model: The cost model.
        acceptance: How much of a draft survives.
        max_batch: The largest batch of the engine (``max_num_seqs``).
        max_gamma: The longest draft.
        min_gain: What speculation must gain over plain decoding to be switched on.
        context: Tokens in each request's cache.

    Returns:
        The schedule, with a warning where speculation will not help and why, and where the model is extrapolated.

    Raises:
        ValueError: ``max_batch`` is below 1, or ``max_gamma`` is.

    Example:
        >>> model = SpeculationModel(64, 8, 75.0, 1.02, 2.0, 0.05, 0.3, 0.1, 1.0, 0.01, 0.05, 0.001)
        >>> recommend_schedule(model, Acceptance.from_rate(0.7), max_batch=128, max_gamma=4).entries
        ((1, 2, 1), (3, 3, 2), (4, 4, 3), (5, 24, 4), (25, 65, 3), (66, 128, 2))

    Source:
        As for :func:`goodput`; the ties and the least gain are ours.
    """
    for name, kind, given in (("model", SpeculationModel, model), ("acceptance", Acceptance, acceptance)):
        if not isinstance(given, kind):
            raise TypeError(f"{name}: expected {kind.__name__}, got {given!r}")
    whole("max_batch", max_batch)
    whole("max_gamma", max_gamma)
    number("min_gain", min_gain, "a share of at least 0", least=0)
    batches, lengths = np.arange(1, max_batch + 1), np.arange(max_gamma + 1)
    table = goodput(model, batches, lengths, acceptance, context=context)
    chosen = best_gammas(table, min_gain=min_gain)
    gains = table[chosen, np.arange(max_batch)] / table[0]
    entries = merge(chosen)
    warnings = []
    if (chosen == 0).any():
        off = [f"{first} to {last}" for first, last, gamma in entries if gamma == 0]
        why = why_not(model, int(batches[chosen == 0][0]), acceptance, context=context)
        warnings.append(f"off at batch {', '.join(off)}, where less than {min_gain:.0%} is gained: {why}")
    if model.free_drafts:
        warnings.append("drafts cost nothing in this model: no draft was measured or named")
    if known := len(acceptance.survival):
        longest = max(gamma for _, _, gamma in entries)
        if longest > known:
            warnings.append(f"acceptance is known up to position {known}; up to {longest} it is taken to go on falling")
    if model.measured_batches is not None and max_batch > model.measured_batches[1]:
        warnings.append(f"extrapolated above batch {model.measured_batches[1]:g}, the largest that was measured")
    if model.measured_batches is not None and model.measured_batches[0] > 1:
        warnings.append(f"extrapolated below batch {model.measured_batches[0]:g}, the smallest that was measured")
    if model.measured_batches is None:
        warnings.append(f"nothing was measured here (the model is: {model.source}); fit before you rely on it")
    return Schedule(entries, tuple(float(gain) for gain in gains), tuple(warnings))


def why_not(
    model: SpeculationModel, batch: int, acceptance: Acceptance, *, gamma: int = 1, context: float = 0.0
) -> str:
    """Say where a round's time goes that its tokens do not pay for, at the shortest draft."""
    plain = float(model.target_time(batch, context=context))
    verify = float(model.target_time(batch, model.width(gamma), context=context)) / plain
    draft = gamma * float(model.draft_time(batch, context=context)) / plain
    reject = float(model.reject_time(batch)) / plain
    tokens = float(acceptance.expected_tokens(gamma))
    spent = f"verifying {verify:.2f}, drafting {draft:.2f}, rejecting {reject:.2f}"
    return (
        f"at batch {batch} a round of {gamma} draft token gives {tokens:.2f} tokens and costs "
        f"{verify + draft + reject:.2f} plain steps ({spent})"
    )


def merge(gammas: NDArray) -> tuple[tuple[int, int, int], ...]:
    """Join equal neighbours of a list of draft lengths for batch 1, 2, ... into (first, last, γ)."""
    starts = np.flatnonzero(np.concatenate(([True], np.diff(gammas) != 0)))
    ends = np.concatenate((starts[1:], [len(gammas)]))
    return tuple((int(a) + 1, int(b), int(gammas[a])) for a, b in zip(starts, ends, strict=True))


def one_sided(goodputs: Floats) -> tuple[int, int, float]:
    """Return the best rule of the form "draft γ up to batch B, nothing above", and its mean share of the best goodput.

    Args:
        goodputs: A row a draft length from 0 on, a column a batch size in rising order.

    Returns:
        γ, the number of columns at which it drafts, and the mean over the columns of its goodput over the best.
    """
    best = goodputs.max(axis=0)
    columns = np.arange(goodputs.shape[1])

    def share(gamma: int, on: int) -> float:
        return float(np.mean(np.where(columns < on, goodputs[gamma], goodputs[0]) / best))

    rules: list[tuple[int, int]] = [(g, on) for g in range(len(goodputs)) for on in range(goodputs.shape[1] + 1)]
    gamma, on = max(rules, key=lambda rule: share(*rule))
    return gamma, on, share(gamma, on)
