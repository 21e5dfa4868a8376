"""The published prompting protocol: worked examples without distractors, then the problem, answered step by step.

Source: arXiv 2510.25626, appendix on prompts. How many examples, and which, is not published: five base problems of a
fixed seed here, kept with the results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from thrifty.evaluation.reasoning.problems.generator import generate
from thrifty.evaluation.reasoning.problems.problem import ANSWER, Problem

#: Chat messages, the last of them the beginning of the assistant's own.
Messages = list[dict[str, str]]
SYSTEM = "Solve the problem step by step. Follow the format of the examples."
BEGIN = "Let's think step by step.\n"
#: The seed of the worked examples: no test set should have it.
EXAMPLE_SEED = 77_777_777


def examples(k: int = 5, *, query: str = "question") -> list[Problem]:
    """Return the worked examples: base problems, short ones first."""
    return sorted(generate(k, EXAMPLE_SEED, query=query), key=lambda problem: problem.shortest.length)


def prompt(problem: Problem, shown: Sequence[Problem]) -> Messages:
    """Return the messages that ask for a proof; the last is to be continued, not answered."""
    messages = [{"role": "system", "content": SYSTEM}]
    for example in shown:
        messages.append({"role": "user", "content": f"Q: {example.text}"})
        messages.append({"role": "assistant", "content": f"A: {BEGIN}{example.gold_trace}"})
    messages.append({"role": "user", "content": f"Q: {problem.text}"})
    messages.append({"role": "assistant", "content": f"A: {BEGIN}"})
    return messages


def answer_prompt(asked: Messages, completion: str) -> Messages:
    """Return the messages that ask for the number, after a completion that did not say it."""
    begun = asked[-1]["content"] + completion.rstrip() + f"\n{ANSWER} "
    return [*asked[:-1], {"role": "assistant", "content": begun}]


def without_prefill(asked: Messages) -> Messages:
    """Return the messages for a model that answers and does not go on: no beginning, and the number asked for."""
    *before, begun = asked
    if begun["role"] != "assistant":
        return asked
    if not begun["content"].rstrip().endswith(ANSWER):
        return before
    written = begun["content"].rstrip().removesuffix(ANSWER).rstrip()
    return [*before, {"role": "assistant", "content": written}, {"role": "user", "content": f"{ANSWER} ..."}]


def prompt_hash(messages: Messages, model: str, max_tokens: int) -> str:
    """Return what a completion is kept under: another prompt, model or length is another completion."""
    text = json.dumps([messages, model, max_tokens], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
