"""Training on windows: Adam, clipped gradients, early stopping on later snapshots (arXiv 2510.18467, section 5.1).

A step takes consecutive windows, which share most of their snapshots; the order of the steps is drawn anew each epoch.
Runs on one device, or data-parallel over windows where ``torchrun`` started the processes: a step's loss is then the
mean over all its labels, as on one. A run that was interrupted goes on from its checkpoint, which is read with
``weights_only=True``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
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
from thrifty._common.weights import load_saved
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
Loader = Callable[[np.ndarray], Iterable[WindowBatch]]


def fit(
    objective: nn.Module,
    loader: Loader,
    train: np.ndarray,
    validate: Callable[[], float] | None,
    recipe: Recipe,
    *,
    run: Mapping[str, str] | None = None,
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
        run: What must be the same when a run goes on from a checkpoint, by name.
        checkpoint: File to go on from if it is there, written after each epoch.
        progress: Told after each epoch.

    Raises:
        ValueError: The checkpoint is of another run.
        RuntimeError: The loss is no longer finite.
    """
    parameters = [p for p in objective.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)
    fitted, best = Fitted([], [], 0), copy.deepcopy(objective.state_dict())
    if checkpoint is not None and checkpoint.exists():
        best = _resume(checkpoint, run or {}, objective, optimizer, fitted)
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
        if checkpoint is not None:
            _save(checkpoint, run or {}, objective, optimizer, fitted, best)
        if progress is not None:
            progress(epoch + 1, recipe.epochs, loss, score)
    objective.load_state_dict(best)
    objective.eval()
    return fitted


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, and what a process that was killed while it wrote one left beside it."""
    path.unlink(missing_ok=True)
    for rest in path.parent.glob(f".{path.name}.*"):
        rest.unlink(missing_ok=True)


def steps(targets: np.ndarray, batch_size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Cut target snapshots into runs of neighbours, at places and in an order that are drawn."""
    first = int(rng.integers(min(batch_size, len(targets))))
    cuts = range(first, len(targets), batch_size) if first else range(batch_size, len(targets), batch_size)
    pieces = np.split(np.sort(targets), list(cuts))
    return [pieces[i] for i in rng.permutation(len(pieces))]


def _epoch(trained: nn.Module, loader: Loader, train: np.ndarray, recipe: Recipe, optimizer: torch.optim.Optimizer,
           parameters: list[nn.Parameter], epoch: int) -> float:  # fmt: skip
    """Go through all windows once, and return the mean loss over their labels."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    total, seen = 0.0, 0.0
    for targets in steps(train, recipe.batch_size, np.random.default_rng([recipe.seed, epoch])):
        mine = np.array_split(targets, world)[rank]
        idle = not len(mine)  # fewer windows than processes: this one takes part, and counts for nothing
        for batch in loader(targets[:1] if idle else mine):
            mean, labels = trained(batch)
            count = torch.tensor([0.0 if idle else float(labels), 0.0 if idle else float(mean.detach()) * labels],
                                 dtype=torch.float64, device=mean.device)  # fmt: skip
            own = float(count[0])
            if world > 1:
                dist.all_reduce(count)
            everyone, summed = count.tolist()
            if not math.isfinite(summed):  # all processes know, and stop together
                raise RuntimeError(
                    f"training: the loss became {summed / max(everyone, 1)} in epoch {epoch + 1}; lower lr, or scale "
                    "the targets"
                )
            optimizer.zero_grad(set_to_none=True)
            if everyone:
                (mean * (world * own / everyone)).backward()  # the processes' gradients are averaged
                nn.utils.clip_grad_norm_(parameters, recipe.clip)
                optimizer.step()
            total, seen = total + summed, seen + everyone
    return total / seen if seen else math.nan


def batches(data: HeteroTemporalData, window: int, device: Any = "cpu") -> Loader:
    """Return a loader of whole graphs.

    Args:
        data: The graph.
        window: Snapshots of a window.
        device: Where to compute.
    """
    return lambda targets: [data.windows(targets, window, device)]


def _save(path: Path, run: Mapping[str, str], objective: nn.Module, optimizer: torch.optim.Optimizer, fitted: Fitted,
          best: dict[str, Tensor]) -> None:  # fmt: skip
    rng = [torch.get_rng_state()]
    if dist.is_initialized():  # every process draws its own dropout
        rng = [torch.empty_like(rng[0]) for _ in range(dist.get_world_size())]
        dist.all_gather_object(rng, torch.get_rng_state())
    if not first_process():
        return
    record = {
        "run": dict(run), "fitted": asdict(fitted), "model": objective.state_dict(), "best": best,
        "optimizer": optimizer.state_dict(), "rng": rng,
    }  # fmt: skip
    write_whole(path, lambda file: torch.save(record, file), force=True)


def _resume(
    path: Path, run: Mapping[str, str], objective: nn.Module, optimizer: torch.optim.Optimizer, fitted: Fitted
) -> dict[str, Tensor]:
    """Go on from a checkpoint, and return the best weights so far.

    Raises:
        ValueError: It is damaged, or of another run; the message says in what.
    """
    try:
        found = load_saved(path, name="checkpoint", device=next(objective.parameters()).device)
        before: dict[str, str] = found["run"]
        held, best, rng, epochs = found["model"], found["best"], found["rng"], found["fitted"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"checkpoint: {path} is damaged, or none ({error}); remove it to start anew") from None
    for name, now in run.items():
        if before.get(name) != now:
            raise ValueError(
                f"{name}: the run in {path} has {before.get(name)}, got {now}; choose another place, or remove it to "
                "start anew"
            )
    objective.load_state_dict(held)
    optimizer.load_state_dict(found["optimizer"])
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.set_rng_state(rng[rank % len(rng)].cpu())  # dropout goes on as it would have
    fitted.losses, fitted.scores, fitted.best_epoch = epochs["losses"], epochs["scores"], epochs["best_epoch"]
    return best  # type: ignore[no-any-return]
