"""A transformer block of a live model, run with attention re-weighted and tokens dropped in the middle.

The block stays the host's own module, with its parameters, hooks and ``state_dict``; only its ``forward`` is replaced
on the instance, by a bound method (so that ``copy.deepcopy``, as for an average of weights, copies the patch too).
Hooks on its *attention* do not run: that module is taken apart, not called.
What is known of the tokens goes through a block as an argument, never through shared state, so that a block recomputed
by gradient checkpointing sees what it saw the first time.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from thrifty.inference.token_reduction.attention import reweight_values
from thrifty.inference.token_reduction.hosts import Block, attend
from thrifty.inference.token_reduction.partition import Tokens, begin
from thrifty.inference.token_reduction.restore import restored_sequence
from thrifty.inference.token_reduction.rotary import Rotary

if TYPE_CHECKING:
    from thrifty.inference.token_reduction.config import Restoring
    from thrifty.inference.token_reduction.reducers import Reducer


class Run:
    """What the blocks of one model share: the reducer, and what is known of the tokens of the pass that is under way.

    Passes in different threads do not meet: each thread has its own.
    """

    def __init__(self, reducer: Reducer, prefix: int, *, track: bool) -> None:
        self.reducer, self.prefix, self.track = reducer, prefix, track
        self.checkpointing = False
        self._pass = threading.local()

    @property
    def tokens(self) -> Tokens | None:
        """Return what is known of the tokens after the last block that ran in this thread."""
        return getattr(self._pass, "tokens", None)

    @tokens.setter
    def tokens(self, tokens: Tokens) -> None:
        self._pass.tokens = tokens

    def images_came(self, _: nn.Module, __: Any, maps: Tensor) -> None:
        """Begin a pass: a forward hook of the convolution that makes patches, whose output is the grid."""
        grid = (int(maps.shape[-2]), int(maps.shape[-1]))
        started = begin(maps.shape[0], grid, self.prefix, maps.device)
        self.tokens = self.reducer.begin(started, track=self.track)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the pass under way out of copies: it belongs to a thread."""
        return {name: value for name, value in self.__dict__.items() if name != "_pass"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pass = threading.local()


class PlainBlock:
    """A block before the first reduction: it only takes over the host's gradient checkpointing."""

    def __init__(self, block: nn.Module, run: Run) -> None:
        self.block, self.run = block, run

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Run the host's own forward, checkpointed if the host was asked to."""
        _refuse_masks(args, kwargs)
        if self.run.checkpointing and self.block.training and torch.is_grad_enabled():
            return checkpoint(type(self.block).forward, self.block, x, use_reentrant=False, **kwargs)
        return type(self.block).forward(self.block, x, **kwargs)


class ReducedBlock:
    """A block from the first reduction on.

    Args:
        part: The host's block, taken apart.
        run: What the blocks share.
        stage: Which reduction of the schedule happens here, ``None`` for none.
        restored: After the last block: put the dense grid back.
    """

    def __init__(self, part: Block, run: Run, stage: int | None, restored: Restoring | None = None) -> None:
        self.part, self.run, self.stage, self.restored = part, run, stage, restored
        self.block = part.block
        annotation = inspect.signature(type(self.block).forward).return_annotation
        self._as_tuple = "tuple" in str(annotation).lower()  # transformers 4

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Run the block on what the previous one left."""
        _refuse_masks(args, kwargs)
        tokens = self._known(x)
        rotary = self.part.rotary(kwargs)
        block: Any = self.block
        if block.training and torch.is_grad_enabled() and self.run.checkpointing:
            x, tokens = checkpoint(self._body, x, tokens, rotary, use_reentrant=False)
        elif block.training and torch.is_grad_enabled() and getattr(block, "gradient_checkpointing", False):
            x, tokens = block._gradient_checkpointing_func(self._body, x, tokens, rotary)
        else:
            x, tokens = self._body(x, tokens, rotary)
        self.run.tokens = tokens
        return (x,) if self._as_tuple else x

    def _known(self, x: Tensor) -> Tokens:
        tokens = self.run.tokens
        if tokens is None:
            raise RuntimeError(
                "no image came through the patch embedding in this thread; run the whole model, or remove the "
                "reduction before calling its blocks alone"
            )
        expected = tokens.prefix + tokens.size.shape[1]
        if x.shape[1] != expected:
            raise ValueError(
                f"x: expected {expected} tokens ({tokens.prefix} in front, {tokens.size.shape[1]} behind), got "
                f"{x.shape[1]}; patch dropout and packed sequences cannot be reduced"
            )
        return tokens

    def _body(self, x: Tensor, tokens: Tokens, rotary: Rotary | None) -> tuple[Tensor, Tokens]:
        part, reducer = self.part, self.run.reducer
        stage = self.stage
        if stage is not None and reducer.is_noop(stage, tokens):
            stage = None
        normed = part.first_norm(x)
        query, key, value = part.query_key_value(normed, None if rotary is None else rotary.at(tokens))
        w1 = getattr(self.block, "freq_w1", None)
        if w1 is not None:
            value = reweight_values(value, w1, getattr(self.block, "freq_beta", None), tokens.summaries)
        bias = reducer.bias(tokens)
        if bias is not None:
            bias = bias.to(query.dtype)
        clue = None
        if stage is None:
            out = attend(part, query, key, value, bias)
        else:
            out, clue = reducer.attend(part, query, key, value, bias, stage)
        x = part.add_attention(x, normed, out)
        embedding = getattr(self.block, "freq_dc_pos", None)
        if stage is not None and reducer.where == "mid":
            x, tokens = reducer.reduce(x, tokens, clue, stage, embedding)
        x = part.feed_forward(x)
        if stage is not None and reducer.where == "end":
            x, tokens = reducer.reduce(x, tokens, clue, stage, embedding)
        return (x if self.restored is None else restored_sequence(x, tokens, self.restored)), tokens


def _refuse_masks(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse what would change which tokens may see which.

    Raises:
        ValueError: A mask came, or attention maps were asked for.
    """
    masks = [a for a in args if a is not None] + [kwargs.get(n) for n in ("attention_mask", "attn_mask", "k_x", "v_x")]
    if torch.compiler.is_exporting():  # transformers makes masks of ones then; a user's was refused at the model's door
        masks = []
    if any(mask is not None for mask in masks) or kwargs.get("is_causal"):
        raise ValueError(
            "attention_mask: a reduced model attends to all tokens, got a mask; packed sequences of images (NaViT) and "
            "causal attention cannot be reduced: remove the reduction first"
        )
    if kwargs.get("output_attentions"):
        raise ValueError(
            "output_attentions: attention goes through a fused kernel and changes its length with the layer; "
            "remove the reduction first, or see reduce_tokens(..., trace=True) for the scores"
        )
