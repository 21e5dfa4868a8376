"""``thrifty lrcssm``: train and evaluate the network on files of sequences, look at a trained one, time layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.options import Device, Force, Json, Seed
from thrifty._common.runs import alone, first_process, join

if TYPE_CHECKING:
    from thrifty.models.lrcssm.network import LrcSSMModel
    from thrifty.models.lrcssm.sequences import Sequences

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Data = Annotated[str, typer.Option("--data", help="A .npz (X: n × time × channels, y), a .ts file, or uea:NAME.")]
Model = Annotated[Path, typer.Argument(help="The folder that `train` wrote.", exists=True, file_okay=False)]

LABELS = "labels.json"


@app.callback()
def _lrcssm() -> None:
    """Non-linear recurrent layers with a diagonal Jacobian, solved over the whole sequence at once.

    `train` fits the paper's network to a file of sequences, `evaluate` scores it on another, `check` says what is
    guaranteed of it and how its solves converge, `time` times one layer on this machine.
    """


@app.command()
def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the model; a run that was interrupted there goes on.")],
    task: Annotated[str, typer.Option(help="classification or regression.")] = "classification",
    d_model: Annotated[int, typer.Option(help="Width of the network.")] = 64,
    d_state: Annotated[int, typer.Option(help="State channels of each layer.")] = 64,
    layers: Annotated[int, typer.Option(help="Blocks.")] = 4,
    cell: Annotated[
        str, typer.Option(help="lrc, stc, ltc, gru, mgu, lstm, lrc-complex, lrc-linear, lrc-dense.")
    ] = "lrc",
    rho: Annotated[float | None, typer.Option(help="Certify every Jacobian within ±rho.")] = None,
    pooling: Annotated[str, typer.Option(help="mean, last or max.")] = "mean",
    bidirectional: Annotated[bool, typer.Option("--bidirectional", help="Read from both ends.")] = False,
    dropout: Annotated[float, typer.Option(help="Share dropped while training.")] = 0.0,
    standardize: Annotated[bool, typer.Option(help="Scale channels by the training data.")] = True,
    epochs: Annotated[int, typer.Option(help="Passes over the data, at most.")] = 100,
    lr: Annotated[float, typer.Option(help="Adam's rate.")] = 1e-3,
    schedule: Annotated[
        Literal["constant", "cosine"], typer.Option(help="Of the rate; cosine ends at 0.")
    ] = "constant",
    batch: Annotated[int, typer.Option(help="Sequences a step, over all processes.")] = 16,
    weight_decay: Annotated[float, typer.Option(help="Decoupled weight decay.")] = 0.0,
    patience: Annotated[int, typer.Option(help="Epochs without a better validation score.")] = 30,
    validation: Annotated[float, typer.Option(help="Share held out to stop by; 0 trains for all epochs.")] = 0.15,
    split: Annotated[str | None, typer.Option(help="Of a set by name: train or test.")] = "train",
    precision: Annotated[
        Literal["fp32", "bf16", "fp16"], typer.Option(help="Of dense layers; recurrences stay in fp32.")
    ] = "fp32",
    device: Device = "auto",
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Train a classifier or a regressor of sequences.

    `torchrun --no-python --nproc-per-node 8 thrifty lrcssm train ...` makes it data-parallel.

    Example: `thrifty lrcssm train --data signals.npz --out model --d-model 64 --d-state 16 --layers 2`
    """
    import numpy as np
    import torch

    from thrifty.models.lrcssm.estimator import build
    from thrifty.models.lrcssm.fitting import Recipe, fit
    from thrifty.models.lrcssm.sequences import Sequences, coded_labels, hold_out, read

    refuse_existing(out / "config.json", force)
    if force and (out / "config.json").exists():
        (out / "checkpoint.pt").unlink(missing_ok=True)
    found = read(data, split)
    if found.y is None:
        raise ValueError(f"--data: {data} holds no labels; expected y beside X")
    classes: Any = None
    target: Any
    if task == "classification":
        classes, target = coded_labels(found.y)
        count = len(classes)
    else:
        target = np.asarray(found.y, dtype=np.float32).reshape(len(found), -1)
        count = target.shape[1]
    sequences = Sequences(found.X, found.lengths, target)
    model = build(
        sequences, count, seed, task=task, d_model=d_model, d_state=d_state, n_layers=layers, cell=cell, rho=rho,
        pooling=pooling, bidirectional=bidirectional, dropout=dropout, standardize=standardize,
    )  # fmt: skip
    recipe = Recipe(
        epochs, lr, batch, schedule, weight_decay=weight_decay, patience=patience, precision=precision, seed=seed
    )  # fmt: skip
    kept, held = hold_out(sequences, validation, seed, target if classes is not None else None)
    device = join(device)
    torch.manual_seed(seed)

    score_of = "accuracy" if classes is not None else "-MSE"
    what = "loss" if held is None else f"validation {score_of}"

    def tell(epoch: int, total: int, loss: float, score: float) -> None:
        if first_process():
            typer.echo(
                f"epoch {epoch} of {total}: loss {loss:.4f}, {what} {abs(score) if held is None else score:.4f}",
                err=True,
            )

    with alone(out):
        fitted = fit(model.to(device), kept, held, recipe, checkpoint=out / "checkpoint.pt", progress=tell)
    if first_process():
        names = None if classes is None else classes.tolist()
        write_whole(out / LABELS, json.dumps({"classes": names}) + "\n", force=True)  # no model without its labels
        model.cpu().save_pretrained(out)
        typer.echo(f"{what} {abs(fitted.best_score) if held is None else fitted.best_score:.4f}; saved in {out}")


