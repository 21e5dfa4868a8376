"""Timing what the cost model is made of, on a live model: T_T(B, s), T_D(B), T_rej(B), and whole generations.

Passes start from a cache that holds a context; repeats of all cells are interleaved, so that a machine that slows down
slows all of them down, and the median stands. Experts are computed with ``grouped_mm``, which is pinned meanwhile.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from thrifty.inference.speculation.decode.accept import accept_greedy
from thrifty.inference.speculation.decode.cache import check_cacheable
from thrifty.inference.speculation.decode.decoder import SpeculativeDecoder
from thrifty.inference.speculation.decode.forward import Reader
from thrifty.inference.speculation.decode.stats import Round, SpeculativeStats
from thrifty.inference.speculation.experts import counted_experts, expert_modules, pinned_experts
from thrifty.inference.speculation.formula import experts_of
from thrifty.inference.speculation.rows import Row

_log = logging.getLogger(__name__)

#: Weights that fit into a last-level cache are read from there, which no larger model's are.
SMALL_MODEL = 64 * 2**20

#: Requests that are drawn for a batch, as several batches if it is smaller.
DRAWS = 16

Cell = tuple[str, int, int]  # what is timed, batch, tokens of a request


@dataclass(frozen=True)
class Cells:
    """Samples of every cell, in milliseconds."""

    samples: dict[Cell, list[float]]

    def ms(self, kind: str, batch: int, tokens: int = 1) -> float | None:
        """Return the median of a cell, or ``None`` if it was not timed."""
        found = self.samples.get((kind, batch, tokens))
        return statistics.median(found) if found else None


@torch.inference_mode()
def profile_target(
    model: Any,
    batch_sizes: Sequence[int],
    tokens: Sequence[int],
    *,
    context: int = 256,
    repeats: int = 5,
    draft: Any = None,
    text: Int[Tensor, " tokens"] | None = None,
    experts: str | None = "grouped_mm",
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> list[Row]:
    """Time one pass of the target, over batch sizes and tokens of a request, and a step of the draft if there is one.

    Args:
        model: The target, a causal language model of transformers.
        batch_sizes: Requests decoded together.
        tokens: Tokens of each request in a pass; 1 is a plain step and always timed.
        context: Tokens in each request's cache.
        repeats: Samples of each cell; the median is kept.
        draft: The draft model.
        text: Tokens to read, at least a context and a pass long; ``None``: random ones, which route more evenly than
            text does and so overstate the experts that wake.
        experts: How experts are computed meanwhile.
        seed: Of random tokens.
        progress: Told (done, total) samples.

    Returns:
        A row for each batch size and number of tokens (γ is one less).

    Raises:
        ValueError: A size is below 1, the text is too short, or the model cannot be rolled back.
    """
    if min([*batch_sizes, *tokens, repeats]) < 1 or context < 0:
        raise ValueError("batch_sizes, tokens and repeats: expected at least 1 (context: at least 0)")
    check_cacheable(model)
    _warn(model)
    widths = sorted({1, *tokens})
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    need, vocabulary = context + max(widths), model.config.get_text_config().vocab_size
    if text is not None and len(text) < need:
        raise ValueError(f"text: expected at least {need} tokens (context and the longest pass), got {len(text)}")

    def rows_of_text(batch: int) -> Tensor:
        if text is None:
            return torch.randint(0, vocabulary, (batch, need), generator=generator).to(device)
        starts = torch.randint(0, len(text) - need + 1, (batch,), generator=generator)
        return torch.stack([text[s : s + need] for s in starts.tolist()]).to(device)

    calls: dict[Cell, list[Callable[[], object]]] = {}
    awake: dict[Cell, float] = {}
    with pinned_experts(model, experts), pinned_experts(draft if draft is not None else model, experts):
        for batch in batch_sizes:
            # Which experts a few tokens wake is chance: small batches are drawn several times.
            draws = [rows_of_text(batch) for _ in range(max(1, DRAWS // batch))]
            ids = draws[0]
            target = _primed(model, ids, context, need)
            for width in widths:
                calls["target", batch, width] = _passes(target, draws, context, width)
                with counted_experts(model) as counts:
                    for call in calls["target", batch, width]:  # the first call of each is not timed
                        call()
                if expert_modules(model):
                    awake["target", batch, width] = counts.mean()
                logits = torch.randn(batch, width, vocabulary, device=device, dtype=model.dtype)
                drafts = logits[:, :-1].argmax(-1)
                calls["reject", batch, width] = [_rejection(drafts, logits)]
            if draft is not None:
                calls["draft", batch, 1] = _passes(_primed(draft, ids, context, need), draws, context, 1)
                calls["draft", batch, 1][0]()
        cells = _time(calls, repeats, device, progress)
    return _rows(model, cells, batch_sizes, widths, context, repeats, awake)


def measure_generation(
    target: Any,
    draft: Any,
    input_ids: Int[Tensor, "batch prompt"],
    gammas: Sequence[int],
    *,
    new_tokens: int = 24,
    repeats: int = 1,
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
        generating: Passed on to :meth:`~thrifty.inference.speculation.decode.SpeculativeDecoder.generate`.

    Returns:
        Draft length to the statistics of every repeat.
    """
    settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "max_new_tokens": new_tokens} | generating
    found: dict[int, list[SpeculativeStats]] = {gamma: [] for gamma in gammas}
    for repeat in range(repeats):
        order = [*gammas[repeat % len(gammas) :], *gammas[: repeat % len(gammas)]]
        for gamma in order:
            out = SpeculativeDecoder(target, draft, gamma).generate(input_ids, **settings)
            found[gamma].append(out.stats)
    return found


