"""What every reducer does at its layers, and ours: high-frequency tokens and DC tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty.inference.token_reduction import attention
from thrifty.inference.token_reduction.config import Config, FreqReduceConfig, tokens_kept
from thrifty.inference.token_reduction.hosts import Block, Heads, attend
from thrifty.inference.token_reduction.partition import Stage, Tokens, cell_of, reduce_by_score, refuse_nonfinite, take


class Reducer(Protocol):
    """Shortens the sequence at some layers of a vision transformer."""

    config: Any
    layers: tuple[int, ...]
    where: str
    debug: bool

    def begin(self, tokens: Tokens, *, track: bool) -> Tokens:
        """Return what has to be known from the start; ``track`` asks for the owner of every patch."""

    def is_noop(self, stage: int, tokens: Tokens) -> bool:
        """Tell, from shapes alone, whether a stage would leave everything as it is."""

    def bias(self, tokens: Tokens) -> Float[Tensor, "batch 1 1 n"] | None:
        """Return what is added to the logits of attention in the blocks after the first reduction."""

    def attend(
        self, part: Block, query: Heads, key: Heads, value: Heads, bias: Tensor | None, stage: int
    ) -> tuple[Heads, Any]:
        """Return attention's output at a layer of the schedule, and what the choice will need of it."""

    def reduce(
        self, x: Tensor, tokens: Tokens, clue: Any, stage: int, embedding: Tensor | None
    ) -> tuple[Tensor, Tokens]:
        """Shorten a sequence."""


def log_sizes(tokens: Tokens) -> Float[Tensor, "batch 1 1 n"]:
    """Return the logarithm of the patches that each token stands for; a token of none is not attended to."""
    behind = tokens.size.log()
    return torch.nn.functional.pad(behind, (tokens.prefix, 0))[:, None, None, :]


class FrequencyReducer:
    """Keeps high-frequency tokens and replaces the others by DC tokens."""

    def __init__(self, config: FreqReduceConfig, *, trace: bool, keep_values: bool, debug: bool) -> None:
        self.config, self.layers, self.debug = config, config.layers, debug
        self.where: str = config.where
        self.windows: tuple[int, ...] = config.window  # type: ignore[assignment]
        self.shares: tuple[float, ...] = config.keep  # type: ignore[assignment]
        self._trace, self._keep_values = trace, keep_values

    def begin(self, tokens: Tokens, *, track: bool) -> Tokens:
        """Return the tokens as they are: owners follow from positions."""
        return tokens

    def count(self, stage: int, tokens: Tokens) -> int:
        """Return how many live patches a stage keeps."""
        return tokens_kept(self.shares[stage], tokens.live, self.config.rounding)

    def is_noop(self, stage: int, tokens: Tokens) -> bool:
        """Tell whether every live patch stays; then no DC token is made."""
        return self.count(stage, tokens) >= tokens.live

    def bias(self, tokens: Tokens) -> Float[Tensor, "batch 1 1 n"] | None:
        """Return the log of sizes, if the setting asks for it."""
        return log_sizes(tokens) if self.config.dc_size_bias and tokens.summaries else None

    def attend(
        self, part: Block, query: Heads, key: Heads, value: Heads, bias: Tensor | None, stage: int
    ) -> tuple[Heads, Tensor | None]:
        """Return attention's output and the score of every token, as far as it comes from attention."""
        name = self.config.score
        if name in {"attn_mean", "low"}:
            out, score = attention.attend_and_score(query, key, value, part.scale, bias=bias, dropout=part.dropout())
            return out, score if name == "attn_mean" else -score
        out = attend(part, query, key, value, bias)
        if name == "cls":
            return out, attention.class_token_score(query, key, part.scale, bias)
        return out, attention.query_mean_score(query, key) if name == "qk_mean" else None

    def reduce(
        self, x: Tensor, tokens: Tokens, clue: Any, stage: int, embedding: Tensor | None
    ) -> tuple[Tensor, Tokens]:
        """Rank the live patches, keep the highest, and fold the others into DC tokens."""
        first, live = tokens.prefix, tokens.live
        score = self._score(x, clue, stage)[:, first : first + live]
        if self.debug:
            refuse_nonfinite(score, self.layers[stage])
        short, known, (kept, low) = reduce_by_score(
            x, tokens, score, self.count(stage, tokens), self.windows[stage],
            update=self.config.dc_update, dc_embedding=embedding,
        )  # fmt: skip
        if self._trace:
            record = self._record(x, short, tokens, known, score, kept, low, self.layers[stage])
            known = replace(known, history=(*tokens.history, record))
        return short, known

    def _score(self, x: Tensor, clue: Tensor | None, stage: int) -> Tensor:
        if self.config.score == "random":  # one draw for all images, so that none depends on its batch
            rng = torch.Generator().manual_seed(self.config.seed * 1000 + stage)
            return torch.rand(x.shape[1], generator=rng).to(x.device).expand(x.shape[:2])
        return attention.difference_score(x) if clue is None else clue

    def _record(
        self,
        x: Tensor,
        short: Tensor,
        before: Tokens,
        after: Tokens,
        score: Tensor,
        kept: Tensor,
        low: Tensor,
        layer: int,
    ) -> Stage:
        assert before.position is not None
        assert after.position is not None
        dropped = before.position.gather(1, low)
        live = after.live
        return Stage(
            layer=layer,
            kept=after.position,
            dropped=dropped,
            cell=cell_of(dropped, before.grid, after.window) if after.summaries else None,
            dc_size=after.size[:, live:] if after.summaries else None,
            before=x.shape[1],
            after=short.shape[1],
            score=score,
            window=after.window,
            dropped_values=take(x[:, before.prefix :], low) if self._keep_values else None,
            dc_values=short[:, before.prefix + live :] if self._keep_values else None,
        )


def make_reducer(config: Config, *, trace: bool, keep_values: bool, debug: bool) -> Reducer:
    """Return the reducer of a setting: ours, or a rival's."""
    from thrifty.inference.token_reduction.rivals import RIVALS

    if isinstance(config, FreqReduceConfig):
        return FrequencyReducer(config, trace=trace, keep_values=keep_values, debug=debug)
    if type(config) not in RIVALS:
        raise TypeError(
            f"config: expected FreqReduceConfig, ToMeConfig, EViTConfig or PoolConfig, got {type(config).__name__}"
        )
    reducer: Reducer = RIVALS[type(config)](config, trace=trace, debug=debug)
    return reducer
