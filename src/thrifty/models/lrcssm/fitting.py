"""Training a network on sequences: Adam, clipped gradients, early stopping on a validation split (paper, section 4).

Runs on one device, or data-parallel where ``torchrun`` started the processes. A run that was interrupted goes on from
its checkpoint, which is read with ``weights_only=True``.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from thrifty._common.checks import one_of, positive, whole
from thrifty._common.files import write_whole
from thrifty._common.runs import first_process
from thrifty._common.weights import load_saved
from thrifty.models.lrcssm.inputs import NotFiniteError
from thrifty.models.lrcssm.network import LrcSSMModel
from thrifty.models.lrcssm.sequences import Sequences

Schedule = Literal["constant", "cosine"]
Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Args:
        epochs: Passes over the data at most.
        lr: Adam's rate.
        batch_size: Sequences a step, over all processes.
        schedule: ``"constant"``, or ``"cosine"``: the rate falls to zero over the epochs.
        clip: Largest global norm of the gradient.
        weight_decay: Adam's decoupled weight decay.
        patience: Epochs without a better validation score after which to stop.
        precision: ``"fp32"``; with ``"bf16"`` or ``"fp16"`` dense layers are in half precision, recurrences in single.
        seed: Of the order of batches.

    Raises:
        ValueError: A setting is out of its range.
    """

    epochs: int = 100
    lr: float = 1e-3
    batch_size: int = 16
    schedule: Schedule = "constant"
    clip: float = 1.0
    weight_decay: float = 0.0
    patience: int = 30
    precision: Precision = "fp32"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "patience"):
            whole(name, getattr(self, name))
        for name in ("lr", "clip"):
            positive(name, getattr(self, name), "a number above 0")
        one_of("schedule", self.schedule, get_args(Schedule))
        one_of("precision", self.precision, get_args(Precision))

    def rate(self, epoch: int) -> float:
        """Return the rate of an epoch, counted from 0."""
        if self.schedule == "constant":
            return self.lr
        return self.lr * (1 + math.cos(math.pi * epoch / self.epochs)) / 2


@dataclass
class Fitted:
    """How training went: losses and scores an epoch, and the epoch whose weights were kept."""

    losses: list[float]
    scores: list[float]
    best_epoch: int

    @property
    def best_score(self) -> float:
        """Validation accuracy (or minus the mean squared error) of the weights that were kept."""
        return self.scores[self.best_epoch]


Progress = Callable[[int, int, float, float], object]


