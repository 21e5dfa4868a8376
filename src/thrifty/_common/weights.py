"""Weights and states from files of others: read without unpickling, and refused in one line where they are none."""

from __future__ import annotations

import os
from pathlib import Path
from pickle import UnpicklingError  # raised, not used to read
from typing import Any

from thrifty._common.extras import require


def load_saved(path: str | os.PathLike[str], *, name: str, device: Any = "cpu") -> Any:
    """Read what ``torch.save`` wrote, if it is made of tensors and plain values alone.

    Args:
        path: The file.
        name: What it is to the caller, for messages.
        device: Where its tensors go.

    Raises:
        ValueError: It is damaged, or holds what only unpickling could read.
        OSError: There is no such file.
    """
    torch = require("torch", extra="torch")
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except OSError:
        raise
    except Exception as error:  # what torch raises for a file that is none is of any kind
        raise ValueError(
            f"{name}: expected tensors and plain values as torch.save writes them, got {path}, which is "
            f"damaged or holds something else ({type(error).__name__})"
        ) from error


def load_tensors(path: str | os.PathLike[str], *, name: str, extra: str = "torch") -> dict[str, Any]:
    """Read a file of safetensors.

    Args:
        path: The file.
        name: What it is to the caller, for messages.
        extra: What brings safetensors.

    Raises:
        ValueError: It is damaged, or none.
        OSError: There is no such file.
    """
    damaged = require("safetensors", extra=extra).SafetensorError
    if not Path(path).is_file():
        raise FileNotFoundError(f"{name}: expected a .safetensors file, got none at {path}")
    try:
        tensors: dict[str, Any] = require("safetensors.torch", extra=extra).load_file(path)
    except damaged as error:
        raise ValueError(f"{name}: expected a .safetensors file, got {path}, which is damaged: {error}") from error
    return tensors


def read_pretrained(kind: Any, folder: str | os.PathLike[str], *, name: str, **options: Any) -> Any:
    """Read a configuration, a tokenizer or a processor by a class of transformers, from this machine alone.

    Code that lies in the folder is never run.

    Args:
        kind: A class with ``from_pretrained``, for instance ``AutoTokenizer``.
        folder: What ``save_pretrained`` wrote; of a configuration, its file too.
        name: What it is to the caller, for messages.
        **options: For ``from_pretrained``.

    Raises:
        ValueError: A file is damaged, of an unknown kind, or only to be read by running code.
        OSError: There is no such folder, or a file of it is missing.
    """
    if not Path(folder).exists():
        raise FileNotFoundError(f"{name}: expected the folder of a local model, got {folder}")
    try:
        return kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)
    except (OSError, ImportError):
        raise
    except UnpicklingError as error:
        raise ValueError(f"{name}: expected tensors alone in the files of {folder}, got pickled objects") from error
    except Exception as error:  # of safetensors, of JSON, of transformers' own
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{name}: {folder} cannot be read as a {kind.__name__}: {said}") from error


def load_pretrained(kind: Any, folder: str | os.PathLike[str], *, name: str = "model", **options: Any) -> Any:
    """Load a local model by a class of transformers, if its files hold all of its weights.

    Transformers itself makes up the weights that are missing, and trains or scores on.

    Args:
        kind: A class with ``from_pretrained``, for instance ``AutoModelForCausalLM``.
        folder: What ``save_pretrained`` wrote.
        name: What it is to the caller, for messages.
        **options: For ``from_pretrained``.

    Raises:
        ValueError: A file is damaged, or weights are missing.
        OSError: There is no such folder, or a file of it is missing.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"{name}: expected the folder of a local model, got {folder}")
    model, found = read_pretrained(kind, folder, name=name, output_loading_info=True, **options)
    if missing := sorted(found["missing_keys"]):
        raise ValueError(
            f"{name}: expected all weights of a {type(model).__name__} in {folder}, got none for {len(missing)} of "
            f"them, first {missing[0]}"
        )
    return model


def check_finite(model: Any, when: str) -> None:
    """Refuse a model that training has spoilt.

    Args:
        model: A torch module.
        when: For the message: ``"step 7"``.

    Raises:
        ValueError: A weight is infinite or not a number.
    """
    torch = require("torch", extra="torch")
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise ValueError(f"lr: the weights {name} are no longer finite after {when}; a lower rate may help")
