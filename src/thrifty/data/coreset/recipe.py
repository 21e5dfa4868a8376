"""Training a classifier on a coreset of a user's own table, pictures or arrays: what ``thrifty coreset train`` does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from thrifty._common.checks import number, one_of, whole
from thrifty._common.files import write_whole
from thrifty._common.settings import Settings
from thrifty._common.tables import one_hot, read_table, split_target
from thrifty.data.coreset.estimate import Estimate, estimate
from thrifty.data.coreset.loader import CoresetLoader
from thrifty.data.coreset.selectors import Craig, Crest, Glister, GradMatch, InfoBatch, RandomSubset
from thrifty.data.coreset.subsets import Selector
from thrifty.data.coreset.triggers import TRIGGERS, RepresentativenessMonitor

SELECTORS: dict[str, Callable[[], Selector]] = {
    "gradmatch": GradMatch,
    "gradmatch-own-row": lambda: GradMatch("per_class_per_gradient"),
    "gradmatch-batches": lambda: GradMatch("per_batch"),
    "gradmatch-global": lambda: GradMatch("global"),
    "craig": Craig,
    "glister": Glister,
    "crest": Crest,
    "infobatch": InfoBatch,
    "random": RandomSubset,
}
#: Told (epoch, epochs, test accuracy, whether the subset was chosen anew).
Progress = Callable[[int, int, float, bool], object]


@dataclass(frozen=True)
class Recipe(Settings):
    """How a run is trained.

    Args:
        budget: A fraction in (0, 1), or a number of samples.
        selector: One of :data:`SELECTORS`.
        trigger: As in :class:`RepresentativenessMonitor`.
        tau: Its threshold.
        every: Epochs between checks.
        snr: Which ratio.
        epochs: Of the run.
        batch: Samples a step.
        lr: Peak learning rate of SGD (momentum 0.9, weight decay 5e-4, cosine).
        test: Share of the samples that is held out, stratified.
        seed: Of everything.

    Raises:
        ValueError: A setting is out of range; the message names it.

    Example:
        >>> Recipe(budget=0.1).epochs
        120
    """

    schema = "thrifty.coreset.recipe"
    file = "coreset.json"

    budget: float = 0.1
    selector: str = "gradmatch"
    trigger: str = "below"
    tau: float = 0.3
    every: int = 3
    snr: str = "spectral"
    epochs: int = 120
    batch: int = 32
    lr: float = 0.05
    test: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("selector", self.selector, SELECTORS)
        one_of("trigger", self.trigger, TRIGGERS)
        number("lr", self.lr, "a number above 0", least=1e-300)
        number("test", self.test, "a share in (0, 1)", least=1e-12, below=1.0)
        for name in ("epochs", "batch"):
            whole(name, getattr(self, name))
        whole("seed", self.seed, least=0)
        self.monitor()

    def monitor(self) -> RepresentativenessMonitor:
        """Return the monitor that the settings describe."""
        return RepresentativenessMonitor(self.snr, self.tau, self.trigger, self.every)


def baseline(recipe: Recipe, words: str) -> Recipe:
    """Return the recipe of a baseline: ``"fixed:20"``, ``"random"``, ``"random:5"``, ``"infobatch"`` or ``"full"``.

    Raises:
        ValueError: It is none of them.

    Example:
        >>> baseline(Recipe(), "fixed:20").every
        20
    """
    name, _, schedule = words.partition(":")
    if schedule and not (schedule.isdecimal() and int(schedule) > 0):
        raise ValueError(f"--baseline: expected epochs behind the colon, got {words!r}")
    if name == "fixed" and schedule:
        return replace(recipe, trigger="interval", every=int(schedule))
    if name == "random":
        timing = {"trigger": "interval", "every": int(schedule)} if schedule else {"trigger": "never"}
        return replace(recipe, selector="random", **timing)
    if name == "infobatch" and not schedule:
        return replace(recipe, selector="infobatch", trigger="interval", every=1)
    if name == "full" and not schedule:
        return replace(recipe, selector="random", trigger="never", budget=0)
    raise ValueError(f"--baseline: expected fixed:N, random, random:N, infobatch or full, got {words!r}")


@dataclass(frozen=True)
class Samples:
    """What is trained on: inputs ``(n, ...)``, classes ``(n,)``, and the classes' names."""

    x: Tensor
    y: Tensor
    classes: tuple[str, ...]


