"""``thrifty v2v``: convert, report, train, evaluate and show, on your own videos and recordings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.options import Device, Force, Json, Precision, SaveEvery, Seed

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Videos = Annotated[list[Path], typer.Argument(help="Videos, folders of them, or .txt lists of paths.", exists=True)]
Camera = Annotated[
    str, typer.Option(help="random, or a preset: clean, noisy, davis346, prophesee-gen4; or C_POS,C_NEG.")
]
Bins = Annotated[int, typer.Option(help="Bins of a voxel grid.", min=1)]


@app.callback()
def _v2v() -> None:
    """Event-camera training data straight from ordinary video."""


@app.command()
def convert(
    video: Annotated[Path, typer.Argument(help="A video.", exists=True)],
    out: Annotated[
        Path, typer.Option(help=".h5: a recording with events and frames; .aedat4, .raw, .dat: events; .npz: voxels.")
    ],
    camera: Camera = "random",
    bins: Bins = 5,
    start: Annotated[int, typer.Option(help="First frame.", min=0)] = 0,
    frames: Annotated[int | None, typer.Option(help="How many; else all that follow.", min=2)] = None,
    every: Annotated[int, typer.Option(help="A recording keeps every so-manieth frame.", min=1)] = 1,
    flow: Annotated[
        bool, typer.Option("--flow", help="Move a window over the first frame, and write its exact flow too (.h5).")
    ] = False,
    side: Annotated[int, typer.Option(help="Of that window, pixels.", min=8)] = 128,
    speed: Annotated[float, typer.Option(help="Of that window, pixels a frame at most.")] = 1.0,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Turn a video into an event recording, or into voxel grids."""
    from thrifty.data.v2v.converting import GRIDS, check_ending, video_to_events, video_to_grids, window_to_recording

    check_ending(out, flow=flow)
    drawn = _camera(camera, seed)
    if flow:
        events, fields = window_to_recording(
            video, out, drawn, bins=bins, side=side, start=start, frames=frames or 101, speed=speed, seed=seed,
            force=force,
        )  # fmt: skip
        typer.echo(f"{out}: {events} events, {fields} fields of flow of {side} x {side}, {bins} frames each")
    elif out.suffix.lower() in GRIDS:
        shape = video_to_grids(video, out, drawn, bins=bins, start=start, frames=frames, seed=seed, force=force)
        typer.echo(f"{out}: {shape[0]} voxel grids of {shape[1:]}")
    else:
        events, (count, height, width) = video_to_events(
            video, out, drawn, start=start, frames=frames, every=every, seed=seed, force=force
        )
        typer.echo(f"{out}: {events} events, {count} frames of {height} x {width}")


@app.command()
def report(
    videos: Videos,
    thresholds: Annotated[str, typer.Option(help="Thresholds of noise-free cameras.")] = "0.1,0.2,0.5,1.0",
    limit: Annotated[int, typer.Option(help="At most so many videos are simulated.", min=1)] = 4,
    as_json: Json = False,
) -> None:
    """Tell what a list of videos holds, and what storing its events or voxel grids would take."""
    from thrifty.data.v2v import VideoIndex
    from thrifty.data.v2v.report import as_json as rows_of
    from thrifty.data.v2v.report import statistics_of, storage_reports

    values = _numbers(thresholds, "thresholds")
    index, left_out = VideoIndex.scan(list(videos))
    found, broken = storage_reports(index, values, limit)
    left_out += broken
    facts = statistics_of(index) | {"left_out": left_out}
    if as_json:
        typer.echo(json.dumps({"list": facts, "storage": {path: rows_of(rows) for path, rows in found.items()}}))
        return
    typer.echo(
        f"{facts['videos']} videos, {facts['frames']} frames, {facts['megapixels']:.0f} Mpx; left out: {len(left_out)}"
    )
    table = Table(
        "video", "threshold", "events", "stream / video", "voxels / video", "decode s", "simulate s", box=None
    )
    for path, rows in found.items():
        for row in rows:
            ratios = (f"{row.event_ratio:.0f} x", f"{row.voxel_ratio:.0f} x")
            seconds = (f"{row.decode_seconds:.2f}", f"{row.simulate_seconds:.2f}")
            table.add_row(Path(path).name, f"{row.threshold:g}", f"{row.events / 1e6:.1f} M", *ratios, *seconds)
    Console().print(table)


