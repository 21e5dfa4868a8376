"""What a fine-tuning run learns from: texts (SFT), preference pairs (DPO), or rewards of what it writes (GRPO).

Each objective reads rows and gives the trainer that learns from them. The losses of the latter two are TRL's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from thrifty._common.checks import number, one_of, whole
from thrifty._common.extras import require
from thrifty._common.runs import PRECISIONS, training_arguments
from thrifty._common.texts import blocks, documents, read_rows
from thrifty.training.streambp.config import StreamBPConfig
from thrifty.training.streambp.model import enable_streambp

#: Objective to the fields that its rows must have; texts are read by one field of the user's choice.
OBJECTIVES: dict[str, tuple[str, ...]] = {"sft": (), "dpo": ("prompt", "chosen", "rejected"), "grpo": ("prompt",)}


@dataclass(frozen=True)
class Recipe:
    """How to fine-tune.

    Args:
        length: Tokens of a sequence (SFT), of a prompt with its answer at most (DPO), of an answer at most (GRPO).
        steps: Optimiser steps in all.
        objective: ``"sft"``, ``"dpo"`` or ``"grpo"``.
        lr: Of AdamW.
        batch: Sequences, pairs or answers that a process handles at once.
        accumulate: Steps whose gradients are added up.
        precision: Of weights and activations: ``"fp32"`` or ``"bf16"``.
        beta: Weight of the distance to the model as it was; ``None``: TRL's default (0.1 in DPO, 0 in GRPO).
        generations: Answers to a prompt (GRPO).
        reward: Import path of a reward function as TRL takes them (GRPO).
        seed: Of the order of the data, of dropout, and of what is sampled.

    Raises:
        ValueError: A field is out of range, or is one of another objective.

    Example:
        >>> Recipe(length=4096, steps=100, objective="dpo").beta is None
        True
    """

    length: int
    steps: int
    objective: str = "sft"
    lr: float = 2e-5
    batch: int = 1
    accumulate: int = 1
    precision: str = "fp32"
    beta: float | None = None
    generations: int = 8
    reward: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("objective", self.objective, OBJECTIVES)
        one_of("precision", self.precision, PRECISIONS)
        for name in ("length", "steps", "batch", "accumulate"):
            whole(name, getattr(self, name))
        whole("generations", self.generations, least=2)
        if not number("lr", self.lr, "a positive number", least=0.0) > 0:
            raise ValueError(f"lr: expected a positive number, got {self.lr!r}")
        if self.beta is not None:
            number("beta", self.beta, "a number of at least 0", least=0.0)
            if self.objective == "sft":
                raise ValueError(f"beta: expected None with objective='sft', got {self.beta!r}")
        if (self.reward is not None) != (self.objective == "grpo"):
            expected = "an import path such as my_rewards.short" if self.objective == "grpo" else "None"
            raise ValueError(f"reward: expected {expected} with objective={self.objective!r}, got {self.reward!r}")


def read_data(recipe: Recipe, data: Path, field: str, tokenizer: Any) -> list[dict[str, Any]]:
    """Return the rows that a recipe learns from.

    Raises:
        ValueError: A row lacks a field, or there is less text than a sequence.
        OSError: The file cannot be read.
    """
    if recipe.objective == "sft":
        rows = [{"input_ids": ids, "labels": ids} for ids in blocks(tokenizer, documents(data, field), recipe.length)]
        if not rows:
            raise ValueError(f"length: expected no more tokens than the text has, got {recipe.length}")
        return rows
    rows = read_rows(data)
    needed = OBJECTIVES[recipe.objective]
    for place, row in enumerate(rows, start=1):
        if missing := [name for name in needed if name not in row]:
            raise ValueError(
                f"data: expected the fields {', '.join(needed)}, got none of {missing[0]!r} in row {place}"
            )
    return rows


def make_trainer(
    recipe: Recipe,
    model: Any,
    tokenizer: Any,
    rows: list[dict[str, Any]],
    out: Path,
    *,
    reward: Callable[..., Any] | None,
    save_every: int,
    fsdp: bool,
    config: StreamBPConfig | None,
) -> Any:
    """Return the trainer of a recipe, with its model streamed."""
    common: dict[str, Any] = {
        "precision": recipe.precision, "save_every": save_every, "max_steps": recipe.steps, "learning_rate": recipe.lr,
        "seed": recipe.seed, "per_device_train_batch_size": recipe.batch,
        "gradient_accumulation_steps": recipe.accumulate, "logging_steps": 1, "fsdp": fsdp or None,
    }  # fmt: skip
    dataset = require("datasets", extra="llm").Dataset.from_list(rows)
    if recipe.objective == "sft":
        enable_streambp(model, config)
        return require("transformers", extra="llm").Trainer(
            model, training_arguments(out, **common), train_dataset=dataset
        )
    from thrifty.training.streambp.trainers import StreamDPOTrainer, StreamGRPOTrainer

    trl = require("trl", extra="llm")
    if recipe.beta is not None:
        common["beta"] = recipe.beta
    given = {"train_dataset": dataset, "processing_class": tokenizer, "streambp": config}
    if recipe.objective == "dpo":
        arguments = training_arguments(out, kind=trl.DPOConfig, max_length=recipe.length, **common)
        return StreamDPOTrainer(model, args=arguments, **given)
    arguments = training_arguments(
        out, kind=trl.GRPOConfig, max_completion_length=recipe.length, num_generations=recipe.generations, **common
    )
    return StreamGRPOTrainer(model, reward_funcs=reward, args=arguments, **given)


def reward_function(path: str) -> Callable[..., Any]:
    """Import a reward function; modules of the current folder are found, as by ``trl grpo``.

    Raises:
        ValueError: There is no such function.
    """
    module, _, name = path.rpartition(".")
    if "" not in sys.path:
        sys.path.append("")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"reward: expected the import path of a function, got {path!r}: {error}") from None
    if not callable(found):
        raise ValueError(f"reward: expected the import path of a function, got {path!r}, a {type(found).__name__}")
    return found  # type: ignore[no-any-return]
