"""Running methods one after the other, each in a process of its own that ends when its time is up."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import thrifty
from thrifty.bench import carried, worker
from thrifty.bench.claims import Mode
from thrifty.bench.registry import Method
from thrifty.bench.results import SCHEMA, Folder, machine

#: Seconds that a method may take; its process is ended at twice that.
BUDGETS: dict[Mode, float] = {"quick": 30.0, "full": 15 * 60.0}

#: Seconds after which a process that is still preparing itself has its clock started all the same.
PREPARING = 300.0


@dataclass(frozen=True)
class Settings:
    """What the person who runs the bench chose."""

    mode: Mode = "quick"
    seed: int = 0
    device: str = "cpu"
    data: Path | None = None
    offline: bool = False
    budget: float | None = None  # seconds a method; None: as BUDGETS says

    @property
    def seconds(self) -> float:
        """The budget of a method."""
        return self.budget or BUDGETS[self.mode]


@dataclass(frozen=True)
class Listener:
    """Who is told what happens; every function may do nothing."""

    started: Callable[[Method], object] = lambda method: None
    progress: Callable[[int, int, str], object] = lambda done, total, text: None
    finished: Callable[[dict[str, Any]], object] = lambda record: None
    announce: Callable[[str], object] = lambda line: None


def run(methods: Sequence[Method], settings: Settings, folder: Folder, listener: Listener) -> dict[str, Any]:
    """Run the methods and return the joined results; each method's are stored as soon as it is done.

    Carried data is fetched first, outside every budget.

    Raises:
        KeyboardInterrupt: The person interrupted; the finished methods are stored, and a full run can be resumed.
    """
    needed = sorted({name for method in methods for name in method.carried})
    for reason in carried.warm(needed, offline=settings.offline, announce=listener.announce).values():
        listener.announce(reason)
    joined: dict[str, Any] = {}
    for method in methods:
        listener.started(method)
        device = settings.device if settings.device.partition(":")[0] in method.devices else "cpu"
        record = _run_one(method, replace(settings, device=device), folder, listener)
        common = {"mode": settings.mode, "seed": settings.seed, "device": device}
        head = {"schema": SCHEMA, **common, "machine": machine(), "versions": record["versions"]}
        about = {"name": method.name, "title": method.title, "line": method.line, "saves": method.saves}
        record = {**about, **common, **record}
        joined = folder.add({**head, "methods": [record]})
        listener.finished(record)
    return joined


def _run_one(method: Method, settings: Settings, folder: Folder, listener: Listener) -> dict[str, Any]:
    """Run one method in its own process; return its record, complete or not."""
    with tempfile.TemporaryDirectory(prefix="thrifty-bench-") as scratch, folder.log(method.name).open("wb") as log:
        job = worker.Job(
            name=method.name,
            evidence=f"{method.package}.evidence",
            mode=settings.mode,
            seed=settings.seed,
            device=settings.device,
            data=str(settings.data.absolute()) if settings.data else None,
            budget=settings.seconds,
            result=str(Path(scratch, "result.json")),
            resume=str(_resume_folder(method, settings, folder)) if settings.mode == "full" else None,
        )
        worker.write_job(job, Path(scratch, "job.json"))
        command = [sys.executable, "-m", "thrifty.bench.worker", str(Path(scratch, "job.json"))]
        limit = 2 * settings.seconds
        with _process(command, log) as process:
            began = threading.Event()
            threading.Thread(target=_relay, args=(process.stdout, began, listener), daemon=True).start()
            began.wait(PREPARING)
            try:
                code = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                code = None
        record = _read(Path(job.result))
    record["budget"] = settings.seconds
    if code is None:
        record["error"] = f"ended after {limit:g} s, twice its budget; what it had found until then is shown"
    elif code != 0:
        record["error"] = f"its process ended with status {code}; {_last_words(folder.log(method.name))}"
        record["fault"] = True
    return record


@contextlib.contextmanager
def _process(command: Sequence[str], log: IO[bytes]) -> Iterator[subprocess.Popen[str]]:
    """Start a process in a group of its own, and leave nothing of that group behind."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _relay(stream: IO[str] | None, began: threading.Event, listener: Listener) -> None:
    """Pass progress on; the process has begun when it says so, or when it has nothing more to say."""
    for line in stream or ():
        with contextlib.suppress(ValueError, KeyError):
            event = json.loads(line)
            if "began" in event:
                began.set()
            else:
                listener.progress(event["done"], event["total"], event["text"])
    began.set()


def _read(path: Path) -> dict[str, Any]:
    """Return the record that the process left, or an empty one if it died before its first word."""
    if path.exists():
        record: dict[str, Any] = json.loads(path.read_text())
        return record
    nothing: dict[str, Any] = {
        "complete": False,
        "error": None,
        "fault": False,
        "resumed": 0,
        "ceilings": {},
        "versions": {},
    }
    return {**nothing, "seconds": 0.0, "workload": "", "rows": [], "claims": [], "plots": []}


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"its last words: {lines[-1]}" if lines else "it said nothing"


def _resume_folder(method: Method, settings: Settings, folder: Folder) -> Path:
    """Return where a full run keeps its finished pieces: another code, seed, device or data is another folder."""
    key = hashlib.sha256(json.dumps([settings.seed, settings.device, str(settings.data)]).encode())
    if settings.data and settings.data.is_file():
        key.update(settings.data.read_bytes())
    for source in sorted(Path(thrifty.__file__).parent.rglob("*.py")):
        key.update(source.read_bytes())
    path = folder.path / "resume" / f"{method.name}-{key.hexdigest()[:16]}"
    path.mkdir(parents=True, exist_ok=True)
    return path
