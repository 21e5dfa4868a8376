"""Memory that others measured on GPUs, or computed for their tables, beside what the adviser says of the same runs.

Every point names its source. StreamBP's table of peaks counts a backward pass in GiB with all gradients there from the
start (extrapolated to no tokens, its columns are weights plus gradients to a tenth of a GiB), and no optimizer; its
table of lengths says when an 80 GB device was full: the prediction at that length should be its capacity. GaLore's and
SUMO's tables count weights and optimizer state, and their G is a GiB (at 350 M parameters to the last digit).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from thrifty._common.ledger import Resource
from thrifty.advise.account import Account
from thrifty.advise.facts import workload
from thrifty.advise.hardware import device, optimizer
from thrifty.advise.model import Decoder, read_decoder
from thrifty.advise.offers import delta_of
from thrifty.advise.training import Training, account
from thrifty.bench import registry

GIB = 2.0**30


@dataclass(frozen=True)
class Point:
    """One published number.

    Args:
        what: The run.
        source: Where it was published.
        published: Bytes.
        predicted: What the adviser says, in bytes.
        on_gpu: It was read from a GPU; else the authors computed it.
    """

    what: str
    source: str
    published: float
    predicted: Callable[[], float]
    on_gpu: bool = True


def points(models: Sequence[str] | None = None) -> Iterator[Point]:
    """Yield every published point; of the table of lengths those of some models only (``None``: of all)."""
    yield from _peaks()
    yield from _lengths(models)
    yield from _mawps()
    yield from _pretraining()


def _peaks() -> Iterator[Point]:
    source = "arXiv 2506.03077, peak memory of BP, Llama-3.1-8B, A800-80GB"
    plain = {3_000: 35.8, 6_000: 41.7, 9_000: 47.6, 18_000: 65.6}
    ours = {3_000: 31.8, 6_000: 32.7, 9_000: 33.6, 18_000: 37.2}
    for table, streamed in ((plain, False), (ours, True)):
        for length, gib in table.items():
            name = f"Llama-3.1-8B, {length} tokens, {'StreamBP' if streamed else 'checkpointing'}"
            yield Point(name, source, gib * GIB, _asked("llama-8b", length, "sgd", streamed=streamed, accumulated=True))


def _lengths(models: Sequence[str] | None) -> Iterator[Point]:
    source = "arXiv 2506.03077, maximum sequence length, A800-80GB"
    full = 79.3 * GIB
    lengths = {
        ("qwen3-4b", 32): (36_500, 247_000),
        ("qwen3-8b", 32): (30_600, 142_400),
        ("qwen3-14b", 32): (23_000, 84_600),
        ("qwen3-32b", 32): (5_900, 16_300),
        ("qwen3-4b", 0): (28_500, 200_000),
    }
    for (model, rank), (plain, ours) in lengths.items():
        if models is not None and model not in models:
            continue
        tuned = f"LoRA {rank}" if rank else "all weights"
        for length, streamed in ((plain, False), (ours, True)):
            name = f"{model}, {tuned}, full at {length} tokens, {'StreamBP' if streamed else 'checkpointing'}"
            asked = _asked(model, length, "adamw", streamed=streamed, lora_rank=rank, chunk=500, accumulated=not rank)
            yield Point(name, source, full, asked)


def _mawps() -> Iterator[Point]:
    source = "arXiv 2505.24749, MAWPS, LLaMA2-7B"
    for rank, name, gb in ((32, "galore", 15.15), (32, "sumo", 13.86), (128, "galore", 15.79), (128, "sumo", 14.12)):
        yield Point(f"LLaMA2-7B, {name}, rank {rank}", source, gb * GIB, _held("llama2-7b", name, rank))


def _pretraining() -> Iterator[Point]:
    source = "arXiv 2403.03507 and 2505.24749, LLaMA on C4, weights and state (computed by the authors)"
    table = {
        "llama-60m": (128, 0.36, 0.24, 0.23),
        "llama-130m": (256, 0.76, 0.52, 0.51),
        "llama-350m": (256, 2.06, 1.22, 1.16),
        "llama-1b": (512, 7.80, 4.38, 3.84),
    }
    for model, (rank, *sizes) in table.items():
        for name, gb in zip(("adamw", "galore", "sumo"), sizes, strict=True):
            yield Point(f"{model}, {name}", source, gb * GIB, _held(model, name, rank), on_gpu=False)


def _asked(
    model: str,
    length: int,
    state: str,
    *,
    streamed: bool,
    lora_rank: int = 0,
    chunk: int = 0,
    accumulated: bool = False,
) -> Callable[[], float]:
    def predicted() -> float:
        job = Training(
            _read(model), device("a800-80gb"), optimizer(state), length, lora_rank=lora_rank, accumulated=accumulated,
            anchor=4096,
        )  # fmt: skip
        now = account(job)
        if not streamed:
            return now.memory
        asked = workload(job, now)
        asked = replace(asked, facts={**asked.facts, "layer_chunk": chunk})
        return now.memory_after(delta_of(registry.get("streambp"), asked))

    return predicted


def _held(model: str, state: str, rank: int) -> Callable[[], float]:
    def predicted() -> float:
        kept = replace(optimizer(state), bytes=0)  # both papers keep state in the precision of the weights
        job = Training(_read(model), device("a100"), kept, 256, rank=rank)
        now: Account = account(job)
        return now.total(Resource.WEIGHTS) + now.total(Resource.OPTIMIZER_STATE)

    return predicted


@cache
def _read(name: str) -> Decoder:
    return read_decoder(_config(name))


def _config(name: str) -> Any:
    """Return the published configuration of a model."""
    import transformers

    llama = {
        "llama-60m": (512, 1376, 8, 8, 8, 32000),
        "llama-130m": (768, 2048, 12, 12, 12, 32000),
        "llama-350m": (1024, 2736, 24, 16, 16, 32000),
        "llama-1b": (2048, 5461, 24, 32, 32, 32000),
        "llama2-7b": (4096, 11008, 32, 32, 32, 32000),
        "llama-8b": (4096, 14336, 32, 32, 8, 128256),
    }
    qwen = {
        "qwen3-4b": (2560, 9728, 36, 32, 8, 151936),
        "qwen3-8b": (4096, 12288, 36, 32, 8, 151936),
        "qwen3-14b": (5120, 17408, 40, 40, 8, 151936),
        "qwen3-32b": (5120, 25600, 64, 64, 8, 151936),
    }
    hidden, wide, layers, heads, keys, words = (llama | qwen)[name]
    common: dict[str, Any] = {
        "hidden_size": hidden, "intermediate_size": wide, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": keys, "vocab_size": words, "max_position_embeddings": 262_144,
    }  # fmt: skip
    if name in llama:
        return transformers.LlamaConfig(**common)
    return transformers.Qwen3Config(**common, head_dim=128, tie_word_embeddings=name == "qwen3-4b")
