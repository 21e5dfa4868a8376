"""What streaming the backward pass saves and costs, for the adviser."""

from __future__ import annotations

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload
from thrifty.training.streambp.config import StreamBPConfig
from thrifty.training.streambp.planner import MemoryEstimate, Mode, Shape, estimate_peak_memory

#: Tasks in which gradients of a language model are computed.
TASKS = (Task.LM_FINETUNING, Task.LM_PREFERENCE, Task.LM_REINFORCEMENT)


def predict(workload: Workload) -> LedgerDelta:
    """Predict the activation bytes that streaming saves over gradient checkpointing, and the FLOPs it adds.

    Args:
        workload: One of the language-model training tasks, with ``layers``, ``hidden``, ``sequence`` and
            ``vocabulary``; optionally ``batch`` (1), ``steps`` (1), ``feed_forward`` (4 hidden), ``kv_share`` and
            ``query_share`` (keys and queries over hidden width, 0.25 and 1), ``bytes_a_number`` of an activation (2),
            ``fused_head`` (0), ``offloaded_inputs`` (0), ``tied`` (0: the head has weights of its own), ``trained``
            (share of the weights that get a gradient, 0: adapters), ``layer_chunk`` (tokens; a third of the sequence),
            and where they are known: ``layer_parameters`` (weights of a layer, experts included),
            ``layer_token_bytes`` and ``layer_pair_bytes`` (of a layer's graph), ``step_bytes`` and
            ``gradient_bytes`` (what a step allocates now at its peak, and the gradients among it),
            ``floor_bytes`` (what is held while the optimizer steps or answers are generated).

    Returns:
        Activations and gradients at the peak, and the projections that are computed once more in all steps.

    Raises:
        ValueError: A fact is missing.

    Example:
        >>> facts = {"layers": 32, "hidden": 4096, "sequence": 32_768, "vocabulary": 128_256}
        >>> round(predict(Workload(Task.LM_FINETUNING, facts)).total(Resource.ACTIVATIONS) / 1e9)
        -56

    Source:
        arXiv 2506.03077, table 1 and section 3.
    """
    if workload.task not in TASKS:
        return LedgerDelta.not_applicable(f"it streams the training of language models, not {workload.task}")
    if workload.number("context_parallel", 1) > 1:
        return LedgerDelta.not_applicable("it streams a sequence through one device, and here several share it")
    batch, length = int(workload.number("batch", 1)), int(workload.number("sequence"))
    d, layers = workload.number("hidden"), workload.number("layers")
    tokens, keys = batch * length, workload.number("kv_share", 0.25) * d
    shape = Shape(
        layers=int(layers),
        hidden=int(d),
        queries=round(workload.number("query_share", 1) * d),
        keys=round(keys),
        feed_forward=int(workload.number("feed_forward", 4 * d)),
        vocabulary=int(workload.number("vocabulary")),
        head_dim=min(128, int(d)),
        tied=bool(workload.number("tied", 0)),
        layer_weights=round(workload.number("layer_parameters", 0)),
    )
    chunk = int(workload.number("layer_chunk", 0))
    offloaded = bool(workload.number("offloaded_inputs", 0))
    settings = StreamBPConfig(layer_chunk_size=chunk or "auto", offload=offloaded)
    graph = (workload.number("layer_token_bytes", 0), workload.number("layer_pair_bytes", 0))
    known = graph if any(graph) else None
    itemsize, trained = int(workload.number("bytes_a_number", 2)), workload.number("trained", 0)

    def peak(mode: Mode) -> MemoryEstimate:
        return estimate_peak_memory(
            shape, batch, length, mode=mode, itemsize=itemsize, settings=settings, trained=trained, layer_bytes=known
        )

    ours, plain = peak("stream"), peak("checkpoint+fused" if workload.number("fused_head", 0) else "checkpoint")
    now = workload.number("step_bytes", 0) or plain.peak
    held = workload.number("gradient_bytes", 0) if workload.number("step_bytes", 0) else plain.done
    floor = workload.number("floor_bytes", 0)
    if now <= floor:
        return LedgerDelta.not_applicable(
            "memory is fullest while the optimizer steps or answers are generated; it streams the passes"
        )
    if ours.peak >= now:
        return LedgerDelta.not_applicable(
            f"a step of {length} tokens would allocate {(ours.peak - now) / 2**20:.0f} MiB more: too short to gain"
        )
    again = workload.number("steps", 1) * 2 * tokens * layers * d * 2 * keys
    return LedgerDelta(
        entries=(
            Entry(
                Resource.ACTIVATIONS,
                (max(ours.peak, floor) - ours.done) - (now - held),
                "the peak with gradient checkpointing less the peak with chunks: head, worst layer, all gradients",
                "the planner of `thrifty streambp plan` (arXiv 2506.03077, table 1), held against the allocator",
            ),
            Entry(
                Resource.GRADIENTS,
                ours.done - held,
                "gradients that are there at the new peak, less those at the old one",
                "the same planner; none where adapters are trained",
            ),
            Entry(
                Resource.FLOPS,
                again,
                "steps · 2 · tokens · layers · hidden · 2 · kv_share · hidden",
                "keys and values are projected twice",
            ),
        ),
        preconditions=(
            "a decoder with causal attention",
            "the sequence is long: activations, not weights, fill memory",
        ),
        price=("a step takes about as long as with checkpointing; layers' inputs still grow with the sequence",),
        code=f"enable_streambp(model{f', layer_chunk_size={chunk}' * bool(chunk)}{', offload=True' * offloaded})",
    )
