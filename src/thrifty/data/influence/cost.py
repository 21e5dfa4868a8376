"""What selecting costs and saves, for the adviser and before a run: FLOPs of every way to select, bytes of the stores.

For N parameters, n pool examples, l landmarks, V tangents and B of L blocks, in units of FLOPs a token of an example:

    exact gradients (LESS) 6Nn      RDS+, mid-perplexity 2Nn      Influence Distillation c · (B/L) · 2Nn + 6Nl

The paper counts a Jacobian-vector product as one forward pass (c = V). A product in forward mode costs three matrix
products where the forward pass has one, and tangents share the primal: c = 1 + 2V is what is really spent, and
c = V + 1 with finite differences. The paper's count gives its published figures exactly; ours is the honest one.
"""

from __future__ import annotations

from typing import Literal

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload

Count = Literal["paper", "forward_ad", "finite_difference"]

TASKS = (Task.LM_FINETUNING, Task.LM_SELECTION)

_SOURCE = "arXiv 2505.19051, cost analysis; the factor 1 + 2V is counted from forward-mode differentiation"


def exact_flops(parameters: float, pool: float) -> float:
    """Return FLOPs a token of gradients of every pool example: 6Nn."""
    return 6 * parameters * pool


def forward_flops(parameters: float, pool: float) -> float:
    """Return FLOPs a token of one forward pass of every pool example: 2Nn (RDS+, mid-perplexity)."""
    return 2 * parameters * pool


def influence_flops(
    parameters: float,
    pool: float,
    landmarks: float,
    *,
    layers: float,
    blocks: float = 4,
    tangents: float = 2,
    count: Count = "forward_ad",
) -> float:
    """Return FLOPs a token of Influence Distillation.

    Args:
        parameters: N.
        pool: n.
        landmarks: l, and with them the targets, whose gradients cost the same.
        layers: L, blocks of the model.
        blocks: B, blocks of the embedding.
        tangents: V.
        count: ``"paper"``: a product is one forward pass; ``"forward_ad"`` and ``"finite_difference"``: what it takes.

    Example:
        >>> round(forward_flops(7e9, 200_000) / influence_flops(7e9, 200_000, 4096, layers=32, count="paper"), 2)
        3.21
        >>> round(forward_flops(7e9, 200_000) / influence_flops(7e9, 200_000, 4096, layers=32), 2)
        1.46

    Source:
        arXiv 2505.19051, cost analysis.
    """
    passes = {"paper": tangents, "forward_ad": 1 + 2 * tangents, "finite_difference": 1 + tangents}[count]
    return passes * blocks / layers * forward_flops(parameters, pool) + exact_flops(parameters, landmarks)


def store_bytes(
    pool: int, landmarks: int, targets: int, *, embedding: int = 4096, gradient: int = 32768, width: int = 4
) -> dict[str, int]:
    """Return bytes of embeddings, projected gradients and the score matrix (float32).

    Example:
        >>> store_bytes(200_000, 4096, 500, gradient=131_072, width=2)["embeddings"] / 1e9
        1.6384
    """
    return {
        "embeddings": width * pool * embedding,
        "gradients": width * (landmarks + targets) * gradient,
        "scores": 4 * pool * targets,
    }


def predict(workload: Workload) -> LedgerDelta:
    """Predict what choosing ``selected`` of ``pool`` examples changes.

    Args:
        workload: ``"language-model fine-tuning"`` with ``parameters``, ``pool`` (examples), ``sequence`` (tokens of
            an example) and ``selected``, and optionally ``layers`` (32), ``landmarks`` (4096), ``targets`` (100),
            ``epochs`` (2), and ``selection``, what is done now: ``"none"`` (all examples are trained on, the default),
            ``"rds+"``, ``"mid-perplexity"`` or ``"less"``.

    Returns:
        FLOPs, labelled examples and bytes of stores, as changes.

    Raises:
        ValueError: A fact is missing or unknown.

    Example:
        >>> facts = {"parameters": 7e9, "pool": 200_000, "sequence": 2048, "selected": 10_000}
        >>> predict(Workload("language-model fine-tuning", facts)).total(Resource.EXAMPLES)
        -190000
    """
    if workload.task not in TASKS:
        return LedgerDelta.not_applicable(f"it selects examples to fine-tune language models on, not {workload.task}")
    N, n = workload.number("parameters"), workload.number("pool")
    tokens, k = workload.number("sequence"), workload.number("selected")
    if not 0 < k < n:
        return LedgerDelta.not_applicable(f"there is nothing to select: {k:g} of {n:g} examples")
    layers, epochs = workload.number("layers", 32), workload.number("epochs", 2)
    landmarks, targets = min(workload.number("landmarks", 4096), n), workload.number("targets", 100)
    now = workload.facts.get("selection", "none")
    spent = {
        "none": 6 * N * (n - k) * epochs,
        "rds+": forward_flops(N, n),
        "mid-perplexity": forward_flops(N, n),
        "less": exact_flops(N, n),
    }
    if now not in spent:
        raise ValueError(f"workload: 'selection' must be one of {', '.join(spent)}, got {now!r}")
    ours = influence_flops(N, n, landmarks + targets, layers=layers, blocks=min(4, layers))
    entries = [
        Entry(
            Resource.FLOPS,
            tokens * (ours - spent[str(now)]),
            "sequence · (5·(4/layers)·2·parameters·pool + 6·parameters·(landmarks + targets) − what is spent now)",
            _SOURCE,
        ),
        Entry(
            Resource.DATA,
            sum(store_bytes(int(n), int(landmarks), int(targets)).values()),
            "4·(pool·4096 + (landmarks + targets)·32768 + pool·targets)",
            "float32 stores; bfloat16 halves the first two",
        ),
    ]
    if now == "none":
        entries.append(Entry(Resource.EXAMPLES, k - n, "selected − pool", "by definition"))
    return LedgerDelta(
        entries=tuple(entries),
        code=f"InfluenceDistillation(model, optimizer, num_landmarks={landmarks:g}).select(pool, target, k={k:g})",
        preconditions=(
            "a few examples of the task that counts are at hand (8 to 500)",
            "the optimizer state of a short warm-up is at hand (a few per cent of a pass)",
        ),
        price=(
            "what is propagated from landmarks is an estimate; its quality is reported with the selection",
            "gains shrink as the budget grows: with a fifth of the pool, random examples are hard to beat",
        ),
    )
