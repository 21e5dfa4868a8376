"""What amortised denominators change in CLIP training, for the adviser: memory of the loss, and FLOPs."""

from __future__ import annotations

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload

#: Logits of a block: see ``partition.py``.
BLOCK = 1 << 20


def predict(workload: Workload) -> LedgerDelta:
    """Predict what the loss's memory and FLOPs become, against the softmax loss of two directions.

    Args:
        workload: Image-model training with ``embedding`` (the width of a CLIP model's embeddings; without it the
            model is no pair of towers) and ``batch``; optionally ``devices`` whose batches are one (1), ``steps``
            (1), ``hidden_factor`` (0.5), ``amor_steps`` (3) and ``amor_every`` (8), and ``step_bytes`` at the peak,
            of which ``floor_bytes`` are there whatever the loss is.

    Returns:
        Activations of the loss, state of the networks, and FLOPs over all steps, as changes.

    Raises:
        ValueError: A fact is missing.

    Example:
        >>> delta = predict(Workload(Task.IMAGE_TRAINING, {"embedding": 512, "batch": 4096}))
        >>> delta.total(Resource.ACTIVATIONS) / 2**20 < -200
        True

    Source:
        Section 11 of arXiv 2505.18983's own costs, confirmed by measurement: ``memory``, ``time``.
    """
    if workload.task != Task.IMAGE_TRAINING or "embedding" not in workload.facts:
        return LedgerDelta.not_applicable(
            "it is a loss of two towers, as in CLIP; there is one model, or none is trained"
        )
    d, batch, steps = workload.number("embedding"), workload.number("batch"), workload.number("steps", 1)
    everybody = batch * workload.number("devices", 1)
    hidden = workload.number("hidden_factor", 0.5) * d
    weights = 2 * (2 * d * hidden + 4 * d + 3 * hidden + 1)  # of both networks
    logits = 4 * batch * everybody
    block = 4 * min(BLOCK, batch * batch)
    # ClipLoss holds the logits of both directions, their log-softmax and a gradient; ours two blocks and four
    # gradients.
    before, after = 4 * logits, 2 * block + 4 * 4 * batch * d
    fits = workload.number("amor_steps", 3) / workload.number("amor_every", 8)
    # The logits of a single block are kept for the towers' loss; several are made twice.
    products = 3 if batch == everybody and batch * batch <= BLOCK else 4
    step = workload.number("step_bytes", 0)
    most = step - workload.number("floor_bytes", 0) if step else before  # of what is saved
    return LedgerDelta(
        entries=(
            Entry(
                Resource.ACTIVATIONS,
                max(min(0.0, after - before), -most),
                "2 blocks of logits + features' gradients − 4 · 4 batch · batch of all, where the loss is at the peak",
                "each block of logits is made once and forgotten (measured: memory)",
            ),
            Entry(
                Resource.OPTIMIZER_STATE,
                4 * weights * 5,
                "4 · 5 · 2 (2 embedding hidden + ...): online, averaged and previous networks, and Adam's moments",
                "arXiv 2505.18983, appendix B",
            ),
            Entry(
                Resource.FLOPS,
                steps * (2 * batch * everybody * d * (products - 6) + (5 * fits + 2) * batch * weights),
                f"steps (2 batch · batch of all · embedding ({products} − 6) + (5 fits + 2) batch weights)",
                f"{products} products with the features where two directions of softmax need six; the networks' steps, "
                "and what the previous ones say",
            ),
        ),
        preconditions=("the batch is small against the data set: that is where denominators are noisy",),
        price=(
            "networks with settings of their own; on large sets an independent group (arXiv 2511.08417) finds it at or "
            "below CLIP",
        ),
        code=f"loss = AmorLIPLoss({d:g}, num_samples=n, steps_per_epoch=n // {batch:g})",
        assumes={"loss": "AmorLIP"},
    )
