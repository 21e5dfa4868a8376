"""A reduced model on disk: the host's weights, the reduction's own, and the setting beside them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty.inference.token_reduction.config import config_from_json

if TYPE_CHECKING:
    from thrifty.inference.token_reduction.patch import TokenReduction

SETTING = "token_reduction.json"
WEIGHTS = "model.safetensors"
ADDED = "token_reduction.safetensors"


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
    safe = require("safetensors.torch", extra="vision")
    if own is not None:  # its files stay a plain model's; what the reduction added lies beside them
        plain = {name: tensor for name, tensor in model.state_dict().items() if ".freq_" not in name}
        own(model, folder, **({"state_dict": plain} | kwargs))
        write_whole(folder / ADDED, safe.save(_added(reduction)), force=True)
        write_whole(folder / SETTING, reduction.config.to_json(), force=True)
        return
    force = bool(kwargs.pop("force", False))
    state = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    write_whole(folder / WEIGHTS, safe.save(state, {"format": "pt"}), force=force)
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

    Example:
        >>> import tempfile, timm
        >>> from thrifty.inference.token_reduction import FreqReduceConfig, reduce_tokens, reduction_of
        >>> vit = timm.create_model("vit_tiny_patch16_224", depth=3, embed_dim=48).eval()
        >>> reduction = reduce_tokens(vit, FreqReduceConfig((2,), 0.5))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     reduction.save_pretrained(folder)
        ...     again = load_reduced(timm.create_model("vit_tiny_patch16_224", depth=3, embed_dim=48), folder)
        >>> reduction_of(again).config == reduction.config
        True

        A model of transformers: ``load_reduced(ViTForImageClassification, folder)``.
    """
    from thrifty.inference.token_reduction.patch import reduce_tokens

    folder = Path(folder)
    config = config_from_json((folder / SETTING).read_text(encoding="utf-8"))
    model: Any = make if isinstance(make, nn.Module) else make.from_pretrained(folder)  # type: ignore[attr-defined]
    reduction = reduce_tokens(model, config, **kwargs)
    safe = require("safetensors.torch", extra="vision")
    if not isinstance(make, nn.Module):
        added = safe.load_file(folder / ADDED)
        ours = _added(reduction)
        if {name: w.shape for name, w in added.items()} != {name: w.shape for name, w in ours.items()}:
            raise ValueError(f"folder: {folder / ADDED} does not fit its setting: {sorted(set(added) ^ set(ours))[:3]}")
        with torch.no_grad():
            for name, w in ours.items():
                w.copy_(added[name])
        return model
    try:
        model.load_state_dict(safe.load_file(folder / WEIGHTS))
    except RuntimeError as error:  # torch's word for names and shapes that differ
        raise ValueError(f"folder: the weights in {folder} are not this model's: {error}") from error
    return model


def _added(reduction: TokenReduction) -> dict[str, torch.Tensor]:
    """Return the parameters that a reduction added, under the number of their block."""
    return {
        f"blocks.{index}.{name}": w.detach()
        for index, block in enumerate(reduction.host.blocks)
        for name, w in block.named_parameters(recurse=False)
        if name.startswith("freq_")
    }
