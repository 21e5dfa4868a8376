"""`thrifty streambp`: plan the memory of a training step, or fine-tune a local model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from thrifty._common.checks import one_of
from thrifty._common.extras import require
from thrifty._common.options import Field, Json, Length, Precision, SaveEvery, Seed, say_step
from thrifty._common.runs import PRECISIONS, alone, first_process
from thrifty._common.weights import read_pretrained

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

LayerChunk = Annotated[
    str, typer.Option(metavar="TOKENS|auto", help="Tokens of a layer's chunk; auto: a third of the sequence.")
]
HeadChunk = Annotated[
    str,
    typer.Option(
        metavar="TOKENS|auto", help="Tokens whose logits exist at once; auto: the bytes of all hidden states."
    ),
]
Budget = typer.Option(help="GiB that a step may allocate beside weights and optimiser.", min=0.001)
#: What the modes of the planner are.
MEANS = {
    "none": "all activations kept",
    "checkpoint": "gradient checkpointing, full logits",
    "checkpoint+fused": "gradient checkpointing, a fused head",
    "stream": "streamed layers and head",
}


@app.callback()
def streambp() -> None:
    """Exact back-propagation of long sequences in a fraction of the memory."""


@app.command()
def plan(
    model: Annotated[Path, typer.Argument(help="A model folder, or its config.json.", exists=True)],
    length: Length,
    batch: Annotated[int, typer.Option(help="Sequences a step.", min=1)] = 1,
    layer_chunk: LayerChunk = "auto",
    head_chunk: HeadChunk = "auto",
    precision: Precision = "fp32",
    padded: Annotated[bool, typer.Option("--padded", help="Batches carry a padding mask.")] = False,
    trained: Annotated[
        float, typer.Option(help="Share of the weights that are trained (adapters: 0.01).", min=0.0, max=1.0)
    ] = 1.0,
    budget_gib: Annotated[float | None, Budget] = None,
    as_json: Json = False,
) -> None:
    """Predict what a training step allocates beside weights and optimiser, for each way of doing it.

    With --budget-gib, also find the largest layer chunk that fits.
    """
    from thrifty.training.streambp.planner import MODES, estimate_peak_memory, largest_layer_chunk

    config = read_pretrained(require("transformers", extra="llm").AutoConfig, model, name="model")
    settings = _settings(layer_chunk, head_chunk)
    one_of("precision", precision, PRECISIONS)
    itemsize = 2 if precision == "bf16" else 4
    found: dict[str, Any] = {}
    for mode in MODES:
        estimate = estimate_peak_memory(
            config, batch, length, mode=mode, itemsize=itemsize, settings=settings, padded=padded, trained=trained
        )
        found[mode] = {
            "peak_gib": round(estimate.peak / 2**30, 3),
            "of_it_gradients_gib": round(estimate.gradients / 2**30, 3),
        }
    if budget_gib is not None:
        chunk = largest_layer_chunk(config, batch, length, int(budget_gib * 2**30), itemsize, settings, padded)
        chosen = settings.with_overrides(layer_chunk_size=chunk)
        peak = estimate_peak_memory(
            config, batch, length, itemsize=itemsize, settings=chosen, padded=padded, trained=trained
        ).peak
        found["budget"] = {"layer_chunk": chunk, "peak_gib": round(peak / 2**30, 3), "fits": peak <= budget_gib * 2**30}
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{batch} x {length} tokens, {precision}: what a step allocates at most")
    for mode in MODES:
        typer.echo(f"{mode:<17} {found[mode]['peak_gib']:>9.3f} GiB  {MEANS[mode]}")
    if budget_gib is not None:
        fits = "fits" if found["budget"]["fits"] else "does not fit; even so it needs"
        typer.echo(
            f"in {budget_gib:g} GiB a layer chunk of {found['budget']['layer_chunk']} tokens {fits}: "
            f"{found['budget']['peak_gib']:.3f} GiB"
        )


@app.command()
def train(
    model: Annotated[Path, typer.Argument(help="Folder of a local model with its tokenizer.")],
    data: Annotated[
        Path, typer.Option(help="Texts (.jsonl, a text file, a folder), or the .jsonl of --objective.", exists=True)
    ],
    out: Annotated[Path, typer.Option(help="Where checkpoints and the model go; a run there goes on.")],
    length: Annotated[
        int, typer.Option(help="Tokens: of a sequence; of prompt and answer (dpo) or answer (grpo), at most.", min=2)
    ],
    objective: Annotated[
        str,
        typer.Option(
            help="**sft**: texts. **dpo**: prompt, chosen, rejected. **grpo**: prompt, and what --reward takes."
        ),
    ] = "sft",
    steps: Annotated[int, typer.Option(help="Optimiser steps in all.", min=1)] = 100,
    lr: Annotated[float, typer.Option(help="Learning rate of AdamW.")] = 2e-5,
    batch: Annotated[int, typer.Option(help="Sequences that a process handles at once.", min=1)] = 1,
    accumulate: Annotated[int, typer.Option(help="Steps whose gradients are added up.", min=1)] = 1,
    beta: Annotated[
        float | None,
        typer.Option(help="dpo, grpo: weight of the distance to the model as it was; none: TRL's.", min=0.0),
    ] = None,
    generations: Annotated[int, typer.Option(help="grpo: answers to a prompt.", min=2)] = 8,
    reward: Annotated[
        str | None, typer.Option(help="grpo: a reward function as TRL takes it, by import path (my_rewards.short).")
    ] = None,
    layer_chunk: LayerChunk = "auto",
    head_chunk: HeadChunk = "auto",
    budget_gib: Annotated[float | None, Budget] = None,
    offload: Annotated[bool, typer.Option("--offload", help="Keep layers' inputs in host memory.")] = False,
    precision: Precision = "fp32",
    field: Field = "text",
    save_every: SaveEvery = 50,
    fsdp: Annotated[bool, typer.Option("--fsdp", help="Under torchrun, shard weights and optimiser (FSDP2).")] = False,
    seed: Seed = 0,
) -> None:
    """Fine-tune a local causal language model on local data; run it again to go on, or under torchrun.

    With --budget-gib and --layer-chunk auto, the layer chunk is the largest that fits.
    """
    from thrifty.training.streambp.finetune import finetune
    from thrifty.training.streambp.objectives import Recipe

    recipe = Recipe(length, steps, objective, lr, batch, accumulate, precision, beta, generations, reward, seed)

    settings = _settings(layer_chunk, head_chunk).with_overrides(
        offload=offload, memory_budget_bytes=None if budget_gib is None else int(budget_gib * 2**30)
    )
    with alone(out):
        found = finetune(
            recipe, model, data, out, field=field, save_every=save_every, fsdp=fsdp, config=settings, progress=say_step
        )
    if first_process():
        typer.echo(json.dumps(found))


def _settings(layer_chunk: str, head_chunk: str) -> Any:
    from thrifty.training.streambp.config import StreamBPConfig

    def size(name: str, value: str) -> Any:
        if value == "auto":
            return value
        if not value.isdigit():
            raise ValueError(f'{name}: expected "auto" or a positive number of tokens, got {value!r}')
        return int(value)

    return StreamBPConfig(
        layer_chunk_size=size("--layer-chunk", layer_chunk), head_chunk_size=size("--head-chunk", head_chunk)
    )
