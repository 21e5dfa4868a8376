"""Memory that others measured on GPUs, or computed for their tables, beside what the adviser says of the same runs.

Every point names its source. StreamBP's table of peaks counts a backward pass in GiB with all gradients there from the
start (extrapolated to no tokens, its columns are weights plus gradients to a tenth of a GiB), and no optimizer; its
table of lengths says when an 80 GB device was full: the prediction at that length should be its capacity. What streamed
there is the authors' code, which is rehearsed as it is (:mod:`.theirs`), not the implementation of this package.
GaLore's and SUMO's tables count weights and optimizer state, and their G is a GiB (at 350 M parameters to the last
digit).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from thrifty._common.ledger import Resource
from thrifty.advise.account import Account
from thrifty.advise.evidence import theirs
from thrifty.advise.hardware import device, optimizer
from thrifty.advise.job import Training
from thrifty.advise.model import Decoder, read_decoder
from thrifty.advise.training import account
from thrifty.inference.speculation import Acceptance, Hardware, MoEShape, roofline_model

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
    yield from _recipes()
    yield from _million()
    yield from _pretraining()


def _peaks() -> Iterator[Point]:
    source = "arXiv 2506.03077, peak memory of BP, Llama-3.1-8B, A800-80GB"
    plain = {3_000: 35.8, 6_000: 41.7, 9_000: 47.6, 18_000: 65.6}
    streamed = {3_000: 31.8, 6_000: 32.7, 9_000: 33.6, 18_000: 37.2}
    for length, gib in plain.items():
        name = f"Llama-3.1-8B, {length} tokens, checkpointing"
        asked = _asked("llama-8b", length, "sgd", accumulated=True)
        logits = 2 * length * 128_256  # the script keeps the model's output, and them in it, through the backward pass
        yield Point(name, source, gib * GIB, lambda asked=asked, logits=logits: asked() + logits)  # type: ignore[misc]
    for length, gib in streamed.items():
        name = f"Llama-3.1-8B, {length} tokens, StreamBP's code"
        yield Point(name, source, gib * GIB, _theirs("llama-8b", length, length // 3, optimizer=False))


def _lengths(models: Sequence[str] | None) -> Iterator[Point]:
    source = "arXiv 2506.03077, maximum sequence length, A800-80GB"
    full = 79.3 * GIB
    lengths = {
        ("qwen3-4b", 32): (36_500, 247_000),
        ("qwen3-8b", 32): (30_600, 142_400),
        ("qwen3-14b", 32): (23_000, 84_600),
        ("qwen3-32b", 32): (5_900, 16_300),
        ("qwen3-4b", 0): (28_500, 200_000),
        ("qwen3-8b", 0): (15_700, 72_000),
    }
    for (model, rank), (plain, streamed) in lengths.items():
        if models is not None and model not in models:
            continue
        full_at = f"{model}, {f'LoRA {rank}' if rank else 'all weights'}, full at"
        yield Point(f"{full_at} {plain} tokens, checkpointing", source, full, _asked(model, plain, lora_rank=rank))
        theirs = _theirs(model, streamed, 500, lora_rank=rank)
        yield Point(f"{full_at} {streamed} tokens, StreamBP's code", source, full, theirs)


def _recipes() -> Iterator[Point]:
    """ALST's recipes for one H200: what was switched on, the longest sequence, and the peak that it took.

    The rest of its recipes tile the feed-forward part or use Liger's layers, which are not in the ledger.
    """
    source = "ArcticTraining, projects/sequence-parallelism, run-h200-sp1-llama-8b-baseline.yml"
    away = frozenset(("optimizer", "weights"))
    plain = _asked("llama-8b", 65_000, device="h200", offload=away)
    yield Point("Llama-3.1-8B, 65000 tokens, optimizer and weights on the host", source, 137.36 * GIB, plain)


def _million() -> Iterator[Point]:
    """TRL's guide to training on a million tokens; its GB are GiB (a layer's input of 0.47)."""
    source = "TRL's guide 'Training Beyond 1M Tokens', H100-80GB"
    away = frozenset(("checkpoints",))
    for what, gib, offload in (("", 59.9, frozenset[str]()), (", checkpoints on the host", 48.8, away)):
        asked = _asked("qwen3-4b", 98_304, fused_head=True, offload=offload)
        yield Point(f"Qwen3-4B, 96k tokens{what}", source, gib * GIB, asked)
    for model, devices, gib in (("qwen3-4b", 4, 63.6), ("qwen3-8b", 8, 56.2)):
        asked = _asked(model, 1_048_576, fused_head=True, offload=away, gpus=devices, context_parallel=devices)
        yield Point(f"{model}, 1M tokens over {devices} devices", source, gib * GIB, asked)


def speed_ups() -> Iterator[Point]:
    """Yield MoESD's peak speed-ups over batch sizes (no bytes): Qwen2-57B-A14B, drafts by Qwen2-0.5B."""
    rows = [
        ("h800", 2, 2, 0.95, 1.71), ("h800", 2, 3, 0.93, 2.01), ("h800", 2, 4, 0.90, 2.29), ("a800", 2, 2, 0.94, 1.63),
        ("a800", 2, 3, 0.93, 1.96), ("a800", 2, 4, 0.91, 2.18), ("a800", 4, 4, 0.90, 2.08), ("l40", 4, 4, 0.90, 2.25),
        ("a800", 2, 4, 0.67, 1.72), ("a800", 2, 2, 0.71, 1.25), ("a800", 2, 3, 0.62, 1.29), ("a800", 2, 4, 0.55, 1.19),
    ]  # fmt: skip
    target, draft = (MoEShape.from_config(name, build=False) for name in ("qwen2-57b-a14b", "qwen2-0.5b"))
    for place, devices, gamma, sigma, times in rows:
        model = roofline_model(target, draft, Hardware.from_name(place, count=devices))
        accepted = Acceptance.from_sigma(sigma, gamma)

        def best(model: Any = model, gamma: int = gamma, accepted: Acceptance = accepted) -> float:
            return max(float(model.speedup(batch, gamma, accepted)) for batch in (1, *range(4, 57, 4), 60, 80, 100))

        name = f"speculation, {devices} x {place}, {gamma} tokens drafted, {sigma:.2f} of a round kept"
        yield Point(name, "arXiv 2505.19645, peak speed-up", times, best)


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


def _asked(model: str, length: int, state: str = "adamw", **settings: Any) -> Callable[[], float]:
    settings = {"device": "a800-80gb", **settings}
    place = device(settings.pop("device"))
    return lambda: account(Training(_read(model), place, optimizer(state), length, **settings)).memory


def _theirs(model: str, length: int, chunk: int, **settings: Any) -> Callable[[], float]:
    return lambda: theirs.peak(_read(model), length, chunk, **settings)


def _held(model: str, state: str, rank: int) -> Callable[[], float]:
    def predicted() -> float:
        kept = replace(optimizer(state), bytes=0)  # both papers keep state in the precision of the weights
        job = Training(_read(model), device("a100"), kept, 256, rank=rank)
        now: Account = account(job)
        return now.total(Resource.WEIGHTS) + now.total(Resource.OPTIMIZER_STATE)

    return predicted


@cache
def _read(name: str) -> Decoder:
    return read_decoder(configuration(name))


def configuration(name: str) -> Any:
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
