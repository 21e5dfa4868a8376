"""Vision transformers on fewer tokens, chosen by frequency: keep what feeds attention's high-frequency part."""

from thrifty.inference.token_reduction.analyze import Analysis, analyze_tokens, noise_sensitivity
from thrifty.inference.token_reduction.config import (
    EViTConfig,
    FreqReduceConfig,
    PoolConfig,
    ToMeConfig,
    config_from_json,
    named,
)
from thrifty.inference.token_reduction.macs import ViTDims, count_macs, token_counts
from thrifty.inference.token_reduction.patch import TokenReduction, reduce_tokens, reduction_of
from thrifty.inference.token_reduction.restore import restore_tokens
from thrifty.inference.token_reduction.saving import load_reduced

__all__ = [
    "Analysis",
    "EViTConfig",
    "FreqReduceConfig",
    "PoolConfig",
    "ToMeConfig",
    "TokenReduction",
    "ViTDims",
    "analyze_tokens",
    "config_from_json",
    "count_macs",
    "load_reduced",
    "named",
    "noise_sensitivity",
    "reduce_tokens",
    "reduction_of",
    "restore_tokens",
    "token_counts",
]
