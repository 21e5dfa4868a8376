"""What ``thrifty bench`` does: run, show each method as it finishes, say where the report is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty.bench import registry, runner, table
from thrifty.bench.results import Folder


def bench(
    names: list[str],
    full: bool,
    seed: int,
    device: str,
    data: Path | None,
    offline: bool,
    out: Path,
    json_out: str | None,
    force: bool,
) -> None:
    """Run the methods named (all without names) and report on them; see ``thrifty bench --help``.

    Raises:
        ValueError: A method or the device is unknown.
        OSError: The output cannot be written, or is not ours to replace.
    """
    methods = [registry.experiment(name) for name in dict.fromkeys(names)] or list(registry.METHODS)
    _check_device(device)
    if data is not None:
        _check_data(methods, named=bool(names))
    if json_out not in {None, "-"} and Path(str(json_out)).exists() and not force:
        raise FileExistsError(f"--json: {json_out} already exists; choose another path, or use --force to replace it")
    folder = Folder(out, force=force)
    settings = runner.Settings("full" if full else "quick", seed, device, data, offline)
    names_run = {method.name for method in methods}
    people = Console(stderr=json_out == "-")
    aside = Console(stderr=True)
    try:
        with _bar(aside) as bar:
            results = runner.run(methods, settings, folder, _listener(bar, people, aside))
    except KeyboardInterrupt:
        aside.print(f"interrupted; finished methods are in {folder.path}", highlight=False)
        if full:
            aside.print("the same command goes on where this one stopped", highlight=False)
        raise typer.Exit(130) from None
    people.print(f"report: {folder.path / 'index.html'}", highlight=False, soft_wrap=True)
    faults = [record["name"] for record in results["methods"] if record["name"] in names_run and record.get("fault")]
    if json_out == "-":
        sys.stdout.write(json.dumps(results, indent=1) + "\n")
    elif json_out:
        write_whole(json_out, json.dumps(results, indent=1) + "\n", force=force)
    if faults:
        aside.print(f"the experiment itself failed: {', '.join(faults)}; logs are in {folder.path / 'logs'}")
        raise typer.Exit(1)


def _check_data(methods: list[registry.Method], *, named: bool) -> None:
    """Refuse data that nobody would read."""
    readers = {method.name: method.data for method in registry.METHODS if method.data}
    if not named or any(method.name not in readers for method in methods):
        told = "; ".join(f"{name}: {what}" for name, what in readers.items())
        raise ValueError(f"--data: name the methods that it is for, among those that read some ({told})")


def _check_device(device: str) -> None:
    """Refuse a device that is unknown or absent, before anything runs."""
    kind = device.partition(":")[0]
    if kind not in {"cpu", "cuda"}:
        raise ValueError(f"--device: expected cpu or cuda, got {device!r}")
    if kind == "cuda" and not require("torch", extra="torch").cuda.is_available():
        raise ValueError("--device: torch finds no CUDA device on this machine; use --device cpu")


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.fields[method]}"), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _listener(bar: Progress, people: Console, aside: Console) -> runner.Listener:
    """Show progress as a bar, and each method's table when it is done."""
    task = bar.add_task("fetching", total=None, method="")

    def finished(record: dict[str, Any]) -> None:
        bar.stop()
        people.print(table.method_table(record))
        bar.start()

    return runner.Listener(
        started=lambda method: bar.reset(task, description="starting", total=None, method=method.name),
        progress=lambda done, total, text: bar.update(task, completed=done, total=total, description=text),
        finished=finished,
        announce=lambda line: aside.print(line, highlight=False, soft_wrap=True),
    )
