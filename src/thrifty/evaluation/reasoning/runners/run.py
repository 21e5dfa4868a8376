"""A run: every problem asked once, completions kept as they come, so that an interrupted run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thrifty._common.checks import whole
from thrifty.evaluation.reasoning.problems.problem import ANSWER, Problem
from thrifty.evaluation.reasoning.runners.models import Completion, Model
from thrifty.evaluation.reasoning.runners.prompts import answer_prompt, examples, prompt, prompt_hash
from thrifty.evaluation.reasoning.traces.scores import count_tokens

#: New tokens of a proof, and of the answer that is asked for if a proof does not say it.
MAX_TOKENS, ANSWER_TOKENS = 4000, 5


@dataclass(frozen=True)
class Estimate:
    """What a run would take: prompts, and tokens in and at most out (words counted, 1.3 tokens a word)."""

    prompts: int
    tokens_in: int
    tokens_out: int

    def cost(self, dollars_in: float, dollars_out: float) -> float:
        """Return dollars at prices a million tokens."""
        return (self.tokens_in * dollars_in + self.tokens_out * dollars_out) / 1e6

    def __str__(self) -> str:
        return f"{self.prompts} prompts, about {self.tokens_in:,} tokens in and about {self.tokens_out:,} out"


def estimate(problems: Sequence[Problem], *, k: int = 5, longer: float = 2.0) -> Estimate:
    """Estimate a run before it is made: a model is taken to write ``longer`` times the exhaustive proof."""
    shown = {query: examples(k, query=query) for query in {problem.query for problem in problems}}
    inward = sum(
        count_tokens(message["content"]) for problem in problems for message in prompt(problem, shown[problem.query])
    )
    outward = sum(count_tokens(problem.eager_trace) for problem in problems)
    return Estimate(len(problems), round(1.3 * inward), round(1.3 * longer * outward))


def run(
    problems: Sequence[Problem],
    model: Model,
    out: str | os.PathLike[str],
    *,
    k: int = 5,
    max_tokens: int = MAX_TOKENS,
    ask_answer: bool = True,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Ask a model every problem; completions that the file has already are not asked for again.

    Args:
        problems: What to ask.
        model: Who is asked.
        out: A JSONL file of completions; it is added to, a whole line at a time.
        k: Worked examples before the problem.
        max_tokens: Of a completion.
        ask_answer: Ask for the number where a proof does not end with one.
        progress: Told (done, total).

    Returns:
        The completions of these problems, in their order, as the file has them.

    Raises:
        RuntimeError: The model failed for good; what came before is in the file.
        ValueError: The file holds something else.

    Example:
        >>> from thrifty.evaluation.reasoning import generate
        >>> class Echo:
        ...     name = "echo"
        ...     def complete(self, prompts, max_tokens):
        ...         yield from ((at, Completion("The answer is 7.")) for at, _ in enumerate(prompts))
        >>> run(generate(1, 0), Echo(), "completions.jsonl")[0]["completion"]
        'The answer is 7.'

    Source:
        arXiv 2510.25626, appendix on prompts.
    """
    max_tokens, out = whole("max_tokens", max_tokens), Path(out)
    shown = {query: examples(k, query=query) for query in {problem.query for problem in problems}}
    asked = [prompt(problem, shown[problem.query]) for problem in problems]
    keys = [prompt_hash(messages, model.name, max_tokens) for messages in asked]
    if out.exists():
        _drop_cut_line(out)
    kept = {line["prompt_hash"]: line for line in read_completions(out)} if out.exists() else {}
    waiting = [at for at, key in enumerate(keys) if key not in kept]
    progress(len(problems) - len(waiting), len(problems))
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", encoding="utf-8") as file:

        def keep(at: int, found: Completion) -> None:
            line = {
                "problem_id": problems[at].id,
                "model": model.name,
                "prompt_hash": keys[at],
                "completion": found.text,
            }
            kept[keys[at]] = {
                **line,
                "finish_reason": found.finish_reason,
                "tokens_in": found.prompt_tokens,
                "tokens_out": found.completion_tokens,
            }
            file.write(json.dumps(kept[keys[at]], ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
            progress(len(problems) - len(waiting) + sum(keys[n] in kept for n in waiting), len(problems))

        silent: list[tuple[int, Completion]] = []
        for number, found in model.complete([asked[at] for at in waiting], max_tokens):
            at = waiting[number]
            if ask_answer and found.finish_reason != "length" and "answer" not in found.text.lower():
                silent.append((at, found))
            else:
                keep(at, found)
        again = [answer_prompt(asked[at], found.text) for at, found in silent]
        for number, said in model.complete(again, ANSWER_TOKENS) if again else ():
            at, found = silent[number]
            keep(at, found._replace(text=f"{found.text.rstrip()}\n{ANSWER} {said.text.strip()}"))
    return [kept[key] for key in keys]


def _drop_cut_line(path: Path) -> None:
    """Take off a last line that an interrupted run left unfinished: what is added begins a line of its own."""
    with path.open("rb+") as file:
        whole_lines = file.read().rfind(b"\n") + 1
        file.truncate(whole_lines)


def read_completions(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read saved completions; a last line that was cut off is left out.

    Raises:
        ValueError: A line is no completion.
    """
    lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if not {"problem_id", "completion"} <= set(record):
                raise ValueError("expected the fields problem_id and completion")
        except (ValueError, TypeError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ValueError(f"{path}, line {number}: {error}") from None
        found.append({"prompt_hash": "", "model": "saved", "finish_reason": "stop", **record})
    return found


def by_problem(completions: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return completions by the problem that they answer; the last one counts."""
    return {line["problem_id"]: line for line in completions}
