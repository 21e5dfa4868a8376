"""Timing whole generations on live models, in the terms of the cost model: σ, the speed-up, a round's parts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from thrifty.inference.speculation.decode.decoder import SpeculativeDecoder
from thrifty.inference.speculation.decode.stats import Round, SpeculativeStats
from thrifty.inference.speculation.formula import experts_of
from thrifty.inference.speculation.passes import requests
from thrifty.inference.speculation.rows import Row


def measure_generation(
    target: Any,
    draft: Any,
    input_ids: Int[Tensor, "batch prompt"],
    gammas: Sequence[int],
    *,
    new_tokens: int = 24,
    repeats: int = 1,
    experts: str | None = "grouped_mm",
    compile_draft: bool = False,
    **generating: Any,
) -> dict[int, list[SpeculativeStats]]:
    """Generate with each draft length in turn, several times, interleaved.

    Args:
        target: The target model.
        draft: The draft model.
        input_ids: Prompts of equal length.
        gammas: Draft lengths; 0 is plain decoding, which the others are compared with.
        new_tokens: Of each request; ends of sequences are ignored.
        repeats: Rounds over all draft lengths.
        experts: How experts are computed meanwhile.
        compile_draft: Compile the draft's steps.
        generating: Passed on to :meth:`~thrifty.inference.speculation.decode.SpeculativeDecoder.generate`.

    Returns:
        Draft length to the statistics of every repeat.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> small = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
        >>> target, draft = (LlamaForCausalLM(LlamaConfig(num_hidden_layers=n, **small)).eval() for n in (2, 1))
        >>> found = measure_generation(target, draft, torch.ones(2, 3, dtype=int), [0, 2], new_tokens=4)
        >>> {gamma: stats[0].tokens for gamma, stats in found.items()}
        {0: 8, 2: 8}

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, section 4: T_AR and T_SD, whose ratio is the
        speed-up.
    """
    settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "max_new_tokens": new_tokens} | generating
    found: dict[int, list[SpeculativeStats]] = {gamma: [] for gamma in gammas}
    decoders = {
        gamma: SpeculativeDecoder(target, draft, gamma, experts=experts, compile_draft=compile_draft)
        for gamma in gammas
    }
    for repeat in range(repeats):
        order = [*gammas[repeat % len(gammas) :], *gammas[: repeat % len(gammas)]]
        for gamma in order:
            found[gamma].append(decoders[gamma].generate(input_ids, **settings).stats)
    return found


def steady_rounds(stats: Sequence[SpeculativeStats], batch: int) -> list[Round]:
    """Return the rounds in which all requests took part, no prompt was read, and drafts were not cut short."""
    longest = max((r.gamma for one in stats for r in one.rounds), default=0)
    return [r for one in stats for r in one.rounds if r.batch == batch and r.gamma == longest and not r.prompt]


def steady_rate(stats: Sequence[SpeculativeStats], batch: int) -> float:
    """Return tokens a millisecond, all requests together, between the prompt and the first end.

    It is the mean tokens of a round over the median of their times: a hiccup of the machine is no part of either.

    Args:
        stats: Generations with the same draft length.
        batch: Requests.

    Raises:
        ValueError: There is no such round.
    """
    rounds = steady_rounds(stats, batch)
    if not rounds:
        raise ValueError(f"stats: no round had all {batch} requests")
    return statistics.mean(r.gained for r in rounds) / statistics.median(r.total_ms for r in rounds)


def generation_row(
    model: Any, stats: Sequence[SpeculativeStats], plain: Sequence[SpeculativeStats], batch: int, gamma: int
) -> Row:
    """Return a measurement of whole generations: σ, speed-up, and the times of a round's parts.

    Args:
        model: The target.
        stats: Generations with ``gamma`` draft tokens.
        plain: Generations without.
        batch: Requests of each.
        gamma: Draft length.

    Returns:
        The row, of rounds in which all requests took part.

    Raises:
        ValueError: Nothing is drafted, or in no round did all requests take part.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> small = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
        >>> model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, **small)).eval()
        >>> found = measure_generation(model, model, torch.ones(2, 3, dtype=int), [0, 2], new_tokens=8)
        >>> generation_row(model, found[2], found[0], batch=2, gamma=2).sigma  # its own draft is always right
        1.0

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equations 2 to 5.
    """
    if gamma < 1:
        raise ValueError(f"gamma: expected a draft length of at least 1, got {gamma}")
    rounds, steps = steady_rounds(stats, batch), steady_rounds(plain, batch)
    experts, top_k = experts_of(model.config.get_text_config().to_dict())
    sigma = sum(r.gained for r in rounds) / sum(r.batch * (gamma + 1) for r in rounds)
    return Row(
        batch, gamma, experts, top_k, sigma, steady_rate(stats, batch) / steady_rate(plain, batch),
        statistics.median(r.verify_ms for r in steps), statistics.median(r.verify_ms for r in rounds),
        statistics.median(r.draft_ms for r in rounds) / gamma, statistics.median(r.reject_ms for r in rounds),
        verify_tokens=gamma + 1, repeats=len(rounds), model=type(model).__name__,
    )  # fmt: skip


def profile_generation(
    target: Any,
    draft: Any,
    batch_sizes: Sequence[int],
    gammas: Sequence[int],
    *,
    context: int = 256,
    new_tokens: int = 64,
    repeats: int = 1,
    text: Int[Tensor, " tokens"] | None = None,
    experts: str | None = "grouped_mm",
    compile_draft: bool = False,
    seed: int = 0,
) -> list[Row]:
    """Generate with and without drafts, over batch sizes and draft lengths: acceptance, speed-ups, a round's parts.

    Args:
        target: The target, a causal language model of transformers.
        draft: The draft model.
        batch_sizes: Requests decoded together.
        gammas: Draft lengths, each at least 1.
        context: Tokens of each prompt.
        new_tokens: Of each request; ends of sequences are ignored.
        repeats: Generations with each length.
        text: Where prompts are taken from; ``None``: random tokens, of which little is accepted.
        experts: How experts are computed meanwhile.
        compile_draft: Compile the draft's steps.
        seed: Of the prompts.

    Returns:
        A row for each batch size and draft length.

    Raises:
        ValueError: A size is below 1, or the text is too short.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> small = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
        >>> model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, **small)).eval()
        >>> (row,) = profile_generation(model, model, [2], [2], context=3, new_tokens=8)
        >>> row.batch_size, row.gamma, row.sigma, row.context
        (2, 2, 1.0, 3)

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equations 2 to 5.
    """
    if min([*batch_sizes, *gammas, context, repeats]) < 1:
        raise ValueError("batch_sizes, gammas, context and repeats: expected at least 1")
    generator, rows = torch.Generator().manual_seed(seed), []
    for batch in batch_sizes:
        ids = requests(target, batch, context, text, generator)
        found = measure_generation(
            target, draft, ids, [0, *gammas], new_tokens=new_tokens, repeats=repeats, experts=experts,
            compile_draft=compile_draft,
        )  # fmt: skip
        measured = (generation_row(target, found[gamma], found[0], batch, gamma) for gamma in gammas)
        rows += [replace(row, context=context) for row in measured]
    return rows