@app.command("evaluate")
def evaluate_model(
    model: Model,
    data: Data,
    split: Annotated[str | None, typer.Option(help="Of a set by name: train or test.")] = "test",
    out: Annotated[Path | None, typer.Option(help="Where to write predictions, as .npy.")] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Score a trained model on a file of sequences; every sequence counts.

    Example: `thrifty lrcssm evaluate model --data held_out.npz`
    """
    import numpy as np

    from thrifty.models.lrcssm.fitting import evaluate, outputs
    from thrifty.models.lrcssm.sequences import Sequences

    refuse_existing(out, force)
    network, found, classes = _load(model, data, split)
    if out is not None:
        raw = outputs(network, found).numpy()
        predicted = raw if classes is None else np.array(classes)[raw.argmax(-1)]
        write_whole(out, lambda file: np.save(file, predicted), force=force)
    if found.y is None and out is not None:
        typer.echo(f"{len(found)} predictions in {out}; {data} holds no labels to compare with")
        return
    if found.y is None:
        raise ValueError(f"--data: {data} holds no labels to compare with; use --out for predictions")
    values = found.y.astype(np.float32).reshape(len(found), -1) if classes is None else _codes(found.y, classes)
    scores = evaluate(network, Sequences(found.X, found.lengths, values))
    metric = "accuracy" if classes is not None else "mse"
    result = {"sequences": len(found), "loss": scores["loss"], metric: abs(scores["score"])}
    typer.echo(json.dumps(result) if as_json else ", ".join(f"{k} {v:.6g}" for k, v in result.items()))


@app.command()
def check(
    model: Model,
    data: Annotated[str | None, typer.Option("--data", help="Sequences to look at, as for `train`.")] = None,
    split: Annotated[str | None, typer.Option(help="Of a set by name: train or test.")] = "test",
    count: Annotated[int, typer.Option(help="Sequences to look at, at most.", min=1)] = 16,
    as_json: Json = False,
) -> None:
    """Say what is guaranteed of every layer, and with data how its Newton solves converge.

    Example: `thrifty lrcssm check model --data held_out.npz`
    """
    import numpy as np

    from thrifty.models.lrcssm.network import LrcSSMModel
    from thrifty.models.lrcssm.report import examine

    if data is None:
        network, u = LrcSSMModel.from_pretrained(str(model)), None
    else:
        network, found, _ = _load(model, data, split)
        u = found.rows(np.arange(min(count, len(found)))).X
    layers = examine(network, u)
    if as_json:
        typer.echo(json.dumps([layer.to_dict() for layer in layers]))
        return
    for i, layer in enumerate(layers):
        typer.echo(f"layer {i + 1}: {layer.describe()}")


@app.command()
def time(
    d_state: Annotated[int, typer.Option(help="State channels, and width of the input.", min=1)] = 64,
    batch: Annotated[int, typer.Option(help="Sequences.", min=1)] = 1,
    length: Annotated[list[int] | None, typer.Option(help="Steps; repeatable.")] = None,
    cell: Annotated[str, typer.Option(help="The cell.")] = "lrc",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Time one layer, forward and backward, beside nn.GRU: seconds, peak memory, Newton iterations by length.

    `thrifty bench lrcssm` is the whole experiment. Example: `thrifty lrcssm time --length 1000 --length 10000`
    """
    place = join(device)
    rows = [_time_one(cell, d_state, batch, steps, place) for steps in length or (256, 1024, 4096)]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = Table("T", "solver", "ms", "nn.GRU ms", "peak MB", "iterations", box=None, header_style="bold")
    for row in rows:
        table.add_row(
            str(row["T"]), row["solver"], f"{row['ms']:.2f}", f"{row['gru_ms']:.2f}", f"{row['peak'] / 1e6:.1f}",
            str(row["n_iter"]),
        )  # fmt: skip
    Console().print(table)


def _time_one(cell: str, d_state: int, batch: int, steps: int, device: str) -> dict[str, Any]:
    """Time a layer of one length, forward and backward, beside ``nn.GRU``; peak memory and Newton iterations too."""
    import torch

    from thrifty.bench.memory import allocated_peak
    from thrifty.bench.timing import time_contenders
    from thrifty.models.lrcssm.layer import DiagonalRNN

    if steps < 1:
        raise ValueError(f"--length: expected at least 1 step, got {steps}")
    u = torch.randn(batch, steps, d_state, generator=torch.Generator().manual_seed(0)).to(device)
    layers = {
        "ours": DiagonalRNN(cell, d_state, d_state).to(device),
        "gru": torch.nn.GRU(d_state, d_state, batch_first=True).to(device),
    }
    newton = DiagonalRNN(cell, d_state, d_state, solver="newton", chunk=steps).to(device)
    newton.load_state_dict(layers["ours"].state_dict())
    with torch.no_grad():
        ran, trace = layers["ours"](u, return_info=True)[2], newton(u, return_info=True)[2]
    calls = {name: lambda layer=layer: layer(u)[0].sum().backward() for name, layer in layers.items()}
    ms = {name: 1e3 * found.seconds.median for name, found in time_contenders(calls, device=device).items()}
    return {
        "T": steps, "solver": ran.solver, "ms": ms["ours"], "gru_ms": ms["gru"],
        "peak": allocated_peak(calls["ours"], device=device), "n_iter": int(trace.n_iter.max()),
    }  # fmt: skip


def _load(model: Path, data: str, split: str | None) -> tuple[LrcSSMModel, Sequences, list[Any] | None]:
    from thrifty.models.lrcssm.network import LrcSSMModel
    from thrifty.models.lrcssm.sequences import read

    network = LrcSSMModel.from_pretrained(str(model))
    found = read(data, split)
    if found.X.shape[2] != network.config.in_channels:
        raise ValueError(
            f"--data: the model reads {network.config.in_channels} channels, {data} has {found.X.shape[2]}"
        )
    labels = model / LABELS
    try:
        classes = json.loads(labels.read_text())["classes"] if labels.exists() else None
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{labels}: expected JSON with 'classes', as `train` writes it") from None
    if classes is None and network.config.task == "classification":
        raise ValueError(f"{labels}: the names of the classes are missing; train the model again")
    return network, found, classes


def _codes(y: Any, classes: list[Any]) -> Any:
    import numpy as np

    known = {_name(label): code for code, label in enumerate(classes)}
    names = [_name(label) for label in np.ravel(y).tolist()]
    if unknown := sorted(set(names) - set(known)):
        raise ValueError(f"--data: the label {unknown[0]!r} was not in training; known are {', '.join(known)}")
    return np.array([known[name] for name in names])


def _name(label: Any) -> str:
    """Return a label as text; 1 and 1.0 are the same."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)