def read_samples(path: Path, target: str | None = None) -> Samples:
    """Read a table (CSV, Parquet) or arrays (``.npz`` with ``x`` and ``y``).

    Args:
        path: The file.
        target: The column of classes, of a table.

    Raises:
        ValueError: It cannot be read, a number is missing, or there are fewer than two classes.
    """
    if path.suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as held:
                x, labels = np.asarray(held["x"], np.float32), held["y"]
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"{path}: expected arrays x and y of numbers, got {error}") from None
    else:
        if target is None:
            raise ValueError("--target: expected the column of the classes, for a table, got none")
        features, labels = split_target(read_table(path), target)
        x = one_hot(features)[0].astype(np.float32)
    if len(x) != len(labels) or x.ndim < 2 or labels.ndim != 1:
        raise ValueError(f"{path}: expected x (n, ...) and y (n,), got shapes {x.shape} and {labels.shape}")
    if not np.isfinite(x).all():
        row = int((~np.isfinite(x.reshape(len(x), -1))).any(1).argmax())
        raise ValueError(f"{path}: expected a number in every cell, got none in row {row + 1}")
    classes, y = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"{path}: expected at least two classes, got {len(classes)}")
    return Samples(torch.from_numpy(x), torch.from_numpy(y.astype(np.int64)), tuple(map(str, classes)))


