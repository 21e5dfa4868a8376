"""What training blocks beside stand-ins changes for a client of a federation, for the adviser."""

from __future__ import annotations

import math

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload

_PAPER = "Shen et al., NeurIPS 2025, section 3; counted as in `capacity.py`"
#: AdamW's moments, bytes a trained number.
_MOMENTS = 8


def predict(workload: Workload) -> LedgerDelta:
    """Predict what a client holds, computes and sends where it trains a block of layers beside a stand-in.

    Args:
        workload: Language-model fine-tuning with ``clients``, ``layers`` and ``layer_parameters``; optionally
            ``capacity`` (1: layers that the client trains), ``compression_rate`` (0.5), ``bytes_a_number`` (2),
            ``batch`` (1), ``sequence`` (512), ``steps`` (1), ``adapter_rank`` (0: all weights are trained now) with
            ``matrix_sides``, ``matrix_state`` (bytes of the optimiser in use), and ``sent_bytes`` (that a client sends
            and receives now).

    Returns:
        Weights, gradients, optimiser state and traffic of one client in a round, and the FLOPs of its steps.

    Raises:
        ValueError: A fact is missing, or the capacity is above the number of layers.

    Example:
        >>> facts = {"clients": 20, "layers": 32, "layer_parameters": 218e6}
        >>> delta = predict(Workload(Task.LM_FINETUNING, facts))
        >>> round(delta.total(Resource.GRADIENTS) / 1e9, 1)
        -13.5

    Source:
        Shen et al., NeurIPS 2025, section 3 (blocks and compression); arithmetic as in :func:`compute_share`.
    """
    if workload.task != Task.LM_FINETUNING or "clients" not in workload.facts:
        return LedgerDelta.not_applicable("it is for federations of unequal clients; nobody federates here")
    layers, own = workload.number("layers"), workload.number("capacity", 1)
    size = workload.number("layer_parameters")
    if not 1 <= own <= layers:
        raise ValueError(f"workload: 'capacity' must be from 1 to {layers:g}, the number of layers, got {own:g}")
    width, rank = workload.number("bytes_a_number", 2), workload.number("adapter_rank", 0)
    rate, steps = workload.number("compression_rate", 0.5), workload.number("steps", 1)
    tokens = workload.number("batch", 1) * workload.number("sequence", 512)
    depth = math.ceil((layers - own) * rate - 1e-9)
    trained = rank * workload.number("matrix_sides", 0) if rank else layers * size
    state = workload.number("matrix_state", _MOMENTS * trained)
    sent = workload.number("sent_bytes", 2 * trained * width)
    after = (2 * own + depth) * size * width
    frozen_now = 0 if rank == 0 else layers  # with adapters the backward pass only goes through
    now = 2 * tokens * size * (layers + (2 * layers if not frozen_now else layers))
    middle = (depth + own) + 2 * own + depth / 2  # half of the stand-in is behind the block, on average
    return LedgerDelta(
        entries=(
            Entry(
                Resource.WEIGHTS,
                -(layers - own - depth) * size * width,
                "−(layers − capacity − ⌈(layers − capacity) r⌉) · layer_parameters · bytes_a_number",
                _PAPER,
            ),
            Entry(
                Resource.GRADIENTS,
                (own * size - trained) * width,
                "(capacity · layer_parameters − trained now) · bytes_a_number",
                _PAPER,
            ),
            Entry(
                Resource.OPTIMIZER_STATE,
                _MOMENTS * own * size - state,
                "8 · capacity · layer_parameters − bytes of the state in use",
                "AdamW's two moments in float32, made anew every round",
            ),
            Entry(
                Resource.TRANSFER,
                after - sent,
                "(2 · capacity + stand-in) · layer_parameters · bytes_a_number − what travels now",
                "up: the block; down: the block and its stand-in; embeddings once; head left out",
            ),
            Entry(
                Resource.FLOPS,
                steps * (2 * tokens * size * middle - now),
                "steps · 2 · tokens · layer_parameters · (stand-in + capacity + 2 capacity + stand-in / 2 − now)",
                _PAPER,
            ),
        ),
        preconditions=(
            "clients differ in strength, or none of them can hold the model's gradients",
            "the server has public text to distil stand-ins on, and time for it",
        ),
        price=(
            "a layer learns from the clients that drew it only: accuracy comes near full averaging's, not above it",
            "the server distils stand-ins every round",
        ),
        code="strategy = LeffStrategy(LeffServer(model, LeffConfig(), proxy))",
        assumes={"federation": "LEFF"},
    )
