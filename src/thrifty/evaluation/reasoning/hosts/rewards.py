"""A reward for TRL's GRPO: efficient proofs of right answers are worth most.

Source: TRL's reward functions are called with ``prompts``, ``completions`` and the columns of the data set, as lists.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from thrifty._common.checks import number
from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.traces.scores import score


def efficiency_reward(*, right: float = 1.0, efficient: float = 1.0) -> Callable[..., list[float | None]]:
    """Return a reward function for ``GRPOTrainer(reward_funcs=[...])``.

    Args:
        right: What a right answer is worth.
        efficient: What a complete proof of it is worth besides, times its efficiency.

    Returns:
        A function of ``completions`` and the column ``problem`` (a record as JSON; see :func:`reward_rows`).

    Raises:
        ValueError: A weight is no number of at least 0.

    Example:
        >>> from thrifty.evaluation.reasoning import generate
        >>> rows = reward_rows(generate(1, 0))
        >>> gold = generate(1, 0)[0].gold_trace
        >>> efficiency_reward()(prompts=["?"], completions=[gold], problem=[rows[0]["problem"]])
        [2.0]

    Source:
        arXiv 2510.25626's efficiency as a reward is ours; the signature is TRL's.
    """
    right = number("right", right, "a weight of at least 0", least=0)
    efficient = number("efficient", efficient, "a weight of at least 0", least=0)

    def reward(
        prompts: Sequence[Any] = (), completions: Sequence[Any] = (), problem: Sequence[str] = (), **_: Any
    ) -> list[float | None]:
        if len(problem) != len(completions):
            raise ValueError(
                f"problem: expected a record for each of {len(completions)} completions, got {len(problem)}"
            )
        return [
            _worth(Problem.from_record(json.loads(record)), text, right, efficient)
            for record, text in zip(problem, completions, strict=True)
        ]

    reward.__name__ = "efficiency_reward"
    return reward


def _worth(problem: Problem, completion: Any, right: float, efficient: float) -> float:
    text = completion if isinstance(completion, str) else "".join(message["content"] or "" for message in completion)
    scores = score(problem, text)
    efficiency = 0.0 if math.isnan(scores.efficiency) else scores.efficiency
    return right * scores.correct + efficient * efficiency


def reward_rows(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """Return rows for ``datasets.Dataset.from_list``: a prompt in chat form, and the problem as JSON.

    Args:
        problems: What is asked in training.

    Returns:
        A row each, with the columns ``prompt`` and ``problem``.

    Example:
        >>> from thrifty.evaluation.reasoning import generate
        >>> sorted(reward_rows(generate(1, 0))[0])
        ['problem', 'prompt']

    Source:
        TRL's conversational format; further columns reach the reward function.
    """
    asks = "Think step by step, then say: Therefore, the answer is N."
    return [
        {
            "prompt": [{"role": "user", "content": f"{p.text}\n{asks}"}],
            "problem": json.dumps(p.to_record(), ensure_ascii=False),
        }
        for p in problems
    ]
