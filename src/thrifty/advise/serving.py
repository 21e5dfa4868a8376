"""The ledger of serving: weights, cache of keys and values, and the seconds of a decoding step at best.

A step over a batch reads every weight that some token wakes, once, and the cache of every request; its time is what the
cost model of :mod:`thrifty.inference.speculation` gives without measurements.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thrifty._common.checks import whole
from thrifty._common.ledger import Resource, Task, Workload
from thrifty.advise import hardware
from thrifty.advise.account import Account, Part
from thrifty.advise.advice import Advice
from thrifty.advise.job import MOST
from thrifty.advise.model import read_config, read_vision
from thrifty.advise.offers import offers
from thrifty.advise.reach import Reach
from thrifty.advise.vision import advise_images
from thrifty.inference.speculation import Hardware, MoEShape, roofline_model

#: Tokens that are asked about at most; more would be arithmetic about nothing.
LONG = 10**15
#: Tokens by which embeddings of one vocabulary differ at most: they are padded to multiples of this.
PADDING = 1024


def advise_serving(
    model: str | Path | Any,
    *,
    draft: str | Path | None = None,
    device: str = "h100-80gb",
    gpus: int = 1,
    batch: int = 32,
    context: int = 2048,
    tokens: int = 1_000_000,
    alpha: float = 0.7,
    images: int = 0,
    profiles: str | Path | None = None,
) -> Advice:
    """Say where serving's memory and time go, and which methods would change it.

    Args:
        model: A language model's ``config.json``, folder or profile name; or, with ``images``, a vision transformer's
            name in timm.
        draft: A smaller model of the same vocabulary, that could draft.
        device: A profile's name or JSON file.
        gpus: Devices that share the model (tensor parallel).
        batch: Requests decoded together, or images at once.
        context: Tokens in each request's cache.
        tokens: To be decoded, all requests together.
        alpha: The chance that a drafted token is accepted.
        images: That pass through a vision transformer.
        profiles: A folder of further device profiles.

    Returns:
        The ledger, the offers, and the largest context and batch that fit.

    Raises:
        ValueError: An argument is out of range or unknown.

    Example:
        >>> advice = advise_serving("qwen3-30b-a3b", draft="qwen3-0.6b", batch=64)
        >>> advice.best.method, advice.account.fits
        ('speculation', True)
    """
    for name, value in (("gpus", gpus), ("batch", batch), ("context", context), ("tokens", tokens)):
        if whole(name, value) > MOST.get(name, LONG):
            raise ValueError(f"{name}: expected at most {MOST.get(name, LONG)}, got {value}")
    whole("images", images, least=0)
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha: expected a chance between 0 and 1, got {alpha!r}")
    place = hardware.device(device, profiles)
    if images:
        if draft is not None:
            raise ValueError(f"draft: expected none with images, which are not decoded; got {str(draft)!r}")
        return advise_images(read_vision(str(model)), place, images, batch)
    shape = _shape(model)
    if draft is not None:
        _check_draft(model, draft)
    limits = Hardware(place.name, place.flops["bfloat16"], place.bandwidth, gpus)
    step = float(roofline_model(shape, None, limits).target_time(batch, context=context)) / 1e3
    weights = shape.total_params * shape.weight_bytes
    if shape.num_experts > 1:
        routed = shape.num_experts * shape.expert_params
        weights += routed * (shape.expert_weight_bytes - shape.weight_bytes)
    a_token = shape.kv_bytes_per_token
    parts = (
        Part("weights", Resource.WEIGHTS, weights / gpus, "parameters · bytes / gpus"),
        Part("keys and values", Resource.KV_CACHE, batch * context * a_token / gpus,
             "batch · context · bytes a token / gpus"),
        Part("decoding", Resource.FLOPS, 2.0 * tokens * (shape.dense_params + shape.top_k * shape.expert_params),
             "2 · active weights · tokens"),
    )  # fmt: skip
    now = Account(parts, {"decoding": tokens / batch * step}, place.memory, 0.0, "all requests are at full length")
    facts: dict[str, float | str] = {
        "model": str(model), "hardware": hardware.found_at(device, profiles), "tokens": tokens, "batch": batch,
        "context": context, "devices": gpus, "alpha": alpha,
    }  # fmt: skip
    if draft is not None:
        facts["draft"] = str(draft)
    room = place.memory - weights / gpus
    reach = Reach(
        "as it is",
        max(0, int(room / (batch * a_token / gpus))),
        max(0, int(room / (context * a_token / gpus))),
        round(place.memory * gpus / shape.weight_bytes - batch * context * a_token / shape.weight_bytes),
    )
    said = f"serving {shape.name}, {batch} requests of {context} tokens, {gpus} x {place.name}"
    return Advice(said, now, offers(Workload(Task.LM_SERVING, facts), now), (), [reach])


def _shape(model: str | Path | Any) -> MoEShape:
    try:
        return MoEShape.from_config(model, build=False)
    except ValueError as error:
        if isinstance(model, str) and not Path(model).exists():
            raise ValueError(f"{error}; a vision transformer's name goes with --images") from None
        raise


def _check_draft(model: str | Path | Any, draft: str | Path) -> None:
    """Refuse a draft that could not draft for the model: its tokens mean something else."""
    sizes = []
    for each in (model, draft):
        config = read_config(each)[0] if isinstance(each, str | Path) else each
        sizes.append(config.get_text_config().vocab_size)
    if max(sizes) - min(sizes) > PADDING:
        raise ValueError(f"draft: expected the model's vocabulary of {sizes[0]} tokens, got one of {sizes[1]}")
