"""What measures, and what reads measurements: ``measure``, ``fit`` and ``acceptance``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from thrifty._common.options import Device, Force, Json, Precision, Seed
from thrifty.inference.speculation.shell.options import (
    AcceptLength,
    AcceptRate,
    Alpha,
    At,
    Config,
    DraftConfig,
    Gpus,
    Machine,
    Sigma,
    acceptance_of,
    numbers,
    rows_of,
    sizes_of,
)

if TYPE_CHECKING:
    from thrifty.inference.speculation import Acceptance, FitResult

#: Draft length at which fit shows speed-ups, unless one is named.
BANDS_AT = 4

#: What fit shows, with units.
SHOWN = {
    "bias": "ms", "dense_slope": "ms a token", "expert_load": "ms an expert", "expert_slope": "ms a token of an expert",
    "draft_bias": "ms", "draft_slope": "ms a token", "reject_bias": "ms", "reject_slope": "ms a request",
    "ridge": "tokens", "growth": "", "kv_target": "ms a token of context", "kv_draft": "ms a token of context",
}  # fmt: skip


def measure(
    target: Annotated[str, typer.Argument(help="A folder of transformers; with --random a config or profile too.")],
    out: Annotated[Path, typer.Option(help="Rows, as lines of JSON (.jsonl); what is there is not repeated.")],
    draft: Annotated[str | None, typer.Option(help="The draft, likewise.")] = None,
    batch: Annotated[str, typer.Option(help="Batch sizes.")] = "1,4,16,64",
    tokens: Annotated[str, typer.Option(help="Tokens of a request in a pass.")] = "1,2,4,7",
    context: Annotated[int, typer.Option(help="Tokens in each request's cache.", min=0)] = 256,
    repeats: Annotated[int, typer.Option(help="Samples of each cell.", min=1)] = 5,
    gamma: Annotated[
        str | None, typer.Option(help="Draft lengths to generate with, too: acceptance and real speed-ups.")
    ] = None,
    new_tokens: Annotated[int, typer.Option(help="Of a request that is generated.", min=4)] = 64,
    experts: Annotated[str, typer.Option(help="How experts are computed meanwhile.")] = "grouped_mm",
    data: Annotated[
        Path | None, typer.Option(help="Text to read: random tokens wake more experts.", exists=True)
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Random weights: for times.")] = False,
    compile_draft: Annotated[bool, typer.Option("--compile-draft", help="Compile the draft's steps.")] = False,
    device: Device = "cpu",
    precision: Precision = "bf16",
    threads: Annotated[int | None, typer.Option(help="torch's threads.", min=1)] = None,
) -> None:
    """Time passes of a model over batch sizes and tokens of a request, steps of its draft, and whole generations."""
    import torch

    from thrifty.inference.speculation.loading import load_model, read_tokens
    from thrifty.inference.speculation.measure import profile_generation
    from thrifty.inference.speculation.passes import profile_target
    from thrifty.inference.speculation.rows import append_row, finished_rows, read_rows

    sizes, widths = numbers(batch, "batch"), sorted({1, *numbers(tokens, "tokens")})
    if threads is not None:
        torch.set_num_threads(threads)
    names = " with ".join(Path(name).name for name in (target, draft) if name)
    read = "random tokens" if data is None else f"text of {data.name}"
    where = f"{device}, {precision}, {torch.get_num_threads()} threads, {experts}, {read}"
    where += ", compiled draft" * compile_draft
    lengths = numbers(gamma, "gamma") if gamma is not None else []
    if lengths and draft is None:
        raise ValueError("gamma: expected --draft with it, to generate with")
    done = [row for row in finished_rows(out, model=names, hardware=where) if row.context == context]
    timed = {(row.batch_size, row.verify_tokens) for row in done if row.speedup is None}
    generated = {(row.batch_size, row.gamma) for row in done if row.speedup is not None}
    model = load_model(target, precision, device, random=random)
    small = load_model(draft, precision, device, random=random, name="draft") if draft else None
    words = read_tokens(target, data) if data is not None else None
    how: dict[str, Any] = {"context": context, "repeats": repeats, "text": words, "experts": experts}
    how |= {"compile_draft": compile_draft}
    for size in sizes:
        missing = [width for width in widths if (size, width) not in timed]
        drafted = [length for length in lengths if (size, length) not in generated]
        if missing or drafted:
            typer.echo(f"batch {size}", err=True)
        rows = profile_target(model, [size], missing, draft=small, **how) if missing else []
        rows = [row for row in rows if row.verify_tokens in missing]
        if drafted:
            rows += profile_generation(model, small, [size], drafted, new_tokens=new_tokens, **how)
        for row in rows:
            append_row(out, replace(row, model=names, hardware=where))
    typer.echo(f"{out}: {len(read_rows(out))} rows")


def fit(
    rows: Annotated[list[Path], typer.Argument(help="Rows (CSV, JSON lines), or results of an engine's benchmark.")],
    out: Annotated[Path | None, typer.Option(help="Write the model there.")] = None,
    config: Config = None,
    draft_config: DraftConfig = None,
    hardware: Machine = None,
    gpus: Gpus = 1,
    engine: Annotated[str, typer.Option(help="rows, vllm, sglang or specforge.")] = "auto",
    gamma: Annotated[int | None, typer.Option(help="Draft length of SGLang's results.", min=1)] = None,
    objective: Annotated[str, typer.Option(help="auto, time or speedup.")] = "auto",
    verify_width: Annotated[str, typer.Option(help="gamma+1 (engines) or gamma (the paper).")] = "gamma+1",
    metric: Annotated[str, typer.Option(help="Speed-up by tpot or throughput.")] = "tpot",
    alpha: Alpha = None,
    sigma: Sigma = None,
    accept_length: AcceptLength = None,
    accept_rate: AcceptRate = None,
    at: At = None,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fit the cost model to measurements; about 20 rows are enough, over batch sizes from 1 to the largest.

    With an acceptance, it shows how sure the speed-ups at the measured batch sizes are.
    """
    from thrifty.inference.speculation import Hardware, MoEShape, fit_speculation_model

    shape = MoEShape.from_config(config) if config else None
    measured = rows_of(rows, engine, gamma, metric, shape)
    found = fit_speculation_model(
        measured,
        target=shape,
        draft=MoEShape.from_config(draft_config) if draft_config else None,
        hardware=Hardware.from_name(hardware, count=gpus) if hardware else None,
        objective=objective,  # type: ignore[arg-type]
        verify_width=verify_width,  # type: ignore[arg-type]
        rng=seed,
    )
    for warning in found.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if found.at_bound:
        typer.echo(f"warning: at a limit: {', '.join(found.at_bound)}", err=True)
    if out is not None:
        found.model.save(out, force=force)
        typer.echo(f"wrote {out}", err=True)
    unit = "relative" if found.objective == "time" else "of the speed-up"
    parameters = {name: getattr(found.model, name) for name in SHOWN}
    length, bands = at or BANDS_AT, []
    if any(value is not None for value in (alpha, sigma, accept_length, accept_rate)):
        survives = acceptance_of(alpha, sigma, accept_length, accept_rate, at)
        bands = _bands(found, sizes_of(measured), length, survives, seed)
    if as_json:
        record = {"objective": found.objective, "rmse": found.rmse, "condition": found.condition}
        typer.echo(json.dumps(record | {"parameters": parameters, "at_bound": found.at_bound, "bands": bands}))
        return
    table = Table("parameter", "value", "unit", box=None, header_style="bold")
    for name, value in parameters.items():
        table.add_row(name, f"{value:.5g}", SHOWN[name])
    Console().print(table)
    typer.echo(f"error: {found.rmse:.4f} {unit} ({found.model.source})")
    if bands:
        table = Table("batch", f"speed-up, {length} drafts", "90 % of refits", box=None, header_style="bold")
        for band in bands:
            table.add_row(f"{band['batch']:g}", f"{band['speedup']:.2f}", f"{band['low']:.2f} to {band['high']:.2f}")
        Console().print(table)


