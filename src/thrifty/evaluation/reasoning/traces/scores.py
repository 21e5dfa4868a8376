"""What a written proof is worth: correctness, efficiency, precision, recall, and the order of its steps.

Efficiency is the length of the shortest proof over the number of distinct theorems stated, for a complete proof of the
right answer; it is NaN for any other, so that a wrong answer is never called efficient or wasteful.

Source: arXiv 2510.25626, sections on efficiency and on search orders.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from thrifty._common.checks import one_of
from thrifty.evaluation.reasoning.logic.orders import theorem_order
from thrifty.evaluation.reasoning.logic.shortest import shortest_proofs
from thrifty.evaluation.reasoning.metrics import lcs_length, levenshtein
from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.traces.align import Alignment, align
from thrifty.evaluation.reasoning.traces.text import answer_of

#: Below this share of matched steps, scores are flagged.
COVERAGE = 0.8
COUNTS = ("inferences", "all")


@dataclass(frozen=True)
class Scores:
    """The scores of one written proof; NaN where a score has no meaning.

    Attributes:
        answer: The answer that was read, or ``None``.
        correct: It is the goal's value (in a proof: the goal is stated).
        complete: The goal is among the theorems stated (skips expanded), and the answer is right.
        efficiency: Shortest length over distinct theorems stated; NaN unless complete.
        efficiency_stated: Likewise without what skips leave out, at most 1.
        precision, recall: Of the theorems stated, and of the shortest proof's.
        precision_all, recall_all: Likewise with the axioms told and needed.
        exact: The relevant theorems stand in the efficient order, and nothing else does.
        irrelevant: Share of the theorems stated that the shortest proof does not need.
        lev_dfs, lev_bfs, lev_efficient: Edit distance to each reference order, over the longer one.
        lcs_efficient: Length of the longest common subsequence with the efficient order.
        coverage: Share of the quantitative steps that were matched.
        flagged: Coverage is below 0.8, or the completion was cut off.
        skipped: Theorems that skips leave out.
        stated, shortest: The two lengths that efficiency compares.
        tokens, tokens_gold: Of the completion and of the written shortest proof.
        labels: Steps by label.

    Example:
        >>> from thrifty.evaluation.reasoning import read_problem
        >>> problem = read_problem("Mina has 16 figs. Ode has 5 figs less than Mina. How many figs does Ode have?")
        >>> score(problem, "16 - 5 = 11. The answer is 11.").efficiency
        1.0
    """

    answer: int | None
    correct: bool
    complete: bool
    efficiency: float
    efficiency_stated: float
    precision: float
    recall: float
    precision_all: float
    recall_all: float
    exact: bool
    irrelevant: float
    lev_dfs: float
    lev_bfs: float
    lev_efficient: float
    lcs_efficient: int
    coverage: float
    flagged: bool
    skipped: int
    stated: int
    shortest: int
    tokens: int
    tokens_gold: int
    labels: Mapping[str, int] = field(default_factory=dict)

    @property
    def token_ratio(self) -> float:
        """Gold tokens over the completion's: what is measured where nobody looks at the proof."""
        return self.tokens_gold / self.tokens if self.tokens else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return what JSON can carry; NaN becomes ``None``."""
        plain = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(self).items()
        }
        return plain | {"labels": dict(self.labels)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Scores:
        """Read what :meth:`to_json` gave."""
        kept: dict[str, Any] = {f.name: found[f.name] for f in fields(cls)}
        known: dict[str, Any] = {n: math.nan if v is None and n != "answer" else v for n, v in kept.items()}
        return cls(**known)


def count_tokens(text: str) -> int:
    """Count words, numbers and signs, where no tokenizer is given."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def score(
    problem: Problem,
    text: str,
    *,
    aligner: str = "grammar",
    trace: str = "both",
    until_goal: bool = False,
    finish_reason: str = "stop",
    tokenize: Callable[[str], int] = count_tokens,
) -> Scores:
    """Score a written proof.

    Args:
        problem: The problem.
        text: What the model wrote.
        aligner: ``"grammar"`` or ``"official"``.
        trace: Which part counts: ``"visible"`` (outside ``<think>``), ``"thinking"`` or ``"both"``.
        until_goal: Nothing counts after the first statement of the goal.
        finish_reason: ``"length"`` for a completion that was cut off: it is flagged, and wrong.
        tokenize: Counts tokens.

    Returns:
        The scores; all of them within their bounds, or NaN.

    Raises:
        ValueError: ``aligner`` or ``trace`` is unknown.

    Example:
        >>> from thrifty.evaluation.reasoning import generate
        >>> problem = generate(1, 0, "disconnected", "complex", "no_overlap")[0]
        >>> score(problem, problem.gold_trace).efficiency
        1.0

    Source:
        arXiv 2510.25626, section on efficiency.
    """
    found = align(problem, text, aligner=aligner, trace=trace)
    return score_alignment(problem, found, text, until_goal=until_goal, finish_reason=finish_reason, tokenize=tokenize)


