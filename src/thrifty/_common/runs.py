"""The folder of a training run by Hugging Face's ``Trainer``: its settings, and where an interrupted run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from thrifty._common.checks import one_of
from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty._common.settings import parse, read_text

VERSION = 1
PRECISIONS = ("fp32", "bf16")

#: Told (step, steps, loss) at every logged step.
Progress = Callable[[int, int, float], object]


def enter_run(out: Path, kind: str, settings: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Begin a run in a folder, or find the last whole checkpoint of the one that is there, and what it reached.

    Args:
        out: The run's folder; made if it is missing.
        kind: Names the command, for example ``"sumo"``; the settings are kept in ``<kind>_run.json``.
        settings: What must be the same when the run goes on; plain JSON values.

    Returns:
        The checkpoint to go on from (``None``: from the start) and ``Trainer``'s state there, or that of a fresh run.

    Raises:
        FileExistsError: The folder holds something else.
        ValueError: The run that is there has other settings; the message names the first.
    """
    path = out / f"{kind}_run.json"
    if not path.exists() and first_process():
        if out.exists() and any(
            not entry.name.startswith(".") for entry in out.iterdir()
        ):  # half a file of a killed run
            raise FileExistsError(f"{out}: there are files already, and no run to go on with; choose another folder")
        record = {"schema": f"thrifty.{kind}.run", "version": VERSION, **settings}
        write_whole(path, json.dumps(record, indent=1) + "\n")
    elif path.exists():
        earlier = parse(read_text(path), f"thrifty.{kind}.run", VERSION, known=None, name=str(path))
        for name, value in settings.items():
            if earlier.get(name) != value:
                raise ValueError(
                    f"{name}: the run in {out} has {earlier.get(name)!r}, got {value!r}; choose another folder"
                )
    checkpoints = {int(p.name.rpartition("-")[2]): p for p in out.glob("checkpoint-*[0-9]")}
    for _, checkpoint in sorted(checkpoints.items(), reverse=True):
        state = checkpoint / "trainer_state.json"  # written last: without it, or with half of it, the save was cut off
        with suppress(OSError, ValueError):
            return str(checkpoint), json.loads(state.read_text())
    return None, {"global_step": 0, "log_history": []}


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keep other processes out of a run's folder: two of them would remove each other's checkpoints.

    Args:
        out: The folder; of the processes that torchrun started, the first holds it for all.

    Raises:
        ValueError: Another process is at work there.
        OSError: The folder cannot be written.
    """
    if not first_process():
        yield
        return
    out.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(out / ".lock").acquire(timeout=0)
    except Timeout:
        raise ValueError(f"out: another process is at work in {out}; wait for it, or choose another folder") from None
    with lock:
        yield
        (out / ".lock").unlink(missing_ok=True)


def world() -> tuple[int, int]:
    """Return this process's rank, and how many processes torchrun started; alone: 0 and 1."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def first_process() -> bool:
    """Tell whether this is the only process, or the first that torchrun started."""
    return world()[0] == 0


def device_of(name: str = "auto") -> str:
    """Return the device of this process, one of its node's own where torchrun started several.

    Args:
        name: ``"cpu"``, ``"cuda"`` (or another that torch knows), or ``"auto"``: an accelerator where there is one.

    Raises:
        ValueError: There is no such device here.
        ImportError: torch is not installed.
    """
    torch = require("torch", extra="torch")
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    if name != "auto" and name.partition(":")[0] not in ("cpu", found.type):
        here = ", ".join(sorted({"cpu", found.type}))
        raise ValueError(f"device: expected auto or one of those that are here ({here}), got {name!r}")
    name = found.type if name == "auto" else name
    return name if name == "cpu" or ":" in name else f"{name}:{os.environ.get('LOCAL_RANK', '0')}"


def join(name: str = "auto") -> str:
    """Join the other processes where torchrun started several, and return this one's device.

    Args:
        name: As in :func:`device_of`.

    Raises:
        ValueError: There is no such device here.
        ImportError: torch is not installed.
    """
    device, torch = device_of(name), require("torch", extra="torch")
    if world()[1] > 1 and not torch.distributed.is_initialized():
        cuda = device.startswith("cuda")
        if cuda:
            torch.cuda.set_device(device)  # what is gathered as objects passes through the current one
        torch.distributed.init_process_group("nccl" if cuda else "gloo")
    return device


def training_arguments(out: Path, *, precision: str, save_every: int, kind: Any = None, **more: Any) -> Any:
    """Return ``TrainingArguments`` as our commands share them: quiet, on an accelerator where there is one.

    Args:
        out: Folder of the run; the last two checkpoints are kept.
        precision: One of :data:`PRECISIONS`.
        save_every: Steps between checkpoints.
        kind: A class that inherits from ``TrainingArguments`` (TRL's configurations), to have one of it.
        **more: The command's own.
    """
    one_of("precision", precision, PRECISIONS)
    cpu = device_of() == "cpu"
    return (kind or require("transformers", extra="llm").TrainingArguments)(
        str(out), bf16=precision == "bf16", save_steps=save_every, save_total_limit=2, report_to="none",
        disable_tqdm=True, use_cpu=cpu, dataloader_pin_memory=not cpu,
        ddp_backend="gloo" if cpu and world()[1] > 1 else None, **more,
    )  # fmt: skip


def reporter(progress: Progress | None) -> Any:
    """Return a callback for ``Trainer`` that tells of every logged loss, on the first process.

    Raises:
        ImportError: transformers is not installed.
    """

    def on_log(_: Any, __: Any, state: Any, ___: Any, logs: dict[str, float], **____: Any) -> None:
        if progress is not None and "loss" in logs and state.is_world_process_zero:
            progress(state.global_step, state.max_steps, float(logs["loss"]))

    base = require("transformers", extra="llm").TrainerCallback
    return type("Reporter", (base,), {"on_log": on_log})()
