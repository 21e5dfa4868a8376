"""Pre-training of a LLaMA from random weights on local text: the paper's main experiment, as a command.

The protocol is GaLore's (Zhao et al., arXiv 2403.03507, section 5), which the paper follows: warm-up over a tenth of
the steps, a cosine to a tenth of the rate, no weight decay, bfloat16 weights on request, perplexity on held-out text.
``torchrun`` makes it data-parallel.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty._common.runs import Progress, enter_run, reporter
from thrifty.training.sumo.groups import sumo_param_groups
from thrifty.training.sumo.optimizer import SUMO

#: Hidden size, feed-forward size, layers, heads of GaLore's models, which are the paper's.
LLAMA = {
    "llama_60m": (512, 1376, 8, 8),
    "llama_130m": (768, 2048, 12, 12),
    "llama_350m": (1024, 2736, 24, 16),
    "llama_1b": (2048, 5461, 24, 32),
}
OPTIMIZERS = ("sumo", "galore", "adamw")

#: One document in so many is held out.
HELD_OUT_EVERY = 100


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Args:
        config: A name of :data:`LLAMA`, or the path of a model's ``config.json``.
        optimizer: ``"sumo"``, ``"galore"`` (galore-torch's) or ``"adamw"``.
        rank: Of the subspaces.
        update_proj_gap: Steps between two refreshes.
        lr: Peak learning rate.
        scale: α of SUMO, or GaLore's scale.
        steps: Optimizer steps in all.
        batch: Sequences a step, over all processes and accumulation.
        micro_batch: Sequences that a process handles at once.
        length: Tokens of a sequence.
        bf16: Weights and activations in bfloat16.
        seed: Of the weights, the order of the data and the sketches.
    """

    config: str
    optimizer: str = "sumo"
    rank: int = 128
    update_proj_gap: int = 200
    lr: float = 2e-3
    scale: float = 1.0
    steps: int = 10_000
    batch: int = 512
    micro_batch: int = 16
    length: int = 256
    bf16: bool = False
    seed: int = 0

    def accumulation(self) -> int:
        """Return the micro-batches of a process that make a step.

        Raises:
            ValueError: The batch is not a multiple of the processes' micro-batches.
        """
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if self.batch % (world * self.micro_batch):
            raise ValueError(
                f"batch: {self.batch} is no multiple of {world} processes x micro_batch {self.micro_batch}"
            )
        return self.batch // (world * self.micro_batch)


