"""A data loader over a subset that is chosen anew as the model learns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from thrifty._common.checks import whole
from thrifty.data.coreset import ranks
from thrifty.data.coreset.batches import Batches, as_it_is
from thrifty.data.coreset.core import Coreset
from thrifty.data.coreset.history import History
from thrifty.data.coreset.subsets import Selector
from thrifty.data.coreset.triggers import RepresentativenessMonitor


class CoresetBatchSampler(Sampler[list[int]]):
    """Batches of positions of a coreset, shuffled anew in each epoch; each process gets its share of the batches' sum.

    Beginning to iterate begins the epoch: the subset is checked, and chosen anew if it has gone stale.

    Args:
        coreset: Whose samples.
        batch_size: Of each process.
        drop_last: Leave out a short last batch.
        seed: Of the order.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> data = TensorDataset(torch.randn(60, 4), torch.arange(60) % 3)
        >>> sampler = CoresetBatchSampler(Coreset(torch.nn.Linear(4, 3), data, budget=12), batch_size=5)
        >>> [len(batch) for batch in sampler], len(sampler)
        ([5, 5, 2], 3)
    """

    def __init__(self, coreset: Coreset, batch_size: int, drop_last: bool = False, seed: int = 0) -> None:
        self.coreset, self.batch_size, self.drop_last = coreset, whole("batch_size", batch_size), drop_last
        self.seed = whole("seed", seed, least=0)
        self.epoch = 0
        self.skip = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that is iterated next, counted from 0, as in ``DistributedSampler``."""
        self.epoch = whole("epoch", epoch, least=0)

    def __len__(self) -> int:
        size = ranks.rank_and_size()[1]
        n = self.coreset.k if self.coreset.subset is None and not self.coreset.full else len(self.coreset.indices)
        each = n // size if self.drop_last else -(-n // size)
        return each // self.batch_size if self.drop_last else -(-each // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        self.coreset.begin_epoch(self.epoch + 1)
        rank, size = ranks.rank_and_size()
        order = torch.randperm(
            len(self.coreset.indices), generator=torch.Generator().manual_seed((self.seed << 20) + self.epoch)
        )
        mine = self.coreset.indices[order]
        if size > 1:  # as DistributedSampler: padded from the front, or cut
            total = len(mine) // size * size if self.drop_last else -(-len(mine) // size) * size
            mine = torch.cat([mine, mine[: total - len(mine)]])[:total][rank::size]
        batches = torch.split(mine, self.batch_size)
        first, self.skip = self.skip, 0
        for batch in batches[first : len(self)]:
            yield batch.tolist()


class CoresetLoader:
    """A ``DataLoader`` over a weighted subset that is watched, and chosen anew when it has gone stale.

    It yields ``(batch, weights)``; the loss of a batch is ``(weights * losses).mean()`` with per-sample losses. Each
    pass is an epoch; :meth:`set_epoch` overrides the count, as with ``DistributedSampler``.

    Args:
        dataset: With ``len`` and indexing; samples as ``(x, y)`` or mappings with ``labels``.
        model: That is trained.
        selector: How samples are chosen; :class:`GradMatch` by default.
        monitor: When they are chosen anew.
        budget: A fraction in (0, 1), or a number of samples.
        batch_size: Of each process.
        collate_fn: As in ``DataLoader``.
        num_workers: As in ``DataLoader``; they also load what is scored.
        pin_memory: As in ``DataLoader``.
        persistent_workers: As in ``DataLoader``; the subset may change under them.
        drop_last: As in ``DataLoader``.
        seed: Of the order, and of everything else that is drawn.
        **more: Of :class:`Coreset`.

    Raises:
        ValueError: An argument will not do.
        TypeError: The data set has no length.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> data = TensorDataset(torch.randn(200, 8), torch.arange(200) % 4)
        >>> model = torch.nn.Linear(8, 4)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> loader = CoresetLoader(data, model, budget=0.1, batch_size=10)
        >>> for epoch in range(3):
        ...     for (x, y), weights in loader:
        ...         losses = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
        ...         optimizer.zero_grad()
        ...         (weights * losses).mean().backward()
        ...         optimizer.step()
        >>> len(loader), len(loader.history)
        (2, 3)

    Source:
        Cheng et al. (2025), algorithm 1.
    """

    def __init__(
        self,
        dataset: Dataset[Any] | Sequence[Any],
        model: nn.Module,
        selector: Selector | None = None,
        monitor: RepresentativenessMonitor | None = None,
        budget: float = 0.1,
        batch_size: int = 32,
        *,
        collate_fn: Callable[..., Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        **more: Any,
    ) -> None:
        self.coreset = Coreset(
            model, dataset, selector, monitor, budget,
            collate_fn=collate_fn, num_workers=num_workers, seed=seed, **more,
        )  # fmt: skip
        self.batch_sampler = CoresetBatchSampler(self.coreset, batch_size, drop_last, seed)
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self._epoch, self._done = -1, 0  # the present epoch, and its batches so far
        self._wanted: int | None = None
        self._resumes = False
        self._inner: DataLoader[Any] = DataLoader(
            Batches(dataset, collate_fn), batch_size=None, sampler=self.batch_sampler, collate_fn=as_it_is,
            num_workers=num_workers, pin_memory=pin_memory, persistent_workers=persistent_workers,
            generator=torch.Generator().manual_seed(seed),  # of the workers' seeds
        )  # fmt: skip

    @property
    def history(self) -> History:
        """What happened in each epoch."""
        return self.coreset.history

    def __len__(self) -> int:
        """Return the batches of an epoch, on this process."""
        return len(self.batch_sampler)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that is iterated next, counted from 0."""
        self._wanted = whole("epoch", epoch, least=0)
        self._resumes = self._resumes and epoch == self._epoch

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        if self._resumes:
            self.batch_sampler.skip = self._done
        else:
            self._epoch, self._done = self._epoch + 1 if self._wanted is None else self._wanted, 0
        self._wanted, self._resumes = None, False
        self.batch_sampler.set_epoch(self._epoch)
        self.coreset.begin_epoch(self._epoch + 1)
        with self.coreset.training():
            for batch, indices in self._inner:
                self._done += 1
                self._indices = indices
                yield batch, self.coreset.weights_of(indices).to(_device(batch))

    def observe(self, losses: Tensor) -> None:
        """Be told the unweighted losses of the batch that came last, for :class:`InfoBatch`."""
        self.coreset.observe(self._indices, losses)

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to go on, in the middle of an epoch too, as plain values."""
        return {"epoch": self._epoch, "done": self._done, "coreset": self.coreset.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: at the batch that would have come next, of the next epoch if that one was complete."""
        self.coreset.load_state_dict(state["coreset"])
        self._epoch, self._done = int(state["epoch"]), int(state["done"])
        self._resumes = self._done < len(self)


def _device(batch: Any) -> torch.device:
    """Return the device of a batch's first tensor."""
    if isinstance(batch, Tensor):
        return batch.device
    parts = batch.values() if isinstance(batch, Mapping) else batch
    return _device(next(iter(parts))) if isinstance(batch, Mapping | list | tuple) and batch else torch.device("cpu")
