"""Fine-tuning a local model on local text with a streamed backward pass: what `thrifty streambp train` runs.

The folder of a run holds its settings, the checkpoints of ``Trainer``, and at the end the model.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from thrifty._common.extras import require
from thrifty._common.runs import Progress, enter_run, reporter
from thrifty.training.streambp.config import StreamBPConfig
from thrifty.training.streambp.corpus import blocks, documents
from thrifty.training.streambp.model import enable_streambp


def finetune(
    model_folder: Path,
    data: Path,
    out: Path,
    *,
    length: int,
    steps: int,
    learning_rate: float = 2e-5,
    batch: int = 1,
    accumulate: int = 1,
    seed: int = 0,
    bf16: bool = False,
    field: str = "text",
    save_every: int = 50,
    fsdp: bool = False,
    config: StreamBPConfig | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fine-tune and save; an interrupted run goes on from its last checkpoint, one that is complete stays as it is.

    Under ``torchrun`` every process takes sequences of its own, and gradients are averaged.

    Args:
        model_folder: A local model with its tokenizer, as ``save_pretrained`` writes them.
        data: A ``.jsonl`` or text file, or a folder of texts.
        out: Where checkpoints, and at the end the model, are written.
        length: Tokens of a sequence.
        steps: Optimiser steps in all.
        learning_rate: Of AdamW.
        batch: Sequences of a step on this process.
        accumulate: Steps whose gradients are added up.
        seed: Of the order of the data, and of dropout.
        bf16: Train in bfloat16.
        field: The field of a JSON object that holds the text.
        save_every: Steps between checkpoints.
        fsdp: Under ``torchrun``, shard weights, gradients and optimiser state, layer by layer (FSDP2).
        config: The settings of streaming.
        progress: Told (step, steps, loss) after every step.

    Returns:
        Steps, the first and the last loss, the number of sequences, and whether an earlier run went on.

    Raises:
        ValueError: The model cannot be streamed, the text is too short, or a run with other settings is to go on.
        OSError: There is no model at ``model_folder``, or ``out`` holds something else than an earlier run.
    """
    transformers = require("transformers", extra="llm")
    datasets = require("datasets", extra="llm")
    if not (model_folder / "config.json").exists():
        raise FileNotFoundError(f"{model_folder}: expected a model folder with config.json")
    if not learning_rate > 0:
        raise ValueError(f"learning_rate: expected a positive number, got {learning_rate!r}")
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if fsdp and not several:
        raise ValueError("fsdp: there is one process only; start several with torchrun")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    rows = blocks(tokenizer, documents(data, field), length)
    begun = {
        "model": str(model_folder.resolve()), "data": str(data.resolve()), "field": field, "length": length,
        "sequences": len(rows), "learning_rate": learning_rate, "batch": batch, "accumulate": accumulate, "seed": seed,
        "bf16": bf16,
    }  # fmt: skip
    checkpoint, done = enter_run(out, "streambp", begun)
    if done["global_step"] < steps:
        dtype = "bfloat16" if bf16 else "float32"
        model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype=dtype)
        enable_streambp(model, config)
        cpu = not torch.accelerator.is_available()
        arguments = transformers.TrainingArguments(
            str(out), max_steps=steps, learning_rate=learning_rate, per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulate, seed=seed, bf16=bf16, report_to="none", logging_steps=1,
            save_steps=save_every, save_total_limit=2, disable_tqdm=True, use_cpu=cpu,
            ddp_backend="gloo" if cpu and several else None, dataloader_pin_memory=not cpu, fsdp=fsdp or None,
        )  # fmt: skip
        trainer = transformers.Trainer(model, arguments, train_dataset=datasets.Dataset.from_list(rows))
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.add_callback(reporter(progress))
        trainer.train(resume_from_checkpoint=checkpoint)
        trainer.save_model(str(out))
        if trainer.is_world_process_zero():
            tokenizer.save_pretrained(out)
        done = {"global_step": trainer.state.global_step, "log_history": trainer.state.log_history}
    losses = [entry["loss"] for entry in done["log_history"] if "loss" in entry]
    return {
        "steps": done["global_step"],
        "sequences": len(rows),
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "resumed": checkpoint is not None,
    }
