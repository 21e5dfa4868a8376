"""What a recomputation must find as the forward pass found it: random numbers, autocast, and only first derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch
from torch import Tensor


def first_order_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse to be differentiated again: a streamed backward pass leaves no graph behind."""

    @wraps(backward)
    def checked(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "create_graph=True: a streamed backward pass keeps no graph, so there are no second derivatives; "
                "disable streaming for this step"
            )
        return backward(ctx, *grads)

    return checked


@dataclass
class Randomness:
    """The random state at the start of each chunk of a forward pass, kept only if the pass drew numbers.

    Args:
        device: Whose generator is watched beside the CPU's.
        enabled: False keeps nothing.
    """

    device: torch.device
    enabled: bool = True
    _states: list[tuple[Tensor, ...]] = field(default_factory=list, repr=False)

    def mark(self) -> None:
        """Note the state now: a chunk begins, or the pass ends."""
        if not self.enabled:
            return
        state = self._now()
        same = self._states and all(torch.equal(a, b) for a, b in zip(state, self._states[-1], strict=True))
        self._states.append(self._states[-1] if same else state)

    @property
    def drawn(self) -> bool:
        """Whether anything was drawn between the first and the last mark."""
        return bool(self._states) and self._states[0] is not self._states[-1]

    def settle(self) -> None:
        """Forget the states of a pass that drew nothing."""
        if not self.drawn:
            self._states.clear()

    @contextmanager
    def replayed(self, chunk: int) -> Iterator[None]:
        """Give the block the random numbers of one chunk, and the outside its own state back."""
        if not self._states:
            yield
            return
        cuda = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(cuda):
            state = self._states[chunk]
            torch.set_rng_state(state[0])
            if cuda:
                torch.cuda.set_rng_state(state[1], self.device)
            yield

    def _now(self) -> tuple[Tensor, ...]:
        cpu = torch.get_rng_state()
        return (cpu, torch.cuda.get_rng_state(self.device)) if self.device.type == "cuda" else (cpu,)


@dataclass(frozen=True)
class Autocast:
    """Whether and how operations were cast, per device type."""

    settings: tuple[tuple[str, bool, torch.dtype], ...]

    @classmethod
    def now(cls, device: torch.device) -> Autocast:
        """Note the current settings of the device and of the CPU."""
        kinds = sorted({device.type, "cpu"})
        return cls(tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds))

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Cast in the block as was noted.

        Nothing is cached: a weight that was cast without a graph must not be met where one is needed.
        """
        with ExitStack() as stack:
            for kind, enabled, dtype in self.settings:
                if enabled or torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, dtype, enabled, cache_enabled=False))
            yield