def fit(
    model: LrcSSMModel,
    train: Sequences,
    validation: Sequences | None,
    recipe: Recipe,
    *,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Train a model in place; it ends with the weights of its best validation score.

    Args:
        model: The model, on the device to train on.
        train: Sequences with coded labels (classification) or float32 values ``(n, out)``.
        validation: Others, to stop early by; ``None`` trains for all epochs and keeps the last weights.
        recipe: How.
        checkpoint: File to go on from if it is there, written after each epoch, removed at the end.
        progress: Told (epoch, epochs, loss, score) after each.

    Raises:
        ValueError: The checkpoint is of another run.
        RuntimeError: The loss is no longer finite.
    """
    device = next(model.parameters()).device
    fused = not any(p.is_complex() for p in model.parameters())  # one pass over all weights; real ones only
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=fused)
    scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16" and device.type == "cuda")
    fitted, best = Fitted([], [], 0), copy.deepcopy(model.state_dict())
    run = "" if checkpoint is None else _fingerprint(model, train, validation)
    if checkpoint is not None and checkpoint.exists():
        best = _resume(checkpoint, run, model, optimizer, recipe, fitted)
    trained: nn.Module = DistributedDataParallel(model) if dist.is_initialized() else model
    for epoch in range(len(fitted.scores), recipe.epochs):
        if fitted.scores and epoch - fitted.best_epoch > recipe.patience:
            break
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(epoch)
        loss = _epoch(trained, train, recipe, optimizer, scaler, epoch, device)
        score = -loss if validation is None else evaluate(model, validation)["score"]
        fitted.losses.append(loss)
        fitted.scores.append(score)
        if validation is None or epoch == 0 or score > fitted.scores[fitted.best_epoch]:
            fitted.best_epoch = epoch
            best = copy.deepcopy(model.state_dict())
        if checkpoint is not None and first_process():
            _save(checkpoint, run, model, optimizer, recipe, fitted, best)
        if progress is not None:
            progress(epoch + 1, recipe.epochs, loss, score)
    model.load_state_dict(best)
    model.eval()
    if checkpoint is not None and first_process():
        checkpoint.unlink(missing_ok=True)
    return fitted


@torch.no_grad()
def outputs(model: LrcSSMModel, data: Sequences, batch_size: int = 64) -> Tensor:
    """Return a model's outputs for every sequence (none is dropped), on the CPU."""
    model.eval()
    device = next(model.parameters()).device
    order = np.argsort(data.lengths, kind="stable")  # neighbours in length share a batch: less padding
    pieces = []
    for start in range(0, len(data), batch_size):
        x, lengths = _batch(data, order[start : start + batch_size], device)
        pieces.append(model(x, lengths=lengths).float().cpu())
    found = torch.cat(pieces)
    back = torch.empty_like(found)
    back[torch.from_numpy(order)] = found
    return back


def evaluate(model: LrcSSMModel, data: Sequences) -> dict[str, float]:
    """Return loss, and ``score``: accuracy in classification, minus the mean squared error in regression."""
    out = outputs(model, data)
    target = torch.as_tensor(data.y)
    if model.config.task == "regression":
        error = functional.mse_loss(out, target.float().reshape(out.shape)).item()
        return {"loss": error, "score": -error}
    loss = functional.cross_entropy(out, target.long()).item()
    return {"loss": loss, "score": float((out.argmax(-1) == target).float().mean())}


def _epoch(
    model: nn.Module,
    data: Sequences,
    recipe: Recipe,
    optimizer: torch.optim.Optimizer,
    scaler: Any,
    epoch: int,
    device: torch.device,
) -> float:
    model.train()
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    order = np.random.default_rng([recipe.seed, epoch]).permutation(len(data))
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(recipe.precision)
    total, seen = 0.0, 0
    for start in range(0, len(order), recipe.batch_size):
        rows = order[start : start + recipe.batch_size]
        if len(rows) < world:  # every process must take part in a step
            break
        rows = rows[rank::world]
        x, lengths = _batch(data, rows, device)
        target = torch.as_tensor(data.y[rows], device=device)  # type: ignore[index]
        optimizer.zero_grad(set_to_none=True)
        try:
            with torch.autocast(device.type, dtype) if dtype else nullcontext():
                loss = _loss(model(x, lengths=lengths), target)
        except NotFiniteError:  # a layer within was given what the weights had blown up
            loss = torch.tensor(math.nan)
        if not bool(torch.isfinite(loss)):
            raise RuntimeError(f"training: the loss became {float(loss)} in epoch {epoch + 1}; lower lr, or use rho")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        scaler.step(optimizer)
        scaler.update()
        total, seen = total + float(loss.detach()) * len(rows), seen + len(rows)
    return total / max(1, seen)


def _loss(out: Tensor, target: Tensor) -> Tensor:
    if target.is_floating_point():
        return functional.mse_loss(out.float(), target.reshape(out.shape))
    return functional.cross_entropy(out.float(), target.long())


def _batch(data: Sequences, rows: NDArray, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return the rows as a tensor, cut to the longest of them, and their lengths if any is padded."""
    lengths = data.lengths[rows]
    longest = int(lengths.max())
    x = torch.from_numpy(np.ascontiguousarray(data.X[rows, :longest])).to(device)
    return x, None if (lengths == longest).all() else torch.from_numpy(lengths).to(device)


def _fingerprint(model: LrcSSMModel, *parts: Sequences | None) -> str:
    """Return what a run's settings and data hash to: a checkpoint goes on with the same ones only."""
    found = hashlib.sha256(model.config.to_json().encode())
    for part in parts:
        for array in () if part is None else (part.X, part.lengths, np.asarray(part.y)):
            found.update(f"{array.shape}".encode())
            found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _save(
    path: Path, run: str, model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, fitted: Fitted, best: Any
) -> None:
    record = {"run": run, "recipe": asdict(recipe), "fitted": asdict(fitted), "model": model.state_dict(), "best": best}
    record |= {"optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
    write_whole(path, lambda file: torch.save(record, file), force=True)


def _resume(
    path: Path, run: str, model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, fitted: Fitted
) -> dict[str, Tensor]:
    try:
        found = load_saved(path, name="checkpoint", device=next(model.parameters()).device)
        before, now = dict(found["recipe"]), asdict(recipe)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"checkpoint: {path} is damaged, or none ({error}); remove it to start anew") from None
    free = {"epochs"} if recipe.schedule == "constant" else set()  # one may train for longer
    if other := [name for name in now if name not in free and before.get(name) != now[name]]:
        raise ValueError(
            f"{other[0]}: the run in {path} has {before.get(other[0])!r}, got {now[other[0]]!r}; "
            "remove it to start anew"
        )
    if found.get("run") != run:
        raise ValueError(f"checkpoint: {path} is of another network or of other data; remove it to start anew")
    model.load_state_dict(found["model"])
    torch.set_rng_state(found["rng"].cpu())  # dropout goes on as it would have
    optimizer.load_state_dict(found["optimizer"])
    fitted.losses, fitted.scores = found["fitted"]["losses"], found["fitted"]["scores"]
    fitted.best_epoch = found["fitted"]["best_epoch"]
    best: dict[str, Tensor] = found["best"]
    return best
