"""``thrifty leff``: federate a local model over a table of texts in one process, and read a run's ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from thrifty._common.options import Json, Length, Seed

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")


@app.callback()
def _leff() -> None:
    """Federated fine-tuning in which each client trains the layers that it can afford.

    `run` federates a local model among simulated clients, with this method or a rival; `report` reads the ledger of a
    run, or of a Flower federation that kept checkpoints.
    """


@app.command()
def run(
    model: Annotated[Path, typer.Argument(help="Folder of a local model with its tokenizer.")],
    data: Annotated[
        Path, typer.Option(help="Table with text and label (CSV, Parquet); texts, for --task lm.", exists=True)
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; one that is there goes on. Rivals need none.")
    ] = None,
    method: Annotated[str, typer.Option(help="leff, or a rival: fedavg, fedlora, fedra, head, ...")] = "leff",
    task: Annotated[str, typer.Option(help="classification or lm.")] = "classification",
    clients: Annotated[int, typer.Option(help="How many.", min=1)] = 8,
    alpha: Annotated[float, typer.Option(help="Dirichlet concentration: 50 is even, 0.05 very skewed.")] = 1.0,
    by: Annotated[str, typer.Option(help="Column that clients differ in.")] = "label",
    capacity: Annotated[str, typer.Option(help="Layers that clients can train, repeated: 1,1,2,4.")] = "1,1,2,4",
    rounds: Annotated[int, typer.Option(help="Rounds.", min=1)] = 20,
    length: Length = 64,
    proxy: Annotated[int, typer.Option(help="Texts that the server keeps to distil on.", min=1)] = 200,
    held_out: Annotated[float, typer.Option(help="Share of texts to evaluate on.", min=0.0, max=0.9)] = 0.1,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of LEFF; may be repeated.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Federate a local model among simulated clients; the last line of the output is JSON."""
    from thrifty.training.leff import recipe as recipes

    if method == "leff" and out is None:
        raise ValueError("--out: expected a folder for checkpoints, ledger and model with --method leff, got none")
    try:
        capacities = tuple(int(word) for word in capacity.split(","))
    except ValueError:
        raise ValueError(f"--capacity: expected whole numbers such as 1,1,2,4, got {capacity!r}") from None
    made = recipes.Recipe(
        task=task, clients=clients, alpha=alpha, capacity=capacities, rounds=rounds, length=length, proxy=proxy,  # type: ignore[arg-type]
        held_out=held_out, by=by,
    )  # fmt: skip
    config = _settings(set_ or [], seed)
    if method != "leff" and out is not None:
        raise ValueError(f"--out: expected none with --method {method}, which writes nothing, got {str(out)!r}")
    if method != "leff" or out is None:
        typer.echo(json.dumps(recipes.run_rival(method, made, model, data, config)))
        return

    def tell(record: Any) -> None:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in record.evaluation.items())
        typer.echo(
            f"round {record.round} of {rounds}: {len(record.averaged)} of {len(record.clients)} clients; {scores}",
            err=True,
        )

    history = recipes.run(made, model, data, out, config, progress=tell)
    last = history.rounds[-1]
    found = {"method": method, "rounds": last.round, **last.evaluation, "down": history.down, "up": history.up}
    typer.echo(json.dumps(found))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or of a checkpoint, or a history.json.", exists=True)],
    as_json: Json = False,
) -> None:
    """Show a run's ledger: rounds, clients, bytes, and how often each layer was trained."""
    from thrifty.training.leff.report import MB, summary
    from thrifty.training.leff.rounds import History

    paths = [folder / "history.json", *folder.glob("**/round-*/history.json")] if folder.is_dir() else [folder]
    histories = [History.load(path) for path in paths if path.exists()]
    if not histories:
        raise FileNotFoundError(f"{folder}: expected a history.json, of a run or a checkpoint")
    found = summary(max(histories, key=lambda history: len(history.rounds)))
    if as_json:
        typer.echo(json.dumps(found))
        return
    scores = sorted({key for row in found["rounds"] for key in row if key.startswith("evaluation ")})
    rounds = Table(
        "round", "averaged", "refused", "loss", "down MB", "up MB", *(s.split(" ", 1)[1] for s in scores), box=None
    )
    for row in found["rounds"]:
        rounds.add_row(
            str(row["round"]), f"{row['averaged']} of {row['asked']}", str(row["refused"]), _show(row["loss"]),
            f"{row['down'] / MB:.2f}", f"{row['up'] / MB:.2f}", *(_show(row.get(score)) for score in scores),
        )  # fmt: skip
    clients = Table(
        "client", "averaged", "layers", "of depth", "compute", "peak MB", "step s", "loss", "up MB", box=None
    )
    for name, row in found["clients"].items():
        clients.add_row(
            name, f"{row['averaged']} of {row['asked']}", str(row["layers"]), str(row["depth"]), _show(row["compute"]),
            f"{row['peak_bytes'] / MB:.1f}", _show(row["step_seconds"]), _show(row["loss"]), f"{row['up'] / MB:.2f}",
        )  # fmt: skip
    layers = Table("layer", "in updates", box=None)
    for layer, share in enumerate(found["coverage"], start=1):
        layers.add_row(str(layer), f"{share:.3f}  {'#' * round(40 * share)}")
    for table in (rounds, clients, layers):
        Console().print(table)


def _settings(words: list[str], seed: int) -> Any:
    """Read NAME=VALUE: the value as JSON where it is that, else as text.

    Raises:
        ValueError: A word has no ``=``, or there is no such setting.
    """
    from thrifty.training.leff.config import LeffConfig

    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"--set: expected NAME=VALUE, got {word!r}")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return LeffConfig(seed=seed).with_overrides(**found)


def _show(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
