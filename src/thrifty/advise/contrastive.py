"""The ledger of a step of contrastive training: two towers (CLIP, SigLIP), and a loss over all pairs of a batch.

The towers are built on the ``meta`` device and differentiated there at the batch's own size: what autograd keeps, the
bytes at the peak and the FLOPs are those of the real step. The loss is the softmax of two directions as open_clip has
it: logits of this device's pairs against everybody's, twice, with their logarithms and a gradient.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thrifty._common.checks import whole
from thrifty._common.extras import require
from thrifty._common.ledger import Resource, Task, Workload
from thrifty.advise import hardware
from thrifty.advise.account import Account, Part
from thrifty.advise.advice import Advice
from thrifty.advise.model import WIDTH, dtype_of
from thrifty.advise.offers import offers
from thrifty.advise.rehearsal import Storages, without_values
from thrifty.inference.speculation.shapes import profiles as language_models

#: Transformers' model types that are two towers; open_clip's configurations are told by their ``vision_cfg``.
MODEL_TYPES = ("clip", "siglip", "metaclip_2")


@dataclass(frozen=True)
class Towers:
    """Two towers on the ``meta`` device.

    Args:
        name: For the reader.
        model: They.
        embedding: Width of their embeddings.
        inputs: What they are called with, for a batch of so many pairs.
    """

    name: str
    model: Any
    embedding: int
    inputs: Callable[[int], dict[str, Any]]


def is_two_towers(source: str | Path | Any) -> bool:
    """Tell whether a model is contrasted rather than asked for the next token; nothing is built.

    Args:
        source: As :func:`advise_contrastive` takes it.
    """
    if not isinstance(source, str | Path):
        return getattr(source, "model_type", None) in MODEL_TYPES
    if str(source) in language_models():
        return False
    fields = _fields(Path(source))
    if fields is None:
        return _open_clip_config(str(source)) is not None
    return fields.get("model_type") in MODEL_TYPES or "vision_cfg" in fields.get("model_cfg", fields)


def advise_contrastive(
    model: str | Path | Any,
    *,
    device: str = "h100-80gb",
    optimizer: str = "adamw",
    batch: int = 256,
    dtype: str = "bf16",
    gpus: int = 1,
    profiles: str | Path | None = None,
) -> Advice:
    """Say what a step of contrastive training takes, and which methods would change it.

    Args:
        model: Transformers' configuration of a CLIP or SigLIP model (a ``config.json``, its folder, or a
            ``PretrainedConfig``), or open_clip's (a .json, a folder, or the name of one of its models).
        device: A profile's name or JSON file.
        optimizer: A profile's name or JSON file.
        batch: Pairs a step and device.
        dtype: Of weights and activations: ``"bf16"``, ``"fp16"`` or ``"fp32"``.
        gpus: Devices over which weights, gradients and state are sharded, and whose pairs are each other's negatives.
        profiles: A folder of further device and optimizer profiles.

    Returns:
        The ledger of a step on one device, and the offers.

    Raises:
        ValueError: An argument is out of range, or the model is unknown or no pair of towers.
        ImportError: The model's library is not installed.

    Example:
        >>> from transformers import CLIPConfig
        >>> small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> tiny = CLIPConfig(text_config=small, vision_config=small | {"image_size": 16, "patch_size": 8},
        ...     projection_dim=8)
        >>> advice = advise_contrastive(tiny, batch=4096)
        >>> [offer.method for offer in advice.offers if offer.applies]
        ['amorlip']
    """
    whole("batch", batch, least=2, what="a number of pairs")
    whole("gpus", gpus)
    precision, place, kept = dtype_of(dtype), hardware.device(device, profiles), hardware.optimizer(optimizer, profiles)
    towers = read_towers(model, precision)
    step = _rehearse(towers, batch)
    width, everybody = WIDTH[precision], batch * gpus
    shapes = [tuple(parameter.shape) for parameter in towers.model.parameters()]
    parameters = sum(parameter.numel() for parameter in towers.model.parameters())
    state = (
        sum(
            kept.numbers(shape[0], _rest(shape), 128) if len(shape) > 1 else kept.others * _rest((1, *shape))
            for shape in shapes
        )
        * (kept.bytes or width)
        + kept.copies * parameters
    )
    logits = 4.0 * batch * everybody
    late = step.most > step.kept + 4 * logits  # the towers' gradients outweigh the loss
    gradients = min(step.most, width * parameters) if late else 0.0
    shared = " / gpus" if gpus > 1 else ""
    features = 6.0 * 2 * batch * everybody * towers.embedding
    parts = (
        Part("weights", Resource.WEIGHTS, width * parameters / gpus, f"{width} bytes · parameters{shared}"),
        Part("optimizer state", Resource.OPTIMIZER_STATE, state / gpus, f"{kept.name}{shared}"),
        Part("gradients", Resource.GRADIENTS, gradients / gpus, "as the weights, where the peak is in the towers"),
        Part("towers", Resource.ACTIVATIONS, step.most - gradients if late else step.kept, "rehearsed"),
        Part("loss", Resource.ACTIVATIONS, 0.0 if late else 4 * logits, "4 · 4 bytes · batch · batch of all"),
        Part("both passes", Resource.FLOPS, step.flops, "counted operator by operator"),
        Part("loss, both passes", Resource.FLOPS, features, "6 · 2 · batch · batch of all · embedding"),
    )
    rate = place.flops["float32" if precision == "float32" else "bfloat16"]
    seconds = {
        "arithmetic": (step.flops + features) / rate,
        "memory traffic": (3.0 * (step.written + width * parameters) + 2 * state / gpus) / place.bandwidth,
    }
    if gpus > 1:
        between = 3.0 * width * parameters * (1 - 1 / gpus) + 2.0 * width * everybody * towers.embedding
        seconds["communication"] = between / place.link
    moment = "the towers are differentiated" if late else "the loss is differentiated"
    now = Account(parts, seconds, place.memory, rate, moment)
    facts: dict[str, float | str] = {
        "embedding": towers.embedding, "batch": batch, "devices": gpus, "parameters": parameters,
        "step_bytes": max(step.most, step.kept + 4 * logits), "floor_bytes": max(step.most, step.kept),
    }  # fmt: skip
    said = (
        f"contrastive training of {towers.name} ({parameters / 1e6:.0f} M weights), {batch} pairs a step and device, "
    )
    said += f"{gpus} x {place.name}" if gpus > 1 else place.name
    return Advice(said, now, offers(Workload(Task.IMAGE_TRAINING, facts), now))


def read_towers(source: str | Path | Any, dtype: str = "bfloat16") -> Towers:
    """Build two towers without memory.

    Raises:
        ValueError: There is no such model, or it is no pair of towers.
        ImportError: Its library is not installed.
    """
    torch = require("torch", extra="vision")
    fields = _fields(Path(source)) if isinstance(source, str | Path) else None
    if not isinstance(source, str | Path):
        return _transformers_towers(source, source.model_type, getattr(torch, dtype))
    path = Path(source)
    name = path.parent.name if path.name == "config.json" else path.stem if path.suffix == ".json" else path.name
    if "model_type" in (fields or {}):
        transformers = require("transformers", extra="vision")
        kind = (fields or {})["model_type"]
        if kind not in MODEL_TYPES:
            raise ValueError(f"model: expected one of {', '.join(MODEL_TYPES)}, got {kind!r}")
        return _transformers_towers(transformers.CONFIG_MAPPING[kind].from_dict(fields), name, getattr(torch, dtype))
    config = (fields or {}).get("model_cfg", fields) or _open_clip_config(str(source))
    if config is None or "vision_cfg" not in config:
        raise ValueError(f"model: expected a CLIP configuration of Transformers or open_clip, got {source}")
    kinds, config = require("open_clip.model", extra="vision"), dict(config)
    kind = kinds.CustomTextCLIP if config.pop("custom_text", False) else kinds.CLIP
    try:
        with torch.device("meta"):
            model = kind(**config, output_dict=True).to(getattr(torch, dtype))
    except (TypeError, ValueError, KeyError, AssertionError, RuntimeError) as error:
        raise ValueError(f"model: {name} cannot be built as a CLIP model of open_clip: {error}") from error
    size = model.visual.image_size
    high, wide = size if isinstance(size, tuple) else (size, size)

    def inputs(batch: int) -> dict[str, Any]:
        return {
            "image": torch.zeros(batch, 3, high, wide, device="meta", dtype=getattr(torch, dtype)),
            "text": torch.zeros(batch, model.context_length, device="meta", dtype=torch.long),
        }

    return Towers(name, model, int(config["embed_dim"]), inputs)


def _transformers_towers(config: Any, name: str, dtype: Any) -> Towers:
    torch, transformers = require("torch", extra="vision"), require("transformers", extra="vision")
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config, dtype=dtype)
    vision, text = config.vision_config, config.text_config
    embedding = getattr(config, "projection_dim", None) or vision.hidden_size

    def inputs(batch: int) -> dict[str, Any]:
        size = vision.image_size
        return {
            "pixel_values": torch.zeros(batch, vision.num_channels, size, size, device="meta", dtype=dtype),
            "input_ids": torch.zeros(batch, text.max_position_embeddings, device="meta", dtype=torch.long),
        }

    return Towers(name, model, int(embedding), inputs)


@dataclass(frozen=True)
class _Step:
    """Bytes kept for the backward pass, the most that is held, all that operators write, and FLOPs."""

    kept: float
    most: float
    written: float
    flops: float


def _rehearse(towers: Towers, batch: int) -> _Step:
    from thrifty.training.amorlip import run_towers

    counter = require("torch.utils.flop_counter", extra="vision").FlopCounterMode(display=False)
    with without_values():
        inputs = towers.inputs(batch)
        storages = Storages([*towers.model.parameters(), *towers.model.buffers(), *inputs.values()])
        with counter, storages:
            found = run_towers(towers.model, inputs)
            kept = storages.live
            (found.image.sum() + found.text.sum()).backward()  # type: ignore[no-untyped-call]
    return _Step(kept, storages.most, storages.written, counter.get_total_flops())


def _fields(path: Path) -> dict[str, Any] | None:
    """Return what a configuration holds; ``None`` where there is no file."""
    for name in ("config.json", "open_clip_config.json") if path.is_dir() else (".",):
        if (path / name).is_file():
            try:
                held = json.loads((path / name).read_text())
            except (json.JSONDecodeError, UnicodeDecodeError):
                return {}
            return held if isinstance(held, dict) else {}
    return None


def _open_clip_config(name: str) -> dict[str, Any] | None:
    """Return the configuration of one of open_clip's models, if it is installed and has it."""
    try:
        found = require("open_clip", extra="vision").get_model_config(name)
    except ImportError:
        return None
    return dict(found) if found and "vision_cfg" in found else None


def _rest(shape: tuple[int, ...]) -> int:
    """Return the numbers of a weight beside its first dimension."""
    count = 1
    for size in shape[1:]:
        count *= size
    return count
