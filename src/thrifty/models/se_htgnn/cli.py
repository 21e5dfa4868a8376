"""``thrifty se-htgnn``: train, evaluate, forecast and look at attention, on tables of events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.options import Device, Force, Json, Seed
from thrifty._common.runs import alone, device_of, first_process, join

if TYPE_CHECKING:
    from thrifty.models.se_htgnn.graph_file import GraphFile

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Data = Annotated[Path, typer.Option("--data", help="JSON file that describes the tables.", exists=True, dir_okay=False)]
Model = Annotated[Path, typer.Argument(help="The folder that `train` wrote.", exists=True, file_okay=False)]
Last = Annotated[int, typer.Option("--last", help="How many of the last snapshots.", min=1)]


@app.callback()
def _se_htgnn() -> None:
    """Forecast on graphs of typed entities over time, with a few hundred parameters.

    `train` fits a model to tables of events (a JSON file says which, see the card), `eval` scores it on the last
    snapshots, `predict` forecasts the next one, `explain` shows how much each relation counts over time.
    """


@app.command()
def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the model; a run that was interrupted there goes on.")],
    hidden: Annotated[int, typer.Option(help="Width.")] = 32,
    layers: Annotated[int, typer.Option(help="Layers.")] = 1,
    window: Annotated[int, typer.Option(help="Snapshots that a forecast is made from.")] = 7,
    horizon: Annotated[int, typer.Option(help="Snapshots ahead.")] = 1,
    heads: Annotated[int, typer.Option(help="Attention weights a relation.")] = 1,
    attention: Annotated[
        str, typer.Option(help="gru, lstm, transformer, ssm, projected, self, gate or uniform.")
    ] = "gru",
    encoder: Annotated[
        str | None, typer.Option(help="Language prior: minilm, smollm2, hf:NAME, a folder or GGUF file. None: uniform.")
    ] = None,
    aggr: Annotated[str, typer.Option(help="How neighbours are joined: mean, none, gcn or gat.")] = "mean",
    prior: Annotated[
        str | None, typer.Option(help="projected or similarity (with --encoder), uniform, zero or random.")
    ] = None,
    decoder: Annotated[str, typer.Option(help="Of links: dot or mlp.")] = "dot",
    norm: Annotated[str | None, typer.Option(help="node or graph; else a residual.")] = None,
    dropout: Annotated[float, typer.Option(help="Of input features.")] = 0.0,
    nonnegative: Annotated[bool, typer.Option("--nonnegative", help="Forecasts below 0 become 0.")] = False,
    log1p: Annotated[bool, typer.Option("--log1p", help="Learn log(1 + y): for counts.")] = False,
    epochs: Annotated[int, typer.Option(help="Passes over the windows, at most.")] = 200,
    lr: Annotated[float, typer.Option(help="Adam's rate.")] = 5e-3,
    weight_decay: Annotated[float, typer.Option(help="Adam's.")] = 1e-4,
    batch: Annotated[int, typer.Option(help="Windows a step, over all processes.")] = 16,
    patience: Annotated[int, typer.Option(help="Epochs without a better validation score.")] = 25,
    validation: Annotated[int, typer.Option(help="Snapshots to stop by.")] = 30,
    test: Annotated[int, typer.Option(help="Last snapshots that are not touched.")] = 0,
    neighbors: Annotated[
        list[int] | None, typer.Option(help="Neighbours to draw a relation, once a layer: for graphs that do not fit.")
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Train a forecaster.

    It stops by the last snapshots before the test: by the mean absolute error of values (in their own unit), the
    macro F1 of classes, the AUC of links. A run that was interrupted goes on when the same command is given again.

    `torchrun --no-python --nproc-per-node 8 thrifty se-htgnn train ...` makes it data-parallel over windows.

    Example: `thrifty se-htgnn train --data graph.json --out model --validation 30 --test 30`
    """
    import torch.distributed as dist

    from thrifty.models.se_htgnn import LinkForecaster, NodeClassifier, NodeRegressor, temporal_split
    from thrifty.models.se_htgnn.fitting import remove_checkpoint
    from thrifty.models.se_htgnn.graph_file import read_graph

    refuse_existing(out / "config.json", force)
    checkpoint = out / "checkpoint.pt"
    if force and (out / "config.json").exists():
        remove_checkpoint(checkpoint)
    graph = read_graph(data)
    if graph.target is None:
        raise ValueError(f"--data: {data} says nothing to forecast; expected 'forecast' or 'links'")
    place = join(device)
    kind: Any = (
        LinkForecaster if isinstance(graph.target, tuple) else NodeClassifier if graph.classes else NodeRegressor
    )
    model = kind(
        graph.target, hidden_channels=hidden, num_layers=layers, window=window, horizon=horizon, heads=heads,
        attention=attention, aggr=aggr, prior=prior, decoder=decoder, norm=norm, dropout=dropout,
        type_embeddings=_vectors(graph, encoder, out), log1p=log1p,
        nonnegative=nonnegative, epochs=epochs, lr=lr, weight_decay=weight_decay, batch_size=batch, patience=patience,
        validation=validation, num_neighbors=neighbors or None, device=place, random_state=seed,
    )  # fmt: skip

    sign = -1 if model.more_is_better else 1

    def tell(epoch: int, total: int, loss: float, score: float) -> None:
        if first_process():
            typer.echo(
                f"epoch {epoch} of {total}: loss {loss:.4f}, validation {model.metric} {sign * score:.4f}", err=True
            )

    split = temporal_split(graph.data, window, validation, test, horizon)
    try:
        with alone(out):
            model.fit(graph.data, split, checkpoint=checkpoint, progress=tell)
    except KeyboardInterrupt:
        if checkpoint.exists() and first_process():
            typer.echo(f"interrupted; the same command goes on from {checkpoint}", err=True)
        raise
    if first_process():
        model.model_.cpu()
        model.objective_.cpu()
        model.save_pretrained(out, force=force)
        remove_checkpoint(checkpoint)  # not before: a disk may be full
        score = f"validation {model.metric} {sign * model.history_.best_score:.4f}, " if validation else ""
        typer.echo(f"{score}{model.model_.num_parameters(prior=False)} parameters; saved in {out}")
    if dist.is_initialized():
        dist.destroy_process_group()


