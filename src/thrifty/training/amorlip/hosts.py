"""CLIP models of open_clip and of Transformers: loading, saving, and one way to ask either of them for features."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty._common.checks import one_of
from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty._common.weights import load_pretrained, read_pretrained

WEIGHTS, CONFIG = "open_clip_model.safetensors", "open_clip_config.json"


class TowerOutput(NamedTuple):
    """What a CLIP model says of a batch: features of unit length, s = exp(t), and b where there is one."""

    image: Float[Tensor, "batch dim"]
    text: Float[Tensor, "batch dim"]
    logit_scale: Float[Tensor, ""]
    logit_bias: Tensor | None


def run_towers(model: nn.Module, batch: Mapping[str, Tensor]) -> TowerOutput:
    """Return the features of a batch of pairs.

    Args:
        model: A CLIP model of open_clip (its batch has ``image`` and ``text``) or of Transformers (``pixel_values``,
            ``input_ids`` ...), wrapped for data parallelism or not.
        batch: What it is called with.

    Returns:
        Features of unit length, s and b, whichever of the two libraries the model is of.

    Raises:
        TypeError: It gives something else.

    Example:
        >>> class Towers(nn.Module):
        ...     def forward(self, image, text):
        ...         return image, text, torch.tensor(14.3)
        >>> found = run_towers(Towers(), {"image": torch.eye(2), "text": torch.eye(2)})
        >>> found.logit_scale, found.logit_bias
        (tensor(14.3000), None)
    """
    found = model(**batch)
    if hasattr(found, "image_embeds"):
        own: Any = getattr(model, "module", model)
        return TowerOutput(
            found.image_embeds, found.text_embeds, own.logit_scale.exp(), getattr(own, "logit_bias", None)
        )
    if isinstance(found, Mapping):
        return TowerOutput(
            found["image_features"], found["text_features"], found["logit_scale"], found.get("logit_bias")
        )
    if isinstance(found, tuple) and len(found) in (3, 4):
        image, text, scale, *bias = found
        return TowerOutput(image, text, scale, bias[0] if bias else None)
    raise TypeError(f"model: expected a CLIP model of open_clip or Transformers, got {type(model).__name__}")


def embed_images(model: nn.Module, images: Mapping[str, Tensor]) -> Float[Tensor, "n dim"]:
    """Return image features of unit length."""
    return _embed(model, "image", images)


def embed_texts(model: nn.Module, texts: Mapping[str, Tensor]) -> Float[Tensor, "n dim"]:
    """Return text features of unit length."""
    return _embed(model, "text", texts)


@torch.no_grad()
def _embed(model: nn.Module, modality: str, inputs: Mapping[str, Tensor]) -> Tensor:
    if hasattr(model, f"get_{modality}_features"):
        found = getattr(model, f"get_{modality}_features")(**inputs)
        features = getattr(found, "pooler_output", found)
    else:
        features = getattr(model, f"encode_{modality}")(inputs[modality])
    return nn.functional.normalize(features.float(), dim=-1)


def embedding_width(model: nn.Module) -> int:
    """Return d of a model.

    Raises:
        TypeError: It does not say.
    """
    config = getattr(model, "config", None)
    if config is not None and getattr(config, "projection_dim", None):
        return int(config.projection_dim)
    if config is not None and hasattr(config, "vision_config"):  # SigLIP's towers end at their own width
        return int(config.vision_config.hidden_size)
    for name in ("text_projection", "visual.proj"):
        held: Any = model
        for part in name.split("."):
            held = getattr(held, part, None)
        if isinstance(held, Tensor):
            return held.shape[-1]
        if isinstance(held, nn.Linear):
            return held.out_features
    if hasattr(getattr(model, "visual", None), "output_dim"):
        return int(model.visual.output_dim)  # type: ignore[union-attr, arg-type]
    raise TypeError(f"model: expected one that tells the width of its embeddings, got {type(model).__name__}")


def lock_tower(model: nn.Module, which: Literal["image", "text"]) -> None:
    """Freeze one tower, as in LiT: the other learns to fit to it.

    Args:
        model: A CLIP model of open_clip or of Transformers; it is changed in place.
        which: The tower that stays as it is.

    Raises:
        ValueError: There is no such tower.

    Example:
        >>> model = nn.Module()
        >>> model.vision_model, model.text_model = nn.Linear(4, 4), nn.Linear(4, 4)
        >>> lock_tower(model, "image")
        >>> model.vision_model.weight.requires_grad, model.text_model.weight.requires_grad
        (False, True)

    Source:
        Zhai et al., arXiv 2111.07991.
    """
    one_of("which", which, ("image", "text"))
    if hasattr(model, f"lock_{which}_tower"):
        getattr(model, f"lock_{which}_tower")()
        return
    parts = {"image": ("vision_model", "visual_projection"), "text": ("text_model", "text_projection")}[which]
    held = [getattr(model, part) for part in parts if hasattr(model, part)]
    if not held:
        raise ValueError(f"which: expected a model with a tower {parts[0]}, got {type(model).__name__}")
    for part in held:
        part.requires_grad_(False)


@dataclass
class Host:
    """A model with what makes its inputs.

    Args:
        kind: ``"open_clip"`` or ``"transformers"``.
        model: The towers.
        training_image: A picture to the model's inputs, with the augmentation of training.
        image: Likewise without.
        tokenize: Captions to the model's inputs, padded to one length.
        save: Writes the model into a folder, from which :func:`load_host` reads it.
    """

    kind: str
    model: nn.Module
    training_image: Callable[[Any], dict[str, Tensor]]
    image: Callable[[Any], dict[str, Tensor]]
    tokenize: Callable[[list[str]], dict[str, Tensor]]
    save: Callable[[Path], object]


def load_host(model: str, checkpoint: Path | None = None, *, seed: int = 0) -> Host:
    """Return a model, ready to train or to evaluate; nothing is fetched.

    Args:
        model: A folder that open_clip or ``save_pretrained`` wrote, an open_clip model configuration (.json), or the
            name of one of open_clip's models, whose weights are then random.
        checkpoint: Weights to begin with, for an open_clip model.
        seed: Of weights that are random.

    Returns:
        The towers, what turns pictures and captions into their inputs, and what saves them.

    Raises:
        FileNotFoundError: There is no such model.
        ImportError: open_clip or Transformers is not installed.

    Example:
        >>> vision = {"image_size": 16, "patch_size": 8, "width": 16, "head_width": 8, "layers": 1}
        >>> text = {"context_length": 8, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
        >>> described = json.dumps({"embed_dim": 8, "vision_cfg": vision, "text_cfg": text})
        >>> written = Path("tiny.json").write_text(described)
        >>> host = load_host("tiny.json")
        >>> embed_texts(host.model, host.tokenize(["a cat", "a dog"])).shape
        torch.Size([2, 8])

    Source:
        The files are those of open_clip (a model configuration, or ``open_clip_config.json`` beside
        ``open_clip_model.safetensors``) and of Transformers' ``save_pretrained``.
    """
    if Path(model, "config.json").is_file():
        return _transformers_host(Path(model))
    return _open_clip_host(model, checkpoint, seed)


def _open_clip_host(model: str, checkpoint: Path | None, seed: int) -> Host:
    open_clip = require("open_clip", extra="vision")
    name, path = model, Path(model)
    if path.is_dir():
        if not (path / CONFIG).is_file():
            raise FileNotFoundError(f"model: expected config.json or {CONFIG} in {path}")
        config, name = json.loads((path / CONFIG).read_text())["model_cfg"], f"local-dir:{path}"
    elif path.suffix == ".json":
        if not path.is_file():
            raise FileNotFoundError(f"model: there is no {path}")
        config, name = json.loads(path.read_text()), path.stem
        open_clip.add_model_config(path)
    else:
        config = open_clip.get_model_config(name)
        if config is None:
            raise FileNotFoundError(f"model: expected a folder, a .json, or one of open_clip's models, got {model!r}")
    if checkpoint is not None and not checkpoint.is_file():
        raise FileNotFoundError(f"checkpoint: there is no {checkpoint}")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        towers, training, plain = open_clip.create_model_and_transforms(
            name, pretrained=str(checkpoint) if checkpoint else None, output_dict=True
        )
    tokenizer = open_clip.get_tokenizer(name)

    def save(folder: Path) -> None:
        safetensors = require("safetensors.torch", extra="torch")
        described = {"model_cfg": config, "preprocess_cfg": open_clip.get_model_preprocess_cfg(towers)}
        write_whole(folder / CONFIG, json.dumps(described, indent=1) + "\n", force=True)
        weights = {key: tensor.detach().cpu().contiguous() for key, tensor in towers.state_dict().items()}
        write_whole(folder / WEIGHTS, safetensors.save(weights), force=True)

    return Host(
        "open_clip", towers, lambda picture: {"image": training(picture)}, lambda picture: {"image": plain(picture)},
        lambda captions: {"text": tokenizer(captions)}, save,
    )  # fmt: skip


def _transformers_host(folder: Path) -> Host:
    transformers = require("transformers", extra="vision")
    towers = load_pretrained(transformers.AutoModel, folder)
    processor = read_pretrained(transformers.AutoProcessor, folder, name="model")
    length = towers.config.text_config.max_position_embeddings

    def image(picture: Any) -> dict[str, Tensor]:
        return {"pixel_values": processor.image_processor(picture, return_tensors="pt")["pixel_values"][0]}

    def tokenize(captions: list[str]) -> dict[str, Tensor]:
        return dict(
            processor.tokenizer(captions, padding="max_length", max_length=length, truncation=True, return_tensors="pt")
        )

    def save(to: Path) -> None:
        towers.save_pretrained(to)
        processor.save_pretrained(to)

    return Host("transformers", towers, image, image, tokenize, save)
