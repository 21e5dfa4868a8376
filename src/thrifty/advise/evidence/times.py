"""Measured seconds beside predicted ones: do longer steps come out longer, and do savings have the right sign?"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from thrifty.advise.evidence.families import model
from thrifty.advise.evidence.families import smollm2 as pretrained
from thrifty.advise.hardware import Device, optimizer
from thrifty.advise.job import Training
from thrifty.advise.model import read_decoder
from thrifty.advise.training import account
from thrifty.bench.context import Context

#: (layers, hidden, tokens, checkpointing) of the timed steps.
GRID = (
    (1, 64, 128, True),
    (2, 64, 512, True),
    (2, 128, 256, False),
    (2, 128, 1024, True),
    (4, 128, 512, True),
    (2, 256, 512, False),
    (4, 256, 512, True),
    (4, 256, 1024, True),
    (2, 512, 512, True),
    (4, 512, 512, False),
)


def here(ctx: Context) -> Device:
    """Return this machine as a device, from the ceilings measured in this run."""
    rate = ctx.ceilings["flops"].median * 1e9
    return Device(
        "this machine", 2.0**34, {"float32": rate, "bfloat16": rate}, ctx.ceilings["bandwidth"].median * 1e9, 1e9, 1e9
    )


def configuration(layers: int, hidden: int) -> Any:
    """Return a Llama of that size."""
    import transformers

    return transformers.LlamaConfig(
        vocab_size=2048, hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
    )  # fmt: skip


def step(layers: int, hidden: int, tokens: int, checkpointing: bool, *, streamed: bool = False) -> Callable[[], None]:
    """Return a training step (forward, backward, AdamW) to be timed."""
    from thrifty.training.streambp import enable_streambp

    config = configuration(layers, hidden)
    config._attn_implementation = "sdpa"
    made = model(config, "float32")
    if streamed:
        enable_streambp(made, check=False)
    elif checkpointing:
        made.activation_checkpointing_enable({"use_reentrant": False})
    return trained(made, tokens)


def trained(made: Any, tokens: int) -> Callable[[], None]:
    """Return a training step of a model as it is."""
    import torch

    adamw = torch.optim.AdamW(made.parameters(), lr=1e-4, foreach=False)
    ids = _ids(tokens)

    def run() -> None:
        made(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        adamw.step()
        adamw.zero_grad(set_to_none=True)

    return run


def predicted(place: Device, config: Any, tokens: int, checkpointing: bool) -> float:
    """Return the seconds that the adviser's roofline gives for such a step."""
    job = Training(
        read_decoder(config), place, optimizer("adamw"), tokens, dtype="float32", checkpointing=checkpointing
    )
    return account(job).time


def decode(layers: int, hidden: int, context: int) -> Callable[[], None]:
    """Return a decoding step over a cache of ``context`` tokens."""
    config = configuration(layers, hidden)
    config._attn_implementation = "sdpa"
    return decoding(model(config, "float32"), context)


def decoding(made: Any, context: int) -> Callable[[], None]:
    """Return a decoding step of a model."""
    import torch

    ids = _ids(context)
    with torch.inference_mode():
        cache = made.eval()(input_ids=ids, use_cache=True).past_key_values

    def run() -> None:
        with torch.inference_mode():
            made(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
        cache.crop(-1)

    return run


def predicted_decode(place: Device, config: Any, context: int) -> float:
    """Return the seconds of such a step: bytes read over bandwidth."""
    shape = read_decoder(config).shape
    weights = 4.0 * (shape.dense_params + shape.expert_params)
    return (weights + context * 2 * shape.kv_bytes_per_token) / place.bandwidth


def smollm2(place: Device) -> Iterator[tuple[str, Callable[[], None], float]]:
    """Yield (name, call, predicted seconds) of a decoding and a training step of SmolLM2-135M-Instruct."""
    made = pretrained()
    yield "decoding, SmolLM2-135M, 512 tokens", decoding(made, 512), predicted_decode(place, made.config, 512)
    made = copy.deepcopy(made).train()
    made.activation_checkpointing_enable({"use_reentrant": False})
    yield "a step of SmolLM2-135M, 256 tokens", trained(made, 256), predicted(place, made.config, 256, True)


def _ids(tokens: int) -> Any:
    import torch

    return torch.randint(3, 2048, (1, tokens), generator=torch.Generator().manual_seed(0))
