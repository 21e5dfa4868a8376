"""Networks on disk: weights as safetensors, beside the name and the settings that they belong to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from thrifty._common import settings
from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.weights import load_tensors
from thrifty.data.v2v.networks import build_model

SCHEMA, VERSION = "thrifty.v2v.model", 1

#: What a network must be told of the voxel grids that it was trained on, and their usual values.
GRIDS = {"num_bins": 5, "representation": "discrete", "normalize": False}


def save_model(
    model: nn.Module, folder: str | os.PathLike[str], name: str, *, force: bool = False, **made_with: Any
) -> Path:
    """Write a network: its weights, its settings, and how the voxel grids are made that it reads.

    Args:
        model: From :func:`build_model`, or a trainer's.
        folder: Where ``model.safetensors`` and ``v2v_model.json`` go.
        name: That :func:`build_model` knows it by.
        force: Replace what is there.
        **made_with: Settings that :func:`build_model` needs, for a module that it did not build.

    Returns:
        The folder.

    Raises:
        FileExistsError: There is one already, and ``force`` is False.

    Example:
        >>> folder = save_model(build_model("firenet", base=4), "model", "firenet")
        >>> sorted(path.name for path in folder.iterdir())
        ['model.safetensors', 'v2v_model.json']

    Source:
        Weights are in Hugging Face's safetensors format; the JSON beside them is ours.
    """
    folder = Path(folder)
    for part in ("model.safetensors", "v2v_model.json"):
        refuse_existing(folder / part, force)
    weights = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    write_whole(folder / "model.safetensors", save(weights), force=force)
    about = {
        "architecture": name,
        "settings": {**getattr(model, "made_with", {}), **made_with},
        "grids": {**GRIDS, **getattr(model, "grids", {})},
    }
    write_whole(folder / "v2v_model.json", settings.dump(about, SCHEMA, VERSION), force=force)
    return folder


def load_model(folder: str | os.PathLike[str]) -> nn.Module:
    """Return a network that :func:`save_model` wrote, in evaluation mode; its ``grids`` say what it reads.

    Args:
        folder: That it wrote into.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is of another schema, or of an architecture that nobody registered.

    Example:
        >>> model = build_model("firenet", base=4)
        >>> again = load_model(save_model(model, "again", "firenet"))
        >>> all(a.equal(b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
        True

    Source:
        Weights are in Hugging Face's safetensors format; the JSON beside them is ours.
    """
    path = Path(folder) / "v2v_model.json"
    if not path.exists():
        raise FileNotFoundError(f"model: expected a folder with v2v_model.json, got {folder}")
    about = settings.parse(
        path.read_text(), SCHEMA, VERSION, known=("architecture", "settings", "grids"), name=str(path)
    )
    model = build_model(about["architecture"], **about["settings"])
    model.load_state_dict(load_tensors(path.with_name("model.safetensors"), name="model"))
    model.grids = {**GRIDS, **about.get("grids", {})}  # type: ignore[assignment]
    return model.eval()
