"""The settings of a federation, as one frozen dataclass that travels as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from thrifty._common.checks import number, one_of, whole
from thrifty._common.settings import Settings

SAMPLERS = ("importance", "proportional", "random", "round_robin")
NORMALIZATIONS = ("none", "mean", "std")
CONTEXT_DTYPES = ("model", "float32", "bfloat16", "int8")


@dataclass(frozen=True)
class LeffConfig(Settings):
    """How blocks are chosen, what stands in for the other layers, and how a client trains.

    Args:
        compression: What a client gets of the layers that it does not train: ``"distill"``, fewer layers that are
            distilled on the server; ``"drop"``, evenly spaced layers as they are; ``"none"``, all of them.
        compression_rate: Share of those layers that is kept, 0 < r <= 1.
        segments: Round the depth of what is before and behind a block up ``"separate"``-ly, or their total
            (``"joint"``, the paper's).
        sampler: ``"importance"`` (softmax), ``"proportional"``, ``"random"`` (uniform) or ``"round_robin"``.
        importance_normalization: What block importances are divided by before the softmax: their ``"mean"`` or
            ``"std"`` over blocks, or ``"none"``, the paper's literal form.
        temperature: Of the softmax; 1 with ``"none"`` is the paper's.
        estimator: Square ``"per_batch"`` and average, or square the ``"mean_gradient"``.
        importance: Who measures it: the ``"server"`` on its proxy set, or the ``"clients"`` that can hold the model.
        edge: ``"clip"``: windows end at the last layer (the paper); ``"wrap"``: they go on at the first.
        alpha: Weight of attention maps in the distillation loss, 0 to 1.
        attn_map: Attention maps are matched at the ``"last"`` layer of a segment, or at ``"uniform"``-ly spaced ones.
        distill_steps: At most that many updates a segment and refresh.
        distill_lr: Learning rate of AdamW there.
        distill_every: Rounds between refreshes of a stand-in.
        distill_tolerance: It stops early where the loss falls by less than this share.
        local_epochs: Passes of a client over its data in a round.
        max_steps: At most that many local steps; ``None``: all.
        batch_size: Examples of a local step.
        lr: Learning rate of local training.
        extras_lr: Of what is trained beside the block, where that is another: a fresh head learns at a higher one.
        optimizer: ``"adamw"`` or ``"sgd"``.
        weight_decay: Of local training.
        proximal: FedProx's mu: pulls what is trained towards what was received.
        train_extras: What is trained beside the block: ``"auto"`` (final norm, pooler, untied head), ``"norm_only"``
            (final norm), or ``"none"``.
        context_dtype: In which the frozen layers are held and sent: as the ``"model"``, ``"float32"``,
            ``"bfloat16"`` or ``"int8"`` (weights of linear layers; the rest stays).
        gradient_checkpointing: Recompute the block's activations in its backward pass.
        participation: Share of the clients that is drawn for a round, 0 < p <= 1.
        server_optimizer: ``"none"``: the mean replaces a layer; ``"momentum"`` (FedAvgM) or ``"adam"`` (FedAdam): it is
            a gradient for a layer's own optimiser.
        server_lr: Its learning rate.
        clip_norm: Greatest norm of what a client changes; ``None``: any.
        noise_multiplier: Standard deviation of the noise that a client adds, over ``clip_norm``.
        embeddings_once: Frozen embeddings are sent to a client once, not every round.
        seed: Every random choice follows from it.

    Raises:
        ValueError: A setting is out of range; the message names it.

    Example:
        >>> config = LeffConfig(compression_rate=0.2, sampler="random")
        >>> LeffConfig.from_json(config.to_json()) == config
        True

    Source:
        Shen et al., NeurIPS 2025, section 3; defaults that the paper does not state are ours, see the card.
    """

    schema, file = "thrifty.leff", "leff.json"

    compression: Literal["distill", "drop", "none"] = "distill"
    compression_rate: float = 0.5
    segments: Literal["separate", "joint"] = "separate"
    sampler: Literal["importance", "proportional", "random", "round_robin"] = "importance"
    importance_normalization: Literal["none", "mean", "std"] = "mean"
    temperature: float = 0.25
    estimator: Literal["per_batch", "mean_gradient"] = "per_batch"
    importance: Literal["server", "clients"] = "server"
    edge: Literal["clip", "wrap"] = "clip"
    alpha: float = 0.5
    attn_map: Literal["last", "uniform"] = "last"
    distill_steps: int = 100
    distill_lr: float = 1e-4
    distill_every: int = 1
    distill_tolerance: float = 1e-3
    local_epochs: int = 1
    max_steps: int | None = None
    batch_size: int = 16
    lr: float = 1e-5
    extras_lr: float | None = None
    optimizer: Literal["adamw", "sgd"] = "adamw"
    weight_decay: float = 0.01
    proximal: float = 0.0
    train_extras: Literal["auto", "norm_only", "none"] = "auto"
    context_dtype: Literal["model", "float32", "bfloat16", "int8"] = "model"
    gradient_checkpointing: bool = False
    participation: float = 1.0
    server_optimizer: Literal["none", "momentum", "adam"] = "none"
    server_lr: float = 1.0
    clip_norm: float | None = None
    noise_multiplier: float = 0.0
    embeddings_once: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        choices: dict[str, Sequence[str]] = {
            "compression": ("distill", "drop", "none"),
            "segments": ("separate", "joint"),
            "sampler": SAMPLERS,
            "importance_normalization": NORMALIZATIONS,
            "estimator": ("per_batch", "mean_gradient"),
            "importance": ("server", "clients"),
            "edge": ("clip", "wrap"),
            "attn_map": ("last", "uniform"),
            "optimizer": ("adamw", "sgd"),
            "train_extras": ("auto", "norm_only", "none"),
            "context_dtype": CONTEXT_DTYPES,
            "server_optimizer": ("none", "momentum", "adam"),
        }
        for name, known in choices.items():
            one_of(name, getattr(self, name), known)
        for name in ("distill_steps", "distill_every", "local_epochs", "batch_size"):
            whole(name, getattr(self, name))
        if self.max_steps is not None:
            whole("max_steps", self.max_steps)
        whole("seed", self.seed, least=0)
        for name in ("compression_rate", "participation"):
            number(name, getattr(self, name), "a share above 0 and at most 1", least=1e-9, below=1 + 1e-12)
        for name in ("temperature", "distill_lr", "lr", "server_lr"):
            number(name, getattr(self, name), "a positive number", least=1e-300)
        number("alpha", self.alpha, "a weight from 0 to 1", least=0, below=1 + 1e-12)
        for name in ("weight_decay", "proximal", "distill_tolerance", "noise_multiplier"):
            number(name, getattr(self, name), "a number of at least 0", least=0)
        for name in ("gradient_checkpointing", "embeddings_once"):
            one_of(name, getattr(self, name), (True, False))
        if self.extras_lr is not None:
            number("extras_lr", self.extras_lr, "a positive number or None", least=1e-300)
        if self.clip_norm is not None:
            number("clip_norm", self.clip_norm, "a positive number or None", least=1e-300)
        elif self.noise_multiplier:
            raise ValueError(
                f"noise_multiplier: expected 0 where clip_norm is None (noise is a multiple of it), "
                f"got {self.noise_multiplier}"
            )
