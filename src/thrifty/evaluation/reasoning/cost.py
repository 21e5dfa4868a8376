"""What scoring proofs costs, and what a run would ask of a model, for the adviser."""

from __future__ import annotations

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Workload

#: The workload that it is for.
TASK = "language-model evaluation"
#: Seconds that generating, gating and scoring one problem took when it was measured (one thread); see the card.
SECONDS_A_PROBLEM = 0.002


def predict(workload: Workload) -> LedgerDelta:
    """Predict the seconds that making and scoring problems adds to an evaluation.

    Args:
        workload: ``"language-model evaluation"`` with ``problems``.

    Returns:
        The seconds added; the model's own tokens are what they would be without.

    Raises:
        ValueError: ``problems`` is missing.

    Example:
        >>> round(predict(Workload(TASK, {"problems": 12_000})).total(Resource.SECONDS))
        24

    Source:
        Measured: one closure, one shortest proof and one alignment a problem, linear in its dozen sentences.
    """
    if workload.task != TASK:
        return LedgerDelta.not_applicable(f"it evaluates written proofs of language models, not {workload.task}")
    problems = workload.number("problems")
    seconds = Entry(Resource.SECONDS, SECONDS_A_PROBLEM * problems, f"{SECONDS_A_PROBLEM:g} s · problems", "measured")
    return LedgerDelta(
        entries=(seconds,),
        preconditions=("the model writes its steps out",),
        code="report = evaluate(problems, model, 'completions.jsonl')",
        price=("it needs problems whose program is known: generated ones, or text in the grammar",),
    )
