"""The rows that are being decoded: their tokens, lengths, both caches, and the steps of a round on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from thrifty.inference.speculation.decode.accept import accept_greedy, accept_sampled
from thrifty.inference.speculation.decode.forward import Reader, Step, window


class Batch:
    """Rows of a generation that are not done.

    The target has read every token but a row's last. The draft may lag behind, by a token after full acceptance and by
    more after plain steps, and catches up when it drafts next; so do both with prompts of equal length.

    Args:
        target: The target model.
        draft: The draft model.
        input_ids: Prompts, padded on the left.
        attention_mask: 1 where there is a token.
        most: New tokens of a row.
        longest: Draft tokens of the longest draft.
        probabilities: From logits to what is sampled from; ``None`` decodes greedily.
        generator: Draws.
        step: The draft's compiled pass, if it is compiled.

    Raises:
        ValueError: A prompt is padded elsewhere than on the left.
    """

    def __init__(
        self,
        target: Any,
        draft: Any,
        input_ids: Int[Tensor, "batch prompt"],
        attention_mask: Int[Tensor, "batch prompt"] | None,
        most: int,
        longest: int,
        probabilities: Callable[[Tensor], Tensor] | None,
        generator: torch.Generator | None,
        step: Step | None = None,
    ) -> None:
        self.device = input_ids.device
        # No token that counts is read at a later place than this. What is drafted beyond stays at the last one: models
        # with learned positions have no more of them.
        self.last = input_ids.shape[1] + most - 1
        capacity = input_ids.shape[1] + most + longest
        self.lengths = _prompt_lengths(input_ids, attention_mask)
        self.rows = np.arange(len(input_ids))
        self.length = torch.as_tensor(self.lengths, device=self.device)
        # Tokens that each model has read: all of the target's but the last, the draft may lag behind.
        self.known = np.zeros(len(input_ids), np.int64)
        self.read = np.zeros(len(input_ids), np.int64)
        self.target, self.draft = Reader(target, self.last + 1), Reader(draft, self.last + 1, step)
        self.probabilities, self.generator = probabilities, generator
        # A token stands at its position: prompts move to the left end.
        shift = input_ids.shape[1] - self.length
        places = (torch.arange(input_ids.shape[1], device=self.device) + shift[:, None]).clamp(
            max=input_ids.shape[1] - 1
        )
        self.ids = input_ids.new_zeros(len(input_ids), capacity)
        self.ids[:, : input_ids.shape[1]] = input_ids.gather(1, places)

    @property
    def size(self) -> int:
        """Rows that are not done."""
        return len(self.rows)

    @property
    def _level(self) -> bool:
        """Whether all rows are equally long."""
        return bool(self.lengths.min() == self.lengths.max())

    def prefill(self, *, draft: bool) -> int:
        """Read the prompts but for their last tokens; prompts of equal length are left to the first round's passes.

        Returns:
            Tokens of a row that the first round reads besides its own.
        """
        width = int(self.lengths.max()) - 1
        if self._level:
            return width
        places = torch.arange(width, device=self.device).expand(self.size, width)
        for reader in (self.target, self.draft) if draft else (self.target,):
            reader.read(self.ids[:, :width], places, width, keep=1)
        self.read = self.lengths - 1
        self.known = self.lengths - 1 if draft else np.zeros_like(self.lengths)
        return 0

    def propose(self, gamma: int) -> tuple[Int[Tensor, "batch gamma"], Float[Tensor, "batch gamma vocab"] | None]:
        """Draft ``gamma`` tokens for every row; return them, and when sampling what they were drawn from."""
        if gamma == 0:
            return self.ids.new_zeros(self.size, 0), None
        drafts, drawn_from = [], []
        behind, longest = int((self.lengths - self.known).max()), int(self.lengths.max())
        tokens, places = window(self.ids, self.length, behind)
        start = longest - behind if self._level and behind <= longest else None
        vocabulary, readable = self.target.config.vocab_size, self.draft.config.vocab_size
        for step in range(gamma):
            if readable < vocabulary:  # padding of the target's head; reading something else costs acceptance at most
                tokens = tokens.clamp(max=readable - 1)
            width = min(longest + step, self.last + 1)
            logits = self.draft.read(tokens, places, width, keep=1, together=start)[:, -1, :vocabulary]
            if self.probabilities is None:
                tokens = logits.argmax(-1, keepdim=True)
            else:
                q = self.probabilities(logits)
                drawn_from.append(torch.nn.functional.pad(q, (0, vocabulary - q.shape[-1])))
                tokens = torch.multinomial(q, 1, generator=self.generator)
            drafts.append(tokens)
            places = (self.length + step).clamp(max=self.last)[:, None]
            start = longest + step if self._level else None
        self.known = self.lengths + gamma - 1
        return torch.cat(drafts, dim=1), torch.stack(drawn_from, dim=1) if drawn_from else None

    def verify(self, drafts: Int[Tensor, "batch gamma"]) -> Float[Tensor, "batch gamma_1 vocab"]:
        """Let the target read every row's last token and drafts in one pass; return its logits after each."""
        behind, longest = int((self.lengths - self.read).max()), int(self.lengths.max())
        tokens, places = window(self.ids, self.length, behind)
        width = drafts.shape[1]
        ahead = (self.length[:, None] + torch.arange(width, device=self.device)).clamp(max=self.last)
        tokens, places = torch.cat((tokens, drafts), dim=1), torch.cat((places, ahead), dim=1)
        start = longest - behind if self._level else None
        self.read = self.lengths + width
        return self.target.read(tokens, places, min(longest + width, self.last + 1), keep=width + 1, together=start)

    def accept(
        self, drafts: Tensor, q: Tensor | None, logits: Tensor
    ) -> tuple[Int[Tensor, " batch"], Int[Tensor, "batch gamma_1"]]:
        """Return how many drafts stand in each row, and the block of tokens whose first so many and one more count."""
        if self.probabilities is None:
            accepted, following = accept_greedy(drafts, logits)
        elif q is None:
            p = self.probabilities(logits[:, 0])
            following = torch.multinomial(p, 1, generator=self.generator).squeeze(1)
            accepted = torch.zeros_like(following)
        else:
            accepted, following = accept_sampled(drafts, q, self.probabilities(logits), self.generator)
        block = torch.nn.functional.pad(drafts, (0, 1)).scatter(1, accepted[:, None], following[:, None])
        self.ids.scatter_(1, self.length[:, None] + torch.arange(block.shape[1], device=self.device), block)
        self.length = self.length + accepted + 1
        return accepted, block

    def advance(self, accepted: NDArray[np.int64]) -> None:
        """Take note of what was accepted, on this side of the device."""
        self.lengths = self.lengths + accepted + 1
        # Of the drafts, both have read those that stand.
        self.known = np.minimum(self.known, self.lengths - 1)
        self.read = np.minimum(self.read, self.lengths - 1)

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Drop all other rows: a finished row would wake experts, and pollute time and counts alike."""
        self.rows, self.lengths = self.rows[rows], self.lengths[rows]
        self.known, self.read = self.known[rows], self.read[rows]
        index = torch.as_tensor(rows, device=self.device)
        self.length, self.ids = self.length[index], self.ids[index]
        self.target.cache.keep(index)
        self.draft.cache.keep(index)


def _prompt_lengths(input_ids: Tensor, attention_mask: Tensor | None) -> NDArray[np.int64]:
    """Return the tokens of every prompt.

    Raises:
        ValueError: A prompt is empty, or padded elsewhere than on the left.
    """
    if attention_mask is None:
        return np.full(len(input_ids), input_ids.shape[1], np.int64)
    if attention_mask.shape != input_ids.shape:
        shapes = f"{tuple(attention_mask.shape)} for input_ids of {tuple(input_ids.shape)}"
        raise ValueError(f"attention_mask: expected the shape of input_ids, got {shapes}")
    live = attention_mask.bool()
    lengths = live.sum(1)
    starts = input_ids.shape[1] - lengths
    expected = torch.arange(input_ids.shape[1], device=input_ids.device) >= starts[:, None]
    if not bool((live == expected).all()) or not bool((lengths > 0).all()):
        raise ValueError("attention_mask: expected prompts of at least one token, padded on the left")
    return np.asarray(lengths.cpu().numpy(), np.int64)
