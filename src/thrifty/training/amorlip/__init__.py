"""AmorLIP: contrastive denominators carried across batches by two small networks, so that small batches are enough."""

from thrifty.training.amorlip.admission import caption_ids
from thrifty.training.amorlip.amortizer import PartitionAmortizer
from thrifty.training.amorlip.config import AmorLIPConfig
from thrifty.training.amorlip.contrastive import amortized_clip_loss
from thrifty.training.amorlip.loss import AmorLIPLoss
from thrifty.training.amorlip.objectives import amortization_objective
from thrifty.training.amorlip.partition import BatchPartition, Coefficients, batch_log_partition, estimate_log_partition
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
    "BatchPartition",
    "Coefficients",
    "PartitionAmortizer",
    "amortization_objective",
    "amortized_clip_loss",
    "batch_log_partition",
    "caption_ids",
    "clamp_logit_scale",
    "estimate_log_partition",
    "reset_logit_scale",
    "spectral_log_partition",
    "temperature_param_groups",
    "temperature_rate",
]
