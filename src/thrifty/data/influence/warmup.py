"""A short warm-up, for the optimizer state that influence is measured with; or that of a Trainer's checkpoint."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from thrifty._common.extras import require
from thrifty._common.weights import load_saved
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.losses import LossFn, call_model, default_loss, is_causal, to_device
from thrifty.data.influence.parameters import vocabulary_size


@dataclass(frozen=True)
class WarmStart:
    """A model after a few steps, and the optimizer that made them.

    Args:
        model: A copy; fine-tune the original on the selection.
        optimizer: Its optimizer, with moments.
        losses: Mean loss of each step.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> WarmStart(model, AdamW(model.parameters()), (2.3, 1.9)).losses[-1]
        1.9

    Source:
        arXiv 2505.19051, warm-up.
    """

    model: nn.Module
    optimizer: Optimizer
    losses: tuple[float, ...]


def warm_up(
    model: nn.Module,
    train: Any,
    *,
    fraction: float = 0.04,
    steps: int | None = None,
    lr: float = 2e-5,
    batch_size: int = 8,
    optimizer: Callable[[Any], Optimizer] | None = None,
    loss_fn: LossFn | None = None,
    seed: int = 0,
) -> WarmStart:
    """Train a copy of a model for a few steps on random pool examples.

    Args:
        model: The model; it stays as it is.
        train: The pool, tokenised.
        fraction: Share of a pass over the pool, if ``steps`` is not given.
        steps: How many steps.
        lr: Learning rate of AdamW.
        batch_size: Examples a step; all, where there are fewer.
        optimizer: Builds another optimizer from parameters, for instance ``lambda p: torch.optim.SGD(p, lr=0.1)``.
        loss_fn: One loss an example.
        seed: Of which examples are drawn; dropout draws from it too, and the global generator stays as it was.

    Returns:
        The copy and its optimizer.

    Raises:
        ValueError: ``steps`` is below 1, the pool carries no loss, or nothing can be trained.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=2, num_attention_heads=2))
        >>> pool = [{"input_ids": [i % 7 + 1, 2 * i % 60, 5, 9]} for i in range(20)]
        >>> start = warm_up(model, pool, steps=3, lr=1e-3)
        >>> len(start.losses), start.model is model
        (3, False)

    Source:
        arXiv 2505.19051, warm-up.
    """
    if steps is not None and steps < 1:
        raise ValueError(f"steps: expected at least 1, got {steps}")
    pool = Examples(train, "train", is_causal(model), vocabulary_size(model))
    usable = pool.valid
    if not len(usable):
        raise ValueError("train: no example has a label token that counts (all are -100)")
    twin = copy.deepcopy(model)
    trained = [p for p in twin.parameters() if p.requires_grad]
    if not trained:
        raise ValueError("model: expected a trainable parameter, got none with requires_grad=True")
    stepper = AdamW(trained, lr=lr) if optimizer is None else optimizer(trained)
    batch_size = min(batch_size, len(usable))
    count = steps or max(1, round(fraction * len(usable) / batch_size))
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(usable) for _ in range(1 + count * batch_size // len(usable))])
    loss_fn = loss_fn or default_loss(model)
    device = trained[0].device
    losses = []
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        twin.train()
        for step in range(count):
            rows = order[step * batch_size : (step + 1) * batch_size]
            batch = to_device(pool.collate([pool.row(i) for i in rows]), device)
            loss = loss_fn(call_model(twin, batch), batch).mean()
            stepper.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            stepper.step()
            losses.append(float(loss.detach()))
    stepper.zero_grad()
    return WarmStart(twin.eval(), stepper, tuple(losses))


def load_trainer_optimizer(
    checkpoint: str | os.PathLike[str],
    model: nn.Module,
    optimizer: Callable[[Any], Optimizer] = AdamW,
) -> Optimizer:
    """Read the optimizer of a ``Trainer`` checkpoint (``checkpoint-500/optimizer.pt``) for a model loaded from it.

    Parameters are put into the two groups that ``Trainer`` makes (with and without weight decay), in its order.

    Args:
        checkpoint: The checkpoint's folder, or the file ``optimizer.pt``.
        model: The model of the same checkpoint, with the same trainable parameters.
        optimizer: The kind that was trained with: ``AdamW`` (the default of ``Trainer``), ``Adam`` or ``SGD``.

    Returns:
        The optimizer, with moments and settings as they were saved.

    Raises:
        ValueError: The file is of another model or another kind of optimizer.
        OSError: There is no such file.

    Example:
        >>> import tempfile
        >>> model = nn.Linear(2, 1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     torch.save(AdamW(model.parameters(), lr=2e-5).state_dict(), f"{folder}/optimizer.pt")
        ...     load_trainer_optimizer(folder, model).param_groups[0]["lr"]
        2e-05

    Source:
        transformers' ``Trainer``: ``create_optimizer`` (groups) and ``_save_optimizer_and_scheduler`` (file).
    """
    path = Path(checkpoint)
    path = path / "optimizer.pt" if path.is_dir() else path
    state = load_saved(path, name="checkpoint")
    decayed = set(require("transformers", extra="llm").Trainer.get_decay_parameter_names(None, model))
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    parts = [[(n, p) for n, p in trained if n in decayed], [(n, p) for n, p in trained if n not in decayed]]
    groups = state.get("param_groups") if isinstance(state, dict) else None
    if not groups:
        raise ValueError(f"checkpoint: {path} holds no optimizer's param_groups")
    if [len(group["params"]) for group in groups] != [len(part) for part in parts]:
        if len(groups) != 1 or len(groups[0]["params"]) != len(trained):
            saved = [len(group["params"]) for group in groups]
            raise ValueError(
                f"checkpoint: {path} has parameter groups of {saved}, this model of {[len(part) for part in parts]}; "
                "it belongs to another model, or other parameters were trained"
            )
        parts = [trained]
    for group, part in zip(groups, parts, strict=True):
        for index, (name, p) in zip(group["params"], part, strict=True):
            held = state["state"].get(index, {})
            if "exp_avg" in held and held["exp_avg"].shape != p.shape:
                raise ValueError(
                    f"checkpoint: the moment for {name} has shape {tuple(held['exp_avg'].shape)}, the parameter "
                    f"{tuple(p.shape)}; it belongs to another model"
                )
    made = optimizer([{"params": [p for _, p in part]} for part in parts])
    unknown = set(made.param_groups[0]) - set(groups[0]) - {"params", "initial_lr", "decoupled_weight_decay"}
    if unknown:
        raise ValueError(f"checkpoint: {path} is no {type(made).__name__}'s: it lacks {', '.join(sorted(unknown))}")
    made.load_state_dict(state)
    return made
