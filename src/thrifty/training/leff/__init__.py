"""LEFF: federated fine-tuning in which each client trains the layers that it can afford."""

from typing import Any

from thrifty.training.leff.aggregate import LayerMean, ServerOptimizer, aggregate_layers, from_sums, padded_sums
from thrifty.training.leff.capacity import (
    capacity_for_deadline,
    capacity_for_memory,
    compute_share,
    trained_parameters,
)
from thrifty.training.leff.client import LeffClient
from thrifty.training.leff.client_model import compress_context
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.diagnostics import gradient_gap
from thrifty.training.leff.importance import block_importance, layer_importance
from thrifty.training.leff.layers import LayerView
from thrifty.training.leff.partition import dirichlet_partition
from thrifty.training.leff.rounds import History, Report
from thrifty.training.leff.sampling import block_probabilities, coverage, effective_entropy
from thrifty.training.leff.server import LeffServer
from thrifty.training.leff.simulation import simulate
from thrifty.training.leff.stand_ins import StandIns

__all__ = [
    "History",
    "LayerMean",
    "LayerView",
    "LeffClient",
    "LeffConfig",
    "LeffServer",
    "LeffStrategy",
    "Report",
    "ServerOptimizer",
    "StandIns",
    "aggregate_layers",
    "block_importance",
    "block_probabilities",
    "capacity_for_deadline",
    "capacity_for_memory",
    "compress_context",
    "compute_share",
    "coverage",
    "dirichlet_partition",
    "effective_entropy",
    "from_sums",
    "gradient_gap",
    "layer_importance",
    "leff_client_app",
    "leff_server_app",
    "padded_sums",
    "simulate",
    "trained_parameters",
]


def __getattr__(name: str) -> Any:
    if name in ("LeffStrategy", "leff_client_app", "leff_server_app"):  # Flower takes seconds to import
        from thrifty.training.leff import flower

        return getattr(flower, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
