"""Checkpoints of a training run: whole or not there, the last two kept, and never with weights that are not finite."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from thrifty._common.files import write_whole
from thrifty._common.weights import load_saved


def write_checkpoint(out: Path, reached: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write a checkpoint into a run's folder, and drop those before the last.

    Args:
        out: The run's folder.
        reached: What :func:`~thrifty._common.runs.enter_run` gives back: ``global_step``, and plain JSON values.
        state: Tensors, nested in mappings and lists.

    Raises:
        OSError: It cannot be written; what was written of it is removed.
    """
    folder = out / f"checkpoint-{reached['global_step']}"
    held = io.BytesIO()  # torch hides why a file cannot be written
    torch.save(dict(state), held)
    try:
        write_whole(folder / "state.pt", held.getvalue(), force=True)
        write_whole(folder / "trainer_state.json", json.dumps(dict(reached)), force=True)  # last: it is whole
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise OSError(error.errno, f"the checkpoint cannot be written: {error.strerror}", str(folder)) from error
    kept = sorted(out.glob("checkpoint-*[0-9]"), key=lambda path: int(path.name.rpartition("-")[2]))
    for old in kept[:-2]:
        shutil.rmtree(old)


def read_checkpoint(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state that :func:`write_checkpoint` wrote."""
    held: dict[str, Any] = load_saved(Path(folder) / "state.pt", name="checkpoint")
    return held