def _bands(
    found: FitResult, sizes: list[float], gamma: int, acceptance: Acceptance, seed: int
) -> list[dict[str, float]]:
    """Return the speed-up at each batch size, and between what limits refits put it."""
    low, high = found.bands(sizes, gamma, acceptance, rng=seed)
    columns = {"batch": sizes, "speedup": found.model.speedup(sizes, gamma, acceptance), "low": low, "high": high}
    return [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def acceptance(
    source: Annotated[str, typer.Argument(help="A server (http://host:port), or the log of a vLLM server.")],
    gamma: Annotated[int | None, typer.Option(help="Draft length, where the server does not say.", min=1)] = None,
    seconds: Annotated[float, typer.Option(help="Between two readings of counters.", min=0)] = 10.0,
    as_json: Json = False,
) -> None:
    """Read how much of the drafts a live server accepts, by position."""
    from thrifty.inference.speculation import acceptance_of_log, scrape_acceptance

    if source.startswith(("http://", "https://")):
        found = scrape_acceptance(source, seconds=seconds, gamma=gamma)
    else:
        found = acceptance_of_log(Path(source).read_text(encoding="utf-8", errors="replace"))
    length = gamma or max(1, len(found.survival))
    record = {
        "alpha": found.alpha,
        "survival": found.curve(length).tolist(),
        "gamma": length,
        "acceptance_length": float(found.expected_tokens(length)),
        "sigma": float(found.sigma(length)),
    }
    if as_json:
        typer.echo(json.dumps(record))
        return
    for name, value in record.items():
        shown = ", ".join(f"{v:.4f}" for v in value) if isinstance(value, list) else f"{value:.6g}"
        typer.echo(f"{name:<18} {shown}")