def score_alignment(
    problem: Problem,
    found: Alignment,
    text: str,
    *,
    until_goal: bool = False,
    finish_reason: str = "stop",
    tokenize: Callable[[str], int] = count_tokens,
) -> Scores:
    """Score a proof that is aligned already; see :func:`score`."""
    graph, goal = problem.graph, problem.graph.goal
    cut_off = finish_reason == "length"
    stop = goal if until_goal else None
    stated = found.theorems(stop=stop)
    bare = found.theorems(expand_skips=False, stop=stop)
    trivial = goal in graph.given
    reached = goal in stated or (trivial and answer_of(text) == problem.answer)
    answer = answer_of(text)
    correct = (answer == problem.answer if problem.query == "question" else reached) and not cut_off
    gold = _nearest(problem, set(stated))
    hits = len(gold & set(stated))
    told = {s.theorem for s in found.steps if s.label == "axiom_restated" and s.theorem is not None}
    needed = gold | problem.relevant
    precision = hits / len(stated) if stated else math.nan
    complete = reached and correct
    efficiency = min(1.0, problem.shortest.length / len(stated)) if complete and stated else math.nan
    if trivial and complete:
        efficiency = 1.0 if not stated else 0.0
    efficient = theorem_order(graph, problem.efficient)
    everything = set(stated) | told
    return Scores(
        answer=answer,
        correct=correct,
        complete=complete,
        efficiency=efficiency,
        efficiency_stated=min(1.0, problem.shortest.length / len(bare)) if complete and bare else math.nan,
        precision=precision,
        recall=hits / len(gold) if gold and stated else (math.nan if not stated else 0.0),
        precision_all=len(everything & needed) / len(everything) if everything else math.nan,
        recall_all=len(everything & needed) / len(needed) if everything and needed else math.nan,
        exact=stated == efficient,
        irrelevant=1 - precision if stated else math.nan,
        lev_dfs=levenshtein(stated, theorem_order(graph, problem.eager)),
        lev_bfs=levenshtein(stated, theorem_order(graph, problem.breadth_first)),
        lev_efficient=levenshtein(stated, efficient),
        lcs_efficient=lcs_length(stated, efficient),
        coverage=found.coverage,
        flagged=found.coverage < COVERAGE or cut_off,
        skipped=len(set(stated) - set(bare)),
        stated=len(stated),
        shortest=problem.shortest.length,
        tokens=tokenize(text),
        tokens_gold=tokenize(problem.gold_trace),
        labels=dict(found.labels()),
    )


def precision_recall(scores: Scores, count: str = "inferences") -> tuple[float, float]:
    """Return precision and recall over ``"inferences"``, or over ``"all"`` sentences, axioms included."""
    one_of("count", count, COUNTS)
    if count == "all":
        return scores.precision_all, scores.recall_all
    return scores.precision, scores.recall


def _nearest(problem: Problem, stated: set[int]) -> set[int]:
    """Return the theorems of the shortest proof that shares most with what is stated."""
    if problem.shortest.method == "unique":
        return set(problem.shortest.theorems)
    proofs = shortest_proofs(problem.graph)
    return max((set(proof.theorems) for proof in proofs), key=lambda theorems: len(theorems & stated))
