"""``thrifty token-reduction``: time, analyse, search, fine-tune, save and show reductions of a vision transformer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from thrifty._common.files import refuse_existing
from thrifty._common.options import Device, Force, Json, Seed, say_step
from thrifty._common.runs import alone, first_process, join, world
from thrifty.inference.token_reduction.options import METHODS, Schedule, Source, grouped

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Method = Annotated[str, typer.Option(help=f"{METHODS}.")]
Images = Annotated[list[Path], typer.Option("--images", help="Images, or folders of them.", exists=True)]


@app.callback()
def _token_reduction() -> None:
    """Vision transformers on fewer tokens, chosen by frequency; ToMe, EViT and pooling beside it."""


@app.command()
@grouped
def patch(
    source: Source,
    out: Annotated[Path, typer.Option(help="Folder for the weights and token_reduction.json.")],
    schedule: Schedule,
    method: Method = "frequency",
    force: Force = False,
) -> None:
    """Save a model together with a reduction; load_reduced reads it with the reduction in force."""
    from thrifty.inference.token_reduction import count_macs, files, reduce_tokens

    loaded = source.load()
    size = files.image_size(loaded)
    before = count_macs(loaded, size)
    if out.exists() and any(out.iterdir()) and not force:
        raise FileExistsError(f"{out} holds files already; choose another folder, or use --force")
    reduction = reduce_tokens(loaded, schedule.config(loaded, method))
    reduction.save_pretrained(out, **({} if hasattr(type(loaded), "save_pretrained") else {"force": force}))
    after = count_macs(loaded, size)
    typer.echo(f"{out}: {before / 1e9:.2f} GMACs -> {after / 1e9:.2f} GMACs at {size[0]} x {size[1]}")


@app.command()
@grouped
def time(
    source: Source,
    schedule: Schedule,
    methods: Annotated[str, typer.Option(help="Which, besides the model as it is.")] = "frequency,tome,evit,pool",
    batch: Annotated[int, typer.Option(help="Images at once.", min=1)] = 8,
    repeats: Annotated[int, typer.Option(help="Rounds.", min=1)] = 7,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Time a model as it is and under reductions, side by side, on random images."""
    import torch

    from thrifty.inference.token_reduction import files
    from thrifty.inference.token_reduction.speed import measure_throughput

    device = join(device)
    loaded = source.load().to(device)
    x = torch.randn(batch, 3, *files.image_size(loaded), generator=torch.Generator().manual_seed(0)).to(device)
    configs = {name: schedule.config(loaded, name) for name in methods.split(",")}
    found = measure_throughput(loaded, x, configs, repeats=repeats)
    if as_json:
        typer.echo(json.dumps({name: asdict(speed) for name, speed in found.items()}))
        return
    table = Table("method", "GMACs", "images/s", "speed-up", box=None, header_style="bold")
    for name, speed in found.items():
        table.add_row(name, f"{speed.macs / 1e9:.2f}", f"{speed.images_a_second:.1f}", f"{speed.speedup:.2f}")
    Console().print(table)


@app.command()
@grouped
def analyze(
    source: Source,
    images: Images,
    schedule: Schedule,
    methods: Annotated[str, typer.Option(help="Which; base is the model as it is.")] = "base,frequency,tome,evit,pool",
    plot: Annotated[Path | None, typer.Option(help="Draw the table as PNG or SVG.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the table as CSV there, not to the screen.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many images.", min=1)] = 32,
    force: Force = False,
) -> None:
    """Measure rank and frequency of the tokens behind every block: a row a method and layer, as CSV."""
    from thrifty._common.files import write_whole
    from thrifty.inference.token_reduction import analyze_tokens, files

    for path in (plot, out):
        refuse_existing(path, force)
    loaded = source.load()
    size = files.image_size(loaded)
    pixels = [files.read_pixels(path, size) for path in files.image_files(images)[:limit]]
    configs = {name: None if name == "base" else schedule.config(loaded, name) for name in methods.split(",")}
    found = analyze_tokens(loaded, files.to_batch(pixels, loaded), configs)
    if plot is not None:
        found.plot(plot, force=force)
        typer.echo(f"wrote {plot}", err=True)
    if out is None:
        typer.echo(found.to_csv(), nl=False)
    else:
        write_whole(out, found.to_csv(), force=force)


