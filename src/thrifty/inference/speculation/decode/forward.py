"""One model, its cache and its passes over rows of different lengths."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty.inference.speculation.decode.cache import SlotCache, attention_mask

#: Tokens of a row in the passes that are compiled: one, or two after a draft that was accepted whole.
SHORT = 2
#: Capacities of compiled passes are multiples of this: each is compiled for itself.
PAGE = 64

Step = Callable[..., Any]


def compiled(model: Any) -> Step:
    """Return a model's forward pass, compiled; on a GPU as a CUDA graph, which takes the launches out of a step."""
    mode = "reduce-overhead" if model.device.type == "cuda" else None
    step: Step = torch.compile(model.forward, mode=mode)
    return step


class Reader:
    """Feeds tokens at given positions to a model, and returns logits.

    Args:
        model: A causal language model of transformers.
        capacity: Positions that every row may fill.
        step: Takes the place of the model in passes over few tokens; they then see every slot, so that shapes stay.
    """

    def __init__(self, model: Any, capacity: int, step: Step | None = None) -> None:
        self.model = model
        self.config = model.config.get_text_config()
        names = inspect.signature(type(model).forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"  # renamed in transformers 5
        self._keeps = "logits_to_keep" in names
        self._step = step
        if step is not None:
            capacity = -(-capacity // PAGE) * PAGE
        self.cache = SlotCache(self.config.num_hidden_layers, capacity)

    def read(
        self,
        tokens: Int[Tensor, "batch tokens"],
        positions: Int[Tensor, "batch tokens"],
        width: int,
        keep: int,
        *,
        together: int | None = None,
    ) -> Float[Tensor, "batch keep vocab"]:
        """Run one pass.

        Args:
            tokens: What is fed.
            positions: Of the tokens; entries that were at these positions are overwritten.
            width: One more than the largest position.
            keep: Of how many of the last tokens logits are wanted.
            together: The first position, if it is the same in all rows.

        Returns:
            Logits.
        """
        step = self._step if self.cache.filled and tokens.shape[1] <= SHORT else None
        if step is not None:
            width, together = self.cache.capacity, None
        self.cache.place(positions, width, together)
        more = {"logits_to_keep": keep} if self._keeps else {}
        mask = attention_mask(self.config, positions, width, self.model.dtype, together=together is not None)
        output = (step or self.model)(
            input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=True,
            **{self._cache_name: self.cache}, **more,
        )  # fmt: skip
        logits: Tensor = output.logits[:, -keep:]
        return logits if step is None else logits.clone()  # a graph writes its output to the same place every time


def window(
    ids: Int[Tensor, "batch capacity"], length: Int[Tensor, " batch"], width: int
) -> tuple[Int[Tensor, "batch width"], Int[Tensor, "batch width"]]:
    """Return the last ``width`` tokens of every row and their positions.

    A row that is shorter repeats its first token at position 0, which writes the same entry again.
    """
    positions = (length[:, None] - width + torch.arange(width, device=ids.device)).clamp(min=0)
    return ids.gather(1, positions), positions
