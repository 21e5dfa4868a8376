"""What a training step allocates at most, from a model's shape alone, and the chunk that fits a budget.

Arithmetic in the manner of arXiv 2506.03077, table 1, phase by phase: the head at the end of the forward pass,
then the backward pass of each layer, while inputs of earlier layers wait and gradients of later ones pile up. Weights
and optimiser state are not counted: they are there before a step begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from thrifty._common.checks import number, one_of, whole
from thrifty.training.streambp.chunks import bounds, head_chunk, layer_chunk
from thrifty.training.streambp.config import StreamBPConfig

Mode = Literal["none", "checkpoint", "checkpoint+fused", "stream"]
MODES: tuple[Mode, ...] = ("none", "checkpoint", "checkpoint+fused", "stream")

#: Numbers a token that the graph of a Llama-like layer holds while its feed-forward part is differentiated, in units of
#: (hidden, query, key/value, feed-forward) widths: two norms with input and product, residuals, output, its
#: gradient; queries and attention output; keys and values; gate, up, activation, product and two gradients.
_FEED_FORWARD = (8, 3, 2, 6)
#: The same while attention is differentiated: the feed-forward part is gone, its gradients are there.
_ATTENTION = (5, 5, 4, 0)


@dataclass(frozen=True)
class Shape:
    """The widths of a decoder that memory depends on."""

    layers: int
    hidden: int
    queries: int
    keys: int
    feed_forward: int
    vocabulary: int
    head_dim: int
    tied: bool
    experts: int = 1
    layer_weights: int = 0  # of a layer, where they are counted rather than computed from the widths

    @classmethod
    def of(cls, config: Any) -> Shape:
        """Read them from a Hugging Face configuration.

        Raises:
            ValueError: It describes no decoder with attention.
        """
        if not hasattr(config, "get_text_config"):
            raise TypeError(f"config: expected a configuration of transformers, got {type(config).__name__}")
        text = config.get_text_config()
        needed = ("num_attention_heads", "hidden_size", "num_hidden_layers", "vocab_size")
        if missing := [name for name in needed if not isinstance(getattr(text, name, None), int)]:
            raise ValueError(
                f"config: expected a decoder with attention, but {type(config).__name__} has no {', '.join(missing)}"
            )
        if config.is_encoder_decoder:
            raise ValueError(f"config: expected a decoder, but {type(config).__name__} has an encoder too")
        heads, d = text.num_attention_heads, text.hidden_size
        dim = getattr(text, "head_dim", None) or d // heads
        names = ("num_local_experts", "num_experts", "n_routed_experts")
        experts = next((n for name in names if (n := getattr(text, name, None))), 1)
        width = getattr(text, "intermediate_size", None) or getattr(text, "n_inner", None) or 4 * d
        active = getattr(text, "num_experts_per_tok", None) or 1
        if experts > 1:
            width = (getattr(text, "moe_intermediate_size", None) or width) * active
        return cls(
            layers=text.num_hidden_layers,
            hidden=d,
            queries=heads * dim,
            keys=(getattr(text, "num_key_value_heads", None) or heads) * dim,
            feed_forward=width,
            vocabulary=text.vocab_size,
            head_dim=dim,
            tied=bool(getattr(config, "tie_word_embeddings", False)),
            experts=max(1, experts // active),
        )

    @property
    def layer_parameters(self) -> int:
        """Weights of a layer (experts included)."""
        if self.layer_weights:
            return self.layer_weights
        d = self.hidden
        return 2 * d * (self.queries + self.keys + 1) + 3 * d * self.feed_forward * self.experts

    @property
    def head_parameters(self) -> int:
        """Weights of the head."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.layers * self.layer_parameters + (1 if self.tied else 2) * self.head_parameters

    def graph(self, tokens: int, counts: tuple[int, ...] = _FEED_FORWARD) -> int:
        """Numbers that a layer's graph holds for so many tokens."""
        widths = (self.hidden, self.queries, self.keys, self.feed_forward)
        return tokens * sum(count * width for count, width in zip(counts, widths, strict=True))


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a training step allocates at most, by phase; the largest is the peak.

    Args:
        head: While the head's loss is computed.
        layer: While a layer is differentiated, at the worst layer.
        end: When all gradients are there.
        inputs: Of these, the layers' inputs, which offloading moves to the host.
        gradients: Of these, the gradients of the weights.
        done: Gradients that are there at the peak.

    Example:
        >>> MemoryEstimate(head=3 << 20, layer=5 << 20, end=4 << 20, inputs=1 << 20, gradients=2 << 20).peak >> 20
        5
    """

    head: int
    layer: int
    end: int
    inputs: int
    gradients: int
    done: int = 0

    @property
    def peak(self) -> int:
        """The most bytes held at once."""
        return max(self.head, self.layer, self.end)


def estimate_peak_memory(
    config: Any,
    batch: int,
    length: int,
    *,
    mode: Mode = "stream",
    itemsize: int = 4,
    settings: StreamBPConfig | None = None,
    padded: bool = False,
    trained: float = 1.0,
    layer_bytes: tuple[float, float] | None = None,
) -> MemoryEstimate:
    """Estimate what a training step allocates, weights and optimiser state apart.

    Args:
        config: A Hugging Face configuration (or a :class:`Shape`).
        batch: Sequences.
        length: Tokens of each.
        mode: ``"none"`` keeps all activations, ``"checkpoint"`` recomputes layers, ``"checkpoint+fused"`` has a head
            without full logits too, ``"stream"`` is this package.
        itemsize: Bytes of a weight and an activation (4: float32, 2: bfloat16).
        settings: Chunk sizes and the like of ``"stream"``.
        padded: A padding mask is given, so that attention masks exist.
        trained: Share of the weights that get a gradient (adapters: about 0.01).
        layer_bytes: What a layer's graph takes while it is differentiated, where that is known better than from the
            widths of a Llama-like layer: bytes a token, and bytes a pair of tokens (attention that stores its scores).

    Returns:
        Bytes by phase.

    Raises:
        ValueError: A size is not positive, or the mode is unknown.

    Example:
        >>> from transformers import LlamaConfig
        >>> llama = LlamaConfig(num_hidden_layers=32, hidden_size=4096, intermediate_size=14336,
        ...     num_attention_heads=32, num_key_value_heads=8, vocab_size=128256)
        >>> plain = estimate_peak_memory(llama, 1, 18_000, mode="checkpoint", itemsize=2)
        >>> ours = estimate_peak_memory(llama, 1, 18_000, itemsize=2)
        >>> ours.peak < 0.6 * plain.peak
        True

    Source:
        arXiv 2506.03077, table 1 and section 3.
    """
    if settings is not None and not isinstance(settings, StreamBPConfig):
        raise TypeError(f"settings: expected StreamBPConfig, got {type(settings).__name__}")
    if number("trained", trained, "a share between 0 and 1", least=0) > 1:
        raise ValueError(f"trained: expected a share between 0 and 1, got {trained!r}")
    for name, value in (("batch", batch), ("length", length), ("itemsize", itemsize)):
        whole(name, value)
    one_of("mode", mode, MODES)
    shape = config if isinstance(config, Shape) else Shape.of(config)
    settings = settings or StreamBPConfig()
    size = layer_chunk(settings.layer_chunk_size, length) if mode == "stream" else length
    chunk = min(size, length)
    state = batch * length * shape.hidden * itemsize
    kept = shape.layers * state * (0 if settings.offload and mode == "stream" else 1)
    if mode == "none":
        kept = state + shape.layers * shape.graph(batch * length) * itemsize
    per_layer = round(trained * shape.layer_parameters)
    head_grad = round(trained * shape.head_parameters) * itemsize
    head = kept + _head_bytes(shape, batch * length, itemsize, mode, settings, state) + head_grad
    many = len(bounds(length, size)) > 1
    if settings.kv_policy == "store" and mode == "stream" and many:
        kept += 2 * shape.layers * batch * length * shape.keys * itemsize
    work = per_layer * itemsize
    if mode != "none":
        graph = None if layer_bytes is None else batch * chunk * (layer_bytes[0] + length * layer_bytes[1])
        work = _layer_bytes(shape, batch * chunk, batch * (length - chunk), per_layer, itemsize, graph)
    work += 2 * length * shape.head_dim * itemsize  # the rotation of each position
    if padded:
        work += batch * chunk * length * (1 + itemsize)
    fixed = head_grad + state * (2 if many else 1) + work
    first = kept + fixed
    last = kept // shape.layers + fixed + (shape.layers - 1) * per_layer * itemsize
    all_grads = round(trained * shape.parameters) * itemsize
    later = head_grad + (shape.layers - 1) * per_layer * itemsize
    _, done = max((head, head_grad), (first, head_grad), (last, later), (state + all_grads, all_grads))
    return MemoryEstimate(head, max(first, last), state + all_grads, kept, all_grads, done)


def _layer_bytes(
    shape: Shape, tokens: int, earlier: int, weights: int, itemsize: int, graph: float | None = None
) -> int:
    """A chunk's graph, keys and values of earlier positions with their sums, and the layer's gradients with theirs."""
    keys = earlier * shape.keys * itemsize
    wide = max(itemsize, 4) if earlier else itemsize  # sums of 16-bit gradients are float32
    one = min(weights, shape.hidden * shape.feed_forward) * itemsize if earlier else 0
    llama = shape.graph(tokens) * itemsize
    scale = 1.0 if graph is None else graph / llama
    feed_forward = round(scale * llama) + 4 * keys + weights * wide + one
    again = weights * itemsize if earlier else 0
    attention = round(scale * shape.graph(tokens, _ATTENTION) * itemsize) + 6 * keys + weights * wide + again
    return max(feed_forward, attention)


def _head_bytes(shape: Shape, rows: int, itemsize: int, mode: Mode, settings: StreamBPConfig, state: int) -> int:
    """Final norm (input, product, output) and what the loss adds."""
    wide = max(itemsize, 4)
    if mode in {"none", "checkpoint"}:  # logits, their logarithms, their gradient
        return 3 * state + rows * shape.vocabulary * (2 * wide + (itemsize if itemsize == 4 else itemsize + wide))
    size = settings.head_chunk_size if mode == "stream" else "auto"
    chunk = min(head_chunk(size, rows, shape.hidden, shape.vocabulary), rows)
    extra = shape.head_parameters * 4 if itemsize < 4 else 0  # summed in float32
    states = 3 if mode == "stream" else 4  # a streamed norm keeps its input and output
    return states * state + chunk * shape.vocabulary * wide + extra


def largest_layer_chunk(
    config: Any, batch: int, length: int, budget: int, itemsize: int, settings: StreamBPConfig, padded: bool = False
) -> int:
    """Return the largest chunk, up to a third of the sequence, whose estimated peak fits a budget.

    Args:
        config: A Hugging Face configuration (or a :class:`Shape`).
        batch: Sequences.
        length: Tokens of each.
        budget: Bytes that a step may allocate.
        itemsize: Bytes of a weight and an activation.
        settings: All other settings.
        padded: A padding mask is given.

    Returns:
        Tokens; at least a 64th of the sequence, below which more passes save next to nothing.
    """
    largest = layer_chunk("auto", length)
    size = largest
    smallest = max(1, min(largest, length // 64))
    while size > smallest:
        tried = settings.with_overrides(layer_chunk_size=size)
        found = estimate_peak_memory(config, batch, length, itemsize=itemsize, settings=tried, padded=padded)
        if found.peak <= budget:
            break
        size = max(smallest, size // 2)
    return size
