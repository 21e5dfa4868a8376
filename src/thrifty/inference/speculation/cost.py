"""What speculative decoding changes in serving, for the adviser: seconds of decoding, bytes of a second model."""

from __future__ import annotations

import json

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload
from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.hardware import Hardware
from thrifty.inference.speculation.prior import roofline_model
from thrifty.inference.speculation.schedule import recommend_schedule
from thrifty.inference.speculation.shapes import MoEShape


def predict(workload: Workload) -> LedgerDelta:
    """Predict how many seconds of decoding the best draft length saves, by the limits of the hardware alone.

    Args:
        workload: A serving task with ``model`` and ``draft`` (profiles or configs), ``hardware``, ``tokens`` (to be
            decoded, all requests together) and ``batch`` (requests decoded together), and optionally ``devices`` (1),
            ``alpha`` (0.7, the chance that a draft token is accepted) and ``context`` (512).

    Returns:
        Seconds and bytes of weights, as changes; not applicable where speculation would not pay.

    Raises:
        ValueError: A fact is missing or unknown.

    Example:
        >>> facts = {"model": "qwen3-30b-a3b", "draft": "qwen3-0.6b", "hardware": "h100", "tokens": 1e6, "batch": 64}
        >>> delta = predict(Workload(Task.LM_SERVING, facts))
        >>> delta.applies, delta.total(Resource.SECONDS) < 0
        (True, True)
    """
    if workload.task != Task.LM_SERVING:
        return LedgerDelta.not_applicable(
            f"it drafts tokens that a language model decodes; {workload.task} decodes none"
        )
    names = {name: str(workload.facts.get(name, "")) for name in ("model", "draft", "hardware")}
    if missing := [name for name, value in names.items() if not value]:
        raise ValueError(f"workload: {', '.join(missing)} needed for this prediction, as names of profiles")
    tokens, batch = workload.number("tokens"), int(workload.number("batch"))
    context = workload.number("context", 512)
    target, draft = (MoEShape.from_config(names[name], build=False) for name in ("model", "draft"))
    hardware = Hardware.from_name(names["hardware"], count=int(workload.number("devices", 1)))
    model = roofline_model(target, draft, hardware)
    acceptance = Acceptance.from_rate(workload.number("alpha", 0.7))
    schedule = recommend_schedule(model, acceptance, max_batch=batch, context=context)
    gamma = schedule.gamma(batch)
    if gamma == 0:
        return LedgerDelta.not_applicable(f"speculation does not pay at batch {batch}: {schedule.warnings[0]}")
    plain = float(model.target_time(batch, context=context)) / batch / 1e3
    speedup = float(model.speedup(batch, gamma, acceptance, context=context))
    return LedgerDelta(
        entries=(
            Entry(
                Resource.SECONDS,
                tokens * plain * (1 / speedup - 1),
                f"tokens · T_T(batch, 1) / batch · (1 / speed-up − 1) at {gamma} draft tokens",
                "a prior from bandwidth and rate (arXiv 2505.19645, equation 4); fit measurements for better",
            ),
            Entry(
                Resource.WEIGHTS,
                draft.total_params * draft.weight_bytes,
                "bytes of the draft",
                "its config",
            ),
        ),
        preconditions=(f"about {batch} requests are decoded together", "the draft shares the target's vocabulary"),
        code=f"vllm serve {names['model']} --speculative-config "
        f"'{json.dumps({'model': names['draft'], 'num_speculative_tokens': gamma})}'",
        price=("a second model in memory; measure acceptance on your own requests before you rely on it",),
    )
