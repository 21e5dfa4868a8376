"""What streaming the backward pass saves and costs, for the adviser."""

from __future__ import annotations

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload

#: Tasks in which gradients of a language model are computed.
TASKS = (Task.LM_FINETUNING, Task.LM_PREFERENCE, Task.LM_REINFORCEMENT)


def predict(workload: Workload) -> LedgerDelta:
    """Predict the activation bytes that streaming saves over gradient checkpointing, and the FLOPs it adds.

    Args:
        workload: One of the language-model training tasks, with ``layers``, ``hidden``, ``sequence`` and
            ``vocabulary``; optionally ``batch`` (1), ``steps`` (1), ``feed_forward`` (4 hidden), ``kv_share`` (keys
            over hidden width, 0.25), ``bytes_a_number`` of an activation (2) and ``fused_head`` (0).

    Returns:
        Activations saved at the peak, and the projections that are computed once more in all steps.

    Raises:
        ValueError: A fact is missing.

    Example:
        >>> facts = {"layers": 32, "hidden": 4096, "sequence": 32_768, "vocabulary": 128_256}
        >>> round(predict(Workload(Task.LM_FINETUNING, facts)).total(Resource.ACTIVATIONS) / 1e9)
        -42

    Source:
        arXiv 2506.03077, table 1 and section 3.
    """
    if workload.task not in TASKS:
        return LedgerDelta.not_applicable(f"it streams the training of language models, not {workload.task}")
    tokens = workload.number("batch", 1) * workload.number("sequence")
    d, layers = workload.number("hidden"), workload.number("layers")
    wide, itemsize = workload.number("feed_forward", 4 * d), workload.number("bytes_a_number", 2)
    keys = workload.number("kv_share", 0.25) * d
    graph = (12 * d + 4 * keys + 5 * wide) * itemsize
    third = tokens / 3
    layer = (tokens - third) * graph - 6 * (tokens - third) * keys * itemsize - tokens * d * itemsize
    logits = 0.0 if workload.number("fused_head", 0) else tokens * workload.number("vocabulary") * (itemsize + 8)
    saved = max(layer, logits, 0.0)
    again = workload.number("steps", 1) * 2 * tokens * layers * d * 2 * keys
    return LedgerDelta(
        entries=(
            Entry(
                Resource.ACTIVATIONS,
                -saved,
                "max(2/3 of a layer's graph less keys, values and their gradients; logits) at the peak",
                "arithmetic of a Llama-like layer; `thrifty streambp plan` counts a given model more closely",
            ),
            Entry(
                Resource.FLOPS,
                again,
                "steps 2 tokens layers hidden 2 kv",
                "keys and values are projected twice",
            ),
        ),
        preconditions=(
            "a decoder with causal attention",
            "the sequence is long: activations, not weights, fill memory",
        ),
        price=("a step takes about as long as with checkpointing; layers' inputs still grow with the sequence",),
    )
