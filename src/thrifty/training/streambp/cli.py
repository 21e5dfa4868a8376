"""`thrifty streambp`: plan the memory of a training step, fine-tune a local model, or run the evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

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
    model: Annotated[Path, typer.Option(help="A model folder, or its config.json.", exists=True)],
    seq_len: Annotated[int, typer.Option(help="Tokens of a sequence.", min=1)],
    batch: Annotated[int, typer.Option(help="Sequences a step.", min=1)] = 1,
    layer_chunk: LayerChunk = "auto",
    head_chunk: HeadChunk = "auto",
    bf16: Annotated[bool, typer.Option("--bf16/--fp32", help="Precision of weights and activations.")] = True,
    padded: Annotated[bool, typer.Option("--padded", help="Batches carry a padding mask.")] = False,
    trained: Annotated[
        float, typer.Option(help="Share of the weights that are trained (adapters: 0.01).", min=0.0, max=1.0)
    ] = 1.0,
    budget_gib: Annotated[float | None, Budget] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict what a training step allocates beside weights and optimiser, for each way of doing it.

    With --budget-gib, also find the largest layer chunk that fits.
    """
    from transformers import AutoConfig

    from thrifty.training.streambp.planner import MODES, estimate_peak_memory, largest_layer_chunk

    config = AutoConfig.from_pretrained(model)
    settings = _settings(layer_chunk, head_chunk)
    itemsize = 2 if bf16 else 4
    found: dict[str, Any] = {}
    for mode in MODES:
        estimate = estimate_peak_memory(
            config, batch, seq_len, mode=mode, itemsize=itemsize, settings=settings, padded=padded, trained=trained
        )
        found[mode] = {
            "peak_gib": round(estimate.peak / 2**30, 3),
            "of_it_gradients_gib": round(estimate.gradients / 2**30, 3),
        }
    if budget_gib is not None:
        chunk = largest_layer_chunk(config, batch, seq_len, int(budget_gib * 2**30), itemsize, settings, padded)
        chosen = settings.with_overrides(layer_chunk_size=chunk)
        peak = estimate_peak_memory(
            config, batch, seq_len, itemsize=itemsize, settings=chosen, padded=padded, trained=trained
        ).peak
        found["budget"] = {"layer_chunk": chunk, "peak_gib": round(peak / 2**30, 3), "fits": peak <= budget_gib * 2**30}
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{batch} x {seq_len} tokens, {'bf16' if bf16 else 'fp32'}: what a step allocates at most")
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
    model: Annotated[Path, typer.Option(help="Folder of a local model with its tokenizer.")],
    data: Annotated[Path, typer.Option(help="A .jsonl or text file, or a folder of texts.", exists=True)],
    out: Annotated[Path, typer.Option(help="Where checkpoints and the model go; a run there goes on.")],
    seq_len: Annotated[int, typer.Option(help="Tokens of a sequence.", min=2)],
    steps: Annotated[int, typer.Option(help="Optimiser steps in all.", min=1)] = 100,
    lr: Annotated[float, typer.Option(help="Learning rate of AdamW.")] = 2e-5,
    batch: Annotated[int, typer.Option(help="Sequences a step.", min=1)] = 1,
    accumulate: Annotated[int, typer.Option(help="Steps whose gradients are added up.", min=1)] = 1,
    layer_chunk: LayerChunk = "auto",
    head_chunk: HeadChunk = "auto",
    budget_gib: Annotated[float | None, Budget] = None,
    offload: Annotated[bool, typer.Option("--offload", help="Keep layers' inputs in host memory.")] = False,
    bf16: Annotated[bool, typer.Option("--bf16/--fp32", help="Precision.")] = False,
    field: Annotated[str, typer.Option(help="Field of a JSON object that holds the text.")] = "text",
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 50,
    fsdp: Annotated[bool, typer.Option("--fsdp", help="Under torchrun, shard weights and optimiser (FSDP2).")] = False,
    seed: Annotated[int, typer.Option(help="Every random choice follows from it.", min=0)] = 0,
) -> None:
    """Fine-tune a local causal language model on local text; run it again to go on, or under torchrun.

    With --budget-gib and --layer-chunk auto, the layer chunk is the largest that fits.
    """
    from thrifty._common.runs import first_process
    from thrifty.training.streambp.finetune import finetune

    def progress(step: int, of: int, loss: float) -> None:
        typer.echo(f"step {step} of {of}: loss {loss:.4f}", err=True)

    settings = _settings(layer_chunk, head_chunk).with_overrides(
        offload=offload, memory_budget_bytes=None if budget_gib is None else int(budget_gib * 2**30)
    )
    found = finetune(
        model, data, out, length=seq_len, steps=steps, learning_rate=lr, batch=batch, accumulate=accumulate, seed=seed,
        bf16=bf16, field=field, save_every=save_every, fsdp=fsdp, config=settings, progress=progress,
    )  # fmt: skip
    if first_process():
        typer.echo(json.dumps(found))


@app.command()
def bench(
    full: Annotated[bool, typer.Option("--full/--quick", help="The whole experiment, or its core.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for results and report.")] = Path("report"),
) -> None:
    """Measure it here, beside checkpointing and fused heads: the same as `thrifty bench streambp`."""
    from thrifty.bench import command

    command.bench(["streambp"], full, 0, "cpu", None, False, out, None, False)


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