def _vectors(graph: GraphFile, encoder: str | None, out: Path) -> Any:
    from thrifty.models.se_htgnn.encoders import TypePrompt, build_type_embeddings

    if encoder is None:
        return None
    prompts = TypePrompt(graph.data.metadata(), graph.domain, graph.descriptions).build()
    return build_type_embeddings(prompts, _carried(encoder), cache=out / "prior")


def _carried(encoder: str) -> str:
    """Return the folder or file of an offline encoder that the bench's cache holds, else the name as it is."""
    from thrifty.bench.carried import UnavailableError
    from thrifty.bench.data import minilm, smollm2

    try:
        return str({"minilm": minilm.folder, "smollm2": smollm2.gguf_file}[encoder]())
    except (KeyError, UnavailableError):
        return encoder


@app.command("eval")
def evaluate(model: Model, data: Data, last: Last = 30, device: Device = "auto", as_json: Json = False) -> None:
    """Score a trained model on the last snapshots, each forecast from what was before it.

    Example: `thrifty se-htgnn eval model --data graph.json --last 30`
    """
    from thrifty.models.se_htgnn import load_forecaster
    from thrifty.models.se_htgnn.graph_file import read_graph

    found, graph = load_forecaster(model, device=device_of(device)), read_graph(data)
    total = len(graph.data) - found.horizon + 1
    first = max(found.window, total - last)
    if seen := found.graph_.seen(graph.data, range(first, total)):
        typer.echo(f"{seen} of these {total - first} snapshots trained the model, or decided when to stop", err=True)
    scores = found.evaluate(graph.data, range(first, total))
    result = {"snapshots": total - first, **scores}
    typer.echo(json.dumps(result) if as_json else ", ".join(f"{k} {v:.6g}" for k, v in result.items()))


