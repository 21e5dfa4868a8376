"""The model that a client is given: real layers that it trains, stand-ins around them, one architecture.

In one process it shares every frozen tensor with the global model and owns only what it trains. It can also be written
down as a :class:`Shape` and a state, sent, and built anew where the global model is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from thrifty._common.extras import require
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.context import Layout, Segment, lay_out
from thrifty.training.leff.frozen import cast_frozen
from thrifty.training.leff.importance import Batch
from thrifty.training.leff.layers import LayerView, number_layers, resize, set_modes, shared_copy
from thrifty.training.leff.sampling import block_layers, check_capacity
from thrifty.training.leff.stand_ins import StandIns


@dataclass
class ClientModel:
    """A client's model, and what in it is trained.

    Args:
        model: The module; only what is trained requires gradients.
        layout: Its layers.
        path: Of the list of layers.
        extras: Names of what is trained outside the block.
    """

    model: nn.Module
    layout: Layout
    path: str
    extras: tuple[str, ...]

    @property
    def view(self) -> LayerView:
        """The model's layers."""
        return LayerView(self.model, self.path)

    def trained(self) -> dict[str, Tensor]:
        """Return what is trained, by its name in the global model."""
        view, found = self.view, dict[str, Tensor]()
        for place, source in self.layout.trained_places.items():
            here, there = f"{self.path}.{place}.", f"{self.path}.{source}."
            found |= {there + name.removeprefix(here): t for name, t in view.layer_tensors(place).items()}
        named = dict(self.model.named_parameters())
        return found | {name: named[name] for name in self.extras}

    def train_mode(self) -> None:
        """Put what is trained into training mode, and what is frozen into evaluation mode."""
        set_modes(self.view, self.layout.trained_places)

    def state(self) -> dict[str, Tensor]:
        """Return every tensor that the client needs, by its name in this model; tied ones once."""
        found: dict[str, Tensor] = {}
        seen: set[int] = set()
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                found[name] = tensor.detach()
        return found


