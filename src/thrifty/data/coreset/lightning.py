"""A coreset in Lightning: the loader is the training loader as it is; a callback keeps its state and tells of it."""

from __future__ import annotations

from typing import Any

from thrifty._common.extras import require
from thrifty.data.coreset.loader import CoresetLoader

_lightning = require("lightning.pytorch", extra="lightning")


class LightningCoreset(_lightning.Callback):  # type: ignore[misc, name-defined]
    """Keeps a coreset loader's state in Lightning's checkpoints, and logs its ratios and updates.

    The loader goes to ``Trainer.fit`` as any other; ``training_step`` is given ``(batch, weights)``.

    Args:
        loader: That is trained with.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from thrifty.data.coreset import CoresetLoader, LightningCoreset
        >>> data = TensorDataset(torch.randn(60, 4), torch.arange(60) % 3)
        >>> callback = LightningCoreset(CoresetLoader(data, torch.nn.Linear(4, 3), budget=0.2))

    Source:
        Cheng et al. (2025), algorithm 1.
    """

    def __init__(self, loader: CoresetLoader) -> None:
        self.loader = loader

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what happened to the subset in this epoch."""
        row = self.loader.history[-1]
        pl_module.log("coreset/updated", float(row.updated))
        pl_module.log("coreset/seconds", row.seconds_check + row.seconds_select)
        if row.checked:
            pl_module.log("coreset/snr", row.snr)

    def state_dict(self) -> dict[str, Any]:
        """Return what Lightning's checkpoints shall hold."""
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.loader.load_state_dict(state_dict)
