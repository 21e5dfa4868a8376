"""Timing single passes, which the cost model is made of, on a live model: T_T(B, s), T_D(B), T_rej(B).

Passes start from a cache that holds a context; repeats of all cells are interleaved, so that a machine that slows down
slows all of them down, and the median stands. Experts are computed with ``grouped_mm``, which is pinned meanwhile.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from thrifty.inference.speculation.decode.accept import accept_greedy
from thrifty.inference.speculation.decode.cache import check_cacheable
from thrifty.inference.speculation.decode.forward import Reader, Step, compiled
from thrifty.inference.speculation.experts import counted_experts, expert_modules, pinned_experts
from thrifty.inference.speculation.formula import experts_of
from thrifty.inference.speculation.rows import Row

_log = logging.getLogger(__name__)

#: Weights that fit into a last-level cache are read from there, which no larger model's are.
SMALL_MODEL = 64 * 2**20

#: Requests that are drawn for a batch, as several batches if it is smaller.
DRAWS = 16

#: Steps that a draft takes in a row, as in a round.
STEPS = 4

Key = tuple[str, int, int]  # what is timed, batch, tokens of a request


@dataclass
class _Cell:
    """What is called and timed: calls one by one, each after ``before``, which is not timed."""

    calls: list[Callable[[], object]]
    steps: int = 1  # of a call
    before: Callable[[], object] | None = None
    samples: list[float] = field(default_factory=list)  # ms a step

    def sample(self, wait: Callable[[], None]) -> None:
        """Time all calls once."""
        spent = 0.0
        for call in self.calls:
            if self.before is not None:
                self.before()
            wait()
            start = time.perf_counter()
            call()
            wait()
            spent += time.perf_counter() - start
        self.samples.append(spent * 1e3 / (self.steps * len(self.calls)))


class Passes:
    """Passes of a target, steps of its draft and acceptance tests, ready to be timed as often as is wanted.

    Whatever they are to be compared with can be timed in between, so that a machine that slows down slows both.

    Args:
        model: The target, a causal language model of transformers.
        batch_sizes: Requests decoded together.
        tokens: Tokens of each request in a pass; 1 is a plain step and always timed.
        context: Tokens in each request's cache.
        draft: The draft model.
        text: Tokens to read; ``None``: random ones.
        experts: How experts are computed meanwhile.
        seed: Of random tokens.
        compile_draft: Compile the draft's steps.

    Raises:
        ValueError: A size is below 1, the text is too short, or the model cannot be rolled back.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Any,
        batch_sizes: Sequence[int],
        tokens: Sequence[int],
        *,
        context: int = 256,
        draft: Any = None,
        text: Int[Tensor, " tokens"] | None = None,
        experts: str | None = "grouped_mm",
        seed: int = 0,
        compile_draft: bool = False,
    ) -> None:
        if min([*batch_sizes, *tokens]) < 1 or context < 0:
            raise ValueError("batch_sizes and tokens: expected at least 1 (context: at least 0)")
        if experts == "batched_mm":
            raise ValueError(
                "experts: batched_mm copies every token's experts, which no serving does; expected grouped_mm"
            )
        check_cacheable(model)
        _warn(model)
        self.model, self.draft, self.experts = model, draft if draft is not None else model, experts
        self.batch_sizes, self.widths, self.context = batch_sizes, sorted({1, *tokens}), context
        device = next(model.parameters()).device
        self._wait = torch.cuda.synchronize if device.type == "cuda" else _nothing
        generator = torch.Generator().manual_seed(seed)
        longest = max(*self.widths, STEPS if draft is not None else 1)
        need, vocabulary = context + longest, model.config.get_text_config().vocab_size
        self.cells: dict[Key, _Cell] = {}
        self.awake: dict[Key, float] = {}
        with pinned_experts(model, experts), pinned_experts(self.draft, experts):
            for batch in batch_sizes:
                # Which experts a few tokens wake is chance: small batches are drawn several times.
                draws = [requests(model, batch, need, text, generator) for _ in range(max(1, DRAWS // batch))]
                target = _primed(model, draws[0], context, need)
                for width in self.widths:
                    key = ("target", batch, width)
                    self.cells[key] = _Cell(_passes(target, draws, context, width))
                    with counted_experts(model) as counts:
                        for call in self.cells[key].calls:  # the first call of each is not timed
                            call()
                    if expert_modules(model):
                        self.awake[key] = counts.mean()
                    logits = torch.randn(batch, width, vocabulary, device=device, dtype=model.dtype)
                    self.cells["reject", batch, width] = _Cell([_rejection(logits)])
                if draft is not None:
                    small = _primed(draft, draws[0], context, need, compiled(draft) if compile_draft else None)
                    # A pass of the target in between: its weights drive the draft's out of the processor's caches.
                    between = self.cells["target", batch, 1].calls[0]
                    self.cells["draft", batch, 1] = _Cell(_drafting(small, draws, context), STEPS, between)
                    self.cells["draft", batch, 1].calls[0]()

    @torch.inference_mode()
    def sample(self) -> None:
        """Time every cell once, beginning with another one each time."""
        order = list(self.cells)
        turn = len(self.cells[order[0]].samples) % len(order)
        with pinned_experts(self.model, self.experts), pinned_experts(self.draft, self.experts):
            for key in [*order[turn:], *order[:turn]]:
                self.cells[key].sample(self._wait)

    def rows(self, *, since: int = 0) -> list[Row]:
        """Return a row for each batch size and number of tokens, with the medians of all samples but the first ones.

        Args:
            since: Samples that are left out.
        """
        experts, top_k = experts_of(self.model.config.get_text_config().to_dict())

        def ms(kind: str, batch: int, width: int = 1) -> float | None:
            cell = self.cells.get((kind, batch, width))
            return statistics.median(cell.samples[since:]) if cell is not None else None

        repeats = len(next(iter(self.cells.values())).samples[since:])
        return [
            Row(
                batch, width - 1, experts, top_k, t_ar_ms=ms("target", batch),
                t_verify_ms=ms("target", batch, width) if width > 1 else None,
                t_draft_ms=ms("draft", batch), t_reject_ms=ms("reject", batch, width), verify_tokens=width,
                context=self.context, active_experts=self.awake.get(("target", batch, width)), repeats=repeats,
                model=type(self.model).__name__,
            )
            for batch in self.batch_sizes for width in self.widths
        ]  # fmt: skip


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
    compile_draft: bool = False,
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
        compile_draft: Compile the draft's steps.
        progress: Told (done, total) repeats.

    Returns:
        A row for each batch size and number of tokens (γ is one less).

    Raises:
        ValueError: A size is below 1, the text is too short, or the model cannot be rolled back.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> small = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
        >>> model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, **small)).eval()
        >>> rows = profile_target(model, [16], [1, 3], context=2, repeats=1)
        >>> [(row.batch_size, row.verify_tokens) for row in rows]
        [(16, 1), (16, 3)]

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, section 3.1: T_T(B, 1), T_T(B, γ), T_D and T_rej.
    """
    if repeats < 1:
        raise ValueError(f"repeats: expected at least 1, got {repeats}")
    passes = Passes(
        model, batch_sizes, tokens, context=context, draft=draft, text=text, experts=experts, seed=seed,
        compile_draft=compile_draft,
    )  # fmt: skip
    for repeat in range(repeats):
        passes.sample()
        if progress is not None:
            progress(repeat + 1, repeats)
    return passes.rows()


def requests(
    model: Any, batch: int, length: int, text: Int[Tensor, " tokens"] | None, generator: torch.Generator
) -> Int[Tensor, "batch length"]:
    """Return tokens for every request of a batch: random ones, or from random places of a text.

    Raises:
        ValueError: The text is too short.
    """
    device = next(model.parameters()).device
    if text is None:
        vocabulary = model.config.get_text_config().vocab_size
        return torch.randint(0, vocabulary, (batch, length), generator=generator).to(device)
    if len(text) < length:
        raise ValueError(f"text: expected at least {length} tokens (of context and what follows), got {len(text)}")
    starts = torch.randint(0, len(text) - length + 1, (batch,), generator=generator)
    return torch.stack([text[s : s + length] for s in starts.tolist()]).to(device)


def _primed(model: Any, ids: Tensor, context: int, capacity: int, step: Step | None = None) -> Reader:
    """Return a reader whose cache holds the context of every row."""
    reader = Reader(model, capacity, step)
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


def _drafting(reader: Reader, draws: Sequence[Tensor], context: int) -> list[Callable[[], object]]:
    """Return the steps of a round over each draw of tokens, one behind the other."""
    steps = [_passes(reader, draws, context + step, 1) for step in range(STEPS)]

    def together(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        return lambda: [call() for call in calls]

    return [together(calls) for calls in zip(*steps, strict=True)]


def _rejection(logits: Tensor) -> Callable[[], object]:
    drafts = logits[:, :-1].argmax(-1)

    def reject() -> Tensor:
        return accept_greedy(drafts, logits)[0].cpu()

    return reject


def _warn(model: Any) -> None:
    """Say what makes a measurement worth less."""
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    if size < SMALL_MODEL:
        _log.warning("the model's %.0f MB may stay in the processor's caches: larger models read memory", size / 2**20)
    if torch.is_anomaly_enabled():
        _log.warning("torch's anomaly detection is on: times are not those of serving")


def _nothing() -> None:
    """Wait for a processor, which is done when a call is."""
