"""When speculative decoding pays off on mixtures of experts, and a batched lossless decoder that does it."""

from thrifty.inference.speculation.acceptance import Acceptance, estimate_alpha, sigma_of_alpha
from thrifty.inference.speculation.activation import expected_active_experts, full_activation_tokens, tokens_per_expert
from thrifty.inference.speculation.analysis import (
    Regimes,
    compare,
    dense_twin,
    hardware_sweep,
    profitable_batches,
    regimes,
    sparsity_sweep,
)
from thrifty.inference.speculation.engines import (
    Counters,
    acceptance_of_log,
    read_metrics,
    read_sglang_bench,
    read_specforge,
    read_vllm_bench,
    scrape_acceptance,
)
from thrifty.inference.speculation.fit import FitResult, fit_speculation_model
from thrifty.inference.speculation.hardware import Hardware
from thrifty.inference.speculation.model import SpeculationModel
from thrifty.inference.speculation.prior import roofline_model
from thrifty.inference.speculation.roofline import roofline
from thrifty.inference.speculation.rows import Row, read_rows, stride_sample
from thrifty.inference.speculation.schedule import Schedule, goodput, recommend_schedule
from thrifty.inference.speculation.shapes import MoEShape
from thrifty.inference.speculation.study import selection_study

__all__ = [
    "Acceptance",
    "Counters",
    "FitResult",
    "Hardware",
    "MoEShape",
    "Regimes",
    "Row",
    "Schedule",
    "SpeculationModel",
    "acceptance_of_log",
    "compare",
    "dense_twin",
    "estimate_alpha",
    "expected_active_experts",
    "fit_speculation_model",
    "full_activation_tokens",
    "goodput",
    "hardware_sweep",
    "profitable_batches",
    "read_metrics",
    "read_rows",
    "read_sglang_bench",
    "read_specforge",
    "read_vllm_bench",
    "recommend_schedule",
    "regimes",
    "roofline",
    "roofline_model",
    "scrape_acceptance",
    "selection_study",
    "sigma_of_alpha",
    "sparsity_sweep",
    "stride_sample",
    "tokens_per_expert",
]
