"""Models and images from a person's own files, for the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from thrifty._common.extras import require
from thrifty._common.settings import read_text
from thrifty._common.weights import load_saved, load_tensors
from thrifty.inference.token_reduction.config import config_from_json
from thrifty.inference.token_reduction.hosts import find_host
from thrifty.inference.token_reduction.saving import SETTING

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"})

#: Normalisation where a model says nothing: ImageNet's.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def load_model(
    name: str, weights: Path | None = None, *, random: bool = False, classes: int | None = None
) -> nn.Module:
    """Return a model in evaluation mode, without a reduction.

    Args:
        name: A folder of transformers (with ``config.json``), or a model of timm.
        weights: A ``.safetensors`` or (``weights_only``) ``.pth`` file for a timm model, in place of timm's own.
        random: Leave a timm model at random weights (for counts and speed).
        classes: Outputs of the head, if they differ from the model's own; the head is new then.

    Raises:
        ValueError: There is no such model, or the weights do not fit.
        FileNotFoundError: timm's weights cannot be fetched.
    """
    folder = Path(name)
    if (folder / "config.json").exists():
        transformers = require("transformers", extra="vision")
        kind = transformers.AutoConfig.from_pretrained(folder).architectures or [""]
        auto = transformers.AutoModelForImageClassification if "Classification" in kind[0] or classes else None
        extra = {"num_labels": classes, "ignore_mismatched_sizes": True} if classes else {}
        model: nn.Module = (auto or transformers.AutoModel).from_pretrained(folder, **extra)
        return model.eval()
    timm = require("timm", extra="vision")
    if not timm.is_model(name):
        near = ", ".join(timm.list_models(f"*{name.split('_', maxsplit=1)[0]}*")[:3]) or "vit_small_patch16_224"
        raise ValueError(f"model: {name!r} is no folder of transformers and no model of timm (for instance {near})")
    extra = {} if classes is None else {"num_classes": classes}
    fetch = weights is None and not random
    try:
        model = timm.create_model(name, pretrained=fetch, **extra)
    except Exception as error:
        if not fetch:
            raise
        raise FileNotFoundError(
            f"model: timm's weights of {name} could not be fetched ({type(error).__name__}); give --weights FILE, or "
            "--random for counts and speed"
        ) from error
    if weights is not None:
        state, own = _read_weights(weights), model.state_dict()
        fitting = {key: w for key, w in state.items() if key in own and own[key].shape == w.shape}
        new_head = () if classes is None else tuple(key for key in (*own, *state) if key.startswith("head"))
        left = [key for key in (*own, *state) if key not in fitting and key not in new_head]
        if left:
            raise ValueError(
                f"weights: {weights} does not fit {name}: {len(left)} tensors are missing, of another shape or "
                f"unknown to it, first {left[0]}"
            )
        model.load_state_dict(fitting, strict=False)
    return model.eval()


def _read_weights(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return load_tensors(path, name="weights", extra="vision")
    held = load_saved(path, name="weights")
    return held.get("model", held.get("state_dict", held))  # type: ignore[no-any-return]


def reduced_setting(folder: Path) -> Any:
    """Return the setting that a saved reduced model has beside its weights, ``None`` without one."""
    path = folder / SETTING
    return config_from_json(read_text(path)) if path.exists() else None


def normalisation(model: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation that a model's images are normalised with."""
    held = getattr(model, "pretrained_cfg", None) or {}
    return tuple(held.get("mean") or MEAN), tuple(held.get("std") or STD)


def image_size(model: nn.Module) -> tuple[int, int]:
    """Return the size of image that a model is made for: rows and columns of pixels."""
    host = find_host(model)
    grid = host.grid or (224 // host.patch_size[0], 224 // host.patch_size[1])
    return grid[0] * host.patch_size[0], grid[1] * host.patch_size[1]


def image_files(paths: Sequence[Path]) -> list[Path]:
    """Return the images meant, folders searched through, in sorted order.

    Raises:
        FileNotFoundError: There are none.
    """
    files: list[Path] = []
    for path in paths:
        inside = path.rglob("*") if path.is_dir() else [path]
        files += sorted(file for file in inside if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        raise FileNotFoundError(
            f"images: no image at {', '.join(map(str, paths))} (looked for {', '.join(sorted(SUFFIXES))})"
        )
    return files


def read_pixels(path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return an image's pixels: scaled so that it covers the size, its middle cut out.

    Raises:
        ValueError: It is no image that can be read.
    """
    pillow = require("PIL.Image", extra="vision")
    try:
        with pillow.open(path) as opened:
            picture = opened.convert("RGB")
    except OSError as error:  # Pillow's own errors derive from it
        raise ValueError(f"images: {path} cannot be read as an image: {error}") from error
    height, width = size
    scale = max(height / picture.height, width / picture.width)
    picture = picture.resize((max(width, round(picture.width * scale)), max(height, round(picture.height * scale))), 3)
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return np.asarray(picture.crop((left, top, left + width, top + height)))


def to_batch(pixels: Sequence[NDArray[np.uint8]], model: nn.Module) -> Tensor:
    """Return pixels as the model takes them: batch x channel x rows x columns, normalised."""
    mean, std = normalisation(model)
    stacked = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float() / 255
    return (stacked - torch.tensor(mean).view(1, -1, 1, 1)) / torch.tensor(std).view(1, -1, 1, 1)


def labelled_folder(
    folder: Path, classes: Sequence[str] | None = None
) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """Return the images of a folder that has one folder a class, with classes in sorted order or as they are given.

    Raises:
        FileNotFoundError: There is no folder with images in it.
        ValueError: A folder is none of the given classes.
    """
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if classes is not None:
        if unknown := sorted(set(names) - set(classes)):
            raise ValueError(f"data: {folder} has the folder {unknown[0]!r}, which is no class of the training images")
        names = list(classes)
    found = [(file, label) for label, name in enumerate(names) for file in _images(folder / name)]
    if not found:
        raise FileNotFoundError(f"data: expected one folder of images a class in {folder}, got {names or 'none'}")
    return found, tuple(names)


def _images(folder: Path) -> Iterator[Path]:
    yield from (file for file in sorted(folder.rglob("*")) if file.suffix.lower() in SUFFIXES)
