"""The decoder: draft γ tokens, verify them in one pass of the target, keep what stands, row by row in one batch."""

from __future__ import annotations

import copy
import operator
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from transformers import GenerationConfig

from thrifty.inference.speculation.controller import GammaController
from thrifty.inference.speculation.decode.batch import Batch
from thrifty.inference.speculation.decode.cache import check_cacheable, check_positions
from thrifty.inference.speculation.decode.forward import compiled
from thrifty.inference.speculation.decode.stats import Round, SpeculativeStats
from thrifty.inference.speculation.decode.warp import check_supported, warper
from thrifty.inference.speculation.experts import pinned_experts
from thrifty.inference.speculation.schedule import Schedule

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SpeculativeOutput:
    """What :meth:`SpeculativeDecoder.generate` returns.

    Args:
        sequences: [batch, prompt + new]: the prompts as given and the new tokens, padded on the right.
        lengths: New tokens of each row.
        stats: What happened, round by round.

    Example:
        >>> ids = torch.tensor([[5, 6, 7, 8]])
        >>> out = SpeculativeOutput(ids, torch.tensor([2]), SpeculativeStats())
        >>> out.sequences[0, -int(out.lengths[0]) :].tolist()  # the new tokens of the only row
        [7, 8]
    """

    sequences: Tensor
    lengths: Tensor
    stats: SpeculativeStats