@dataclass(frozen=True)
class Shape:
    """A client's model without its numbers, as it travels.

    Args:
        layout: Its layers.
        path: Of the list of layers.
        extras: Names of what is trained outside the block.
        kind: Class in ``transformers``.
        settings: JSON of the global model's configuration.
        attention: Implementation of attention.
        context_dtype: As in the settings of the federation.
    """

    layout: Layout
    path: str
    extras: tuple[str, ...]
    kind: str
    settings: str
    attention: str
    context_dtype: str

    @classmethod
    def of(cls, client: ClientModel, full: nn.Module, config: LeffConfig) -> Shape:
        """Describe a client's model, given the global one."""
        theirs: Any = full.config
        return cls(
            client.layout, client.path, client.extras, type(full).__name__, theirs.to_json_string(use_diff=False),
            getattr(theirs, "_attn_implementation", None) or "eager", config.context_dtype,
        )  # fmt: skip

    @classmethod
    def full(cls, view: LayerView) -> Shape:
        """Describe the global model itself, all of it trained."""
        layout = lay_out(range(view.num_layers), view.num_layers, LeffConfig())
        whole = ClientModel(view.model, layout, view.path, tuple(view.extras()))
        return cls.of(whole, view.model, LeffConfig())

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Shape:
        """Read what :meth:`to_json` gave."""
        read = json.loads(text)
        where = read.pop("layout")
        layout = Layout(
            tuple(where["block"]), tuple(Segment(**segment) for segment in where["segments"]), where["num_layers"]
        )
        return cls(**{**read, "layout": layout, "extras": tuple(read["extras"])})

    def build(self, state: Mapping[str, Tensor], *, recompute: bool = False) -> ClientModel:
        """Make the model with these numbers; the global model's other layers never exist.

        Args:
            state: What :meth:`ClientModel.state` gave.
            recompute: Activations of the block in its backward pass.

        Raises:
            ValueError: The class is unknown, or the state does not fit.
        """
        model = self._empty()
        view = LayerView(model, self.path)
        number_layers(model, view.layers, self.layout.sources)
        if self.context_dtype != "model":
            cast_frozen([view.layers[p] for p in self._frozen()], self.context_dtype)
        second = _tied(model)
        try:  # assigned, not copied: every tensor keeps the precision that it came in
            held = {name: tensor.clone() for name, tensor in state.items()}
            lacking, unknown = model.load_state_dict(held, strict=False, assign=True)
        except RuntimeError as error:
            raise ValueError(f"state: expected the tensors of the client's model, got others: {error}") from None
        if second:
            model.tie_weights()
        tied = set(lacking) & second
        if unknown or set(lacking) - tied:
            raise ValueError(
                f"state: expected the tensors of the client's model, got none of {sorted(set(lacking) - tied)[:3]} "
                f"and unknown {sorted(unknown)[:3]}"
            )
        client = ClientModel(model, self.layout, self.path, self.extras)
        if recompute:
            recompute_activations(model)
        model.requires_grad_(False)
        for tensor in client.trained().values():
            if isinstance(tensor, nn.Parameter):
                tensor.requires_grad_(True)
        return client

    def _frozen(self) -> list[int]:
        return [p for p in range(len(self.layout.places)) if p not in self.layout.trained_places]

    def _empty(self) -> Any:
        transformers = require("transformers", extra="federated")
        kind: Any = getattr(transformers, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
            raise ValueError(f"kind: expected a model class of transformers, got {self.kind!r}")
        described: Any = kind
        settings = described.config_class.from_dict(json.loads(self.settings))
        scratch = nn.Module()  # per-layer settings are those of the layers that are kept
        scratch.config = settings
        resize(scratch, nn.ModuleList([nn.Identity() for _ in self.layout.places]), self.layout.sources,
               self.layout.num_layers)  # fmt: skip
        settings._attn_implementation = self.attention
        with torch.random.fork_rng(devices=[]):
            return kind(settings)


def assemble(view: LayerView, layout: Layout, stand_ins: StandIns, config: LeffConfig) -> ClientModel:
    """Make a client's model out of the global one, sharing what is frozen.

    Args:
        view: The global model.
        layout: The client's layers.
        stand_ins: That are ready for its segments.
        config: What is trained, and in which precision the rest is held.
    """
    layers: list[nn.Module] = []
    counts: dict[Segment, int] = {}
    for source, segment in layout.places:
        if segment is None:
            layers.append(view.layers[source])
        else:
            place = counts.get(segment, 0)
            layers.append(stand_ins.layers(view, segment)[place])
            counts[segment] = place + 1
    extras = view.extras(config.train_extras)
    owned: list[Tensor] = [*extras.values()]
    for index in layout.block:
        owned += [*view.layers[index].parameters(), *view.layers[index].buffers()]
    model: Any = shared_copy(view, layers, layout.sources, own={id(tensor) for tensor in owned})
    client = ClientModel(model, layout, view.path, tuple(extras))
    inside = client.view
    if config.context_dtype != "model":
        cast_frozen(
            [layer for p, layer in enumerate(inside.layers) if p not in layout.trained_places], config.context_dtype
        )
    if config.gradient_checkpointing:
        recompute_activations(model)
    return client


def compress_context(
    model: nn.Module,
    start: int,
    n: int,
    rate: float | None = None,
    proxy: Sequence[Batch] | None = None,
    cache: StandIns | None = None,
    *,
    config: LeffConfig | None = None,
    layers: str | None = None,
) -> ClientModel:
    """Return a client's model: ``n`` real layers from ``start`` on, and a distilled stand-in for the others.

    Args:
        model: The global model; it is left as it was, and shares what is frozen.
        start: First layer of the block, from 0; with ``edge="wrap"`` a block may pass the last layer.
        n: Layers of the block.
        rate: Share of the other layers that is kept; ``None``: as ``config`` says.
        proxy: Batches to distil on; not needed with ``compression="drop"`` or ``"none"``.
        cache: Stand-ins of earlier calls; those that are there are used as they are.
        config: Other settings.
        layers: Path of the layers, where they are not found.

    Raises:
        ValueError: The block does not fit, or there is no proxy set to distil on.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> tiny = GPT2Config(n_embd=8, n_layer=6, n_head=2)
        >>> client = compress_context(GPT2LMHeadModel(tiny), 2, 1, 0.5, config=LeffConfig(compression="drop"))
        >>> client.layout.sources, client.layout.block
        ((1, 2, 3, 5), (2,))

    Source:
        Shen et al., NeurIPS 2025, section 3 (compression).
    """
    config = config or LeffConfig()
    config = config if rate is None else config.with_overrides(compression_rate=rate)
    view = LayerView(model, layers)
    check_capacity(n, view.num_layers)
    if config.edge == "clip":
        view.block(start, n)
    layout = lay_out(block_layers(start, n, view.num_layers), view.num_layers, config)
    cache = cache or StandIns(config)
    cache.refresh(view, [s for s in layout.segments if s not in cache.made], proxy, 0)
    return assemble(view, layout, cache, config)


def recompute_activations(model: Any) -> None:
    """Let layers in training mode recompute their activations; non-reentrant, so that inputs need no gradients.

    Raises:
        ValueError: The model's class cannot.
    """
    if not getattr(model, "supports_gradient_checkpointing", False):
        raise ValueError(
            f"gradient_checkpointing: expected a model that supports it, got {type(model).__name__}; set it to False"
        )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def _tied(model: nn.Module) -> set[str]:
    """Return the names under which a tensor stands in a state for the second time."""
    seen: set[int] = set()
    second = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            second.add(name)
        seen.add(id(tensor))
    return second
