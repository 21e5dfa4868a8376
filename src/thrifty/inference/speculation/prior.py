"""A model without any measurement: what bandwidth and arithmetic rate alone would allow.

Every block of weights takes the longer of reading it and multiplying with it, max(bytes / bandwidth, 2 · parameters ·
tokens / rate). That is :class:`~thrifty.inference.speculation.model.SpeculationModel` with a hard ridge. Kernels,
caches and the network between devices make real steps slower, which is why the paper fits instead.
"""

from __future__ import annotations

from thrifty.inference.speculation.hardware import Hardware
from thrifty.inference.speculation.model import SpeculationModel, VerifyWidth
from thrifty.inference.speculation.shapes import MoEShape

PRIOR = "prior, not fitted"


def roofline_model(
    target: MoEShape,
    draft: MoEShape | None,
    hardware: Hardware,
    *,
    verify_width: VerifyWidth = "gamma+1",
    expert_bandwidth: float | None = None,
) -> SpeculationModel:
    """Return the cost model that the hardware's limits give.

    Args:
        target: The target's shape; its weights are split over ``hardware.count`` devices.
        draft: The draft's, which stays on one device; ``None``: drafts cost nothing (n-grams, a small head).
        hardware: Rate and bandwidth.
        verify_width: Tokens of a request that are verified.
        expert_bandwidth: Bytes/s at which experts are read, where they are offloaded (of PCIe, say).

    Returns:
        A model whose ``source`` says that it is a prior. The rejection is taken to cost nothing.

    Example:
        >>> qwen, small = MoEShape.from_config("qwen2-57b-a14b"), MoEShape.from_config("qwen2-0.5b")
        >>> model = roofline_model(qwen, small, Hardware.from_name("a800-80gb", count=2))
        >>> model.target_efficiency([1, 4, 16, 32], 4).round(4).tolist()
        [0.4903, 0.5476, 0.8977, 0.9879]

    Source:
        Williams, Waterman and Patterson, "Roofline", Communications of the ACM 52(4), 2009, for each block of weights.
    """
    bandwidth, rate = hardware.bandwidth * hardware.count / 1e3, hardware.flops * hardware.count / 1e3  # a millisecond
    expert_rate = (expert_bandwidth / 1e3) if expert_bandwidth is not None else bandwidth
    routed = target.num_experts * target.expert_params
    return SpeculationModel(
        num_experts=target.num_experts,
        top_k=target.top_k,
        ridge=hardware.ridge * target.weight_bytes / 2,
        growth=float("inf"),
        bias=target.dense_bytes / bandwidth,
        dense_slope=2 * target.dense_params / rate,
        expert_load=target.expert_bytes / expert_rate,
        expert_slope=2 * routed / rate,
        draft_bias=draft.dense_bytes / (hardware.bandwidth / 1e3) if draft else 0.0,
        draft_slope=2 * draft.active_params / (hardware.flops / 1e3) if draft else 0.0,
        reject_bias=0.0,
        reject_slope=0.0,
        expert_ridge=rate / expert_rate * target.expert_weight_bytes / 2,
        draft_experts=draft.num_experts if draft else 1,
        draft_top_k=draft.top_k if draft else 1,
        draft_load=draft.expert_bytes / (hardware.bandwidth / 1e3) if draft else 0.0,
        verify_width=verify_width,
        kv_target=target.kv_bytes_per_token / bandwidth,
        kv_draft=draft.kv_bytes_per_token / (hardware.bandwidth / 1e3) if draft else 0.0,
        source=PRIOR,
    )