def network(shape: tuple[int, ...], classes: int, seed: int = 0) -> nn.Module:
    """Return a network for inputs of a shape: a perceptron for vectors, convolutions for pictures ``([c,] h, w)``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if len(shape) == 1:
            sizes = (shape[0], 128, 64)
            hidden: list[nn.Module] = []
            for a, b in pairwise(sizes):
                hidden += [nn.Linear(a, b), nn.ReLU()]
            return nn.Sequential(*hidden, nn.Linear(64, classes))
        channels = shape[0] if len(shape) == 3 else 1
        return nn.Sequential(
            *([] if len(shape) == 3 else [nn.Unflatten(1, (1, shape[0]))]),
            nn.Conv2d(channels, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, classes),
        )  # fmt: skip


def split_samples(samples: Samples, recipe: Recipe) -> tuple[Samples, Samples]:
    """Return a training and a test part, stratified; inputs are standardised by the training part.

    Raises:
        ValueError: A class has too few samples to be in both.
    """
    from sklearn.model_selection import train_test_split

    try:
        fit, test = train_test_split(
            np.arange(len(samples.y)), test_size=recipe.test, stratify=samples.y.numpy(), random_state=recipe.seed
        )
    except ValueError as error:
        raise ValueError(f"data: expected samples of every class for both parts, got {error}") from None
    dims = 0 if samples.x.ndim == 2 else tuple(range(samples.x.ndim))  # columns of a table each, pictures as a whole
    mean, scale = samples.x[fit].mean(dims), samples.x[fit].std(dims).clamp(min=1e-6)
    x = (samples.x - mean) / scale
    return Samples(x[fit], samples.y[fit], samples.classes), Samples(x[test], samples.y[test], samples.classes)


def prepare(samples: Samples, recipe: Recipe) -> tuple[nn.Module, CoresetLoader, Samples]:
    """Return the network, the loader and the test part of a run."""
    fit, test = split_samples(samples, recipe)
    model = network(tuple(fit.x.shape[1:]), len(samples.classes), recipe.seed)
    n = len(fit.y)
    loader = CoresetLoader(
        TensorDataset(fit.x, fit.y), model, SELECTORS[recipe.selector](), recipe.monitor(),
        budget=recipe.budget or n, batch_size=recipe.batch, seed=recipe.seed, scoring_batch_size=1024,
    )  # fmt: skip
    return model, loader, test


def dry_run(samples: Samples, recipe: Recipe) -> Estimate:
    """Estimate what a run takes, beside one on all data."""
    _, loader, _ = prepare(samples, recipe)
    return estimate(loader.coreset, recipe.epochs, recipe.batch)


def train(
    samples: Samples, recipe: Recipe, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Train, or go on with the run in a folder; a checkpoint is kept at the end of every epoch.

    Args:
        samples: All of them.
        recipe: Settings.
        out: Folder of the run; None: nothing is kept.
        progress: Told after each epoch.

    Returns:
        Test accuracy, selections, seconds and the overhead.

    Raises:
        FileExistsError: The folder holds something else.
        ValueError: The run that is there has other settings.
    """
    model, loader, test = prepare(samples, recipe)
    optimizer = torch.optim.SGD(model.parameters(), lr=recipe.lr, momentum=0.9, weight_decay=5e-4)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.epochs)
    first = 0 if out is None else _enter(out, recipe, model, optimizer, rate, loader)
    accuracy = _accuracy(model, test)
    for epoch in range(first, recipe.epochs):
        for (x, y), weights in loader:
            losses = functional.cross_entropy(model(x), y, reduction="none")
            loader.observe(losses)
            optimizer.zero_grad()
            loss: Any = (weights * losses).mean()
            loss.backward()
            optimizer.step()
        rate.step()
        accuracy = _accuracy(model, test)
        if out is not None:
            _keep(out, epoch + 1, model, optimizer, rate, loader)
        if progress is not None:
            progress(epoch + 1, recipe.epochs, accuracy, loader.history[-1].updated)
    history = loader.history
    found = {
        "accuracy": accuracy,
        "updates": history.updates,
        "seconds": sum(row.seconds_check + row.seconds_select + row.seconds_train for row in history),
        "overhead": history.overhead,
    }
    if out is not None:
        history.save(out / "history.json", force=True)
        history.save(out / "history.csv", force=True)
        write_whole(out / "result.json", json.dumps(found, indent=1) + "\n", force=True)
    return found


def _accuracy(model: nn.Module, test: Samples) -> float:
    model.eval()
    with torch.no_grad():
        batches = zip(torch.split(test.x, 1024), torch.split(test.y, 1024), strict=True)
        right = sum(int((model(x).argmax(1) == y).sum().item()) for x, y in batches)
    model.train()
    return right / len(test.y)


def _enter(out: Path, recipe: Recipe, model: nn.Module, optimizer: Any, rate: Any, loader: CoresetLoader) -> int:
    """Begin a run in a folder, or load the one that is there; returns the epochs that are done."""
    settings = out / Recipe.file
    if not settings.exists():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise FileExistsError(f"{out}: there are files already, and no run to go on with; choose another folder")
        recipe.save_pretrained(out)
        return 0
    earlier = asdict(Recipe.from_pretrained(out))
    for name, value in asdict(recipe).items():
        if earlier[name] != value:
            raise ValueError(f"{name}: the run in {out} has {earlier[name]!r}, got {value!r}; choose another folder")
    if not (out / "checkpoint.pt").exists():
        return 0
    held = torch.load(out / "checkpoint.pt", weights_only=True)
    model.load_state_dict(held["model"])
    optimizer.load_state_dict(held["optimizer"])
    rate.load_state_dict(held["rate"])
    loader.load_state_dict(held["loader"])
    return int(held["epoch"])


def _keep(out: Path, epoch: int, model: nn.Module, optimizer: Any, rate: Any, loader: CoresetLoader) -> None:
    held = {
        "epoch": epoch,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rate": rate.state_dict(),
        "loader": loader.state_dict(),
    }
    write_whole(out / "checkpoint.pt", lambda file: torch.save(held, file), force=True)
