"""``thrifty advise``: where a workload's resources go, and which method would change that."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from thrifty._common.options import Json
from thrifty._common.profiles import devices

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

Model = Annotated[
    str,
    typer.Option(
        "--model",
        help="A config.json, the folder that holds one, or a name that comes along (qwen3-30b-a3b, mixtral-8x7b, "
        "deepseek-v3, gpt-oss-20b, ...); to train, also a CLIP model, of open_clip or Transformers.",
    ),
]
Gpu = Annotated[str, typer.Option("--gpu", help=f"The device: {', '.join(devices())}; or the JSON file of another.")]
Optimizer = Annotated[
    str,
    typer.Option(
        "--optimizer",
        help="Whose state is kept: adamw (all in --dtype), adamw-mixed (32-bit copies and moments), adamw-8bit, "
        "sgd-momentum, sgd, lion, adafactor, muon, galore, sumo; or the JSON file of one.",
    ),
]
Gpus = Annotated[
    int,
    typer.Option(
        "--gpus", help="Devices that share the model: weights, gradients and state are split over them.", min=1
    ),
]
Profiles = Annotated[
    Path | None, typer.Option("--profiles", help="A folder of your own devices and optimizers, one JSON file each.")
]


@app.callback()
def _advise() -> None:
    """Say where a workload's bytes, FLOPs and seconds go, and what each method would change.

    Each verb prints the ledger of what you describe (what takes how much, and by which formula), whether it fits the
    device, and which resource is scarcest; then, for every method of this house that helps, what it saves, what it
    costs in return, and the line of code that switches it on. Shapes are counted from configurations: nothing is
    downloaded, no weight is read, no GPU is needed. `thrifty advise VERB --help` lists what a verb can be told.
    """


@app.command()
def train(
    model: Model,
    seq_len: Annotated[int, typer.Option("--seq-len", help="Tokens of a sequence.", min=2)] = 4096,
    batch: Annotated[
        int,
        typer.Option(
            "--batch", help="Examples a step and device; for dpo, pairs; for grpo, prompts of eight answers.", min=1
        ),
    ] = 1,
    optimizer: Optimizer = "adamw",
    dtype: Annotated[
        str, typer.Option("--dtype", help="Precision of weights and activations: bf16, fp16 or fp32.")
    ] = "bf16",
    gpu: Gpu = "h100-80gb",
    gpus: Gpus = 1,
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            help="sft (next tokens), dpo (pairs, beside a frozen copy) or grpo (eight answers a prompt are generated).",
        ),
    ] = "sft",
    lora: Annotated[
        str, typer.Option("--lora", help="Train adapters of that rank on all linear layers, and freeze the rest: r=16.")
    ] = "",
    checkpointing: Annotated[
        bool,
        typer.Option(
            "--checkpointing/--no-checkpointing",
            help="Keep only the layers' inputs, and recompute the rest in the backward pass.",
        ),
    ] = True,
    rank: Annotated[int, typer.Option("--rank", help="Rank of a low-rank optimizer (galore, sumo).", min=1)] = 128,
    accumulated: Annotated[
        bool, typer.Option("--accumulated", help="Gradients are accumulated over several batches.")
    ] = False,
    fused_head: Annotated[
        bool, typer.Option("--fused-head", help="The loss is computed a few tokens at a time, as by TRL or Liger.")
    ] = False,
    offload: Annotated[
        str,
        typer.Option(
            "--offload", help="What waits in the host's memory: checkpoints, optimizer, weights; several with commas."
        ),
    ] = "",
    context_parallel: Annotated[
        int, typer.Option("--context-parallel", help="Of the GPUs, how many share a sequence.", min=1)
    ] = 1,
    generated: Annotated[
        int | None, typer.Option("--generated", help="GRPO: tokens of an answer; half of the sequence unless said.")
    ] = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Training a language model or a CLIP model: does it fit, and how long a sequence or large a batch would?

    All weights of an 8B model on one card:
    `thrifty advise train --model DIR --seq-len 32768 --gpu h100-80gb`

    Adapters on a 24 GB card:
    `thrifty advise train --model DIR --lora r=16 --gpu rtx-4090`

    Reinforcement learning on eight cards:
    `thrifty advise train --model DIR --objective grpo --gpus 8`

    Images and captions, contrastively, 256 pairs a card (sequence and checkpointing are a language model's):
    `thrifty advise train --model ViT-B-32 --batch 256 --gpus 8`
    """
    from thrifty.advise.contrastive import advise_contrastive, is_two_towers
    from thrifty.advise.tuning import advise_training

    if is_two_towers(model):
        if lora or offload or objective != "sft" or context_parallel != 1:
            raise ValueError(
                "model: expected a language model with --lora, --offload, --objective or --context-parallel"
            )
        _print(
            advise_contrastive(
                model, device=gpu, optimizer=optimizer, batch=batch, dtype=dtype, gpus=gpus, profiles=profiles
            ),
            as_json,
        )
        return
    found = advise_training(
        model, device=gpu, optimizer=optimizer, length=seq_len, batch=batch, dtype=dtype, gpus=gpus,
        context_parallel=context_parallel, objective=objective, lora_rank=_rank(lora), checkpointing=checkpointing,
        fused_head=fused_head, offload=[each.strip() for each in offload.split(",") if each.strip()], rank=rank,
        accumulated=accumulated, generated=generated, profiles=profiles,
    )  # fmt: skip
    _print(found, as_json)


