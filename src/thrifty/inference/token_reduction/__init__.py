"""Vision transformers on fewer tokens, chosen by frequency: keep what feeds attention's high-frequency part."""

from thrifty.inference.token_reduction.analyze import Analysis, analyze_tokens
from thrifty.inference.token_reduction.config import (
    EViTConfig,
    FreqReduceConfig,
    PoolConfig,
    ToMeConfig,
    config_from_json,
    named,
)
from thrifty.inference.token_reduction.distill import Distiller, distillation_loss, distilling_trainer
from thrifty.inference.token_reduction.finetune import Recipe, finetune
from thrifty.inference.token_reduction.macs import ViTDims, count_macs, token_counts
from thrifty.inference.token_reduction.noise import noise_sensitivity
from thrifty.inference.token_reduction.overlay import visualize
from thrifty.inference.token_reduction.patch import TokenReduction, reduce_tokens, reduction_of
from thrifty.inference.token_reduction.restore import restore_tokens
from thrifty.inference.token_reduction.saving import load_reduced
from thrifty.inference.token_reduction.search import search_schedule
from thrifty.inference.token_reduction.speed import measure_throughput

__all__ = [
    "Analysis",
    "Distiller",
    "EViTConfig",
    "FreqReduceConfig",
    "PoolConfig",
    "Recipe",
    "ToMeConfig",
    "TokenReduction",
    "ViTDims",
    "analyze_tokens",
    "config_from_json",
    "count_macs",
    "distillation_loss",
    "distilling_trainer",
    "finetune",
    "load_reduced",
    "measure_throughput",
    "named",
    "noise_sensitivity",
    "reduce_tokens",
    "reduction_of",
    "restore_tokens",
    "search_schedule",
    "token_counts",
    "visualize",
]
