"""Sharing the sequences of a batch among threads, for compiled passes that hold no interpreter lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

#: Numbers below which a second thread costs more than it saves (starting one takes about 0.1 ms).
WORTH_SHARING = 400_000


def over_rows(kernel: Callable[..., None], shared: Sequence[Tensor], *others: Any, work: int) -> None:
    """Call a kernel on slices of the batch, one a thread of torch's setting.

    Args:
        kernel: Takes the arguments in this order, arrays in place of tensors.
        shared: Tensors with one row a sequence; one that has a single row for all is passed whole.
        others: What every call gets whole.
        work: How many numbers the call produces.
    """
    rows = max(len(x) for x in shared)
    count = min(torch.get_num_threads(), rows) if work >= WORTH_SHARING else 1
    arrays = [x.detach().numpy() for x in shared]
    whole = [x.detach().numpy() if isinstance(x, Tensor) else x for x in others]
    if count == 1:
        kernel(*arrays, *whole)
        return
    edges = [rows * part // count for part in range(count + 1)]
    slices = [slice(low, high) for low, high in pairwise(edges)]
    with ThreadPoolExecutor(count) as pool:
        calls = [pool.submit(kernel, *(x if len(x) < rows else x[part] for x in arrays), *whole) for part in slices]
        for call in calls:
            call.result()
