"""Reading a data set in order: shuffled anew in every epoch, shared by processes, taken up again in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from thrifty._common.checks import whole
from thrifty.data.v2v.dataset import VideoVoxelDataset


class EpochSampler(Sampler[int]):
    """A shuffle of the whole data set, of which every process takes its share; it can begin in the middle.

    All processes get equally many indices; what does not divide is left out, and is another part in every epoch.

    Args:
        length: Of the data set.
        seed: Of the shuffles.
        rank: This process.
        world: How many there are.
        shuffle: Whether to.

    Raises:
        ValueError: The rank is not in the world, or there is no index for each process.

    Example:
        >>> sampler = EpochSampler(10, seed=0)
        >>> order = list(sampler)
        >>> sampler.begin(epoch=0, position=4)
        >>> list(sampler) == order[4:]
        True
    """

    def __init__(self, length: int, seed: int = 0, rank: int = 0, world: int = 1, *, shuffle: bool = True) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"rank: expected one in [0, {world}), got {rank}")
        whole("length", length, least=world)
        self.length, self.seed, self.rank, self.world, self.shuffle = length, seed, rank, world, shuffle
        self.epoch = self.position = 0

    def begin(self, epoch: int, position: int = 0) -> None:
        """Choose the epoch, and how many of this process's indices are done already."""
        self.epoch, self.position = epoch, position

    def __iter__(self) -> Iterator[int]:
        order = np.arange(self.length)
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(self.length)
        mine = order[self.rank :: self.world][: self.length // self.world]
        yield from (int(i) for i in mine[self.position :])

    def __len__(self) -> int:
        return self.length // self.world - self.position


def make_loader(
    dataset: VideoVoxelDataset, batch: int, *, workers: int = 0, rank: int = 0, world: int = 1, seed: int = 0,
    shuffle: bool = True, pin_memory: bool = False,
) -> tuple[DataLoader[dict[str, Any]], EpochSampler]:  # fmt: skip
    """Return a loader and the sampler that says where in which epoch it is.

    Args:
        dataset: What is loaded.
        batch: Samples at once, a process.
        workers: Processes that decode; 0 decodes in this one.
        rank: This training process.
        world: How many there are.
        seed: Of the shuffles.
        shuffle: Whether to.
        pin_memory: For copies to a GPU.

    Returns:
        (loader, sampler); a batch that is not full is left out.

    Raises:
        ValueError: The data set is smaller than a batch of every process.

    Example:
        >>> from thrifty.data.v2v.video import write_video
        >>> clip = write_video("clip.mp4", np.zeros((31, 32, 32), np.uint8))
        >>> data = VideoVoxelDataset([clip], sequence_length=1, crop=16)
        >>> loader, sampler = make_loader(data, batch=2)
        >>> len(loader), next(iter(loader))["voxels"].shape
        (3, torch.Size([2, 1, 5, 16, 16]))
    """
    if len(dataset) < batch * world:
        raise ValueError(f"batch: expected at most {len(dataset) // world} samples a process, got {batch}")
    sampler = EpochSampler(len(dataset), seed, rank, world, shuffle=shuffle)
    loader: DataLoader[dict[str, Any]] = DataLoader(
        dataset, batch_size=batch, sampler=sampler, num_workers=workers, drop_last=True, pin_memory=pin_memory,
        persistent_workers=workers > 0, generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    return loader, sampler


def enter_epoch(dataset: VideoVoxelDataset, sampler: EpochSampler, epoch: int, position: int = 0) -> None:
    """Begin an epoch of both, or go on in the middle of it.

    Args:
        dataset: Its samples are drawn for this epoch, in workers that live on too.
        sampler: Its order is shuffled for this epoch.
        epoch: Counted from 0.
        position: How many of this process's samples are done already.

    Example:
        >>> from thrifty.data.v2v.video import write_video
        >>> clip = write_video("clip.mp4", np.zeros((31, 32, 32), np.uint8))
        >>> data = VideoVoxelDataset([clip], sequence_length=1, crop=16)
        >>> loader, sampler = make_loader(data, batch=2)
        >>> enter_epoch(data, sampler, 3, position=2)
        >>> sampler.epoch, len(list(loader))
        (3, 2)
    """
    dataset.set_epoch(epoch)
    sampler.begin(epoch, position)
