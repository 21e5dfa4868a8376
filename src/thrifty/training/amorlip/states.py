"""Whether a saved state is one that a loss can go on from: half of another's would be worse than none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from thrifty.training.amorlip.config import SHAPES, AmorLIPConfig

_log = logging.getLogger(__name__)


def check_state(own: Mapping[str, Any], held: Mapping[str, Any], config: AmorLIPConfig) -> None:
    """Refuse a state of other networks, and remark on settings that have changed since.

    Args:
        own: The state of the networks that are there.
        held: The one that came, its names without a prefix.
        config: The settings of the networks that are there.

    Raises:
        ValueError: It lacks something, or is of networks of another shape.
    """
    lacking = "state_dict: expected that of an AmorLIPLoss, got one without"
    if "_extra_state" not in held:
        raise ValueError(f"{lacking} its counters and settings")
    changed = []
    for name, before in vars(AmorLIPConfig.from_json(held["_extra_state"]["config"])).items():
        now = getattr(config, name)
        if now != before and name in SHAPES:
            raise ValueError(f"{name}: the state is of a loss with {before!r}, got {now!r}")
        if now != before:
            changed.append(f"{name} ({before!r}, now {now!r})")
    for name, tensor in own.items():
        if name not in held:
            raise ValueError(f"{lacking} {name}")
        if isinstance(tensor, Tensor) and tensor.shape != held[name].shape:
            shapes = f"{tuple(tensor.shape)} for {name}, got {tuple(held[name].shape)}"
            raise ValueError(f"embed_dim: expected a state whose networks are as wide, {shapes}")
    if changed:
        _log.warning("state_dict: it goes on with settings that have changed: %s", ", ".join(changed))
