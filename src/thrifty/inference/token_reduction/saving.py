"""A reduced model on disk: the host's weights, the reduction's own, and the setting beside them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty.inference.token_reduction.config import config_from_json

SETTING = "token_reduction.json"
WEIGHTS = "model.safetensors"


def save_reduced(model: nn.Module, folder: Path, **kwargs: Any) -> None:
    """Write a reduced model into a folder.

    A transformers model is written by its own ``save_pretrained`` (keyword arguments are handed on); of any other the
    ``state_dict`` becomes ``model.safetensors``. The setting is ``token_reduction.json``.

    Raises:
        ValueError: No reduction is in force on the model.
        FileExistsError: The folder holds a reduced model, and ``force`` is not given (other hosts than transformers).
    """
    from thrifty.inference.token_reduction.patch import reduction_of

    reduction = reduction_of(model)
    if reduction is None:
        raise ValueError("model: no token reduction is in force; call reduce_tokens first")
    folder = Path(folder)
    own: Any = getattr(type(model), "save_pretrained", None)
    if own is not None:
        own(model, folder, **kwargs)
        write_whole(folder / SETTING, reduction.config.to_json(), force=True)
        return
    force = bool(kwargs.pop("force", False))
    save = require("safetensors.torch", extra="vision").save
    state = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    write_whole(folder / WEIGHTS, save(state, {"format": "pt"}), force=force)
    write_whole(folder / SETTING, reduction.config.to_json(), force=force)


def load_reduced(make: Callable[..., nn.Module] | nn.Module, folder: str | os.PathLike[str], **kwargs: Any) -> Any:
    """Return the reduced model that :func:`save_reduced` wrote, with the reduction in force.

    Args:
        make: A transformers class (its ``from_pretrained`` reads the folder), or the model itself, without weights that
            matter and without a reduction, for any other host.
        folder: The folder.
        kwargs: For ``reduce_tokens`` (``trace``, ``restored``, ``debug``).

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: The setting is damaged, or weights are missing or too many.

    Example::

        model = load_reduced(ViTForImageClassification, "vit-reduced")
        model = load_reduced(timm.create_model("deit_small_patch16_224"), "deit-reduced")
    """
    from thrifty.inference.token_reduction.patch import reduce_tokens

    folder = Path(folder)
    config = config_from_json((folder / SETTING).read_text(encoding="utf-8"))
    model: Any = make if isinstance(make, nn.Module) else make.from_pretrained(folder)  # type: ignore[attr-defined]
    reduce_tokens(model, config, **kwargs)
    held: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        held |= require("safetensors.torch", extra="vision").load_file(path)
    if not isinstance(make, nn.Module):
        held = {name: tensor for name, tensor in held.items() if ".freq_" in name}
    missing, unexpected = model.load_state_dict(held, strict=False)
    lacking = [name for name in missing if isinstance(make, nn.Module) or ".freq_" in name]
    if lacking or unexpected:
        raise ValueError(f"folder: {folder} lacks {lacking[:3]} and has {list(unexpected)[:3]} too many for this model")
    return model
