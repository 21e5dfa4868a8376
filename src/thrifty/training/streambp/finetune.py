"""Fine-tuning a local model on local text with a streamed backward pass: what `thrifty streambp train` runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from thrifty._common.extras import require
from thrifty.training.streambp.config import StreamBPConfig
from thrifty.training.streambp.model import enable_streambp


def documents(path: Path, field: str = "text") -> Iterator[str]:
    """Yield the texts of a ``.jsonl`` file (one object a line), of a text file, or of a folder of ``.txt`` and ``.py``.

    Raises:
        ValueError: A line is no JSON object with that field, or there is no text.
    """
    found = False
    for file in sorted(p for p in path.rglob("*") if p.suffix in {".txt", ".py"}) if path.is_dir() else [path]:
        if file.suffix != ".jsonl":
            text = file.read_text(encoding="utf-8", errors="replace")
            found = found or bool(text.strip())
            yield text
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)[field]
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{file}, line {number}: expected an object with {field!r}, got {line[:60]!r}"
                ) from error
            found = True
            yield str(text)
    if not found:
        raise ValueError(f"{path}: expected text, got none")


def blocks(tokenizer: Any, texts: Iterator[str], length: int) -> list[dict[str, list[int]]]:
    """Join the texts, an end-of-text token between them, and cut them to blocks of ``length`` tokens.

    Raises:
        ValueError: There is not even one block.
    """
    ids: list[int] = []
    for text in texts:
        ids += tokenizer(text, add_special_tokens=False)["input_ids"]
        if tokenizer.eos_token_id is not None:
            ids.append(tokenizer.eos_token_id)
    whole = [ids[start : start + length] for start in range(0, len(ids) - length + 1, length)]
    if not whole:
        raise ValueError(f"seq_len: the text has {len(ids)} tokens, fewer than one sequence of {length}")
    return [{"input_ids": block, "labels": block} for block in whole]


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
    config: StreamBPConfig | None = None,
) -> dict[str, Any]:
    """Fine-tune and save; an interrupted run goes on from its last checkpoint, one that is complete stays as it is.

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
        config: The settings of streaming.

    Returns:
        Steps, the first and the last loss, and the number of sequences.

    Raises:
        ValueError: The model cannot be streamed, or the text is too short.
        OSError: There is no model at ``model_folder``, or ``out`` holds something else than an earlier run.
    """
    transformers = require("transformers", extra="llm")
    datasets = require("datasets", extra="llm")
    if not (model_folder / "config.json").exists():
        raise FileNotFoundError(f"{model_folder}: expected a model folder with config.json")
    checkpoint, done = _last_checkpoint(out)
    if out.resolve() == model_folder.resolve() or (checkpoint is None and out.exists() and any(out.iterdir())):
        raise FileExistsError(f"{out}: there are files already, and no run to go on with; choose another folder")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    dtype = "bfloat16" if bf16 else "float32"
    model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype=dtype)
    rows = blocks(tokenizer, documents(data, field), length)
    enable_streambp(model, config)
    arguments = transformers.TrainingArguments(
        str(out), max_steps=steps, learning_rate=learning_rate, per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulate, seed=seed, bf16=bf16, report_to="none", logging_steps=1,
        save_steps=save_every, save_total_limit=2, disable_tqdm=True, gradient_checkpointing=False,
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=datasets.Dataset.from_list(rows))
    if done["global_step"] < steps:
        trainer.train(resume_from_checkpoint=checkpoint)
        trainer.save_model(str(out))
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


def _last_checkpoint(out: Path) -> tuple[str | None, dict[str, Any]]:
    """Return the last checkpoint below a folder, and the state that it reached."""
    trainer_utils = require("transformers", extra="llm").trainer_utils
    checkpoint = trainer_utils.get_last_checkpoint(str(out)) if out.is_dir() else None
    if checkpoint is None:
        return None, {"global_step": 0, "log_history": []}
    return checkpoint, json.loads(Path(checkpoint, "trainer_state.json").read_text())