class SpeculativeDecoder:
    """Speculative decoding of whole batches, with exactly the target's greedy output or distribution.

    Args:
        target: A causal language model of transformers with full or sliding attention.
        draft: A smaller one with the same vocabulary.
        gamma: Draft tokens a round; a :class:`~thrifty.inference.speculation.Schedule` takes them by batch size, a
            :class:`~thrifty.inference.speculation.GammaController` adapts them. 0 is plain decoding in the same loop.
        experts: How routed experts are computed while it runs (``None``: as the models are set).
        vocab_size: Tokens of the tokenizer, where the heads of the two models are padded to different sizes.
        compile_draft: Compile the draft's steps, on a GPU into CUDA graphs: a small model's step costs launches more
            than anything. It is done anew for every batch size and every 64 positions, so it pays for long service.

    Raises:
        ValueError: The vocabularies differ, or a model cannot be rolled back row by row.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> small = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
        >>> models = [LlamaForCausalLM(LlamaConfig(num_hidden_layers=n, **small)).eval() for n in (2, 1)]
        >>> decoder = SpeculativeDecoder(*models, gamma=3)
        >>> out = decoder.generate(torch.tensor([[5, 6, 7], [8, 9, 10]]), max_new_tokens=6)
        >>> tuple(out.sequences.shape)
        (2, 9)

    Source:
        Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023,
        arXiv 2211.17192, Algorithm 1; batches with ragged acceptance are ours.
    """

    def __init__(
        self,
        target: Any,
        draft: Any,
        gamma: int | Schedule | GammaController = 4,
        *,
        experts: str | None = "grouped_mm",
        vocab_size: int | None = None,
        compile_draft: bool = False,
    ) -> None:
        sizes = [model.config.get_text_config().vocab_size for model in (target, draft)]
        if sizes[0] != sizes[1] and (vocab_size is None or not 1 <= vocab_size <= min(sizes)):
            raise ValueError(
                f"draft: its vocabulary has {sizes[1]} tokens, the target's {sizes[0]}; heads of one tokenizer that "
                "are padded to different sizes can be used with vocab_size, the tokenizer's own"
            )
        for model in (target, draft):
            check_cacheable(model)
        self.target, self.draft, self.gamma, self.experts = target, draft, _length(gamma), experts
        self._step = compiled(draft) if compile_draft else None

    @torch.inference_mode()
    def generate(
        self,
        input_ids: Int[Tensor, "batch prompt"],
        attention_mask: Int[Tensor, "batch prompt"] | None = None,
        generation_config: GenerationConfig | None = None,
        generator: torch.Generator | None = None,
        **overrides: Any,
    ) -> SpeculativeOutput:
        """Continue a batch of prompts.

        Args:
            input_ids: Prompts, padded on the left.
            attention_mask: 1 where there is a token; ``None``: everywhere.
            generation_config: ``do_sample``, ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``eos_token_id``,
                ``pad_token_id`` and ``max_new_tokens``; the target's own where they are unset.
            generator: Draws; ``None``: torch's own, as in ``generate``.
            overrides: Fields of the config, in place of its.

        Returns:
            Sequences, their lengths, and what happened.

        Raises:
            ValueError: A prompt is empty or padded elsewhere, a setting is not supported, or the text grows beyond
                where the target's rotary embedding changes with its length.
        """
        _check_prompts(input_ids)
        config = _settings(self.target.generation_config, generation_config, overrides)
        probabilities = warper(config) if config.do_sample else None
        most = _max_new_tokens(config, input_ids.shape[1])
        check_positions(self.target, input_ids.shape[1] + most)
        batch = Batch(
            self.target,
            self.draft,
            input_ids,
            attention_mask,
            most,
            self._longest(),
            probabilities,
            generator,
            self._step,
        )
        stats = SpeculativeStats()
        with pinned_experts(self.target, self.experts), pinned_experts(self.draft, self.experts):
            began = time.perf_counter()
            unread = batch.prefill(draft=self._longest() > 0)
            stats.prefill_ms = _ms(began, batch)
            output = _Output(input_ids, most, config)
            while batch.size:
                stats.rounds.append(self._round(batch, output, unread))
                unread = 0
        return SpeculativeOutput(*output.trimmed(), stats)

    def _round(self, batch: Batch, output: _Output, unread: int) -> Round:
        """Draft, verify, accept, commit; rows that are done leave the batch."""
        size = batch.size
        gamma = self.gamma if isinstance(self.gamma, int) else self.gamma.gamma(size)
        gamma = min(gamma, output.room(batch) - 1)  # the target adds a token itself
        began = time.perf_counter()
        drafts, q = batch.propose(gamma)
        drafted = _ms(began, batch)
        verifying = time.perf_counter()
        logits = batch.verify(drafts)
        verified = _ms(verifying, batch)
        rejecting = time.perf_counter()
        accepted, block = batch.accept(drafts, q, logits)
        notes = torch.stack((accepted, output.first_end(block))).cpu().numpy()  # the one wait for the device
        rejected = (time.perf_counter() - rejecting) * 1e3
        tokens = output.commit(batch, block, *notes)
        total = (time.perf_counter() - began) * 1e3
        tally = tuple(np.bincount(notes[0], minlength=gamma + 1).tolist())
        if isinstance(self.gamma, GammaController):
            times = {} if unread else {"verify_ms": verified, "draft_ms": drafted}  # a prompt is no step
            self.gamma.observe(size, gamma, tally, **times)
        return Round(size, gamma, drafted, verified, rejected, tally, tokens, total, unread)

    def _longest(self) -> int:
        return self.gamma if isinstance(self.gamma, int) else self.gamma.max_gamma


