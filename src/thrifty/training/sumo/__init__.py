"""SUMO: momentum in an adaptive low-rank subspace, orthogonalised exactly. State of (m + n)·r numbers a weight."""

from thrifty.training.sumo.adapter import Adapter, LoraFactors, extract_lora, lora_factors
from thrifty.training.sumo.diagnostics import MomentReport, describe_moment
from thrifty.training.sumo.groups import sumo_param_groups
from thrifty.training.sumo.layerwise import Layerwise, attach_layerwise
from thrifty.training.sumo.memory import estimate_state_bytes, optimizer_state_bytes
from thrifty.training.sumo.optimizer import SUMO
from thrifty.training.sumo.orthogonal import orthogonalize
from thrifty.training.sumo.subspace import randomized_range

__all__ = [
    "SUMO",
    "Adapter",
    "Layerwise",
    "LoraFactors",
    "MomentReport",
    "attach_layerwise",
    "describe_moment",
    "estimate_state_bytes",
    "extract_lora",
    "lora_factors",
    "optimizer_state_bytes",
    "orthogonalize",
    "randomized_range",
    "sumo_param_groups",
]
