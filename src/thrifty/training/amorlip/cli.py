"""``thrifty amorlip``: train a CLIP model on local pairs, evaluate it, compare results."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from thrifty._common.options import Force, Json, Precision, SaveEvery, Seed
from thrifty._common.runs import alone, first_process

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Tasks = Annotated[Path | None, typer.Option(help="A list of tasks (JSON); by default DataComp's 38.", exists=True)]


@app.callback()
def _amorlip() -> None:
    """CLIP pre-training without huge batches: softmax denominators carried across batches by two small networks.

    `train` trains or fine-tunes on local pairs, with this loss or a rival's; `eval` runs retrieval and zero-shot
    tasks on local data; `compare` sets result files beside each other.
    """


@app.command()
def train(
    model: Annotated[
        str, typer.Option(help="A model folder, an open_clip configuration (.json), or an open_clip name.")
    ],
    data: Annotated[str, typer.Option(help="Table, .jsonl or folder of pairs; or tar shards, as cc-{000..012}.tar.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; one that was interrupted goes on.")],
    loss: Annotated[str, typer.Option(help="amorlip, clip, siglip, sogclr, fastclip or neuclip.")] = "amorlip",
    epochs: Annotated[int, typer.Option(help="Passes over the data.", min=1)] = 32,
    batch: Annotated[int, typer.Option(help="Pairs a step of each process.", min=2)] = 256,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 5e-4,
    lr_tau: Annotated[float | None, typer.Option(help="Rate of the temperature, constant.")] = None,
    weight_decay: Annotated[float, typer.Option(help="Of matrices.", min=0)] = 0.2,
    warmup: Annotated[int, typer.Option(help="Steps of linear warm-up.", min=0)] = 500,
    amor: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of AmorLIP; may be repeated.")
    ] = None,
    lock: Annotated[str, typer.Option(help="A tower that stays as it is: image or text.")] = "",
    checkpoint: Annotated[str, typer.Option(help="Weights that an open_clip model begins with.")] = "",
    reset_scale: Annotated[
        bool, typer.Option("--reset-scale", help="Begin at CLIP's temperature rather than at the model's.")
    ] = False,
    skip_repeats: Annotated[
        bool, typer.Option("--skip-repeats", help="Pairs with equal captions are no negatives of each other.")
    ] = False,
    gather: Annotated[str, typer.Option(help="global or local negatives, under torchrun.")] = "global",
    num_samples: Annotated[int | None, typer.Option(help="Pairs of an epoch, for shards.", min=2)] = None,
    image_field: Annotated[str, typer.Option(help="The column of paths.")] = "image",
    caption_field: Annotated[str, typer.Option(help="The column of captions.")] = "caption",
    workers: Annotated[int, typer.Option(help="Processes that load pictures.", min=0)] = 0,
    precision: Precision = "fp32",
    save_every: SaveEvery = 500,
    seed: Seed = 0,
) -> None:
    """Train or fine-tune a CLIP model on local pairs; run it again to go on, or under torchrun."""
    from thrifty.training.amorlip.recipe import Recipe
    from thrifty.training.amorlip.recipe import train as run

    recipe = Recipe(
        model=model, loss=loss, epochs=epochs, batch=batch, lr=lr, lr_tau=lr_tau, weight_decay=weight_decay,
        warmup=warmup, precision=precision, lock=lock, checkpoint=checkpoint, reset_scale=reset_scale, gather=gather,
        workers=workers, skip_repeats=skip_repeats, amor=_settings(amor or []), seed=seed,
    )  # fmt: skip

    def tell(step: int, total: int, value: float) -> None:
        typer.echo(f"step {step} of {total}: loss {value:.4f}", err=True)

    with alone(out):
        found = run(
            recipe, data, out, num_samples=num_samples, image_field=image_field, caption_field=caption_field,
            save_every=save_every, progress=tell,
        )  # fmt: skip
    if first_process():
        typer.echo(json.dumps(found))


@app.command("eval")
def evaluate(
    model: Annotated[str, typer.Argument(help="A model folder, of a run or of save_pretrained.")],
    data: Annotated[Path, typer.Option(help="Pairs (retrieval), or a folder of tasks' folders.", exists=True)],
    out: Annotated[Path | None, typer.Option(help="Results of tasks, a line each; one that is there goes on.")] = None,
    tasks: Tasks = None,
    batch: Annotated[int, typer.Option(help="Pictures at once.", min=1)] = 64,
    as_json: Json = False,
) -> None:
    """Evaluate a CLIP model: retrieval on pairs of your own, or every task whose data is there."""
    from thrifty.training.amorlip.evaluation import run
    from thrifty.training.amorlip.evaluation.layouts import holds_pairs
    from thrifty.training.amorlip.evaluation.tasks import OWN, averages, load_tasks
    from thrifty.training.amorlip.hosts import load_host

    host = load_host(model)
    host.model.eval()
    chosen = load_tasks(tasks) if tasks else load_tasks()
    found: dict[str, Any]
    if not run.available(chosen, data) and holds_pairs(data):
        results = run.Results(out, host.model) if out else None
        found = run.retrieval(host, data, batch)
        if results is not None:
            results.add(OWN + data.resolve().name, found)
        if as_json:
            typer.echo(json.dumps(found))
        else:
            _show(found)
        return
    if out is None:
        raise ValueError("--out: expected a .jsonl file for the results of tasks, got none")
    scores = run.evaluate(
        host,
        chosen,
        data,
        out,
        batch=batch,
        progress=lambda at, of, name: typer.echo(f"{at + 1} of {of}: {name}", err=True),
    )
    found = averages(scores, chosen)
    if as_json:
        typer.echo(json.dumps({"results": scores, "averages": found}))
    else:
        _show({f"{name} ({x['tasks']} of {x['of']})": x["mean"] for name, x in found.items() if x["tasks"]})


@app.command()
def compare(
    results: Annotated[
        list[Path], typer.Argument(help="Result files of `eval` (or of DataComp, clip-benchmark).", exists=True)
    ],
    tasks: Tasks = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the table there.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Set result files beside each other: every task's main metric, and averages over the tasks that all have."""
    import csv as csv_format
    import io

    from thrifty._common.files import refuse_existing, write_whole
    from thrifty.training.amorlip.evaluation.tasks import averages, load_tasks, main_metrics, others, read_results

    refuse_existing(csv, force)
    chosen = load_tasks(tasks) if tasks else load_tasks()
    read = {str(path): read_results(path) for path in results}
    named = [*chosen, *others({key for found in read.values() for key in found}, chosen)]
    scores = {path: main_metrics(found, named) for path, found in read.items()}
    shared = set.intersection(*(set(found) for found in scores.values()))
    means = {
        path: averages({key: found[key] for key in found if key in shared}, chosen) for path, found in read.items()
    }
    rows = [(task.name, [scores[path].get(task.key) for path in read]) for task in named]
    rows = [row for row in rows if any(value is not None for value in row[1])]
    if not rows:
        raise ValueError(f"results: expected a result of one of {len(chosen)} tasks, got none in {', '.join(read)}")
    for group, first in next(iter(means.values())).items():
        if first["tasks"]:
            label = f"mean: {group} ({first['tasks']} of {first['of']})"
            rows.append((label, [means[path][group]["mean"] for path in read]))
    if csv is not None:
        written = io.StringIO()
        lines = csv_format.writer(written, lineterminator="\n")
        lines.writerow(["task", *read])
        lines.writerows([name, *("" if value is None else repr(value) for value in values)] for name, values in rows)
        write_whole(csv, written.getvalue(), force=force)
    if as_json:
        typer.echo(json.dumps({"scores": scores, "averages": means}))
        return
    table = Table("task", *read, box=None, header_style="bold")
    for name, values in rows:
        table.add_row(name, *("" if value is None else f"{100 * value:.2f}" for value in values))
    Console().print(table)


def _settings(words: list[str]) -> dict[str, Any]:
    """Read NAME=VALUE: the value as JSON where it is that, else as text.

    Raises:
        ValueError: There is no such setting.
    """
    from thrifty.training.amorlip.config import AmorLIPConfig

    known = [field.name for field in fields(AmorLIPConfig)]
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in known:
            raise ValueError(f"--amor: expected NAME=VALUE with a name of {', '.join(known)}, got {word!r}")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def _show(found: dict[str, float]) -> None:
    for name, value in found.items():
        typer.echo(f"{name:<32} {100 * value:6.2f} %")
