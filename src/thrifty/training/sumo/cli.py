"""``thrifty sumo``: state of optimizers for a model, what fine-tuning changed as a LoRA adapter, pre-training."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from thrifty._common.extras import require
from thrifty._common.options import Field, Force, Json, Length, Precision, SaveEvery, Seed, say_step
from thrifty._common.runs import alone, first_process

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")


@app.callback()
def _sumo() -> None:
    """Low-rank optimizer with exactly orthogonalised moments: plan its memory, extract what it changed, pre-train.

    `plan` compares optimizers by the bytes they would keep for your model, `extract-lora` turns a fine-tuned model
    into a LoRA adapter, `pretrain` runs the paper's main experiment on your own text.
    """


@app.command()
def plan(
    model: Annotated[Path, typer.Argument(help="A .safetensors file, or a folder of them.", exists=True)],
    rank: Annotated[int, typer.Option(help="Rank of the subspaces.", min=1)] = 128,
    bytes_a_number: Annotated[int, typer.Option(help="4: float32 state; 2: bfloat16.", min=1)] = 4,
    as_json: Json = False,
) -> None:
    """Show the bytes of state that SUMO, GaLore, Muon, AdamW and SGD with momentum keep for a model's weights.

    Only names and shapes are read, so that a model of any size takes no memory. Embeddings, heads, norms and weights of
    fewer than 16 rows or columns keep AdamW's state, except under SGD.
    """
    from thrifty.training.sumo.adapter import is_linear_name
    from thrifty.training.sumo.groups import MIN_DIM
    from thrifty.training.sumo.memory import NUMBERS, estimate_state_bytes

    shapes = {name: shape for file in _files(model) for name, shape in _shapes(file)}
    low = {
        name: shape
        for name, shape in shapes.items()
        if (is_linear_name(name) or name.endswith("_proj_weight"))  # the latter: of torch's own attention
        and len(shape) >= 2
        and min(shape[0], math.prod(shape[1:])) >= MIN_DIM
    }
    if not low:
        raise ValueError(f"model: {model} holds no weight of a linear layer among {len(shapes)} tensors")
    flat = [(math.prod(shape),) for name, shape in shapes.items() if name not in low]
    found = {
        method: estimate_state_bytes([*low.values(), *flat], rank, method, bytes_a_number=bytes_a_number)
        for method in NUMBERS
    }
    if as_json:
        typer.echo(json.dumps({"rank": rank, "matrices": len(low), "others": len(flat), "bytes": found}))
        return
    table = Table("optimizer", "low-rank weights", "others", "total", box=None, header_style="bold")
    for method, held in found.items():
        table.add_row(method, *(f"{held[name] / 1e6:,.1f} MB" for name in ("matrices", "others", "total")))
    Console().print(table)


@app.command("extract-lora")
def extract(
    tuned: Annotated[Path, typer.Argument(help="The fine-tuned model: .safetensors file or folder.", exists=True)],
    base: Annotated[Path, typer.Argument(help="The model before, likewise.", exists=True)],
    out: Annotated[Path, typer.Option(help="Folder for the adapter (PEFT's format).")],
    rank: Annotated[int | None, typer.Option(help="At most; without it, each layer its numerical rank.", min=1)] = None,
    tol: Annotated[float, typer.Option(help="Singular values up to this share of the largest are zero.")] = 1e-3,
    base_model: Annotated[str | None, typer.Option(help="Name of the base model, for the configuration.")] = None,
    force: Force = False,
) -> None:
    """Write what fine-tuning changed as a LoRA adapter that PEFT loads."""
    from thrifty.training.sumo.adapter import extract_lora

    adapter = extract_lora(
        _Lazily(tuned), _Lazily(base), rank, tol, out, base_model=base_model or str(base), force=force
    )
    ranks = [factors.rank for factors in adapter.layers.values()]
    worst = max(factors.error for factors in adapter.layers.values())
    typer.echo(f"{len(ranks)} layers, ranks {min(ranks)} to {max(ranks)}, relative error at most {worst:.3g}: {out}")
    if adapter.left_out:
        typer.echo(f"not carried by the adapter: {', '.join(adapter.left_out)}", err=True)


@app.command()
def pretrain(
    config: Annotated[str, typer.Option(help="llama_60m, llama_130m, llama_350m, llama_1b, or a config.json.")],
    data: Annotated[list[Path], typer.Option(help="JSONL or text files, or folders of them; may be repeated.")],
    tokenizer: Annotated[Path, typer.Option(help="Folder of a tokenizer.", exists=True)],
    out: Annotated[Path, typer.Option(help="Folder of the run; one that was interrupted goes on.")],
    optimizer: Annotated[str, typer.Option(help="sumo, galore or adamw.")] = "sumo",
    rank: Annotated[int, typer.Option(help="Rank of the subspaces.", min=1)] = 128,
    update_proj_gap: Annotated[int, typer.Option(help="Steps between two refreshes.", min=1)] = 200,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 2e-3,
    scale: Annotated[float, typer.Option(help="Of SUMO's orthogonal step, or of GaLore's.")] = 1.0,
    steps: Annotated[int, typer.Option(help="Optimizer steps in all.", min=1)] = 10_000,
    batch: Annotated[int, typer.Option(help="Sequences a step, over all processes.", min=1)] = 512,
    micro_batch: Annotated[int, typer.Option(help="Sequences that a process handles at once.", min=1)] = 16,
    length: Length = 256,
    precision: Precision = "fp32",
    field: Field = "text",
    save_every: SaveEvery = 1000,
    seed: Seed = 0,
) -> None:
    """Pre-train a LLaMA on local text and report its perplexity on every hundredth document, which is held out.

    `torchrun --no-python --nproc-per-node 8 thrifty sumo pretrain ...` makes it data-parallel.
    """
    from thrifty.training.sumo.pretrain import Recipe, pretrain

    recipe = Recipe(
        config, optimizer, rank, update_proj_gap, lr, scale, steps, batch, micro_batch, length, precision, seed
    )

    with alone(out):
        result = pretrain(recipe, data, tokenizer, out, field=field, save_every=save_every, progress=say_step)
    if first_process():
        typer.echo(json.dumps(result))


class _Lazily(Mapping[str, Any]):
    """Tensors of a model's files, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._files = {name: file for file in _files(path) for name, _ in _shapes(file)}

    def __getitem__(self, name: str) -> Any:
        opened = require("safetensors", extra="torch").safe_open(self._files[name], framework="pt")
        with opened as file:
            return file.get_tensor(name)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or any(file.suffix != ".safetensors" for file in files):
        raise ValueError(f"model: expected a .safetensors file or a folder that holds some, got {path}")
    return files


def _shapes(file: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    safetensors = require("safetensors", extra="torch")
    try:
        with safetensors.safe_open(file, framework="np") as opened:
            for name in opened.keys():  # noqa: SIM118 (not a dict)
                yield name, tuple(opened.get_slice(name).get_shape())
    except safetensors.SafetensorError as error:
        raise ValueError(f"model: {file} is no safetensors file: {error}") from error
