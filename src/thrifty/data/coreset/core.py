"""The subset of a run: chosen, watched, and chosen anew when it has gone stale."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from thrifty._common.checks import one_of, whole
from thrifty.data.coreset import ranks
from thrifty.data.coreset.batches import Batches
from thrifty.data.coreset.gradients import DenseGradients, GradientSource, LastLayerGradients, Loss
from thrifty.data.coreset.history import Epoch, History
from thrifty.data.coreset.quotas import size_of
from thrifty.data.coreset.scoring import GradientScorer
from thrifty.data.coreset.selectors import GradMatch, InfoBatch, RandomSubset
from thrifty.data.coreset.signal import gradient_discrepancy, gradient_snr
from thrifty.data.coreset.subsets import Selector, Subset
from thrifty.data.coreset.triggers import RepresentativenessMonitor

INITIAL = ("select", "random")
NORMALIZE = ("batch", "coreset", None)


class Coreset:
    """A weighted subset of a data set that follows a model's training; loaders and trainers ask it what to train on.

    Args:
        model: That is trained; it is scored as it is at the time, in ``eval`` mode.
        dataset: With ``len`` and indexing; samples as ``(x, y)`` or mappings with ``labels``.
        selector: How samples are chosen; :class:`GradMatch` by default.
        monitor: When they are chosen anew; by default every three epochs if the ratio is below 0.3.
        budget: A fraction in (0, 1), or a number of samples.
        loss: Per-sample losses or a loss module; None: softmax cross-entropy.
        grad: Which gradients; see :class:`GradientScorer`.
        head: The last layer, or its name.
        initial: The first subset: ``"select"`` or ``"random"`` (with weights 1).
        normalize: A batch's weights have mean 1 (``"batch"``); those of the subset have (``"coreset"``); or None: as
            the selector gives them.
        scoring_dataset: The same samples without augmentation, to score; None: ``dataset`` itself.
        validation: Held-out samples, for selectors that look at them.
        collate_fn: As in ``DataLoader``.
        scoring_batch_size: Samples at once while scoring.
        num_workers: Processes that load samples to score.
        warm_epochs: First epochs, on all data.
        full_from: From this epoch on (counted from 1) all data are trained on again; None: never.
        max_weight: Weights are at most so many times their mean; None: any.
        watch_discrepancy: Also measure, at every epoch, what the ratio stands in for. It costs a pass over all data.
        seed: Of everything that is drawn.

    Raises:
        ValueError: An argument will not do.
        TypeError: The data set has no length.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> data = TensorDataset(torch.randn(60, 4), torch.arange(60) % 3)
        >>> coreset = Coreset(torch.nn.Linear(4, 3), data, budget=0.2)
        >>> coreset.begin_epoch(1), len(coreset.subset)
        (True, 12)

    Source:
        Cheng et al., "Efficient Representativeness-Aware Coreset Selection" (2025), algorithm 1.
    """

    def __init__(
        self,
        model: nn.Module,
        dataset: Dataset[Any] | Sequence[Any],
        selector: Selector | None = None,
        monitor: RepresentativenessMonitor | None = None,
        budget: float = 0.1,
        *,
        loss: nn.Module | Loss | None = None,
        grad: str = "last_layer",
        head: nn.Module | str | None = None,
        initial: str = "select",
        normalize: str | None = "batch",
        scoring_dataset: Dataset[Any] | Sequence[Any] | None = None,
        validation: Dataset[Any] | Sequence[Any] | None = None,
        collate_fn: Callable[..., Any] | None = None,
        scoring_batch_size: int = 256,
        num_workers: int = 0,
        warm_epochs: int = 0,
        full_from: int | None = None,
        max_weight: float | None = None,
        watch_discrepancy: bool = False,
        seed: int = 0,
    ) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise TypeError(
                f"dataset: expected one with len and indexing, to choose from, got {type(dataset).__name__}"
            )
        one_of("initial", initial, INITIAL)
        one_of("normalize", normalize, NORMALIZE)
        if scoring_dataset is not None and len(scoring_dataset) != len(dataset):  # type: ignore[arg-type]
            raise ValueError(
                f"scoring_dataset: expected the same {len(dataset)} samples, got {len(scoring_dataset)}"  # type: ignore[arg-type]
            )
        if max_weight is not None and not max_weight >= 1:
            raise ValueError(f"max_weight: expected a multiple of the mean of at least 1, got {max_weight!r}")
        self.model, self.dataset = model, dataset
        self.selector: Selector = GradMatch() if selector is None else selector
        self.monitor = RepresentativenessMonitor() if monitor is None else monitor
        self.n = len(dataset)
        self.k = size_of(budget, self.n)
        self.initial, self.normalize, self.max_weight = initial, normalize, max_weight
        self.warm_epochs = whole("warm_epochs", warm_epochs, least=0)
        self.full_from = None if full_from is None else whole("full_from", full_from)
        self.watch_discrepancy, self.seed = watch_discrepancy, whole("seed", seed, least=0)
        self.history = History()
        self.subset: Subset | None = None
        self.epoch = 0
        self.plain = dataset if scoring_dataset is None else scoring_dataset
        self._validation, self.collate_fn = validation, collate_fn
        self._batch, self._workers = whole("scoring_batch_size", scoring_batch_size), num_workers
        self.scorer = GradientScorer(model, loss, grad, head)
        self.losses = torch.full((self.n,), math.nan)

    @property
    def full(self) -> bool:
        """Whether the present epoch is one on all data."""
        epoch = max(self.epoch, 1)
        late = self.full_from is not None and epoch >= self.full_from
        return epoch <= self.warm_epochs or late or self.k == self.n

    @property
    def indices(self) -> Int[Tensor, " k"]:
        """The positions that the present epoch is trained on."""
        return torch.arange(self.n) if self.full or self.subset is None else self.subset.indices

    @property
    def weights(self) -> Float[Tensor, " k"]:
        """Their weights, before a batch's are normalised."""
        return torch.ones(self.n) if self.full or self.subset is None else self.subset.weights

    def begin_epoch(self, epoch: int) -> bool:
        """Check the subset before an epoch, and choose anew if it has gone stale; all processes call it together.

        Calling it again for the same epoch does nothing.

        Args:
            epoch: Counted from 1.

        Returns:
            Whether a subset was chosen.

        Raises:
            ValueError: A gradient is not finite, or the selector cannot choose.
        """
        if whole("epoch", epoch) == self.epoch:
            return False
        self.epoch = epoch
        row = Epoch(epoch, self.n, threshold=self.monitor.threshold)
        if not self.full:
            stale = self.subset is None or (self.monitor.due(epoch) and self._stale(row))
            if stale:
                self._choose(row)
            assert self.subset is not None
            row.samples = len(self.subset)
            if self.watch_discrepancy:
                row.discrepancy = self.discrepancy()
        self.history.append(row)
        return row.updated

    def _stale(self, row: Epoch) -> bool:
        began = time.perf_counter()
        row.checked = True
        if self.monitor.watches:
            assert self.subset is not None
            row.snr = ranks.from_first(self.ratio(self.gradients(self.subset.indices)))
        stale = ranks.from_first(self.monitor.decide(row.epoch, row.snr, self))  # rounding may differ
        row.seconds_check = time.perf_counter() - began
        return stale

    def ratio(self, gradients: GradientSource) -> float:
        """Return the signal-to-noise ratio that the monitor watches, of the subset's gradients."""
        assert self.subset is not None
        weights = self.subset.weights if self.monitor.weighted else None
        return gradient_snr(gradients, self.monitor.kind, weights)

    def _choose(self, row: Epoch) -> None:
        began = time.perf_counter()
        before = self.subset
        generator = torch.Generator().manual_seed((self.seed << 20) + row.epoch)
        gradients: GradientSource | None = None
        if before is None and self.initial == "random":
            chosen = RandomSubset().select(_no_gradients(self.n), self.k, generator=generator)
        elif isinstance(self.selector, RandomSubset) and not self.selector.stratified:
            chosen = self.selector.select(_no_gradients(self.n), self.k, generator=generator)
        elif isinstance(self.selector, InfoBatch) and not bool(self.losses.isnan().all()):
            chosen = self.selector.of_losses(self.losses, generator)
        else:
            gradients = self.gradients()
            held = None
            if self._validation is not None:
                held = self.scorer(self.batches(self._validation, range(len(self._validation))))  # type: ignore[arg-type]
            chosen = self.selector.select(gradients, self.k, generator=generator, validation=held)
        self.subset = ranks.from_first(_clipped(chosen, self.max_weight))
        row.updated, row.residual, row.filled = True, self.subset.residual, self.subset.filled
        row.weight_ratio = float(self.subset.weights.max() / self.subset.weights.mean())
        row.overlap = math.nan if before is None else self.subset.overlap(before)
        if self.monitor.watches:
            of_subset = (
                self.gradients(self.subset.indices)
                if gradients is None
                else gradients.take(self.subset.indices.to(gradients.square_norms().device))
            )
            self.monitor.selected(ranks.from_first(self.ratio(of_subset)), self)
        row.seconds_select = time.perf_counter() - began

    def gradients(self, indices: Int[Tensor, " m"] | None = None) -> LastLayerGradients | DenseGradients:
        """Return the per-sample gradients at the model as it is now; scored in shares by all processes.

        Args:
            indices: Positions; None: all.
        """
        at: list[int] = list(range(self.n)) if indices is None else indices.tolist()
        return ranks.joined(self.scorer(self.batches(self.plain, ranks.share(at))), len(at))

    def discrepancy(self) -> float:
        """Return 1 − the cosine of the subset's weighted gradient and that of all data: a pass over all data."""
        assert self.subset is not None
        gradients = self.gradients()
        norms = gradients.square_norms()
        weights = torch.zeros_like(norms)
        weights[self.subset.indices.to(norms.device)] = self.subset.weights.to(norms)
        return gradient_discrepancy(gradients.combine(torch.ones_like(norms)), gradients.combine(weights))

    def weights_of(self, indices: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        """Return the weights of a batch, such that ``(weights * losses).mean()`` is its loss.

        Args:
            indices: Positions of the batch.

        Raises:
            ValueError: A position is not of the subset.
        """
        if self.full or self.subset is None:
            return torch.ones(len(indices))
        table = torch.full((self.n,), math.nan)
        table[self.subset.indices] = self.subset.weights
        weights = table[indices.cpu()]
        if weights.isnan().any():
            raise ValueError("indices: expected positions of the subset, got others")
        if self.normalize is None:
            return weights
        mean = (weights if self.normalize == "batch" else self.subset.weights).mean()
        return weights / mean if mean > 0 else torch.ones_like(weights)

    def observe(self, indices: Int[Tensor, " b"], losses: Float[Tensor, " b"]) -> None:
        """Be told the losses of a batch, for :class:`InfoBatch`.

        Args:
            indices: Positions of the batch.
            losses: Theirs, unweighted.
        """
        self.losses[indices.cpu()] = losses.detach().float().cpu()

    @contextmanager
    def training(self) -> Iterator[None]:
        """Count the time inside as that of training."""
        began = time.perf_counter()
        try:
            yield
        finally:
            if self.history:
                self.history[-1].seconds_train += time.perf_counter() - began

    def batches(self, dataset: Any, indices: Sequence[int]) -> DataLoader[Any]:
        """Return samples as they are scored: in order, without augmentation if there is a data set without it."""
        parts = [list(indices[first : first + self._batch]) for first in range(0, len(indices), self._batch)]
        return DataLoader(
            Batches(dataset, self.collate_fn), batch_size=None, sampler=parts,
            collate_fn=_samples, num_workers=self._workers,
            generator=torch.Generator(),  # else it would draw from the global one
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to go on, as plain values that JSON carries."""
        subset = None
        if self.subset is not None:
            subset = {
                "indices": self.subset.indices.tolist(),
                "weights": self.subset.weights.tolist(),
                "residual": self.subset.residual,
                "filled": self.subset.filled,
            }
        keep = getattr(self.selector, "state_dict", None)
        return {
            "n": self.n,
            "epoch": self.epoch,
            "subset": subset,
            "monitor": self.monitor.state_dict(),
            "selector": None if keep is None else keep(),
            "losses": None if bool(self.losses.isnan().all()) else self.losses.tolist(),
            "history": self.history.rows(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state.

        Raises:
            ValueError: It is that of a data set of another size.
        """
        if state["n"] != self.n:
            raise ValueError(f"state: expected that of {self.n} samples, got {state['n']}")
        found = state["subset"]
        if found is not None:
            found = Subset(
                torch.tensor(found["indices"]), torch.tensor(found["weights"]), found["residual"], found["filled"]
            )
        self.subset, self.epoch = found, int(state["epoch"])
        self.monitor.load_state_dict(state["monitor"])
        if state["selector"] is not None:
            self.selector.load_state_dict(state["selector"])  # type: ignore[attr-defined]
        if state["losses"] is not None:
            self.losses = torch.tensor(state["losses"])
        self.history = History.of(state["history"])


def _samples(batch: Any) -> Any:
    """Return a batch without its positions."""
    return batch[0]


def _no_gradients(n: int) -> DenseGradients:
    """Return n gradients of no numbers, for what looks at their number alone."""
    return DenseGradients(torch.empty(n, 0))


def _clipped(subset: Subset, most: float | None) -> Subset:
    if most is None:
        return subset
    bound = most * float(subset.weights.mean())
    return Subset(subset.indices, subset.weights.clamp(max=bound), subset.residual, subset.filled)
