"""What the layer changes in training a sequence model, for the adviser: dependent steps, and bytes of activations."""

from __future__ import annotations

import math

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload

#: Tasks whose input is a sequence of vectors.
TASKS = (Task.SEQUENCE_CLASSIFICATION, Task.SEQUENCE_REGRESSION, Task.FORECASTING)

#: Newton iterations of a certified layer: 2 to 6 at every length and scale of weights that was measured.
ITERATIONS = 4

#: Numbers a step and channel that a trained layer keeps for its backward pass.
_KEPT = {"gru": 4, "lstm": 6}


def predict(workload: Workload) -> LedgerDelta:
    """Predict how a diagonal recurrence changes activations and FLOPs of a recurrent layer in training.

    Args:
        workload: A sequence task with ``sequence`` (its steps, T), ``state`` (D), and optionally ``batch`` (1),
            ``layers`` (1), ``input`` (width n; D), ``rnn`` (``"gru"`` or ``"lstm"``; ``"gru"``), ``steps`` (updates of
            the weights; 1) and ``bytes_a_number`` (4).

    Returns:
        Bytes of activations and FLOPs over all steps, as changes against ``rnn``; the depth is in the preconditions.

    Raises:
        ValueError: A fact is missing, or ``rnn`` is unknown.

    Example:
        >>> facts = {"sequence": 17_984, "state": 64, "batch": 32}
        >>> delta = predict(Workload("sequence classification", facts))
        >>> round(delta.total(Resource.ACTIVATIONS) / 1e9, 2)
        -0.15
    """
    if workload.task not in TASKS:
        return LedgerDelta.not_applicable(f"it is a recurrent layer; {workload.task} has none")
    T, D = workload.number("sequence"), workload.number("state")
    batch, layers, n = workload.number("batch", 1), workload.number("layers", 1), workload.number("input", D)
    updates, width = workload.number("steps", 1), workload.number("bytes_a_number", 4)
    now = str(workload.facts.get("rnn", "gru"))
    if now not in _KEPT:
        raise ValueError(f"workload: 'rnn' must be one of {', '.join(_KEPT)}, got {now!r}")
    gates = {"gru": 3, "lstm": 4}[now]
    cells = layers * batch * T
    # Forward and backward: the input's products count three times. A channel takes about 40 FLOPs an iteration.
    theirs = cells * 3 * 2 * gates * D * (n + D)
    ours = cells * (3 * 2 * 2 * D * n + (ITERATIONS + 2) * 40 * D)
    depth = math.ceil(math.log2(max(T, 2)))
    return LedgerDelta(
        entries=(
            Entry(
                Resource.ACTIVATIONS,
                width * cells * D * (3 - _KEPT[now]),
                f"bytes_a_number · layers · batch · T · D · (3 − {_KEPT[now]})",
                "F, Z and the states are kept (arXiv 2505.21717, section 3); measured: saved tensors of one layer",
            ),
            Entry(
                Resource.FLOPS,
                updates * (ours - theirs),
                f"steps · layers · batch · T · (12·D·n + {ITERATIONS + 2}·40·D − 6·{gates}·D·(n + D))",
                f"no product with the state, {ITERATIONS} Newton iterations and two passes back",
            ),
        ),
        preconditions=(
            f"on an accelerator about {ITERATIONS * 2 * depth} dependent levels replace {T:g} dependent steps; "
            "on a CPU the recurrence runs in order, vectorised across channels",
        ),
        code=f'DiagonalRNN("lrc", {n:g}, {D:g})' + (f"  # {layers:g} of them, stacked" if layers > 1 else ""),
        price=("states meet only through the next layer; the model is another one, to be trained anew",),
    )
