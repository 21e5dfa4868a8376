"""Event networks by name, and a place to add your own: any module with ``forward(voxel, state) -> (output, state)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from thrifty.data.v2v.networks.e2vid import E2VID
from thrifty.data.v2v.networks.eraft import ERAFT
from thrifty.data.v2v.networks.etnet import ETNet
from thrifty.data.v2v.networks.evflownet import EVFlowNet
from thrifty.data.v2v.networks.firenet import FireNet
from thrifty.data.v2v.networks.hypere2vid import HyperE2VID

ARCHITECTURES: dict[str, Callable[..., nn.Module]] = {
    "e2vid": E2VID,
    "firenet": FireNet,
    "hypere2vid": HyperE2VID,
    "etnet": ETNet,
    "evflownet": EVFlowNet,
    "eraft": ERAFT,
}


def register_architecture(name: str, make: Callable[..., nn.Module]) -> None:
    """Let :func:`build_model`, the trainers and the command line know a network of your own.

    Args:
        name: New, lower case.
        make: Returns a module; its attribute ``task`` is ``"reconstruction"`` or ``"flow"``, and
            ``forward(voxel, state)`` returns (output, state), the first state being ``None``.

    Raises:
        ValueError: The name is taken.

    Example:
        >>> register_architecture("tiny", lambda: FireNet(base=4))
        >>> sum(p.numel() for p in build_model("tiny").parameters()) < 5000
        True
        >>> del ARCHITECTURES["tiny"]
    """
    if name in ARCHITECTURES:
        raise ValueError(f"name: expected one that is not taken, got {name!r}")
    ARCHITECTURES[name] = make


def build_model(name: str, **settings: Any) -> nn.Module:
    """Return a network with fresh weights.

    Args:
        name: ``"e2vid"``, ``"firenet"``, ``"hypere2vid"``, ``"etnet"`` (frames), ``"evflownet"``, ``"eraft"`` (flow),
            or one of your own.
        **settings: The network's.

    Raises:
        ValueError: There is none of that name.

    Example:
        >>> build_model("firenet").task
        'reconstruction'

    Source:
        arXiv 2505.16797, section 4 and appendix.
    """
    if name not in ARCHITECTURES:
        raise ValueError(f"name: expected one of {', '.join(ARCHITECTURES)}, got {name!r}")
    model = ARCHITECTURES[name](**settings)
    model.made_with = settings  # type: ignore[assignment]
    return model
