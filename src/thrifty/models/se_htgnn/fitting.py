"""Training on windows: Adam, clipped gradients, early stopping on later snapshots (arXiv 2510.18467, section 5.1).

A step takes consecutive windows, which share most of their snapshots; the order of the steps is drawn anew each epoch.
Runs on one device, or data-parallel over windows where ``torchrun`` started the processes. A run that was interrupted
goes on from its checkpoint, which is read with ``weights_only=True``.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from thrifty._common.checks import number, whole
from thrifty._common.files import write_whole
from thrifty._common.runs import first_process
from thrifty.models.se_htgnn.temporal import HeteroTemporalData, WindowBatch


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Args:
        epochs: Passes over the windows at most.
        lr: Adam's rate.
        weight_decay: Adam's.
        batch_size: Windows a step, over all processes.
        patience: Epochs without a better validation score after which to stop.
        clip: Largest global norm of the gradient.
        seed: Of the order of steps, and of whatever a loss draws.

    Raises:
        ValueError: A setting is out of its range.

    Example:
        >>> Recipe(epochs=10, lr=1e-2).patience
        25

    Source:
        arXiv 2510.18467, section 5.1.
    """

    epochs: int = 200
    lr: float = 5e-3
    weight_decay: float = 1e-4
    batch_size: int = 16
    patience: int = 25
    clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "patience"):
            whole(name, getattr(self, name))
        for name in ("lr", "clip"):
            number(name, getattr(self, name), "a number above 0", least=1e-300)
        number("weight_decay", self.weight_decay, "a number of at least 0", least=0)


@dataclass
class Fitted:
    """How training went.

    Args:
        losses: Of each epoch.
        scores: Of each epoch on the validation snapshots; the lower the better.
        best_epoch: Whose weights were kept.
    """

    losses: list[float]
    scores: list[float]
    best_epoch: int

    @property
    def best_score(self) -> float:
        """Return the score of the weights that were kept."""
        return self.scores[self.best_epoch]


#: Told (epoch, epochs, loss, score) after each epoch.
Progress = Callable[[int, int, float, float], object]

#: Turns target snapshots into what an objective is called with.
Loader = Callable[[np.ndarray], Sequence[WindowBatch]]


def fit(
    objective: nn.Module,
    loader: Loader,
    train: np.ndarray,
    validate: Callable[[], float] | None,
    recipe: Recipe,
    *,
    run: str = "",
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Train in place; the weights of the best validation score are kept.

    Args:
        objective: Gives the loss of a batch of windows.
        loader: Gives the batches of some target snapshots: one, or several if nodes are sampled.
        train: The target snapshots to learn from.
        validate: Gives the score, the lower the better; ``None`` trains for all epochs and keeps the last weights.
        recipe: How.
        run: Names settings and data; a checkpoint goes on with the same only.
        checkpoint: File to go on from if it is there, written after each epoch, removed at the end.
        progress: Told after each epoch.

    Raises:
        ValueError: The checkpoint is of another run.
        RuntimeError: The loss is no longer finite.
    """
    parameters = [p for p in objective.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)
    fitted, best = Fitted([], [], 0), copy.deepcopy(objective.state_dict())
    if checkpoint is not None and checkpoint.exists():
        best = _resume(checkpoint, run, objective, optimizer, recipe, fitted)
    trained: nn.Module = objective
    if dist.is_initialized():
        trained = DistributedDataParallel(objective, find_unused_parameters=True)
    for epoch in range(len(fitted.scores), recipe.epochs):
        if fitted.scores and epoch - fitted.best_epoch > recipe.patience:
            break
        objective.train()
        loss = _epoch(trained, loader, train, recipe, optimizer, parameters, epoch)
        objective.eval()
        score = loss if validate is None else validate()
        fitted.losses.append(loss)
        fitted.scores.append(score)
        if validate is None or epoch == 0 or score < fitted.best_score:
            fitted.best_epoch = epoch
            best = copy.deepcopy(objective.state_dict())
        if checkpoint is not None and first_process():
            _save(checkpoint, run, objective, optimizer, recipe, fitted, best)
        if progress is not None:
            progress(epoch + 1, recipe.epochs, loss, score)
    objective.load_state_dict(best)
    objective.eval()
    if checkpoint is not None and first_process():
        checkpoint.unlink(missing_ok=True)
    return fitted


def steps(targets: np.ndarray, batch_size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Cut target snapshots into runs of neighbours, at places and in an order that are drawn."""
    first = int(rng.integers(min(batch_size, len(targets))))
    cuts = range(first, len(targets), batch_size) if first else range(batch_size, len(targets), batch_size)
    pieces = np.split(np.sort(targets), list(cuts))
    return [pieces[i] for i in rng.permutation(len(pieces))]


def _epoch(trained: nn.Module, loader: Loader, train: np.ndarray, recipe: Recipe, optimizer: torch.optim.Optimizer,
           parameters: list[nn.Parameter], epoch: int) -> float:  # fmt: skip
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    total, seen = 0.0, 0
    for targets in steps(train, recipe.batch_size, np.random.default_rng([recipe.seed, epoch])):
        if len(targets) < world:  # every process must take part in a step
            continue
        for batch in loader(np.array_split(targets, world)[rank]):
            loss: Tensor = trained(batch)
            if not bool(torch.isfinite(loss)):
                raise RuntimeError(
                    f"training: the loss became {float(loss)} in epoch {epoch + 1}; lower lr, or scale the targets"
                )
            optimizer.zero_grad(set_to_none=True)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(parameters, recipe.clip)
                optimizer.step()
            total, seen = total + float(loss.detach()) * len(batch.targets), seen + len(batch.targets)
    return total / seen if seen else math.nan


def batches(data: HeteroTemporalData, window: int, device: Any = "cpu") -> Loader:
    """Return a loader of whole graphs.

    Args:
        data: The graph.
        window: Snapshots of a window.
        device: Where to compute.
    """
    return lambda targets: [data.windows(targets, window, device)]


def _save(path: Path, run: str, objective: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, fitted: Fitted,
          best: dict[str, Tensor]) -> None:  # fmt: skip
    record = {"run": run, "recipe": asdict(recipe), "fitted": asdict(fitted), "model": objective.state_dict()}
    record |= {"best": best, "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
    write_whole(path, lambda file: torch.save(record, file), force=True)


def _resume(path: Path, run: str, objective: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe,
            fitted: Fitted) -> dict[str, Tensor]:  # fmt: skip
    try:
        found = torch.load(path, weights_only=True, map_location=next(objective.parameters()).device)
    except (EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise ValueError(f"checkpoint: {path} is damaged ({error}); remove it to start anew") from None
    before, now = found["recipe"], asdict(recipe)
    if other := [name for name in now if name != "epochs" and before.get(name) != now[name]]:
        raise ValueError(
            f"{other[0]}: the run in {path} has {before.get(other[0])!r}, got {now[other[0]]!r}; "
            "remove it to start anew"
        )
    if found["run"] != run:
        raise ValueError(f"checkpoint: {path} is of another model or of other data; remove it to start anew")
    objective.load_state_dict(found["model"])
    torch.set_rng_state(found["rng"].cpu())  # dropout goes on as it would have
    optimizer.load_state_dict(found["optimizer"])
    fitted.losses, fitted.scores = found["fitted"]["losses"], found["fitted"]["scores"]
    fitted.best_epoch = found["fitted"]["best_epoch"]
    best: dict[str, Tensor] = found["best"]
    return best