class _Output:
    """The new tokens of all rows, those that are done included."""

    def __init__(self, prompts: Tensor, most: int, config: GenerationConfig) -> None:
        ends = config.eos_token_id
        listed = [] if ends is None else list(ends) if isinstance(ends, list | tuple) else [int(ends)]
        pad = config.pad_token_id if config.pad_token_id is not None else listed[0] if listed else 0
        self.ends = torch.tensor(listed, device=prompts.device, dtype=prompts.dtype)
        self.prompts, self.most = prompts, most
        self.new = prompts.new_full((len(prompts), most), int(pad))
        self.lengths = np.zeros(len(prompts), np.int64)

    def room(self, batch: Batch) -> int:
        """Return the most tokens that any row may still get."""
        return self.most - int(self.lengths[batch.rows].min())

    def first_end(self, block: Tensor) -> Tensor:
        """Return the column of the first end of sequence in each row, or the width of the block."""
        width = block.shape[1]
        columns = torch.arange(width, device=block.device)
        return torch.where(torch.isin(block, self.ends), columns, width).amin(1)

    def commit(self, batch: Batch, block: Tensor, accepted: Ints, first_end: Ints) -> int:
        """Write what a round gave, cut at an end of sequence or at the limit; retire the rows that are done."""
        before = self.lengths[batch.rows]
        emitted = np.minimum(np.minimum(accepted, first_end) + 1, self.most - before)
        columns = np.arange(block.shape[1])
        row, column = np.nonzero(columns < emitted[:, None])
        where = torch.as_tensor(np.stack((batch.rows[row], before[row] + column, row, column)), device=block.device)
        self.new[where[0], where[1]] = block[where[2], where[3]]
        self.lengths[batch.rows] = before + emitted
        done = (first_end < emitted) | (before + emitted >= self.most)
        batch.advance(accepted)
        if done.any():
            batch.keep(np.flatnonzero(~done))
        return int(emitted.sum())

    def trimmed(self) -> tuple[Tensor, Tensor]:
        """Return prompts with new tokens, as wide as the longest, and the numbers of new tokens."""
        sequences = torch.cat((self.prompts, self.new[:, : int(self.lengths.max())]), dim=1)
        return sequences, torch.as_tensor(self.lengths, device=sequences.device)


def _check_prompts(input_ids: Any) -> None:
    """Refuse what is no batch of prompts."""
    if not isinstance(input_ids, Tensor):
        raise TypeError(f"input_ids: expected a tensor [batch, prompt], got {type(input_ids).__name__}")
    if input_ids.ndim != 2 or 0 in input_ids.shape:
        raise ValueError(f"input_ids: expected [batch, prompt] with at least one token, got {tuple(input_ids.shape)}")


def _settings(own: GenerationConfig, given: GenerationConfig | None, overrides: dict[str, Any]) -> GenerationConfig:
    """Return what was given, with the model's own settings where it is silent, as ``generate`` has it.

    Raises:
        ValueError: An override is no setting of a generation, or a setting is not honoured here.
    """
    config = GenerationConfig() if given is None else copy.deepcopy(given)  # type: ignore[no-untyped-call]
    config.update(**own.to_dict(), defaults_only=True, allow_custom_entries=True)  # type: ignore[no-untyped-call]
    if unknown := config.update(**overrides):  # type: ignore[no-untyped-call]
        raise ValueError(f"generate: {', '.join(sorted(unknown))}: not a setting that this decoder honours")
    check_supported(config)
    return config


def _length(gamma: Any) -> int | Schedule | GammaController:
    """Return a draft length that is at least 0, or what chooses one.

    Raises:
        TypeError: It is neither a whole number nor something that gives one by batch size.
        ValueError: It is negative.
    """
    if hasattr(gamma, "gamma") and hasattr(gamma, "max_gamma"):
        return gamma  # type: ignore[no-any-return]
    try:
        length = operator.index(gamma)
    except TypeError:
        raise TypeError(f"gamma: expected a whole number, a Schedule or a GammaController, got {gamma!r}") from None
    if length < 0:
        raise ValueError(f"gamma: expected at least 0, got {length}")
    return length


def _max_new_tokens(config: GenerationConfig, prompt: int) -> int:
    """Return the limit of new tokens, from ``max_new_tokens`` or else ``max_length``.

    Raises:
        ValueError: There is none, or nothing is left of it.
    """
    most = config.max_new_tokens
    if most is None and config.max_length is not None:
        most = config.max_length - prompt
    if most is None or most < 1:
        raise ValueError(f"generation_config: expected max_new_tokens of at least 1, got {most}")
    return int(most)


def _ms(since: float, batch: Batch) -> float:
    """Return the milliseconds since, once the device is done."""
    if batch.device.type == "cuda":
        torch.cuda.synchronize(batch.device)
    return (time.perf_counter() - since) * 1e3
