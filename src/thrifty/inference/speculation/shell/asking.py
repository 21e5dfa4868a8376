"""What asks a cost model: ``predict``, ``recommend`` and ``plot``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from thrifty._common.checks import one_of
from thrifty._common.options import Force, Json
from thrifty.inference.speculation.shell.options import (
    AcceptLength,
    AcceptRate,
    Alpha,
    At,
    Config,
    Context,
    DraftConfig,
    Fitted,
    Gpus,
    Machine,
    MaxBatch,
    Sigma,
    acceptance_of,
    model_of,
    numbers,
)


def predict(
    model: Fitted = None,
    batch: Annotated[str, typer.Option(help="Batch sizes.")] = "1,4,16,64",
    gamma: Annotated[int, typer.Option(help="Draft tokens a round.", min=0)] = 4,
    config: Config = None,
    draft_config: DraftConfig = None,
    hardware: Machine = None,
    gpus: Gpus = 1,
    alpha: Alpha = None,
    sigma: Sigma = None,
    accept_length: AcceptLength = None,
    accept_rate: AcceptRate = None,
    at: At = None,
    context: Context = 0,
    as_json: Json = False,
) -> None:
    """Predict speed-ups, target efficiency, and where a round's time goes."""
    found, prior = model_of(model, config, draft_config, hardware, gpus, context)
    acceptance = acceptance_of(alpha, sigma, accept_length, accept_rate, at or gamma or None)
    sizes = numbers(batch, "batch")
    parts = [found.breakdown(size, gamma, acceptance, context=context) for size in sizes]
    beyond = found.extrapolated(sizes)
    if as_json:
        rows = [{"batch": b, "extrapolated": bool(x)} | part for b, x, part in zip(sizes, beyond, parts, strict=True)]
        typer.echo(json.dumps({"source": found.source, "gamma": gamma, "rows": rows}))
        return
    table = Table("batch", "speed-up", "efficiency", box=None, header_style="bold")
    for name in parts[0]["round"]:  # type: ignore[union-attr]
        table.add_column(name)
    for size, part, far in zip(sizes, parts, beyond, strict=True):
        spent: Any = part["round"]
        efficiency = float(found.target_efficiency(size, found.width(gamma), context=context))
        shares = [f"{ms / sum(spent.values()):.0%}" for ms in spent.values()]
        mark = " *" if far and not prior else ""
        table.add_row(f"{size}{mark}", f"{part['speedup']:.2f}", f"{efficiency:.2f}", *shares)
    Console().print(table)
    typer.echo("from bias on: shares of a round's time")
    typer.echo(f"{gamma} draft tokens, {parts[0]['tokens']:.2f} tokens a round; {found.source}")
    if found.free_drafts:
        typer.echo("warning: drafts cost nothing in this model: no draft was measured or named", err=True)
    if beyond.any() and not prior:
        typer.echo("* extrapolated: beyond the batch sizes that were measured")


def recommend(
    model: Fitted = None,
    max_batch: MaxBatch = 128,
    max_gamma: Annotated[int, typer.Option(help="The longest draft.", min=1)] = 7,
    min_gain: Annotated[float, typer.Option(help="Gain for which speculation is switched on.")] = 0.03,
    format: Annotated[str, typer.Option(help="table, json, vllm or sglang.")] = "table",
    config: Config = None,
    draft_config: DraftConfig = None,
    hardware: Machine = None,
    gpus: Gpus = 1,
    alpha: Alpha = None,
    sigma: Sigma = None,
    accept_length: AcceptLength = None,
    accept_rate: AcceptRate = None,
    at: At = None,
    context: Context = 0,
) -> None:
    """Recommend a draft length for every batch size, as vLLM or SGLang reads it; warn where it will not help."""
    from thrifty.inference.speculation import recommend_schedule

    found, _ = model_of(model, config, draft_config, hardware, gpus, context)
    acceptance = acceptance_of(alpha, sigma, accept_length, accept_rate, at)
    one_of("format", format, ("table", "json", "vllm", "sglang"))
    schedule = recommend_schedule(
        found, acceptance, max_batch=max_batch, max_gamma=max_gamma, min_gain=min_gain, context=context
    )
    for warning in schedule.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if not schedule.falls_only:
        typer.echo("the best length rises with the batch: a rule that only switches off above one loses", err=True)
    if format == "vllm":
        typer.echo(json.dumps(schedule.to_vllm()))
        typer.echo("merge this into --speculative-config, beside the draft model; not under data parallelism", err=True)
    elif format == "sglang":
        typer.echo(json.dumps(schedule.to_sglang()))
        top = schedule.max_gamma
        typer.echo(
            f"--speculative-adaptive --speculative-adaptive-config FILE --speculative-eagle-topk 1 "
            f"--speculative-num-steps {top} --speculative-num-draft-tokens {top + 1}",
            err=True,
        )
    elif format == "json":
        entries = [{"first": a, "last": b, "gamma": g} for a, b, g in schedule.entries]
        typer.echo(json.dumps({"entries": entries, "gains": schedule.gains, "warnings": schedule.warnings}))
    else:
        table = Table("batch", "draft tokens", "speed-up", box=None, header_style="bold")
        for first, last, gamma in schedule.entries:
            gains = schedule.gains[first - 1 : last]
            table.add_row(f"{first} to {last}", str(gamma), f"{min(gains):.2f} to {max(gains):.2f}")
        Console().print(table)


def plot(
    out: Annotated[Path, typer.Option(help="The picture, PNG or SVG.")],
    model: Fitted = None,
    gamma: Annotated[str, typer.Option(help="Draft lengths, a line each.")] = "1,2,4,7",
    max_batch: MaxBatch = 256,
    rows: Annotated[Path | None, typer.Option(help="Measurements to draw as points.", exists=True)] = None,
    config: Config = None,
    draft_config: DraftConfig = None,
    hardware: Machine = None,
    gpus: Gpus = 1,
    alpha: Alpha = None,
    sigma: Sigma = None,
    accept_length: AcceptLength = None,
    accept_rate: AcceptRate = None,
    at: At = None,
    context: Context = 0,
    force: Force = False,
) -> None:
    """Draw target efficiency and speed-up over the batch size."""
    from thrifty.inference.speculation.plot import plot_model
    from thrifty.inference.speculation.rows import read_rows

    found, _ = model_of(model, config, draft_config, hardware, gpus, context)
    acceptance = acceptance_of(alpha, sigma, accept_length, accept_rate, at)
    points = read_rows(rows) if rows is not None else ()
    if points and not any(row.speedup and row.sigma for row in points):
        typer.echo("warning: none of the rows has a speed-up and a sigma: no points are drawn", err=True)
    lengths = numbers(gamma, "gamma")
    plot_model(
        out, found, acceptance, gammas=lengths, max_batch=max_batch, rows=points, context=context, force=force
    )  # fmt: skip
    typer.echo(f"wrote {out}", err=True)
