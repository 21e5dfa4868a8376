"""``thrifty coreset``: train a classifier on a coreset of a local table or arrays, and report what happened."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from thrifty._common.options import Json, Seed

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")


@app.callback()
def _coreset() -> None:
    """A training subset that knows when it has gone stale.

    `train` trains a classifier on a coreset of your samples, beside baselines; `report` sets runs beside each other.
    """


@app.command()
def train(
    data: Annotated[Path, typer.Option(help="A table (CSV, Parquet), or .npz with arrays x and y.", exists=True)],
    out: Annotated[Path, typer.Option(help="Folder of the run; one that was interrupted goes on.")],
    target: Annotated[str | None, typer.Option(help="The column of classes, of a table.")] = None,
    budget: Annotated[float, typer.Option(help="A fraction in (0, 1), or a number of samples.")] = 0.1,
    selector: Annotated[
        str,
        typer.Option(
            help="gradmatch, gradmatch-own-row, gradmatch-batches, gradmatch-global, craig, glister, crest, infobatch "
            "or random."
        ),
    ] = "gradmatch",
    trigger: Annotated[str, typer.Option(help="below, relative_drop, percentile, interval or never.")] = "below",
    tau: Annotated[float, typer.Option(help="The trigger's threshold.")] = 0.3,
    every: Annotated[int, typer.Option(help="Epochs between checks.", min=1)] = 3,
    snr: Annotated[str, typer.Option(help="spectral, trace or norms.")] = "spectral",
    epochs: Annotated[int, typer.Option(help="Passes over the coreset.", min=1)] = 120,
    batch: Annotated[int, typer.Option(help="Samples a step.", min=1)] = 32,
    lr: Annotated[float, typer.Option(help="Peak learning rate of SGD.")] = 0.05,
    baseline: Annotated[
        str, typer.Option(help="Also train these, by commas: fixed:20, random, random:5, infobatch, full.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what a run would take.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Train where a coreset does not pay, too.")] = False,
    seed: Seed = 0,
) -> None:
    """Train a classifier on a coreset; a dry run first says whether that pays. Run it again to go on."""
    from thrifty.data.coreset.recipe import Recipe, read_samples
    from thrifty.data.coreset.recipe import baseline as of_baseline
    from thrifty.data.coreset.recipe import dry_run as estimated
    from thrifty.data.coreset.recipe import train as run

    recipe = Recipe(
        budget=int(budget) if budget >= 1 and budget == int(budget) else budget,
        selector=selector, trigger=trigger, tau=tau, every=every, snr=snr, epochs=epochs, batch=batch, lr=lr, seed=seed,
    )  # fmt: skip
    rivals = {words: of_baseline(recipe, words) for words in filter(None, baseline.split(","))}
    samples = read_samples(data, target)
    if not (out / Recipe.file).exists():
        found = estimated(samples, recipe)
        typer.echo(str(found), err=not dry_run)
        if dry_run:
            return
        if not anyway:
            found.check()
    elif dry_run:
        typer.echo(str(estimated(samples, recipe)))
        return

    results = {}
    for name, settings in {"coreset": recipe, **rivals}.items():

        def tell(epoch: int, of: int, accuracy: float, updated: bool, name: str = name) -> None:
            anew = ", chosen anew" if updated else ""
            typer.echo(f"{name}: epoch {epoch} of {of}: test accuracy {100 * accuracy:.2f} %{anew}", err=True)

        folder = out if name == "coreset" else out / name.replace(":", "-")
        results[name] = run(samples, settings, folder, tell)
    typer.echo(json.dumps(results))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs; the baselines in them are found.", exists=True)],
    as_json: Json = False,
) -> None:
    """Set runs beside each other: accuracy, selections, where the time went, and each run's ratios."""
    from thrifty.data.coreset.history import History

    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        for result in sorted(run.rglob("result.json")):
            row = json.loads(result.read_text())
            history = History.from_json((result.parent / "history.json").read_text(), str(result.parent))
            ratios = [epoch.snr for epoch in history if epoch.checked and math.isfinite(epoch.snr)]
            short = str(result.parent.relative_to(run.parent))
            found[str(result.parent) if short in found else short] = row | {
                "updated": [e.epoch for e in history if e.updated],
                "ratios": ratios,
            }
    if not found:
        raise ValueError(f"runs: expected folders of finished runs, got none in {', '.join(map(str, runs))}")
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = Table(
        "run", "test accuracy", "selections", "time", "of it checks and selections", "ratios", box=None,
        header_style="bold",
    )  # fmt: skip
    for name, row in found.items():
        known = row["ratios"]
        table.add_row(
            name, f"{100 * row['accuracy']:.2f} %", str(row["updates"]), f"{row['seconds']:.1f} s",
            f"{100 * row['overhead']:.0f} %", f"{min(known):.2f} to {max(known):.2f}" if known else "none",
        )  # fmt: skip
    Console().print(table)
