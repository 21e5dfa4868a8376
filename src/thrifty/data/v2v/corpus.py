"""Corpora that one machine does not read: Ray Data maps every sample of an index to voxel grids, lazily."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from thrifty._common.extras import require
from thrifty.data.v2v.dataset import VideoVoxelDataset


def ray_samples(
    make_dataset: Callable[[], VideoVoxelDataset],
    *,
    epoch: int = 0,
    workers: int = 1,
    batch_size: int = 4,
    **options: Any,
) -> Any:
    """Return a Ray data set of an epoch's samples; nothing is decoded until it is read.

    Each actor makes its own :class:`VideoVoxelDataset`, and a sample depends on (seed, epoch, index) alone, so that the
    result does not depend on how many there are, nor on which of them is started again.

    Args:
        make_dataset: Makes the data set, where every worker can read the videos.
        epoch: Whose cameras, crops and pauses.
        workers: Actors.
        batch_size: Samples an actor makes at once.
        options: More of ``map_batches``, for instance ``num_gpus=1``.

    Returns:
        A ``ray.data.Dataset`` with columns ``index``, ``voxels`` and ``frames``; ``iter_torch_batches`` feeds trainers.

    Raises:
        ImportError: Ray is not installed.

    Example:
        >>> import ray  # doctest: +SKIP
        >>> samples = ray_samples(lambda: VideoVoxelDataset("list.txt"), workers=16)  # doctest: +SKIP
        >>> for batch in samples.iter_torch_batches(batch_size=12): ...  # doctest: +SKIP
    """
    data = require("ray.data", extra="ray")
    return data.from_numpy(np.arange(len(make_dataset()))).map_batches(
        _Worker,
        fn_constructor_args=(make_dataset, epoch),
        batch_size=batch_size,
        batch_format="numpy",
        compute=data.ActorPoolStrategy(size=workers),
        **options,
    )


class _Worker:
    """One actor: a data set of its own."""

    def __init__(self, make_dataset: Callable[[], VideoVoxelDataset], epoch: int) -> None:
        self._dataset = make_dataset()
        self._dataset.set_epoch(epoch)

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        samples = [self._dataset[int(index)] for index in rows["data"]]
        return {
            "index": np.array([sample["index"] for sample in samples]),
            "voxels": np.stack([sample["voxels"].numpy() for sample in samples]),
            "frames": np.stack([sample["frames"].numpy() for sample in samples]),
        }
