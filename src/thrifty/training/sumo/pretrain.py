"""Pre-training of a LLaMA from random weights on local text: the paper's main experiment, as a command.

The protocol is GaLore's (Zhao et al., arXiv 2403.03507, section 5), which the paper follows: warm-up over a tenth of
the steps, a cosine to a tenth of the rate, no weight decay, bfloat16 weights on request, perplexity on held-out text.
``torchrun`` makes it data-parallel.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset

from thrifty._common.checks import one_of
from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty._common.runs import Progress, enter_run, reporter, training_arguments, world
from thrifty._common.texts import blocks, documents, text_files
from thrifty._common.weights import read_pretrained
from thrifty.training.sumo.groups import sumo_param_groups
from thrifty.training.sumo.memory import optimizer_state_bytes
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
        precision: Of weights and activations: ``"fp32"`` or ``"bf16"``.
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
    precision: str = "fp32"
    seed: int = 0

    def accumulation(self) -> int:
        """Return the micro-batches of a process that make a step.

        Raises:
            ValueError: The batch is not a multiple of the processes' micro-batches.
        """
        at_once = world()[1] * self.micro_batch
        if self.batch % at_once:
            raise ValueError(f"batch: expected a multiple of {at_once}, processes x micro_batch, got {self.batch}")
        return self.batch // at_once


def pretrain(
    recipe: Recipe,
    data: Path | Sequence[Path],
    tokenizer: Path,
    out: Path,
    *,
    field: str = "text",
    save_every: int = 1000,
    eval_blocks: int = 1000,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train from random weights and report the perplexity on held-out text; an interrupted run goes on.

    Args:
        recipe: How to train.
        data: ``.jsonl``, ``.json.gz`` (a document a line) or text files (one document), or folders; they are streamed.
        tokenizer: Folder of a tokenizer.
        out: Folder for checkpoints, ``result.json`` and the model.
        field: The field of a JSON object that holds the text.
        save_every: Steps between two looks at the held-out text, and between checkpoints.
        eval_blocks: Sequences of held-out text that are looked at.
        progress: Told (step, steps, loss) at every logged step.

    Returns:
        ``steps``, ``loss`` (nats a token, held out), ``perplexity``, ``state_bytes`` and ``resumed``.

    Raises:
        ValueError: A setting is out of range, or a run with other settings is in ``out``.
        FileNotFoundError: There is no text, or no configuration.
        FileExistsError: ``out`` holds something else.
    """
    transformers = require("transformers", extra="llm")
    one_of("optimizer", recipe.optimizer, OPTIMIZERS)
    accumulation, files = recipe.accumulation(), text_files(data)
    vocabulary = read_pretrained(transformers.AutoTokenizer, tokenizer, name="tokenizer")
    settings = asdict(recipe) | {"texts": [str(file.resolve()) for file in files], "field": field}
    config = llama_config(recipe.config, len(vocabulary))
    checkpoint, _ = enter_run(out, "sumo", settings)
    transformers.set_seed(recipe.seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    if recipe.precision == "bf16":
        model.bfloat16()
    galore = {
        "optim": "galore_adamw",
        "optim_target_modules": ["attn", "mlp"],
        "optim_args": f"rank={recipe.rank}, update_proj_gap={recipe.update_proj_gap}, scale={recipe.scale}",
    }
    arguments = training_arguments(
        out, precision=recipe.precision, save_every=save_every, max_steps=recipe.steps, learning_rate=recipe.lr,
        per_device_train_batch_size=recipe.micro_batch, per_device_eval_batch_size=recipe.micro_batch,
        gradient_accumulation_steps=accumulation, seed=recipe.seed, weight_decay=0.0, max_grad_norm=1.0,
        warmup_steps=max(1, recipe.steps // 10),
        lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs={"min_lr_rate": 0.1}, eval_strategy="steps",
        eval_steps=save_every, logging_steps=min(10, save_every, recipe.steps),
        **(galore if recipe.optimizer == "galore" else {}),
    )  # fmt: skip
    optimizer = None
    if recipe.optimizer == "sumo":
        optimizer = SUMO(
            sumo_param_groups(model, rank=recipe.rank), lr=recipe.lr, update_proj_gap=recipe.update_proj_gap,
            scale=recipe.scale, seed=recipe.seed,
        )  # fmt: skip
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=_Blocks(files, field, vocabulary, recipe.length),
        eval_dataset=_Blocks(files, field, vocabulary, recipe.length, held_out=eval_blocks),
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
        "state_bytes": optimizer_state_bytes(getattr(trainer.optimizer, "optimizer", trainer.optimizer))["total"],
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
        made = read_pretrained(transformers.AutoConfig, config, name="config")
        made.vocab_size = vocabulary
        return made
    hidden, inner, layers, heads = LLAMA[config]
    return transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, max_position_embeddings=1024, use_cache=False,
    )  # fmt: skip


class _Blocks(IterableDataset[dict[str, list[int]]]):
    """A stream of sequences: of every hundredth document (the first ``held_out`` of them), or of all others."""

    def __init__(self, files: Sequence[Path], field: str, tokenizer: Any, length: int, *, held_out: int = 0) -> None:
        self.given, self.tokenizer, self.length, self.held_out = (files, field), tokenizer, length, held_out

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        held = bool(self.held_out)
        chosen = (
            text
            for index, text in enumerate(documents(*self.given))
            if (index % HELD_OUT_EVERY == HELD_OUT_EVERY - 1) == held
        )
        for block in islice(blocks(self.tokenizer, chosen, self.length), self.held_out or None):
            yield {"input_ids": block, "labels": block}
