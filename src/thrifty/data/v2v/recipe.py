"""How to train: the settings of a run, and those that the paper gives for each network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from thrifty._common.checks import one_of, whole


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Args:
        model: A name :func:`~thrifty.data.v2v.build_model` knows.
        epochs: Passes over the samples.
        batch: Samples at once, a process.
        lr: Rate.
        optimizer: ``"adam"`` or ``"adamw"``, both with amsgrad.
        weight_decay: Of AdamW.
        decay: Factor on the rate after every epoch; 1 keeps it.
        chunk: Steps of a sequence that are differentiated together; ``None``: all (back-propagation is cut between).
        recompute: Keep no activations of a step but compute them again (less memory, a third more time).
        precision: Of the forward pass: ``"fp32"`` or ``"bf16"``.
        workers: Processes that decode.
        seed: Of weights, shuffles and samples.

    Raises:
        ValueError: A field is out of range.

    Example:
        >>> Recipe.published("etnet").decay
        0.94

    Source:
        arXiv 2505.16797, appendix.
    """

    model: str = "e2vid"
    epochs: int = 80
    batch: int = 12
    lr: float = 1e-4
    optimizer: Literal["adam", "adamw"] = "adam"
    weight_decay: float = 0.0
    decay: float = 1.0
    chunk: int | None = None
    recompute: bool = False
    precision: Literal["fp32", "bf16"] = "fp32"
    workers: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch"):
            whole(name, getattr(self, name))
        if not self.lr > 0:
            raise ValueError(f"lr: expected a rate above 0, got {self.lr}")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay: expected a factor in (0, 1], got {self.decay}")
        if self.chunk is not None:
            whole("chunk", self.chunk)
        one_of("optimizer", self.optimizer, ("adam", "adamw"))
        one_of("precision", self.precision, ("fp32", "bf16"))

    @classmethod
    def published(cls, model: str, **changes: Any) -> Recipe:
        """Return the paper's settings for a network; of one of your own, those of E2VID."""
        of_network: dict[str, dict[str, Any]] = {
            "hypere2vid": {"lr": 1e-3, "epochs": 60},
            "etnet": {"batch": 6, "lr": 2e-4, "epochs": 100, "optimizer": "adamw", "weight_decay": 0.01, "decay": 0.94},
            "evflownet": {"batch": 10, "epochs": 50},
            "eraft": {"batch": 10, "epochs": 50},
        }
        return cls(model=model, **(of_network.get(model, {}) | changes))
