"""What a cost model says: where speculation pays, how sparsity and hardware move that, and how it is for a dense model.

Three regimes (arXiv 2505.19645, section 3): a small batch makes verification load experts that a plain step would not;
once almost all are awake anyway, extra tokens are almost free; a large batch is bound by computing. How far the middle
reaches grows with sparsity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thrifty._common.checks import number, whole
from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.activation import Floats, full_activation_tokens
from thrifty.inference.speculation.hardware import Hardware
from thrifty.inference.speculation.model import SpeculationModel
from thrifty.inference.speculation.prior import roofline_model
from thrifty.inference.speculation.shapes import MoEShape


@dataclass(frozen=True)
class Regimes:
    """Where the regimes of a model begin, as batch sizes; edges are rough.

    Args:
        saturated: From here on a verification finds almost all experts awake: extra tokens are almost free.
        experts_bound: From here on experts are bound by computing in a verification.
        dense_bound: From here on the dense part is; where it weighs much, the middle regime ends here (Amdahl).

    Example:
        >>> Regimes(saturated=23, experts_bound=120.0, dense_bound=15.0).saturated
        23

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, section 3.
    """

    saturated: float
    experts_bound: float
    dense_bound: float


def regimes(model: SpeculationModel, gamma: int, *, threshold: float = 0.95) -> Regimes:
    """Return where the three regimes begin.

    Args:
        model: The cost model.
        gamma: Draft length.
        threshold: Share of the experts that counts as almost all.

    Raises:
        ValueError: ``threshold`` is not in (0, 1), or ``gamma`` is negative.

    Example:
        >>> model = SpeculationModel(64, 8, 75.0, 1.02, 2.0, 0.0, 0.3, 0.0, 0.4, 0.0, 0.0, 0.0)
        >>> regimes(model, 4)
        Regimes(saturated=23, experts_bound=120.0, dense_bound=15.0)

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, section 3; equation 9 for the first edge.
    """
    width = float(model.width(gamma))
    return Regimes(
        saturated=full_activation_tokens(model.num_experts, model.top_k, threshold),
        experts_bound=model.experts_ridge * model.num_experts / (model.top_k * width),
        dense_bound=model.ridge / width,
    )


def profitable_batches(
    model: SpeculationModel,
    gamma: int,
    acceptance: Acceptance,
    *,
    max_batch: int = 512,
    margin: float = 0.0,
    context: float = 0.0,
) -> list[tuple[int, int]]:
    """Return the batch sizes at which speculation pays, as maximal inclusive intervals; there may be two.

    Args:
        model: The cost model.
        gamma: Draft length.
        acceptance: How much of a draft survives.
        max_batch: The largest batch that is looked at.
        margin: How much faster than plain decoding counts as paying.
        context: Tokens in each request's cache.

    Raises:
        ValueError: ``max_batch`` is below 1.

    Example:
        >>> model = SpeculationModel(64, 8, 75.0, 1.02, 2.0, 0.05, 0.3, 0.1, 2.0, 0.01, 0.0, 0.0)
        >>> profitable_batches(model, 4, Acceptance.from_rate(0.7), max_batch=256)
        [(4, 166)]

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 4, looked at for every batch size.
    """
    whole("max_batch", max_batch)
    number("margin", margin, "a finite number")
    batches = np.arange(1, max_batch + 1)
    pays = model.speedup(batches, gamma, acceptance, context=context) > 1 + margin
    edges = np.flatnonzero(np.diff(np.concatenate(([False], pays, [False])).astype(int)))
    return [(int(batches[a]), int(batches[b - 1])) for a, b in edges.reshape(-1, 2)]


def sparsity_sweep(
    model: SpeculationModel,
    top_k: Sequence[int],
    batches: Sequence[float],
    gamma: int,
    acceptance: Acceptance | Mapping[int, Acceptance],
    *,
    reference: Acceptance | None = None,
) -> Floats:
    """Return speed-ups for several K of one model: a row a K, a column a batch size.

    Args:
        model: The cost model.
        top_k: Values of K.
        batches: Batch sizes.
        gamma: Draft length.
        acceptance: How much of a draft survives, for all K or for each.
        reference: Adjust to this acceptance: changing K changes the model and with it what it accepts, so that curves
            of measured speed-ups compare only after multiplication with σ_ref/σ_K.

    Raises:
        ValueError: A K is not in [1, E].

    Example:
        >>> model = SpeculationModel(64, 8, 75.0, 1.02, 2.0, 0.05, 0.3, 0.1, 0.4, 0.01, 0.0, 0.0)
        >>> sparsity_sweep(model, [4, 64], [8, 64], 4, Acceptance.from_rate(0.8)).round(2).tolist()
        [[1.6, 1.99], [2.88, 1.33]]

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, figure 4.
    """
    rows = []
    for k in top_k:
        survives = acceptance if isinstance(acceptance, Acceptance) else acceptance[k]
        row = model.speedup(np.asarray(batches), gamma, survives, top_k=k)
        rows.append(adjust(row, survives, reference, gamma) if reference is not None else row)
    return np.array(rows)


def adjust(speedups: Floats, measured: Acceptance, reference: Acceptance, gamma: int) -> Floats:
    """Return what speed-ups would be at another acceptance: times σ_ref / σ, since the costs of a round stay."""
    return np.asarray(speedups * reference.expected_tokens(gamma) / measured.expected_tokens(gamma))


def compare(
    models: Mapping[str, SpeculationModel], batches: Sequence[float], gamma: int, acceptance: Acceptance
) -> dict[str, dict[str, Floats]]:
    """Return target efficiency and speed-up of several models (a mixture and a dense one, say) over the batch.

    Args:
        models: Name to cost model.
        batches: Batch sizes, n of them.
        gamma: Draft length.
        acceptance: How much of a draft survives, for all models.

    Returns:
        Name to ``"target efficiency"`` and ``"speedup"``, arrays of shape (n,).

    Example:
        >>> model = SpeculationModel(64, 8, 75.0, 1.02, 2.0, 0.05, 0.3, 0.1, 0.4, 0.01, 0.0, 0.0)
        >>> both = {"mixture": model, "dense": dense_twin(model)}
        >>> curves = compare(both, [1, 32], 4, Acceptance.from_rate(0.8))
        >>> {name: curve["target efficiency"].round(2).tolist() for name, curve in curves.items()}
        {'mixture': [0.47, 0.78], 'dense': [0.99, 0.59]}

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, section 3.1.
    """
    b = np.asarray(batches)
    return {
        name: {
            "target efficiency": model.target_efficiency(b, model.width(gamma)),
            "speedup": model.speedup(b, gamma, acceptance),
        }
        for name, model in models.items()
    }


def dense_twin(model: SpeculationModel) -> SpeculationModel:
    """Return the dense model that reads all experts of ``model`` for every token: K = E.

    Args:
        model: The cost model of a mixture.

    Returns:
        It with every expert taken by every token; its ``source`` says so.

    Example:
        >>> model = SpeculationModel(64, 8, 75.0, 1.02, 2.0, 0.05, 0.3, 0.1, 0.4, 0.01, 0.0, 0.0)
        >>> dense_twin(model).active_experts(1).tolist()
        64.0

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 8 at K = E.
    """
    return replace(model, top_k=model.num_experts, block_experts=None, source=f"{model.source}, all experts active")


def hardware_sweep(
    target: MoEShape,
    draft: MoEShape | None,
    hardware: Sequence[Hardware],
    batches: Sequence[float],
    gamma: int,
    acceptance: Acceptance,
) -> Floats:
    """Return the speed-ups that the limits of devices alone would give: a row a device, a column a batch size.

    More devices share the target and not the draft, so that drafting weighs more: tensor parallelism lowers the
    speed-up. A higher ridge point widens the range in which verification is free.

    Args:
        target: The target's shape.
        draft: The draft's; ``None``: drafts cost nothing.
        hardware: Devices, m of them.
        batches: Batch sizes, n of them.
        gamma: Draft length.
        acceptance: How much of a draft survives.

    Returns:
        Speed-ups of shape (m, n).

    Example:
        >>> qwen, small = MoEShape.from_config("qwen2-57b-a14b"), MoEShape.from_config("qwen2-0.5b")
        >>> few, more = (Hardware.from_name("a800", count=count) for count in (2, 4))
        >>> hardware_sweep(qwen, small, [few, more], [16], 4, Acceptance.from_sigma(0.9, 4)).round(2).tolist()
        [[3.78], [3.55]]

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 4, with times of :func:`roofline_model`.
    """
    b = np.asarray(batches)
    return np.array([roofline_model(target, draft, device).speedup(b, gamma, acceptance) for device in hardware])
