"""Between what limits the coefficients of a fit may lie: the times that memory needs at best, and five times those."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thrifty.inference.speculation.activation import Floats, expected_active_experts
from thrifty.inference.speculation.hardware import Hardware
from thrifty.inference.speculation.model import TIMES
from thrifty.inference.speculation.shapes import MoEShape

Bounds = dict[str, tuple[float, float]]

#: λ, the share of the ridge at which a kernel leaves the flat part.
LAMBDA = (0.2, 1.0)
#: s, the growth before the ridge.
GROWTH = (1 + 1e-6, 2.0)
#: How much slower than the memory's limit a coefficient may be.
SLACK = 5.0


def physical_bounds(
    target: MoEShape, draft: MoEShape | None, hardware: Hardware, *, max_reject: float | None = None
) -> Bounds:
    """Return the bounds of the paper's fit, in ms.

    Args:
        target: The target's shape, split over ``hardware.count`` devices.
        draft: The draft's, on one device; ``None``: its step may take anything up to the target's.
        hardware: Bandwidth.
        max_reject: Largest rejection time that was measured; ``None``: a tenth of the target's floor.

    Returns:
        Name to (lower, upper); slopes, over tokens as over contexts, are bounded by 0 alone.

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, appendix C, with every always-read weight in the dense
        part (the paper's "non-FFN" gives a cap below the true floor where shared experts are large).
    """
    a_millisecond = hardware.bandwidth / 1e3
    dense = target.dense_bytes / (a_millisecond * hardware.count)
    expert = target.expert_bytes / (a_millisecond * hardware.count)
    small = draft.active_bytes / a_millisecond if draft else 0.0
    whole = (draft.dense_bytes + draft.num_experts * draft.expert_bytes) / a_millisecond if draft else dense
    reject = max_reject if max_reject is not None else 0.1 * dense
    return {
        "bias": (dense, SLACK * dense),
        "dense_slope": (0.0, np.inf),
        "expert_load": (expert, SLACK * expert),
        "expert_slope": (0.0, np.inf),
        "draft_bias": (small, SLACK * whole),
        "draft_slope": (0.0, np.inf),
        "reject_bias": (0.0, reject),
        "reject_slope": (0.0, reject),
        "kv_target": (0.0, np.inf),
        "kv_draft": (0.0, np.inf),
    }


def free_bounds() -> Bounds:
    """Return the bounds that hold on any machine: nothing takes less than no time."""
    return dict.fromkeys((*TIMES, "kv_target", "kv_draft"), (0.0, np.inf))


def check_feasible(bounds: Mapping[str, tuple[float, float]], tokens: Floats, times: Floats, shape: MoEShape) -> None:
    """Refuse times that are shorter than the bounds allow, and say what bandwidth they would imply.

    Raises:
        ValueError: Some step was faster than reading its weights once at the stated bandwidth.
    """
    awake = expected_active_experts(tokens, shape.num_experts, shape.top_k)
    floor = bounds["bias"][0] + bounds["expert_load"][0] * awake
    worst = int(np.argmin(times - floor))
    if times[worst] < 0.95 * floor[worst]:
        read = shape.dense_bytes + awake[worst] * shape.expert_bytes
        raise ValueError(
            f"hardware: a step over {tokens[worst]:g} tokens took {times[worst]:.4g} ms, but the lower bounds of bias "
            f"and expert_load add up to {floor[worst]:.4g} ms; the times imply {read / times[worst] / 1e9:.3g} TB/s in "
            "all: is the model larger than what ran, are the bytes of a weight right, is the number of devices?"
        )
