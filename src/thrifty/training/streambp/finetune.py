"""Fine-tuning a local model on local data with a streamed backward pass: what `thrifty streambp train` runs.

The folder of a run holds its settings, the checkpoints of ``Trainer``, and at the end the model.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from thrifty._common.extras import require
from thrifty._common.runs import Progress, enter_run, reporter, world
from thrifty._common.weights import load_pretrained, read_pretrained
from thrifty.training.streambp.config import StreamBPConfig
from thrifty.training.streambp.objectives import Recipe, make_trainer, read_data, reward_function


def finetune(
    recipe: Recipe,
    model_folder: Path,
    data: Path,
    out: Path,
    *,
    field: str = "text",
    save_every: int = 50,
    fsdp: bool = False,
    config: StreamBPConfig | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fine-tune and save; an interrupted run goes on from its last checkpoint, one that is complete stays as it is.

    Under ``torchrun`` every process takes sequences of its own, and gradients are averaged.

    Args:
        recipe: How to train.
        model_folder: A local model with its tokenizer, as ``save_pretrained`` writes them.
        data: For SFT a ``.jsonl`` or text file, or a folder of texts; for DPO a ``.jsonl`` file of ``prompt``,
            ``chosen`` and ``rejected``; for GRPO one of ``prompt`` and whatever else the reward function takes.
        out: Where checkpoints, and at the end the model, are written.
        field: The field of a JSON object that holds the text (SFT).
        save_every: Steps between checkpoints.
        fsdp: Under ``torchrun``, shard weights, gradients and optimiser state, layer by layer (FSDP2); SFT only.
        config: The settings of streaming.
        progress: Told (step, steps, loss) after every step.

    Returns:
        Steps, the first and the last loss, the number of sequences, and whether an earlier run went on.

    Raises:
        ValueError: The model cannot be streamed, the data do not fit the recipe, or a run with other settings is to
            go on.
        OSError: There is no model at ``model_folder``, or ``out`` holds something else than an earlier run.
    """
    transformers = require("transformers", extra="llm")
    if not (model_folder / "config.json").exists():
        raise FileNotFoundError(f"{model_folder}: expected a model folder with config.json")
    if fsdp and recipe.objective != "sft":
        raise ValueError(
            f"fsdp: expected objective='sft', the only one that is tried with it, got {recipe.objective!r}"
        )
    at_once = recipe.batch * recipe.accumulate * world()[1]
    if recipe.objective == "grpo" and at_once % recipe.generations:
        raise ValueError(
            f"generations: expected a divisor of {at_once}, batch x accumulate x processes, got {recipe.generations}"
        )
    if fsdp and world()[1] == 1:
        raise ValueError("fsdp: expected several processes (start them with torchrun), got one")
    tokenizer = read_pretrained(transformers.AutoTokenizer, model_folder, name="model")
    rows = read_data(recipe, data, field, tokenizer)
    reward = None if recipe.reward is None else reward_function(recipe.reward)
    begun = asdict(recipe) | {
        "model": str(model_folder.resolve()), "data": str(data.resolve()), "field": field, "sequences": len(rows),
    }  # fmt: skip
    del begun["steps"]  # a run may be prolonged
    checkpoint, done = enter_run(out, "streambp", begun)
    if done["global_step"] < recipe.steps:
        dtype = {"fp32": "float32", "bf16": "bfloat16"}[recipe.precision]
        model = load_pretrained(transformers.AutoModelForCausalLM, model_folder, dtype=dtype)
        trainer = make_trainer(
            recipe, model, tokenizer, rows, out, reward=reward, save_every=save_every, fsdp=fsdp, config=config
        )
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
