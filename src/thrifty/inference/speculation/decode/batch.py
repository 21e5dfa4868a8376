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
from thrifty.inference.speculation.decode.forward import Reader, window


class Batch:
    """Rows of a generation that are not done.

    Every token but a row's last has its keys and values in the target's cache; the draft's may lag behind, by a token
    after full acceptance and by more after plain steps, and catches up when it drafts next.

    Args:
        target: The target model.
        draft: The draft model.
        input_ids: Prompts, padded on the left.
        attention_mask: 1 where there is a token.
        room: Positions that are needed beyond the longest prompt.
        probabilities: From logits to what is sampled from; ``None`` decodes greedily.
        generator: Draws.

    Raises:
        ValueError: A prompt is empty, or padded elsewhere than on the left.
    """

    def __init__(
        self,
        target: Any,
        draft: Any,
        input_ids: Int[Tensor, "batch prompt"],
        attention_mask: Int[Tensor, "batch prompt"] | None,
        room: int,
        probabilities: Callable[[Tensor], Tensor] | None,
        generator: torch.Generator | None,
    ) -> None:
        if input_ids.ndim != 2 or 0 in input_ids.shape:
            raise ValueError(
                f"input_ids: expected [batch, prompt] with at least one token, got {tuple(input_ids.shape)}"
            )
        self.device = input_ids.device
        capacity = input_ids.shape[1] + room + 1
        self.lengths = _prompt_lengths(input_ids, attention_mask)
        self.rows = np.arange(len(input_ids))
        self.length = torch.as_tensor(self.lengths, device=self.device)
        self.known = np.zeros(len(input_ids), np.int64)  # tokens that the draft has read
        self.target, self.draft = Reader(target, capacity), Reader(draft, capacity)
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

    def prefill(self, *, draft: bool) -> None:
        """Read the prompts but for their last tokens, which the first round reads."""
        width = int(self.lengths.max()) - 1
        if width:
            places = torch.arange(width, device=self.device).expand(self.size, width)
            for reader in (self.target, self.draft) if draft else (self.target,):
                reader.read(self.ids[:, :width], places, width, keep=1, together=0)
        self.known = self.lengths - 1 if draft else np.zeros_like(self.lengths)

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
            logits = self.draft.read(tokens, places, longest + step, keep=1, together=start)[:, -1, :vocabulary]
            if self.probabilities is None:
                tokens = logits.argmax(-1, keepdim=True)
            else:
                q = self.probabilities(logits)
                drawn_from.append(torch.nn.functional.pad(q, (0, vocabulary - q.shape[-1])))
                tokens = torch.multinomial(q, 1, generator=self.generator)
            drafts.append(tokens)
            places = (self.length + step)[:, None]
            start = longest + step if self._level else None
        self.known = self.lengths + gamma - 1
        return torch.cat(drafts, dim=1), torch.stack(drawn_from, dim=1) if drawn_from else None

    def verify(self, drafts: Int[Tensor, "batch gamma"]) -> Float[Tensor, "batch gamma_1 vocab"]:
        """Let the target read every row's last token and drafts in one pass; return its logits after each."""
        last, place = window(self.ids, self.length, 1)
        width = drafts.shape[1] + 1
        places = place + torch.arange(width, device=self.device)
        tokens = torch.cat((last, drafts), dim=1)
        longest = int(self.lengths.max())
        start = longest - 1 if self._level else None
        return self.target.read(tokens, places, longest + width - 1, keep=width, together=start)

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
        self.known = np.minimum(self.known, self.lengths - 1)  # of the drafts, the draft has read those that stand

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Drop all other rows: a finished row would wake experts, and pollute time and counts alike."""
        self.rows, self.lengths, self.known = self.rows[rows], self.lengths[rows], self.known[rows]
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
