"""Runs side by side: a process a core with one thread each, which small models use better than all threads one by one.

Nothing is timed in them: times are taken in :mod:`speed`, with nothing else at work.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.pool import AsyncResult
from typing import Any

import torch

#: At most so many processes: each holds a model.
MOST = 4


@contextmanager
def ahead(
    compute: Callable[..., Any], pieces: Sequence[tuple[Any, ...]], deadline: float = math.inf
) -> Iterator[Callable[..., Any]]:
    """Yield what ``compute`` is, but for pieces that are asked for in about this order: the next ones are begun too.

    What is still at work in the end is ended.

    Args:
        compute: A module's function.
        pieces: Its arguments, call by call.
        deadline: On the clock of :func:`time.monotonic`; who waits longer gets a ``TimeoutError``.
    """
    workers = min(MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    begun: dict[tuple[Any, ...], AsyncResult[Any]] = {}
    with get_context("spawn").Pool(workers, torch.set_num_threads, (1,)) as pool:

        def ask(*piece: Any) -> Any:
            at = pieces.index(piece)
            for one in pieces[at : at + workers]:
                if one not in begun:
                    begun[one] = pool.apply_async(compute, one)
            left = max(0.0, deadline - time.monotonic())
            return begun[piece].get(None if math.isinf(left) else left)

        yield ask