@app.command()
def serve(
    model: Model,
    draft: Annotated[
        str,
        typer.Option(
            "--draft", help="A smaller model of the same vocabulary, which would draft tokens for --model to verify."
        ),
    ] = "",
    batch: Annotated[int, typer.Option("--batch", help="Requests decoded together, or images at once.", min=1)] = 32,
    context: Annotated[
        int, typer.Option("--context", help="Tokens of a request whose keys and values are cached.", min=1)
    ] = 2048,
    tokens: Annotated[
        int, typer.Option("--tokens", help="Tokens to be decoded, of all requests together.", min=1)
    ] = 1_000_000,
    alpha: Annotated[float, typer.Option("--alpha", help="Chance that a drafted token is accepted, 0 to 1.")] = 0.7,
    images: Annotated[
        int,
        typer.Option(
            "--images", help="So many images through --model, then the name of a vision transformer in timm.", min=0
        ),
    ] = 0,
    gpu: Gpu = "h100-80gb",
    gpus: Gpus = 1,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Serving a model: memory of weights and cache, time at best, and whether drafting or fewer tokens would pay.

    A language model, and a smaller one that could draft for it:
    `thrifty advise serve --model qwen3-30b-a3b --draft qwen3-0.6b --batch 64`

    A vision transformer:
    `thrifty advise serve --model vit_small_patch16_224 --images 1000000`
    """
    from thrifty.advise.serving import advise_serving

    found = advise_serving(
        model, draft=draft or None, device=gpu, gpus=gpus, batch=batch, context=context, tokens=tokens, alpha=alpha,
        images=images, profiles=profiles,
    )  # fmt: skip
    _print(found, as_json)


@app.command()
def data(
    model: Model,
    pool: Annotated[int, typer.Option("--pool", help="Examples at hand, all of them.", min=1)],
    selected: Annotated[int, typer.Option("--selected", help="Examples that would be chosen to train on.", min=1)],
    tokens: Annotated[int, typer.Option("--tokens", help="Tokens of an example.", min=1)] = 2048,
    epochs: Annotated[int, typer.Option("--epochs", help="Passes over what is trained on.", min=1)] = 2,
    selection: Annotated[
        str,
        typer.Option(
            "--selection", help="How you choose now: none (train on all), rds+, mid-perplexity or less (by gradients)."
        ),
    ] = "none",
    gpu: Gpu = "h100-80gb",
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Choosing what to fine-tune on: what training on all of it costs, and on a chosen part.

    `thrifty advise data --model DIR --pool 200000 --selected 10000`
    """
    from thrifty.advise.selecting import advise_data

    found = advise_data(
        model, pool=pool, selected=selected, tokens=tokens, epochs=epochs, device=gpu, selection=selection,
        profiles=profiles,
    )  # fmt: skip
    _print(found, as_json)


@app.command()
def federate(
    model: Model,
    clients: Annotated[int, typer.Option("--clients", help="Clients that take part in a round.", min=1)],
    steps: Annotated[
        int, typer.Option("--steps", help="Steps that a client trains before it sends its weights.", min=1)
    ] = 10,
    uplink: Annotated[float, typer.Option("--uplink", help="Mbit/s that a client sends and receives.")] = 20.0,
    seq_len: Annotated[int, typer.Option("--seq-len", help="Tokens of a sequence.", min=2)] = 1024,
    batch: Annotated[int, typer.Option("--batch", help="Examples a step of a client.", min=1)] = 1,
    optimizer: Optimizer = "adamw",
    dtype: Annotated[
        str, typer.Option("--dtype", help="Precision of weights and activations: bf16, fp16 or fp32.")
    ] = "bf16",
    lora: Annotated[
        str, typer.Option("--lora", help="Train adapters of that rank on all linear layers, and freeze the rest: r=16.")
    ] = "r=16",
    gpu: Gpu = "rtx-4090",
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """A round of federated fine-tuning: one client's memory and time, and what travels.

    `thrifty advise federate --model DIR --clients 20 --gpu phone --uplink 20`
    """
    from thrifty.advise.federated import advise_federated

    found = advise_federated(
        model, clients=clients, steps=steps, uplink=uplink, device=gpu, optimizer=optimizer, length=seq_len,
        batch=batch, dtype=dtype, lora_rank=_rank(lora), profiles=profiles,
    )  # fmt: skip
    _print(found, as_json)


@app.command()
def decide(
    rows: Annotated[int, typer.Option("--rows", help="Rows of the table.", min=1)],
    features: Annotated[int, typer.Option("--features", help="Columns that decide.", min=1)],
    queries: Annotated[
        int, typer.Option("--queries", help="People who ask what would have changed their decision.", min=0)
    ] = 0,
    depth: Annotated[int, typer.Option("--depth", help="Depth of the decision tree.", min=1)] = 4,
    as_json: Json = False,
) -> None:
    """Decisions from a table, by a tree or a linear model: seconds to fit it, and to tell people what to change.

    `thrifty advise decide --rows 5000 --features 30 --queries 1000`
    """
    from thrifty.advise.deciding import advise_decisions

    _print(advise_decisions(rows=rows, features=features, queries=queries, depth=depth), as_json)


@app.command()
def sequence(
    length: Annotated[int, typer.Option("--length", help="Time steps of a sequence.", min=1)],
    state: Annotated[int, typer.Option("--state", help="Channels of the recurrent layer's state.", min=1)],
    inputs: Annotated[int, typer.Option("--inputs", help="Channels that it reads; 0: as many.", min=0)] = 0,
    batch: Annotated[int, typer.Option("--batch", help="Sequences a step.", min=1)] = 1,
    layers: Annotated[int, typer.Option("--layers", help="Recurrent layers, one on another.", min=1)] = 1,
    rnn: Annotated[str, typer.Option("--rnn", help="What is used now: gru or lstm.")] = "gru",
    gpu: Gpu = "h100-80gb",
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Training a recurrent layer on long sequences: what it keeps for the backward pass, and arithmetic.

    `thrifty advise sequence --length 17984 --state 64 --batch 32 --layers 6`
    """
    from thrifty.advise.recurrent import advise_sequences

    found = advise_sequences(
        length=length, state=state, inputs=inputs, batch=batch, layers=layers, rnn=rnn, device=gpu, profiles=profiles
    )
    _print(found, as_json)


@app.command()
def video(
    videos: Annotated[list[Path], typer.Argument(help="Videos, folders of them, or .txt lists of paths.", exists=True)],
    as_json: Json = False,
) -> None:
    """Training event-camera networks on ordinary video: what stored voxel grids take, and how to store none.

    `thrifty advise video FOLDER`
    """
    from thrifty.advise.filming import advise_videos

    _print(advise_videos(videos), as_json)


def _rank(lora: str) -> int:
    """Read ``r=16`` (or ``16``)."""
    if not lora:
        return 0
    found = re.fullmatch(r"(?:r=)?([1-9][0-9]*)", lora.strip())
    if not found:
        raise ValueError(f"--lora: expected a rank, as in r=16, got {lora!r}")
    return int(found.group(1))


def _print(found: object, as_json: bool) -> None:
    from thrifty.advise.advice import Advice
    from thrifty.advise.show import show, to_json

    assert isinstance(found, Advice)
    if as_json:
        typer.echo(json.dumps(to_json(found), indent=1, default=str))
    else:
        show(found)
