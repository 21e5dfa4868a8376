"""``thrifty influence``: choose examples of a JSONL pool for the task of a JSONL target, or ask how far to trust it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from thrifty._common.checks import one_of
from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.options import Device, Force, Json, Seed
from thrifty._common.runs import first_process

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Model = Annotated[Path, typer.Argument(help="Folder of a local model with its tokenizer.")]
Data = Annotated[Path, typer.Option(help="The pool: JSONL with text, prompt and completion, messages, or input_ids.")]
Target = Annotated[Path, typer.Option(help="A few examples of the task that counts, likewise.")]
State = Annotated[
    Path | None,
    typer.Option(help="A Trainer's checkpoint folder or its optimizer.pt; without it the model is warmed up."),
]
Params = Annotated[str, typer.Option(help='"mlp-out", "all", or a regular expression on names.')]
Landmarks = Annotated[int, typer.Option("--num-landmarks", help="Examples that get a gradient of their own.", min=1)]
Blocks = Annotated[int, typer.Option("--num-blocks", help="Blocks of the embedding.", min=1)]
Tangents = Annotated[int, typer.Option("--num-tangents", help="Random directions of the embedding.", min=1)]
Length = Annotated[int, typer.Option("--length", help="Longer examples are cut.", min=2)]
Batch = Annotated[int, typer.Option("--batch", help="Examples a pass.", min=1)]
Store = Annotated[Path | None, typer.Option(help="Folder that keeps what was computed; a killed run goes on from it.")]

#: Ways to select, by the names of the option.
METHODS = ("influence", "exact", "less", "rds+", "mid-perplexity", "random")


@app.callback()
def _influence() -> None:
    """Choose fine-tuning examples by what training on them does to the loss of a few target examples.

    Under `accelerate launch` or `torchrun` the work is shared between the processes. The model is loaded in the
    dtype it was saved in, onto this process's GPU where there is one (`--device cpu`: not).
    """


@app.command()
def select(
    model: Model,
    data: Data,
    target: Target,
    k: Annotated[int, typer.Option("-k", "--k", help="How many examples to choose.", min=1)],
    out: Annotated[Path, typer.Option(help="JSONL of the chosen rows, with influence_index, _score and _weight.")],
    optimizer_state: State = None,
    params: Params = "mlp-out",
    mask_numel: Annotated[int | None, typer.Option(help="Coordinates of the gradient that are kept.")] = None,
    grad_dim: Annotated[int, typer.Option(help="Numbers in a projected gradient.", min=1)] = 32768,
    num_landmarks: Landmarks = 4096,
    num_blocks: Blocks = 4,
    num_tangents: Tangents = 2,
    mode: Annotated[str, typer.Option(help="forward_ad, or finite_difference (quantised or fused).")] = "forward_ad",
    aggregate: Annotated[str, typer.Option(help="round_robin (targets take turns) or mean.")] = "round_robin",
    group_field: Annotated[str | None, typer.Option(help="Field of a target row that names its task.")] = None,
    order: Annotated[int, typer.Option(help="1, or 2 to weigh how examples act together.", min=1, max=2)] = 1,
    deduplicate: Annotated[bool, typer.Option("--deduplicate", help="Equal examples count once.")] = False,
    method: Annotated[str, typer.Option(help=f"{', '.join(METHODS[:-1])} or {METHODS[-1]}.")] = "influence",
    warmup_steps: Annotated[int, typer.Option(help="Steps of the warm-up.", min=1)] = 20,
    lr: Annotated[float, typer.Option(help="Learning rate of the warm-up.")] = 2e-5,
    length: Length = 2048,
    batch: Batch = 8,
    store: Store = None,
    device: Device = "auto",
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Write the k examples of a pool that would lower the loss of the target most; the cost is printed first."""
    if first_process():
        refuse_existing(out, force)
    place = _first_there(out.parent)
    if out.is_dir() or not place.is_dir() or not os.access(place, os.W_OK):
        raise OSError(f"--out: {out} cannot be written: expected the path of a file, in a folder that may be written")
    one_of("--method", method, METHODS)
    from thrifty._common.texts import read_rows
    from thrifty.data.influence.embeddings import JVPEmbedding
    from thrifty.data.influence.job import Job, say, summary

    rows, aims = read_rows(data), read_rows(target)
    if k > len(rows):
        raise ValueError(f"-k: {data} has {len(rows)} examples, got {k}")
    groups = None
    if group_field is not None:
        if missing := [i for i, row in enumerate(aims) if group_field not in row]:
            raise ValueError(f"--group-field: row {missing[0]} of {target} has no field {group_field!r}")
        groups = [str(row[group_field]) for row in aims]
    embedding = JVPEmbedding(num_blocks=num_blocks, num_tangents=num_tangents, mode=mode)  # type: ignore[arg-type]
    job = Job(model, rows, aims, length, batch, seed, device)
    job.announce(
        num_landmarks if method == "influence" else len(rows), num_blocks, num_tangents, mode, grad_dim, method
    )
    if method in {"influence", "exact"}:
        picker = job.picker(
            optimizer_state, warmup_steps, lr, params=params, mask_numel=mask_numel, grad_dim=grad_dim,
            num_landmarks=min(num_landmarks, len(rows)) if method == "influence" else len(rows), order=order,
            embedding=embedding, store=store,
        )  # fmt: skip
        result = picker.select(
            job.pool, job.target, k, aggregate="mean" if order == 2 else aggregate, groups=groups,
            deduplicate=deduplicate,
        )  # fmt: skip
    elif method == "less":
        result = job.less(optimizer_state, warmup_steps, lr, k, groups, params)
    else:
        result = job.rival(method, k)
    if first_process():
        lines = [
            json.dumps(
                {**rows[i], "influence_index": int(i), "influence_score": float(s), "influence_weight": float(w)}
            )
            for i, s, w in zip(result.indices, result.scores, result.weights, strict=True)
        ]
        write_whole(out, "\n".join(lines) + "\n", force=force)
        say(summary(result.report))
        typer.echo(f"{len(lines)} of {len(rows)} examples: {out}")


