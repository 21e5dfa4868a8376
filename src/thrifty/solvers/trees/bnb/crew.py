"""Threads that answer independent questions, with a deadline and a clean end (numba kernels release the GIL)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Worker = TypeVar("Worker")
Reply = TypeVar("Reply")

WAIT = 3600.0
"""Seconds between two looks at the clock where there is no deadline."""


class Crew(Generic[Worker]):
    """Asks questions of workers, one thread each.

    Args:
        workers: What a question is asked of; none is asked two at a time.
        stop: A flag, ``[1]``, that makes the workers end soon once it is set.
        deadline: When to set it, by `time.monotonic`.
    """

    def __init__(self, workers: Sequence[Worker], stop: NDArray[np.uint8], deadline: float) -> None:
        self._workers = workers
        self._stop = stop
        self._deadline = deadline

    @property
    def first(self) -> Worker:
        """A worker for what is too short to be worth a thread; only between calls of `ask`."""
        return self._workers[0]

    def ask(
        self,
        questions: Sequence[Callable[[Worker], Reply]],
        on_reply: Callable[[Reply], None] = lambda reply: None,
    ) -> list[Reply]:
        """Answer all questions.

        Args:
            questions: Each is called with a worker. They are begun in their order.
            on_reply: Called with each reply as it comes, in the caller's thread.

        Returns:
            The replies in the order of the questions.

        Raises:
            BaseException: What a question or ``on_reply`` raises, or an interrupt from the keyboard; every thread has
                ended by then.
        """
        outcomes: SimpleQueue[tuple[int, Reply | None, BaseException | None]] = SimpleQueue()
        numbers = count()

        def work(worker: Worker) -> None:
            while (i := next(numbers)) < len(questions):
                try:
                    outcomes.put((i, questions[i](worker), None))
                except BaseException as error:
                    outcomes.put((i, None, error))

        replies: list = [None] * len(questions)
        threads = [Thread(target=work, args=(worker,), daemon=True) for worker in self._workers[: len(questions)]]
        started: list[Thread] = []
        try:
            for thread in threads:
                thread.start()
                started.append(thread)
            for _ in questions:
                i, replies[i], error = self._next(outcomes)
                if error is not None:
                    raise error
                on_reply(replies[i])
        except BaseException:
            self._stop[0] = 1
            raise
        finally:
            for thread in started:
                thread.join()
        return replies

    def _next(
        self, outcomes: SimpleQueue[tuple[int, Reply | None, BaseException | None]]
    ) -> tuple[int, Reply | None, BaseException | None]:
        while True:
            left = self._deadline - monotonic()
            if left <= 0:
                self._stop[0] = 1
            try:
                return outcomes.get(timeout=min(left, WAIT) if left > 0 else WAIT)
            except Empty:
                continue
