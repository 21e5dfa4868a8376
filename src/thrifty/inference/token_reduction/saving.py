"""A reduced model on disk: the host's weights, the reduction's own, and the setting beside them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from thrifty._common.extras import require
from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.settings import read_text
from thrifty._common.weights import load_tensors
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

    The setting goes first and comes last, so that a save that was killed leaves nothing that loads.
    """
    from thrifty.inference.token_reduction.patch import reduction_of

    reduction = reduction_of(model)
    if reduction is None:
        raise ValueError("model: no token reduction is in force; call reduce_tokens first")
    folder = Path(folder)
    own: Any = getattr(type(model), "save_pretrained", None)
    force = own is not None or bool(kwargs.pop("force", False))
    for name in () if force else (SETTING, WEIGHTS):
        refuse_existing(folder / name, force)
    (folder / SETTING).unlink(missing_ok=True)
    safe = require("safetensors.torch", extra="vision")
    if own is not None:  # its files stay a plain model's; what the reduction added lies beside them
        plain = {name: tensor for name, tensor in model.state_dict().items() if ".freq_" not in name}
        own(model, folder, **({"state_dict": plain} | kwargs))
        write_whole(folder / ADDED, safe.save(_added(reduction)), force=True)
    else:
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

    Source:
        Weights as transformers' ``save_pretrained`` or safetensors store them; the setting is a JSON file of ours
        beside them.
    """
    from thrifty.inference.token_reduction.patch import reduce_tokens

    folder, hosted = Path(folder), not isinstance(make, nn.Module)
    if not hasattr(make, "from_pretrained") and not isinstance(make, nn.Module):
        raise TypeError(f"make: expected a model, or a class with from_pretrained, got {make!r}")
    config = config_from_json(read_text(folder / SETTING))
    held = load_tensors(folder / (ADDED if hosted else WEIGHTS), name="folder", extra="vision")
    host: Any = make
    model = host.from_pretrained(folder) if hosted else host
    reduction = reduce_tokens(model, config, **kwargs)
    own = _added(reduction) if hosted else model.state_dict()
    theirs, ours = ({(name, w.shape, w.is_floating_point()) for name, w in part.items()} for part in (held, own))
    wrong = theirs ^ ours
    if wrong:
        reduction.remove()
        raise ValueError(
            f"folder: the weights in {folder} are not this model's: {len(wrong)} names, shapes or types differ, first "
            f"{min(name for name, *_ in wrong)}"
        )
    with torch.no_grad():
        for name, w in own.items():
            w.copy_(held[name])
    return model


def load_added(reduction: TokenReduction, folder: Path) -> None:
    """Put back the parameters that a reduction added to a transformers model, as its ``save_pretrained`` wrote them.

    Raises:
        FileNotFoundError: There are none in the folder.
        ValueError: They are of another reduction, or damaged.
    """
    held, own = load_tensors(folder / ADDED, name="folder", extra="vision"), _added(reduction)
    if {name: w.shape for name, w in held.items()} != {name: w.shape for name, w in own.items()}:
        raise ValueError(f"folder: the weights in {folder / ADDED} are another reduction's")
    with torch.no_grad():
        for name, w in own.items():
            w.copy_(held[name])


def _added(reduction: TokenReduction) -> dict[str, torch.Tensor]:
    """Return the parameters that a reduction added, under the number of their block."""
    return {
        f"blocks.{index}.{name}": w.detach()
        for index, block in enumerate(reduction.host.blocks)
        for name, w in block.named_parameters(recurse=False)
        if name.startswith("freq_")
    }