@app.command()
def predict(
    model: Model,
    data: Data,
    out: Annotated[Path | None, typer.Option(help="Where to write a table, as .csv; else it is printed.")] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="Of a link forecaster: CSV file with the columns source and destination.")
    ] = None,
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Forecast the snapshot after the last.

    Example: `thrifty se-htgnn predict model --data graph.json --out tomorrow.csv`
    """
    from thrifty.models.se_htgnn import LinkForecaster, load_forecaster
    from thrifty.models.se_htgnn.graph_file import read_graph

    refuse_existing(out, force)
    found, graph = load_forecaster(model, device=device_of(device)), read_graph(data)
    if pairs is not None and not isinstance(found, LinkForecaster):
        raise ValueError("--pairs: this model forecasts nodes, not links; leave it out")
    rows = _links(found, graph, pairs) if isinstance(found, LinkForecaster) else _nodes(found, graph)
    typer.echo(f"forecast of what follows {graph.data.times[-1]}", err=True)
    text = "".join(",".join(map(_cell, row)) + "\n" for row in rows)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_whole(out, text, force=force)
        typer.echo(f"{len(rows) - 1} forecasts in {out}")


def _nodes(found: Any, graph: GraphFile) -> list[list[Any]]:
    """Return a row for every node that ever had a value, or for all, if the file does not say which value."""
    import torch

    data, labels = graph.data, found.graph_.source.get("classes")
    values = found.predict(data)[0]
    names, known = data.ids.get(found.target, range(len(values))), list(range(len(values)))
    if found.target in data.y:
        known = torch.isfinite(data.y[found.target]).any(0).nonzero().flatten().tolist()
        if left := len(values) - len(known):
            typer.echo(f"{left} of type {found.target!r} left out: they never had a value", err=True)

    def cell(value: Any) -> str:
        return f"{value:.6g}" if labels is None else str(labels[int(value)])

    header = ["node", *(f"step_{k + 1}" for k in range(values.shape[1]))]
    return [header, *([names[i], *map(cell, values[i])] for i in known)]


def _links(found: Any, graph: GraphFile, pairs: Path | None) -> list[list[Any]]:
    import torch

    from thrifty._common.extras import require

    if pairs is None:
        raise ValueError("--pairs: a link forecaster needs a CSV file with the columns source and destination")
    frame = require("pandas", extra="graph").read_csv(pairs, dtype=str, keep_default_na=False)
    codes = []
    for column, name in (("source", found.target[0]), ("destination", found.target[2])):
        if column not in frame.columns:
            raise ValueError(f"--pairs: expected the columns source and destination, got {', '.join(frame.columns)}")
        known = {str(label): code for code, label in enumerate(graph.data.ids[name])}
        unknown = [label for label in frame[column] if label not in known]
        if unknown:
            raise ValueError(f"--pairs: {unknown[0]!r} is no {name!r} of the graph")
        codes.append([known[label] for label in frame[column]])
    probability = found.predict(graph.data, torch.tensor(codes))
    rows = zip(frame["source"], frame["destination"], probability, strict=True)
    return [["source", "destination", "probability"], *([a, b, f"{p:.6g}"] for a, b, p in rows)]


def _cell(value: Any) -> str:
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text


@app.command()
def explain(
    model: Model,
    data: Data,
    last: Last = 30,
    plot: Annotated[Path | None, typer.Option(help="Where to draw attention over time (.png, .pdf, .svg).")] = None,
    device: Device = "auto",
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Show how much each relation counts at each step of a window, oldest first: the mean over the last forecasts.

    Example: `thrifty se-htgnn explain model --data graph.json --plot attention.svg`
    """
    from thrifty.models.se_htgnn import load_forecaster
    from thrifty.models.se_htgnn.graph_file import read_graph
    from thrifty.models.se_htgnn.report import attention_rows, plot_attention

    refuse_existing(plot, force)
    found, graph = load_forecaster(model, device=device_of(device)), read_graph(data)
    first = max(found.window, len(graph.data) + 1 - last)
    attention = found.attention_weights(graph.data, range(first, len(graph.data) + 1))
    rows = attention_rows(attention)
    if plot is not None:
        plot_attention(attention, plot, force=force)
    if as_json:
        typer.echo(json.dumps(rows))
        return
    for row in rows:
        a, name, b = row["relation"]
        weights = " ".join(f"{w:.2f}" for w in row["weights"])
        head = f", head {row['head'] + 1}" if found.heads > 1 else ""
        typer.echo(f"layer {row['layer'] + 1}{head}, {a} {name} {b}: {weights}")