def pretrain(
    recipe: Recipe,
    texts: Sequence[Path],
    tokenizer: Path,
    out: Path,
    *,
    field: str = "text",
    eval_every: int = 1000,
    eval_documents: int = 1000,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train from random weights and report the perplexity on held-out text; an interrupted run goes on.

    Args:
        recipe: How to train.
        texts: ``.jsonl``, ``.json.gz`` or text files (one document a line), or folders of them; they are streamed.
        tokenizer: Folder of a tokenizer.
        out: Folder for checkpoints, ``result.json`` and the model.
        field: The field of a JSON object that holds the text.
        eval_every: Steps between two looks at the held-out text, and between checkpoints.
        eval_documents: Held-out documents that are looked at.
        progress: Told (step, steps, loss) at every logged step.

    Returns:
        ``steps``, ``loss`` (nats a token, held out), ``perplexity``, ``state_bytes`` and ``resumed``.

    Raises:
        ValueError: A setting is out of range, or a run with other settings is in ``out``.
        FileNotFoundError: There is no text, or no configuration.
        FileExistsError: ``out`` holds something else.
    """
    transformers = require("transformers", extra="llm")
    if recipe.optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer: expected one of {', '.join(OPTIMIZERS)}, got {recipe.optimizer!r}")
    accumulation, files = recipe.accumulation(), text_files(texts)
    vocabulary = transformers.AutoTokenizer.from_pretrained(tokenizer)
    settings = asdict(recipe) | {"texts": [str(file.resolve()) for file in files], "field": field}
    config = llama_config(recipe.config, len(vocabulary))
    checkpoint, _ = enter_run(out, "sumo", settings)
    transformers.set_seed(recipe.seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    if recipe.bf16:
        model.bfloat16()
    cpu = not torch.accelerator.is_available()
    galore = {
        "optim": "galore_adamw",
        "optim_target_modules": ["attn", "mlp"],
        "optim_args": f"rank={recipe.rank}, update_proj_gap={recipe.update_proj_gap}, scale={recipe.scale}",
    }
    arguments = transformers.TrainingArguments(
        str(out), max_steps=recipe.steps, learning_rate=recipe.lr, per_device_train_batch_size=recipe.micro_batch,
        per_device_eval_batch_size=recipe.micro_batch, gradient_accumulation_steps=accumulation, seed=recipe.seed,
        bf16=recipe.bf16, weight_decay=0.0, max_grad_norm=1.0, warmup_steps=max(1, recipe.steps // 10),
        lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs={"min_lr_rate": 0.1}, eval_strategy="steps",
        eval_steps=eval_every, save_steps=eval_every, save_total_limit=2,
        logging_steps=min(10, eval_every, recipe.steps), report_to="none",
        disable_tqdm=True, use_cpu=cpu, dataloader_pin_memory=not cpu,
        ddp_backend="gloo" if cpu and int(os.environ.get("WORLD_SIZE", "1")) > 1 else None,
        **(galore if recipe.optimizer == "galore" else {}),
    )  # fmt: skip
    optimizer = None
    if recipe.optimizer == "sumo":
        optimizer = SUMO(
            sumo_param_groups(model, rank=recipe.rank), lr=recipe.lr, update_proj_gap=recipe.update_proj_gap,
            scale=recipe.scale, seed=recipe.seed,
        )  # fmt: skip
    train, held_out = (_blocks(files, field, vocabulary, recipe.length, held=held) for held in (False, True))
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=train,
        eval_dataset=held_out.take(eval_documents),
        optimizers=(optimizer, None),
        callbacks=[reporter(progress)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=checkpoint)
    loss = trainer.evaluate()["eval_loss"]
    trainer.save_model(str(out))
    result = {
        "steps": trainer.state.global_step,
        "loss": loss,
        "perplexity": math.exp(loss),
        "state_bytes": state_bytes(trainer.optimizer),
        "resumed": checkpoint is not None,
    }
    if trainer.is_world_process_zero():
        vocabulary.save_pretrained(out)
        write_whole(out / "result.json", json.dumps(result, indent=1) + "\n", force=True)
    return result


def llama_config(config: str, vocabulary: int) -> Any:
    """Return the configuration of a model of :data:`LLAMA`, or of a ``config.json``.

    Raises:
        FileNotFoundError: It is neither.
    """
    transformers = require("transformers", extra="llm")
    if config not in LLAMA:
        if not Path(config).is_file():
            raise FileNotFoundError(f"config: expected one of {', '.join(LLAMA)} or a config.json, got {config}")
        made = transformers.AutoConfig.from_pretrained(config)
        made.vocab_size = vocabulary
        return made
    hidden, inner, layers, heads = LLAMA[config]
    return transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, max_position_embeddings=1024, use_cache=False,
    )  # fmt: skip


def text_files(texts: Sequence[Path]) -> list[Path]:
    """Return the files meant, in sorted order.

    Raises:
        FileNotFoundError: There are none.
    """
    suffixes = (".jsonl", ".json.gz", ".jsonl.gz", ".txt")
    files = [
        file
        for path in texts
        for file in (sorted(p for p in path.rglob("*") if p.name.endswith(suffixes)) if path.is_dir() else [path])
    ]
    missing = [str(file) for file in files if not file.is_file()]
    if missing or not files:
        raise FileNotFoundError(f"texts: no text at {', '.join(missing) or ', '.join(map(str, texts))}")
    return files


def state_bytes(optimizer: Any) -> int:
    """Return the bytes of every tensor in an optimizer's state, GaLore's projectors included."""
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
    total = 0
    for state in inner.state.values():
        held = [getattr(value, "ortho_matrix", value) for value in state.values()]
        total += sum(t.numel() * t.element_size() for t in held if isinstance(t, torch.Tensor))
    return total


def _blocks(files: Sequence[Path], field: str, tokenizer: Any, length: int, *, held: bool) -> Any:
    """Return a stream of blocks of ``length`` tokens: of every hundredth document (``held``), or of all others."""
    datasets = require("datasets", extra="llm")
    plain = [str(file) for file in files if file.suffix == ".txt"]
    objects = [str(file) for file in files if file.suffix != ".txt"]
    streams = []
    if plain:
        streams.append(datasets.load_dataset("text", data_files=plain, split="train", streaming=True))
    if objects:
        loaded = datasets.load_dataset("json", data_files=objects, split="train", streaming=True)
        streams.append(loaded if field == "text" else loaded.rename_column(field, "text"))
    documents = datasets.concatenate_datasets([stream.select_columns(["text"]) for stream in streams])
    chosen = documents.filter(
        lambda _, index: (index % HELD_OUT_EVERY == HELD_OUT_EVERY - 1) == held, with_indices=True
    )

    def cut(batch: Mapping[str, list[str]]) -> dict[str, list[list[int]]]:
        ids: list[int] = []
        for tokens in tokenizer(batch["text"], add_special_tokens=False)["input_ids"]:
            ids += [*tokens, tokenizer.eos_token_id]
        rows = list(_whole(ids, length))
        return {"input_ids": rows, "labels": rows}

    return chosen.map(cut, batched=True, batch_size=1000, remove_columns=["text"])


def _whole(ids: list[int], length: int) -> Iterator[list[int]]:
    for start in range(0, len(ids) - length + 1, length):
        yield ids[start : start + length]
