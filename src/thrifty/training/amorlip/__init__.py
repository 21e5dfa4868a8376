"""AmorLIP: contrastive denominators carried across batches by two small networks, so that small batches are enough."""

from typing import Any

from thrifty.training.amorlip.admission import caption_ids
from thrifty.training.amorlip.amortizer import PartitionAmortizer
from thrifty.training.amorlip.config import AmorLIPConfig
from thrifty.training.amorlip.contrastive import amortized_clip_loss
from thrifty.training.amorlip.hosts import load_host, lock_tower, run_towers
from thrifty.training.amorlip.loss import AmorLIPLoss
from thrifty.training.amorlip.objectives import amortization_objective
from thrifty.training.amorlip.partition import BatchPartition, Coefficients, batch_log_partition, estimate_log_partition
from thrifty.training.amorlip.rivals import FastCLIPLoss, NeuCLIPLoss, SogCLRLoss
from thrifty.training.amorlip.spectral import spectral_log_partition
from thrifty.training.amorlip.temperature import (
    clamp_logit_scale,
    reset_logit_scale,
    temperature_param_groups,
    temperature_rate,
)

__all__ = [
    "AmorLIPConfig",
    "AmorLIPLoss",
    "AmorLIPTrainer",
    "BatchPartition",
    "Coefficients",
    "FastCLIPLoss",
    "NeuCLIPLoss",
    "PartitionAmortizer",
    "SogCLRLoss",
    "amortization_objective",
    "amortized_clip_loss",
    "batch_log_partition",
    "caption_ids",
    "clamp_logit_scale",
    "estimate_log_partition",
    "load_host",
    "lock_tower",
    "reset_logit_scale",
    "run_towers",
    "spectral_log_partition",
    "temperature_param_groups",
    "temperature_rate",
]


def __getattr__(name: str) -> Any:
    if name == "AmorLIPTrainer":  # Transformers' Trainer takes seconds to import
        from thrifty.training.amorlip.trainer import AmorLIPTrainer

        return AmorLIPTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
