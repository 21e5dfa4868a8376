"""Fine-tuning a local model on local text with a streamed backward pass: what `thrifty streambp train` runs.

The folder of a run holds its settings, the checkpoints of ``Trainer``, and at the end the model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thrifty._common.checks import one_of
from thrifty._common.extras import require
from thrifty._common.runs import PRECISIONS, Progress, enter_run, reporter, training_arguments, world
from thrifty._common.texts import blocks, documents
from thrifty.training.streambp.config import StreamBPConfig
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
    precision: str = "fp32",
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
        precision: Of weights and activations: ``"fp32"`` or ``"bf16"``.
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
    one_of("precision", precision, PRECISIONS)
    if fsdp and world()[1] == 1:
        raise ValueError("fsdp: expected several processes (start them with torchrun), got one")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    rows = [{"input_ids": block, "labels": block} for block in blocks(tokenizer, documents(data, field), length)]
    if not rows:
        raise ValueError(f"length: expected no more tokens than the text has, got {length}")
    begun = {
        "model": str(model_folder.resolve()), "data": str(data.resolve()), "field": field, "length": length,
        "sequences": len(rows), "learning_rate": learning_rate, "batch": batch, "accumulate": accumulate, "seed": seed,
        "precision": precision,
    }  # fmt: skip
    checkpoint, done = enter_run(out, "streambp", begun)
    if done["global_step"] < steps:
        dtype = {"fp32": "float32", "bf16": "bfloat16"}[precision]
        model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype=dtype)
        enable_streambp(model, config)
        arguments = training_arguments(
            out, precision=precision, save_every=save_every, max_steps=steps, learning_rate=learning_rate, seed=seed,
            per_device_train_batch_size=batch, gradient_accumulation_steps=accumulate, logging_steps=1,
            fsdp=fsdp or None,
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
