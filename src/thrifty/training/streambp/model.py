"""Switching streaming on and off for a Hugging Face causal language model.

Nothing is wrapped: the model's layers get another gradient-checkpoint function, its backbone two hooks that keep masks
as rules while it streams, and its ``forward`` a head that needs no logits. ``disable`` takes all of it back.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from thrifty._common.extras import require
from thrifty.training.streambp.attention import attend_chunk
from thrifty.training.streambp.config import StreamBPConfig
from thrifty.training.streambp.decoder import Decoder, base_model, find_decoder
from thrifty.training.streambp.decoder_layer import DecoderLayerBody, bind, recorder
from thrifty.training.streambp.final_norm import find_final_norm, stream_positions
from thrifty.training.streambp.masks import IMPLEMENTATION, keep_rule
from thrifty.training.streambp.model_head import StreamedForward, TRLHead
from thrifty.training.streambp.patching import set_attribute
from thrifty.training.streambp.planner import largest_layer_chunk
from thrifty.training.streambp.probe import check_head, check_layers
from thrifty.training.streambp.streaming import Tally, stream_layer

HeadChoice = Literal["streambp", "own"]
_HANDLE = "_streambp_handle"


def enable_streambp(
    model: nn.Module,
    config: StreamBPConfig | None = None,
    *,
    head: HeadChoice = "streambp",
    check: bool = True,
    **overrides: Any,
) -> StreamBPHandle:
    """Stream the backward pass of a causal language model: the same loss and gradients at a fraction of the memory.

    While the model is in training mode and gradients are on, its layers run chunk by chunk, and, if it is given
    ``labels``, so does its head: the loss comes without ``logits``. Everything else (evaluation, generation, saving) is
    untouched, and whatever trains the model (a loop of your own, ``Trainer``, TRL, PEFT, DDP, FSDP2) goes on as before.
    Sampling masks, packed documents (``position_ids`` that start again), sliding windows and mixtures of experts work.

    Args:
        model: A Hugging Face causal language model, with adapters or without. Its attention must be ``"sdpa"`` or
            ``"eager"``.
        config: The settings.
        head: ``"own"`` leaves the model's own head and streams the layers only.
        check: Run a few tokens through the model, streamed and not, and refuse it if the results differ.
        **overrides: Settings that differ from ``config``'s: ``enable_streambp(model, layer_chunk_size=512)``.

    Returns:
        A handle: ``handle.remove()`` gives the model back; as a context manager it does so at the end of the block.

    Raises:
        ValueError: A setting is wrong, streaming is on already, or the model cannot be streamed exactly (an encoder,
            recurrent or convolutional token mixing, a head that is no linear map); the message names the class.
        ImportError: transformers is not installed.

    Example:
        >>> import torch
        >>> from transformers import AutoModelForCausalLM, LlamaConfig
        >>> config = LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        ...     num_attention_heads=2)
        >>> model = AutoModelForCausalLM.from_config(config)
        >>> ids = torch.arange(24)[None]
        >>> with enable_streambp(model, layer_chunk_size=8) as handle:
        ...     _ = model.train()
        ...     model(input_ids=ids, labels=ids).loss.backward()
        >>> handle.stats().backward_chunks
        6

    Source:
        arXiv 2506.03077.
    """
    require("transformers", extra="llm")
    config = StreamBPConfig() if config is None else config
    if not isinstance(config, StreamBPConfig):
        raise TypeError(f"config: expected StreamBPConfig, got {type(config).__name__}")
    settings = config.with_overrides(**overrides)
    if head not in {"streambp", "own"}:
        raise ValueError(f'head: expected "streambp" or "own", got {head!r}')
    causal_lm = base_model(model)
    if _HANDLE in causal_lm.__dict__:
        raise ValueError(f"model: {type(causal_lm).__name__} streams already; call remove() on its handle first")
    handle = StreamBPHandle(causal_lm, settings, find_decoder(causal_lm))
    handle.install()
    try:
        if check:
            check_layers(causal_lm, handle)
        if head == "streambp":
            handle.install_head()
            if check:
                check_head(causal_lm, handle)
    except BaseException:
        handle.remove()
        raise
    handle.tally.__init__()  # type: ignore[misc] # the check is not part of anyone's training
    return handle


class StreamBPHandle:
    """Streaming of one model.

    Args:
        model: The Hugging Face model.
        config: The settings.
        decoder: Its decoder and layers.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> small = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        ...     num_attention_heads=2)
        >>> model = LlamaForCausalLM(small).train()
        >>> with enable_streambp(model, layer_chunk_size=2) as handle:
        ...     handle.active
        True
        >>> handle.active
        False

    Source:
        Ours.
    """

    def __init__(self, model: Any, config: StreamBPConfig, decoder: Decoder) -> None:
        self.model, self.config, self.tally = model, config, Tally()
        self.decoder, self.layers = decoder.model, decoder.layers
        self.own_attention: str = self.decoder.config._attn_implementation
        self.forced = False
        self.trl: TRLHead | None = None  # without it a call of TRL's is left to TRL's own head
        self._place = {layer: place for place, layer in enumerate(self.layers)}
        self._joined: dict[nn.Module, bool] = {}
        self._undo: list[Callable[[], object]] = []
        self._chunk_sizes: dict[tuple[int, int], int] = {}

    def stats(self) -> Tally:
        """Return how often layers were run on chunks since streaming was switched on."""
        return self.tally

    def __deepcopy__(self, memo: Any) -> StreamBPHandle:
        raise ValueError("model: a model that streams cannot be copied; copy it first, or call remove() on its handle")

    def remove(self) -> None:
        """Give the model back as it was. Calling it again does nothing."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> StreamBPHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def active(self) -> bool:
        """Whether the model would stream if it were called now."""
        wanted = self.decoder.training and torch.is_grad_enabled() and bool(self._undo)
        return self.forced or (wanted and any(layer.gradient_checkpointing for layer in self.layers))

    def install(self) -> None:
        """Stream the layers."""
        from transformers import AttentionInterface, AttentionMaskInterface

        AttentionInterface.register(IMPLEMENTATION, attend_chunk)
        AttentionMaskInterface.register(IMPLEMENTATION, keep_rule)
        set_attribute(self.model, _HANDLE, self, self._undo)
        self._install_layers()
        self._install_final_norm()
        self._follow_checkpointing_switch()
        self._hook_decoder()

    def install_head(self) -> None:
        """Stream the head."""
        set_attribute(self.model, "forward", StreamedForward.bind(self.model, self), self._undo)

    def _install_layers(self) -> None:
        """Set the checkpoint function, remembering what was there."""
        for layer in [self.decoder, *self.layers]:
            if hasattr(layer, "gradient_checkpointing"):
                set_attribute(layer, "gradient_checkpointing", True, self._undo)
        for layer in self.layers:
            set_attribute(layer, "_gradient_checkpointing_func", self.run_layer, self._undo)

    def _install_final_norm(self) -> None:
        """Stream what lies between the last layer and the head."""
        norm = find_final_norm(self.decoder)
        if norm is None:
            return
        own = norm.forward

        def forward(hidden: Tensor) -> Tensor:
            if not self.active or hidden.ndim != 3:
                whole: Tensor = own(hidden)
                return whole
            return stream_positions(own, hidden, list(norm.parameters()), self.config)

        set_attribute(norm, "forward", forward, self._undo)

    def _follow_checkpointing_switch(self) -> None:
        """Trainers switch checkpointing on (again): streaming stays in its place. Off: nothing is streamed."""
        original = self.model._set_gradient_checkpointing

        def switch(enable: bool = True, *args: Any, **kwargs: Any) -> None:
            original(enable, *args, **kwargs)
            for layer in self.layers:  # not every n-th one: run_layer sees to that
                layer.__dict__.update(gradient_checkpointing=enable, _gradient_checkpointing_func=self.run_layer)

        set_attribute(self.model, "_set_gradient_checkpointing", switch, self._undo)

    def _hook_decoder(self) -> None:
        """While the decoder streams, its masks stay rules."""
        config = self.decoder.config
        entered: list[str | None] = []

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            entered.append(None)
            if not self.active:
                return
            if kwargs.get("output_attentions") or getattr(config, "output_attentions", False):
                raise ValueError("output_attentions: streamed layers never hold attention weights; set it to False")
            entered[-1] = config._attn_implementation
            config._attn_implementation = IMPLEMENTATION

        def after(*_: Any) -> None:
            name = entered.pop() if entered else None
            if name is not None:
                config._attn_implementation = name

        hooks = [
            self.decoder.register_forward_pre_hook(before, with_kwargs=True),
            self.decoder.register_forward_hook(after, always_call=True),
        ]
        self._undo.append(lambda: [hook.remove() for hook in hooks])

    @torch._dynamo.disable
    def run_layer(self, call: partial[Any], *args: Any) -> Any:
        """Be the gradient-checkpoint function of the model's layers."""
        layer, hidden, arguments = bind(call, args)
        body = DecoderLayerBody(
            layer,
            call.func,
            arguments,
            hidden.shape[1],
            self.decoder.config,
            self.own_attention,
            self._joined.get(layer, True),
            self._recorded_keys(),
        )
        if self._place[layer] % self.config.every_n_layers:
            return body.whole(hidden)
        output, extras = stream_layer(body, hidden, self.config, self.tally, self._chunk_size(hidden))
        self._joined[layer] = body.joined
        self._record(body, extras)
        return (output, *[None] * (body.tupled - 1)) if body.tupled else output

    def _chunk_size(self, hidden: Tensor) -> int | None:
        """Return the planner's chunk where a budget asks for it."""
        budget = self.config.memory_budget_bytes
        if budget is None or self.config.layer_chunk_size != "auto":
            return None
        batch, length = hidden.shape[:2]
        if (batch, length) not in self._chunk_sizes:
            size = largest_layer_chunk(self.decoder.config, batch, length, budget, hidden.element_size(), self.config)
            self._chunk_sizes[batch, length] = size
        return self._chunk_sizes[batch, length]

    @staticmethod
    def _recorded_keys() -> tuple[str, ...]:
        """Return what transformers records of the layers in this call, hidden states apart."""
        kept = {"hidden_states", "attentions"}
        return tuple(key for key in recorder().get() or {} if key not in kept and not key.startswith("_"))

    @staticmethod
    def _record(body: DecoderLayerBody, extras: tuple[Tensor, ...]) -> None:
        """Hand on what was recorded, whole and with its gradient."""
        if not extras:
            return
        collector = recorder().get()
        each = len(extras) // len(body.keys)
        for place, extra in enumerate(extras):
            collector[body.keys[place // each]].append(extra.flatten(0, 1))

    @contextmanager
    def forced_on(self) -> Iterator[None]:
        """Stream inside the block whatever mode the model is in (for the check)."""
        self.forced = True
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, self, "forced", False)
            for layer in self.layers:
                undo: list[Callable[[], object]] = []
                set_attribute(layer, "forward", types.MethodType(self._forced_forward, layer), undo)
                stack.callback(undo.pop())
            yield

    def _forced_forward(self, layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.run_layer(partial(inspect.unwrap(type(layer).forward), layer, **kwargs), *args)
