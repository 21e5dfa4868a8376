"""When speculative decoding pays off on mixtures of experts, and a batched lossless decoder that does it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from thrifty._common.extras import require
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
from thrifty.inference.speculation.controller import GammaController
from thrifty.inference.speculation.engines import (
    Counters,
    acceptance_of_log,
    read_metrics,
    read_sglang_bench,
    read_specforge,
    read_vllm_bench,
    scrape_acceptance,
)
from thrifty.inference.speculation.fit import fit_speculation_model
from thrifty.inference.speculation.fit_result import FitResult
from thrifty.inference.speculation.hardware import Hardware
from thrifty.inference.speculation.model import SpeculationModel
from thrifty.inference.speculation.prior import roofline_model
from thrifty.inference.speculation.roofline import roofline
from thrifty.inference.speculation.rows import Row, read_rows, stride_sample
from thrifty.inference.speculation.schedule import Schedule, goodput, recommend_schedule
from thrifty.inference.speculation.shapes import MoEShape
from thrifty.inference.speculation.study import selection_study

if TYPE_CHECKING:
    from thrifty.inference.speculation.decode import SpeculativeDecoder, SpeculativeOutput, SpeculativeStats
    from thrifty.inference.speculation.measure import generation_row, measure_generation, profile_generation
    from thrifty.inference.speculation.passes import profile_target

#: What needs torch and transformers is imported when it is first used.
_LATER = {
    "SpeculativeDecoder": "decode",
    "SpeculativeOutput": "decode",
    "SpeculativeStats": "decode",
    "generation_row": "measure",
    "measure_generation": "measure",
    "profile_generation": "measure",
    "profile_target": "passes",
}

__all__ = [
    "Acceptance",
    "Counters",
    "FitResult",
    "GammaController",
    "Hardware",
    "MoEShape",
    "Regimes",
    "Row",
    "Schedule",
    "SpeculationModel",
    "SpeculativeDecoder",
    "SpeculativeOutput",
    "SpeculativeStats",
    "acceptance_of_log",
    "compare",
    "dense_twin",
    "estimate_alpha",
    "expected_active_experts",
    "fit_speculation_model",
    "full_activation_tokens",
    "generation_row",
    "goodput",
    "hardware_sweep",
    "measure_generation",
    "profile_generation",
    "profile_target",
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


def __getattr__(name: str) -> Any:
    if name in _LATER:
        for module in ("torch", "transformers"):
            require(module, extra="llm")
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