def steady_rate(stats: Sequence[SpeculativeStats], batch: int) -> float:
    """Return tokens a millisecond, all requests together, over the rounds between the prompt and the first end.

    Raises:
        ValueError: There is no such round.
    """
    rounds = _steady(stats, batch)
    if not rounds:
        raise ValueError(f"stats: no round had all {batch} requests")
    return sum(r.tokens for r in rounds) / sum(r.total_ms for r in rounds)


def generation_row(
    model: Any, stats: Sequence[SpeculativeStats], plain: Sequence[SpeculativeStats], batch: int, gamma: int
) -> Row:
    """Return a measurement of whole generations: σ, speed-up, and the times of a round's parts."""
    rounds, steps = _steady(stats, batch), _steady(plain, batch)
    experts, top_k = experts_of(model.config.get_text_config().to_dict())
    counted = sum(n * count for r in rounds for n, count in enumerate(r.accepted))
    sigma = (1 + counted / sum(r.batch for r in rounds)) / (gamma + 1)
    return Row(
        batch, gamma, experts, top_k, sigma, steady_rate(stats, batch) / steady_rate(plain, batch),
        statistics.median(r.verify_ms for r in steps), statistics.median(r.verify_ms for r in rounds),
        statistics.median(r.draft_ms for r in rounds) / gamma, statistics.median(r.reject_ms for r in rounds),
        verify_tokens=gamma + 1, repeats=len(rounds),
    )  # fmt: skip


def _steady(stats: Sequence[SpeculativeStats], batch: int) -> list[Round]:
    """Return the rounds in which all requests took part and no prompt was read."""
    return [r for one in stats for r in one.rounds if r.batch == batch and not r.prompt]


def _primed(model: Any, ids: Tensor, context: int, capacity: int) -> Reader:
    """Return a reader whose cache holds the context of every row."""
    reader = Reader(model, capacity)
    if context:
        places = torch.arange(context, device=ids.device).expand(len(ids), context)
        reader.read(ids[:, :context], places, context, keep=1, together=0)
    return reader


def _passes(reader: Reader, draws: Sequence[Tensor], context: int, width: int) -> list[Callable[[], object]]:
    """Return a pass over each draw of tokens, all behind the same context."""
    places = torch.arange(context, context + width, device=draws[0].device).expand(len(draws[0]), width)

    def one(tokens: Tensor) -> Callable[[], object]:
        return lambda: reader.read(tokens, places, context + width, keep=width, together=context)

    return [one(ids[:, context : context + width]) for ids in draws]


def _rejection(drafts: Tensor, logits: Tensor) -> Callable[[], object]:
    def reject() -> Tensor:
        return accept_greedy(drafts, logits)[0].cpu()

    return reject


def _time(
    calls: dict[Cell, list[Callable[[], object]]],
    repeats: int,
    device: torch.device,
    progress: Callable[[int, int], object] | None,
) -> Cells:
    """Sample every cell in turn, from another one on in every repeat."""
    samples: dict[Cell, list[float]] = {cell: [] for cell in calls}
    order = list(calls)
    for repeat in range(repeats):
        turn = repeat % len(order)
        for place, cell in enumerate([*order[turn:], *order[:turn]]):
            _wait(device)
            start = time.perf_counter()
            for call in calls[cell]:
                call()
            _wait(device)
            samples[cell].append((time.perf_counter() - start) * 1e3 / len(calls[cell]))
            if progress is not None:
                progress(repeat * len(order) + place + 1, repeats * len(order))
    return Cells(samples)


def _rows(
    model: Any,
    cells: Cells,
    batch_sizes: Sequence[int],
    widths: Sequence[int],
    context: int,
    repeats: int,
    awake: dict[Cell, float],
) -> list[Row]:
    experts, top_k = experts_of(model.config.get_text_config().to_dict())
    return [
        Row(
            batch, width - 1, experts, top_k, t_ar_ms=cells.ms("target", batch, 1),
            t_verify_ms=cells.ms("target", batch, width) if width > 1 else None,
            t_draft_ms=cells.ms("draft", batch), t_reject_ms=cells.ms("reject", batch, width), verify_tokens=width,
            context=context, active_experts=awake.get(("target", batch, width)), repeats=repeats,
            model=type(model).__name__,
        )
        for batch in batch_sizes for width in widths
    ]  # fmt: skip


def _warn(model: Any) -> None:
    """Say what makes a measurement worth less."""
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    if size < SMALL_MODEL:
        _log.warning("the model's %.0f MB may stay in the processor's caches: larger models read memory", size / 2**20)
    if torch.is_anomaly_enabled():
        _log.warning("torch's anomaly detection is on: times are not those of serving")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