@app.command()
def check(
    model: Model,
    data: Data,
    target: Target,
    optimizer_state: State = None,
    params: Params = "mlp-out",
    num_landmarks: Landmarks = 256,
    num_check: Annotated[int, typer.Option(help="Extra examples that the propagation is held against.", min=0)] = 32,
    num_blocks: Blocks = 4,
    num_tangents: Tangents = 2,
    warmup_steps: Annotated[int, typer.Option(help="Steps of the warm-up.", min=1)] = 20,
    lr: Annotated[float, typer.Option(help="Learning rate of the warm-up.")] = 2e-5,
    length: Length = 2048,
    batch: Batch = 8,
    store: Store = None,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Say whether propagated scores can be trusted on this pool, and what a selection would cost."""
    from thrifty._common.texts import read_rows
    from thrifty.data.influence.embeddings import JVPEmbedding
    from thrifty.data.influence.job import Job

    job = Job(model, read_rows(data), read_rows(target), length, batch, seed, device)
    cost = job.announce(num_landmarks + num_check, num_blocks, num_tangents, "forward_ad", 32768, "influence")
    embedding = JVPEmbedding(num_blocks=num_blocks, num_tangents=num_tangents)
    picker = job.picker(
        optimizer_state, warmup_steps, lr, params=params, num_landmarks=min(num_landmarks, len(job.pool)),
        num_check=num_check, embedding=embedding, store=store,
    )  # fmt: skip
    scored = picker.score(job.pool, job.target)
    quality = scored.report
    found = {
        "propagation": {**asdict(quality), "verdict": quality.verdict}, "excluded": len(scored.excluded),
        "backward_passes": scored.backward_passes, "cost": cost,
    }  # fmt: skip
    if first_process():
        typer.echo(json.dumps(found) if as_json else f"propagation is {quality.verdict} ({quality.how})")


def _first_there(folder: Path) -> Path:
    """Return the nearest folder above that exists; those below it would be made."""
    return folder if folder.exists() else _first_there(folder.parent)
