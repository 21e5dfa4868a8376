"""Whether a coreset pays, told from a moment's measurement: steps, a pass over the data, a selection, a check."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from thrifty._common.checks import number, whole
from thrifty.data.coreset.core import Coreset
from thrifty.data.coreset.scoring import device_of, run, split, to_device


@dataclass(frozen=True)
class Estimate:
    """What a run would take, in seconds.

    Args:
        full: Training on all data, for the same number of epochs.
        steps: Training on the coreset.
        selections: Scoring all data and choosing, as often as is expected.
        checks: Checks of the subset.
        updates: Selections that are expected.

    Example:
        >>> print(Estimate(full=100.0, steps=10.0, selections=8.0, checks=2.0, updates=8))
        all data 100.0 s; coreset 20.0 s: steps 10.0, 8 selections 8.0, checks 2.0; 5.0 times as fast
    """

    full: float
    steps: float
    selections: float
    checks: float
    updates: int

    @property
    def seconds(self) -> float:
        """Of the run on the coreset."""
        return self.steps + self.selections + self.checks

    @property
    def speedup(self) -> float:
        """Over training on all data."""
        return self.full / max(self.seconds, 1e-12)

    def __str__(self) -> str:
        return (
            f"all data {self.full:.1f} s; coreset {self.seconds:.1f} s: steps {self.steps:.1f}, {self.updates} "
            f"selections {self.selections:.1f}, checks {self.checks:.1f}; {self.speedup:.1f} times as fast"
        )

    def check(self, least: float = 1.0) -> None:
        """Refuse a run that would not pay.

        Args:
            least: The smallest speed-up that will do.

        Raises:
            ValueError: The speed-up is below it; the message says what takes the time.
        """
        if self.speedup < least:
            parts = {"selections": self.selections, "checks": self.checks, "steps": self.steps}
            worst = max(parts, key=lambda part: parts[part])
            raise ValueError(
                f"coreset: expected a run at least {least:g} times as fast as one on all data, got {self.speedup:.2f} "
                f"({self}); {worst} take most: check more rarely, choose a smaller budget, or a cheaper selector"
            )


def estimate(coreset: Coreset, epochs: int, batch_size: int, updates: int | None = None, steps: int = 5) -> Estimate:
    """Measure a few steps, one selection and one check on a copy of the model, and add up what a run would take.

    Args:
        coreset: As it would be trained with; neither it nor its model changes.
        epochs: Of the run.
        batch_size: Of training.
        updates: Selections after the first that are expected; None: at half of the checks.
        steps: Of training that are timed, after one that is not.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> data = TensorDataset(torch.randn(500, 8), torch.arange(500) % 4)
        >>> found = estimate(Coreset(torch.nn.Linear(8, 4), data), epochs=30, batch_size=10)
        >>> found.updates, found.seconds > 0
        (6, True)

    Source:
        The specification's dry run: a selection is a pass over all data and the pursuit, a check one over the subset.
    """
    for name, value in (("epochs", epochs), ("batch_size", batch_size), ("steps", steps)):
        whole(name, value)
    trial = copy.copy(coreset)
    trial.history, trial.monitor = type(coreset.history)(), copy.deepcopy(coreset.monitor)
    trial.selector = copy.deepcopy(coreset.selector)
    trial.subset, trial.epoch = None, 0
    checks = sum(trial.monitor.due(epoch) for epoch in range(2, epochs + 1))
    if updates is None:
        updates = checks if trial.monitor.trigger == "interval" else checks // 2
    number("updates", updates, f"at most the {checks} checks", least=0, below=checks + 1)
    trial.warm_epochs, trial.full_from, trial.watch_discrepancy = 0, None, False
    trial.begin_epoch(1)
    selection = trial.history[0].seconds_select
    check = 0.0
    subset: Any = trial.subset
    if trial.monitor.watches:
        began = time.perf_counter()
        trial.ratio(trial.gradients(subset.indices))
        check = time.perf_counter() - began
    step = _seconds_a_step(coreset, batch_size, steps)
    return Estimate(
        full=epochs * -(-coreset.n // batch_size) * step,
        steps=epochs * -(-coreset.k // batch_size) * step,
        selections=(1 + updates) * selection,
        checks=checks * check,
        updates=1 + updates,
    )


def _seconds_a_step(coreset: Coreset, batch_size: int, steps: int) -> float:
    """Return what a forward and backward pass take on a copy, the loading of a batch included."""
    model = copy.deepcopy(coreset.model).train()
    device = device_of(model)
    dataset: Any = coreset.dataset
    batches: Any = DataLoader(
        dataset,
        batch_size,
        collate_fn=coreset.collate_fn,
        generator=torch.Generator(),
    )
    times = []
    with torch.random.fork_rng():  # dropout
        began = time.perf_counter()
        for batch, _ in zip(batches, range(steps + 1), strict=False):
            inputs, targets = split(to_device(batch, device))
            loss: Any = coreset.scorer.loss(run(model, inputs), targets).mean()
            loss.backward()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - began)
            began = time.perf_counter()
    rest = sorted(times[1:] or times)
    return rest[len(rest) // 2]
