"""What token reduction changes in a vision workload, for the adviser: FLOPs of forward passes."""

from __future__ import annotations

from collections.abc import Iterator

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload
from thrifty.inference.token_reduction.config import published_layers

#: Tasks in which a vision transformer runs over images.
TASKS = (Task.IMAGE_CLASSIFICATION, Task.IMAGE_EMBEDDING, Task.IMAGE_INFERENCE, Task.IMAGE_TRAINING)

#: Fewer patches than this lose more than reduction is worth (the paper: 2.5 points at 49).
FEW_PATCHES = 100


def predict(workload: Workload) -> LedgerDelta:
    """Predict how many FLOPs a reduction at the default schedule saves.

    Args:
        workload: A vision task with ``images`` (how many pass through) and optionally ``image_size`` (224), ``patch``
            (16), ``hidden`` (384), ``layers`` (12), ``keep`` (0.7) and ``passes`` (1; 3 for training), and
            ``traffic_seconds`` (0: in which what blocks write and read goes to and from memory).

    Returns:
        FLOPs (two a multiply-accumulate) and seconds of traffic, as changes.

    Raises:
        ValueError: ``images`` is missing, a fact is not a number, or ``keep`` is not in (0, 1].

    Example:
        >>> delta = predict(Workload("image classification", {"images": 1}))
        >>> round(-delta.total(Resource.FLOPS) / 2e9, 2)
        1.57
    """
    if workload.task not in TASKS:
        return LedgerDelta.not_applicable(f"it shortens the sequence of a vision transformer; {workload.task} has none")
    images, passes = workload.number("images"), workload.number("passes", 1)
    size, patch = workload.number("image_size", 224), workload.number("patch", 16)
    width, depth, keep = workload.number("hidden", 384), workload.number("layers", 12), workload.number("keep", 0.7)
    if not 0 < keep <= 1:
        raise ValueError(f"workload: 'keep' must be in (0, 1], got {keep}")
    patches = int(size // patch) ** 2
    if patches < FEW_PATCHES:
        return LedgerDelta.not_applicable(f"{patches} patches are few: below {FEW_PATCHES} accuracy falls by points")
    full, reduced = _macs(patches, width, depth, 1.0), _macs(patches, width, depth, keep)
    entries = [
        Entry(
            Resource.FLOPS,
            2 * passes * images * (reduced - full),
            "2 · passes · images · Σ over layers (12·N·hidden² + 2·N²·hidden), N falling at layers/3, 7/12 and 5/6",
            "shapes (arXiv 2511.21477, section 4), confirmed by counting: macs-exact",
        )
    ]
    if traffic := workload.number("traffic_seconds", 0):
        left = sum(map(sum, _tokens(patches, depth, keep))) / sum(map(sum, _tokens(patches, depth, 1.0)))
        entries.append(
            Entry(
                Resource.SECONDS,
                traffic * (left - 1),
                "seconds of blocks' traffic · (tokens left over all layers − 1)",
                "all that blocks write is a multiple of their tokens",
            )
        )
    return LedgerDelta(
        entries=tuple(entries),
        preconditions=("a plain vision transformer with at least 196 patches; time falls about as its MACs do",),
        code=f"reduce_tokens(model, FreqReduceConfig(keep={keep:g}))",
        price=(
            "outputs change: at keep 0.7 without fine-tuning merging (ToMe) changes them less; "
            "the published accuracy needs fine-tuning",
        ),
    )


def _macs(patches: int, width: float, depth: float, keep: float) -> float:
    """Return the MACs of the blocks at the default schedule, MLPs of reducing blocks on the shorter sequence."""
    return sum(
        4 * before * width**2 + 2 * before**2 * width + 8 * after * width**2
        for before, after in _tokens(patches, depth, keep)
    )


def _tokens(patches: int, depth: float, keep: float) -> Iterator[tuple[int, int]]:
    """Yield the tokens of each block before and after its reduction, the class token included."""
    at = dict(zip(published_layers(int(depth)), (4, 1, 1), strict=True))
    live, extra = patches, 0
    for layer in range(1, int(depth) + 1):
        before = 1 + live + extra
        if layer in at and keep < 1:
            live, extra = max(1, -int(-(keep * live) // 1)), at[layer]
        yield before, 1 + live + extra