@app.command()
@grouped
def show(
    source: Source,
    image: Annotated[Path, typer.Argument(help="An image.", exists=True)],
    out: Annotated[Path, typer.Option(help="The picture, PNG.")],
    schedule: Schedule,
    score: Annotated[str, typer.Option(help="attn_mean, cos_dc, qk_mean, cls, random or low.")] = "attn_mean",
    force: Force = False,
) -> None:
    """Draw which patches of an image each reduction keeps."""
    import torch

    from thrifty.inference.token_reduction import files, reduce_tokens
    from thrifty.inference.token_reduction.overlay import save_picture, visualize

    refuse_existing(out, force)
    loaded = source.load()
    pixels = files.read_pixels(image, files.image_size(loaded))
    config = schedule.config(loaded, score=score)
    with reduce_tokens(loaded, config, trace=True) as reduction, torch.no_grad():
        loaded(files.to_batch([pixels], loaded))
        save_picture(out, visualize(pixels, reduction.info(), reduction.tokens.grid), force=force)
    typer.echo(f"wrote {out}", err=True)


@app.command()
@grouped
def search(
    source: Source,
    data: Annotated[Path, typer.Option(help="Validation images: one folder a class.", exists=True)],
    trials: Annotated[int, typer.Option(help="Schedules to evaluate.", min=1)] = 50,
    alpha: Annotated[
        float,
        typer.Option(help="Weight of the share of MACs saved against the share of accuracy kept; the paper adds both."),
    ] = 1.0,
    batch: Annotated[int, typer.Option(help="Images at once.", min=1)] = 32,
    limit: Annotated[int, typer.Option(help="At most so many images.", min=1)] = 2000,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Search layers, shares and windows; print those schedules that no other beats in both MACs and accuracy."""
    from thrifty.inference.token_reduction import ViTDims, files
    from thrifty.inference.token_reduction.finetune import accuracy
    from thrifty.inference.token_reduction.search import search_schedule

    found, names = files.labelled_folder(data)
    loaded = source.load(len(names) if source.random else None)
    if (outputs := ViTDims.of(loaded).classes) != len(names):
        raise ValueError(f"data: {data} has {len(names)} folders of classes, the model {outputs} outputs")
    chosen = found[:: max(1, len(found) // limit)][:limit]

    def tell(done: int, total: int, best: float) -> None:
        typer.echo(f"{done} of {total} schedules, best aim {best:.4f}", err=True)

    result = search_schedule(
        loaded, lambda m: accuracy(m, _batches(chosen, m, batch)), trials=trials, alpha=alpha, seed=seed,
        image_size=files.image_size(loaded), progress=tell,
    )  # fmt: skip
    if as_json:
        rows = [asdict(c) | {"config": json.loads(c.config.to_json())} for c in result.pareto]
        typer.echo(json.dumps({"macs": result.base_macs, "accuracy": result.base_accuracy, "pareto": rows}))
        return
    table = Table("layers", "keep", "window", "GMACs", "accuracy", "aim", box=None, header_style="bold")
    table.add_row("(as it is)", "", "", f"{result.base_macs / 1e9:.2f}", f"{result.base_accuracy:.4f}", "1")
    for c in result.pareto:
        fields = (c.config.layers, c.config.keep, c.config.window)
        table.add_row(*map(str, fields), f"{c.macs / 1e9:.2f}", f"{c.accuracy:.4f}", f"{c.aim:.4f}")
    Console().print(table)


@app.command()
@grouped
def finetune(
    source: Source,
    data: Annotated[Path, typer.Option(help="Training images: one folder a class.", exists=True)],
    out: Annotated[Path, typer.Option(help="Folder for checkpoints, result.json and the model.")],
    schedule: Schedule,
    validation: Annotated[Path | None, typer.Option(help="Held-out images, likewise; else a tenth of data.")] = None,
    method: Method = "frequency",
    epochs: Annotated[int, typer.Option(help="Passes over the images.", min=1)] = 30,
    lr: Annotated[float, typer.Option(help="Peak rate of AdamW.")] = 1e-4,
    weight_decay: Annotated[float, typer.Option(help="Weight decay.")] = 2e-5,
    batch: Annotated[int, typer.Option(help="Images at once, a process.", min=1)] = 128,
    ema: Annotated[float, typer.Option(help="Decay of the averaged weights; 0 for none.")] = 0.9998,
    teacher: Annotated[str, typer.Option(help="Whom it learns from: original or ema.")] = "original",
    distill: Annotated[float, typer.Option(help="Weight of the distillation.")] = 0.5,
    parameters: Annotated[
        str, typer.Option(help="all weights, norms, or added: only what the reduction added (w1, beta, DC embeddings).")
    ] = "all",
    precision: Annotated[str, typer.Option(help="Of the forward pass: fp32, bf16 or fp16.")] = "fp32",
    device: Device = "auto",
    seed: Seed = 0,
) -> None:
    """Fine-tune a reduced model with its unreduced self as the teacher; an interrupted run goes on.

    `torchrun --no-python --nproc-per-node 8 thrifty token-reduction finetune ...` makes it data-parallel.
    """
    import torch

    from thrifty.inference.token_reduction import files, reduce_tokens
    from thrifty.inference.token_reduction.finetune import Recipe, finetune

    recipe = Recipe(epochs, lr, weight_decay, distill, 1.0, teacher, ema, parameters, precision, seed)  # type: ignore[arg-type]
    found, names = files.labelled_folder(data)
    held = files.labelled_folder(validation, names)[0] if validation else found[::10]
    if not validation:
        found = [pair for index, pair in enumerate(found) if index % 10]
    rank, processes = world()
    device = join(device)
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # of a new head, and of --random
        loaded = source.load(len(names))
    reduce_tokens(loaded.to(device), schedule.config(loaded, method, dc_pos_embed="learned"))

    def batches(epoch: int, training: bool) -> Iterator[tuple[Any, Any]]:
        if not training:
            return _batches(held[rank::processes], loaded, batch)
        order = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed * 1000 + epoch)).tolist()
        return _batches(
            [found[i] for i in order[rank : len(order) // processes * processes : processes]], loaded, batch, flip=seed
        )

    steps = -(-(len(found) // processes) // batch)
    about = {
        "model": source.model,
        "data": str(data),
        "validation": str(validation),
        "images": len(found),
        "batch": batch,
        "seed": seed,
    }
    with alone(out):
        result = finetune(loaded, batches, steps, recipe, out=out, about=about, progress=say_step)
    if first_process():
        typer.echo(json.dumps(result))
    if processes > 1:
        torch.distributed.destroy_process_group()


def _batches(
    pairs: list[tuple[Path, int]], model: Any, size: int, *, flip: int | None = None
) -> Iterator[tuple[Any, Any]]:
    """Yield images, mirrored at random for training, and classes."""
    import torch

    from thrifty.inference.token_reduction import files

    rng = None if flip is None else torch.Generator().manual_seed(flip)
    pixels = files.image_size(model)
    for start in range(0, len(pairs), size):
        part = pairs[start : start + size]
        x = files.to_batch([files.read_pixels(path, pixels) for path, _ in part], model)
        if rng is not None:
            mirrored = torch.rand(len(x), generator=rng) < 0.5
            x[mirrored] = x[mirrored].flip(-1)
        yield x, torch.tensor([label for _, label in part])