@app.command()
def train(
    videos: Videos,
    out: Annotated[Path, typer.Option(help="Folder for checkpoints, result.json and the model.")],
    model: Annotated[str, typer.Option(help="e2vid, firenet, hypere2vid, etnet; flow: evflownet, eraft.")] = "e2vid",
    config: Annotated[Path | None, typer.Option(help="Sensor, camera and samples, as JSON.", exists=True)] = None,
    length: Annotated[int | None, typer.Option("--length", help="Voxel grids of a sample.", min=1)] = None,
    crop: Annotated[int | None, typer.Option(help="Side of a sample, pixels.", min=8)] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the samples; else the paper's.", min=1)] = None,
    batch: Annotated[int | None, typer.Option(help="Samples at once, a process.", min=1)] = None,
    lr: Annotated[float | None, typer.Option(help="Rate; else the paper's.")] = None,
    chunk: Annotated[int | None, typer.Option(help="Steps differentiated together; else all.", min=1)] = None,
    recompute: Annotated[bool, typer.Option("--recompute", help="Less memory, more time.")] = False,
    teacher: Annotated[str, typer.Option(help="Flow: dis, raft-small or raft-large.")] = "dis",
    weights: Annotated[Path | None, typer.Option(help="Of a RAFT teacher.", exists=True)] = None,
    perceptual: Annotated[str, typer.Option(help="substitute, lpips-vgg, lpips-alex or none.")] = "substitute",
    validate: Annotated[
        list[Path] | None, typer.Option(help="Recordings; the checkpoint that errs least there is kept in out/best.")
    ] = None,
    select_by: Annotated[str, typer.Option(help="mse, lpips-alex, lpips-vgg or epe; else mse, of flow epe.")] = "",
    workers: Annotated[int, typer.Option(help="Processes that decode.", min=0)] = 2,
    precision: Precision = "fp32",
    save_every: SaveEvery = 500,
    device: Device = "auto",
    seed: Seed = 0,
) -> None:
    """Train a network on ordinary video; an interrupted run goes on.

    `torchrun --no-python --nproc-per-node 8 thrifty v2v train ...` makes it data-parallel.
    """
    import torch

    from thrifty._common.runs import alone, first_process, join, world
    from thrifty._common.settings import read_text
    from thrifty.data.v2v import VideoVoxelDataset
    from thrifty.data.v2v.config import PipelineConfig
    from thrifty.data.v2v.networks import build_model
    from thrifty.data.v2v.recipe import Recipe
    from thrifty.data.v2v.teachers import named
    from thrifty.data.v2v.training import TRAINERS

    settings = PipelineConfig.from_json(read_text(config), name=str(config)) if config else PipelineConfig()
    given = {"epochs": epochs, "batch": batch, "lr": lr, "chunk": chunk}
    recipe = Recipe.published(
        model, workers=workers, precision=precision, seed=seed, recompute=recompute,
        **{name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    device = join(device)
    with torch.device("meta"):
        kind: Any = build_model(model)
    flow = kind.task == "flow"
    samples = settings.samples() | {k: v for k, v in (("sequence_length", length), ("crop", crop)) if v is not None}
    data = VideoVoxelDataset(
        list(videos), seed=seed, simulate="worker" if device == "cpu" else "step", return_first_frame=flow,
        return_previous_voxel=bool(getattr(kind, "needs_previous", False)), **samples,
    )  # fmt: skip
    data.v2v.to(device if data.simulate == "step" else "cpu")
    extra = {} if flow else {"loss": _loss(perceptual)}
    trainer = TRAINERS[kind.task](data, recipe, device=device, teacher=named(teacher, weights), **extra)

    def tell(step: int, total: int, loss: float) -> None:
        typer.echo(f"step {step} of {total}: loss {loss:.4f}", err=True)

    about = {"config": json.loads(settings.to_json()), "videos": [str(path) for path in videos], "teacher": teacher}
    judge = _judge(validate, select_by or ("epe" if flow else "mse"), device) if validate else None
    with alone(out):
        result = trainer.fit(out, save_every=save_every, about=about, progress=tell, judge=judge)
    if first_process():
        write_whole(out / "pipeline.json", settings.to_json(), force=True)
        typer.echo(json.dumps({k: v for k, v in result.items() if k != "losses"}))
    if world()[1] > 1:
        torch.distributed.destroy_process_group()


@app.command("eval")
def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder of a trained network.", exists=True)],
    recordings: Annotated[list[Path], typer.Argument(help="HDF5 recordings with events and images.", exists=True)],
    bins: Annotated[int | None, typer.Option(help="Of a voxel grid; else as in training.", min=1)] = None,
    window: Annotated[str, typer.Option(help="What bins divide: frames, or events as the paper tests.")] = "frames",
    representation: Annotated[str | None, typer.Option(help="discrete or interpolated; else as in training.")] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="Voxel grids; else as in training.")
    ] = None,
    start: Annotated[float, typer.Option(help="Seconds behind the first frame.", min=0)] = 0.0,
    end: Annotated[float, typer.Option(help="Seconds at which to stop.")] = float("inf"),
    standard_cuts: Annotated[
        bool, typer.Option("--standard-cuts", help="Cut sequences of IJRR and MVSEC as the field does.")
    ] = False,
    channels: Annotated[str | None, typer.Option(help="rgb or bgr, where images are in colour.")] = None,
    perceptual: Annotated[str, typer.Option(help="none, lpips-alex or lpips-vgg.")] = "none",
    legacy_ssim: Annotated[bool, typer.Option("--legacy-ssim", help="A data range of 2, as published tables.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Measure a network on recordings: frames by MSE and SSIM, flow by end-point error."""
    from thrifty._common.runs import device_of
    from thrifty.data.v2v.recordings import evaluate as measure
    from thrifty.data.v2v.recordings import standard_cut
    from thrifty.data.v2v.saving import load_model

    loaded, place, metric = load_model(model), device_of(device), _perceptual(perceptual)
    found = {}
    for path in recordings:
        span: dict[str, Any] = {"start": start, "end": end} | (standard_cut(path) if standard_cuts else {})
        found[str(path)] = measure(
            loaded, path, bins=bins, device=place, perceptual=metric, legacy_ssim=legacy_ssim, window=window,
            representation=representation, normalize=normalize, channels=channels, **span,
        )  # fmt: skip
    if as_json:
        measured = {path_: {k: None if math.isnan(v) else v for k, v in row.items()} for path_, row in found.items()}
        typer.echo(json.dumps(measured))  # NaN is no JSON
        return
    names = list(next(iter(found.values())))
    table = Table("recording", *names, box=None, header_style="bold")
    for path_, row in found.items():
        table.add_row(Path(path_).name, *(f"{row[name]:.4g}" for name in names))
    Console().print(table)


@app.command()
def show(
    source: Annotated[Path, typer.Argument(help="A video, or an event recording.", exists=True)],
    out: Annotated[Path, typer.Option(help="An .mp4, or a .png of the first one.")],
    flow: Annotated[
        bool, typer.Option("--flow", help="Draw flow, beside its wheel: a recording's own, or a video's by OpenCV.")
    ] = False,
    camera: Camera = "davis346",
    bins: Bins = 5,
    start: Annotated[int, typer.Option(help="First frame.", min=0)] = 0,
    frames: Annotated[int, typer.Option(help="Frames of a video.", min=2)] = 51,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Draw voxel grids in red and blue, or flow on the colour wheel."""
    from thrifty.data.v2v.drawing import flow_pictures, grid_pictures, save_pictures

    refuse_existing(out, force)
    pictures = (
        flow_pictures(source, bins, start, frames)
        if flow
        else grid_pictures(source, _camera(camera, seed), bins, start, frames, seed)
    )
    save_pictures(out, pictures, force=force)
    typer.echo(f"wrote {out}", err=True)


def _camera(text: str, seed: int) -> Any:
    import torch

    from thrifty.data.v2v import EventCamera, EventCameraSampler, preset

    if text == "random":
        return EventCameraSampler().sample(1, torch.Generator().manual_seed(seed))
    if text[0].isdigit() or text[0] in ".-":
        values = _numbers(text, "camera")
        if len(values) != 2:
            raise ValueError(f"camera: expected C_POS,C_NEG, got {text!r}")
        return EventCamera(*values)
    return preset(text)


def _numbers(text: str, name: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name}: expected numbers with commas between, got {text!r}") from None


def _perceptual(name: str) -> Any:
    from thrifty._common.checks import one_of
    from thrifty.data.v2v.losses import GradientStructureLoss, lpips

    one_of("perceptual", name, ("none", "substitute", "lpips-vgg", "lpips-alex"))
    if name == "none":
        return None
    return GradientStructureLoss() if name == "substitute" else lpips(name.removeprefix("lpips-"))


def _judge(recordings: list[Path], name: str, device: str) -> Any:
    """Return what gives a network's mean error on recordings."""
    from statistics import fmean

    from thrifty._common.checks import one_of
    from thrifty.data.v2v.recordings import evaluate as measure

    one_of("select_by", name, ("mse", "lpips-alex", "lpips-vgg", "epe"))
    metric = _perceptual(name) if name.startswith("lpips") else None
    column = "perceptual" if metric else name

    def judge(model: Any) -> float:
        return fmean(measure(model, path, device=device, perceptual=metric)[column] for path in recordings)

    return judge


def _loss(perceptual: str) -> Any:
    from thrifty.data.v2v.losses import ReconstructionLoss

    return ReconstructionLoss(_perceptual(perceptual))
