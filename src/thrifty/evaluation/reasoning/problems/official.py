"""Problems of other makers: free text in the grammar, and the JSON of MathGAP and of the paper's code."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.problem import BASE_CELL, Cell, Problem, Sentence
from thrifty.evaluation.reasoning.problems.reading import TextClock, read_goal, read_statement

#: The published amounts under ours.
_AMOUNTS = ("simple", "complex", "more_complex")


def read_problem(text: str, *, id: str = "text", lexicon: Lexicon | None = None, cell: Cell = BASE_CELL) -> Problem:
    """Read a problem from text in the grammar of word problems; the last sentence asks.

    Args:
        text: Statements and a question.
        id: Names it.
        lexicon: The words; ``None``: those of the package. Things that it lacks are read by the rules of English.
        cell: The condition that it belongs to.

    Returns:
        The problem.

    Raises:
        ValueError: A sentence is none of the grammar's.

    Example:
        >>> read_problem("Ada has 3 figs. Bo has 2 figs more than Ada. How many figs does Bo have?").answer
        5

    Source:
        arXiv 2510.25626: statements refer to the state at which they stand in the text.
    """
    words = lexicon or Lexicon.default()
    *told, question = re.split(r"(?<=[.?!])\s+", text.strip())
    return _problem(id, [(sentence, "base") for sentence in told], question, words, cell)


def _problem(name: str, told: list[tuple[str, str]], question: str, words: Lexicon, cell: Cell) -> Problem:
    clock, reader = TextClock(), words.reader
    sentences = tuple(Sentence(text, read_statement(text, reader, clock), source) for text, source in told)
    return Problem(name, 0, cell, sentences, question, read_goal(question, reader, clock), words)


def read_official(
    path: str | os.PathLike[str], *, query: str = "question", lexicon: Lexicon | None = None
) -> Iterator[Problem]:
    """Yield problems from the JSON of the paper's code: ``base``, then connection, amount, and overlap or ``control``.

    Args:
        path: One JSON object a file or a line, or a list of them.
        query: ``"question"`` reads the field ``question``, ``"prove"`` the field ``groundquery``.
        lexicon: The words.

    Yields:
        Problems; the program is read from the text.

    Raises:
        ValueError: A part is missing, or a sentence is none of the grammar's.

    Example:
        >>> record = {"base": {"problembody": [{"text": "Ada has 3 figs.", "source": "base"}],
        ...                    "question": [{"text": "How many figs does Ada have?"}]}}
        >>> _ = open("official.json", "w").write(json.dumps([record]))
        >>> [problem.answer for problem in read_official("official.json")]
        [3]

    Source:
        Field names of github.com/rycolab/reasoning-efficiency (MIT); no code of it is used.
    """
    words = lexicon or Lexicon.default()
    text = Path(path).read_text(encoding="utf-8")
    try:
        found = json.loads(text)
        records = found if isinstance(found, list) else [found]
    except json.JSONDecodeError:
        records = [json.loads(line) for line in text.splitlines() if line.strip()]
    for number, record in enumerate(records):
        for cell, part in _parts(record):
            name = f"official-{number}-{str(cell).replace('/', '-')}"
            try:
                told = [
                    (str(s["text"]).strip(), _source(s)) for s in part["problembody"] if s.get("type") != "conclusion"
                ]
                asked = part["question" if query == "question" else "groundquery"]
                question = str((asked[-1] if isinstance(asked, list) else asked)["text"]).strip()
            except (KeyError, TypeError, IndexError) as error:
                raise ValueError(f"{path}: {name}: expected the fields problembody and question: {error!r}") from None
            yield _problem(name, told, question, words, cell)


def _parts(record: Mapping[str, Any]) -> Iterator[tuple[Cell, Mapping[str, Any]]]:
    if not isinstance(record, Mapping) or "base" not in record:
        raise ValueError("official JSON: expected an object with the key 'base'")
    yield BASE_CELL, record["base"]
    for connection in ("connected", "disconnected"):
        for amount in _AMOUNTS:
            for overlap, part in record.get(connection, {}).get(amount, {}).items():
                told = "none" if overlap == "control" else connection
                yield Cell(told, amount, overlap), part


def _source(sentence: Mapping[str, Any]) -> str:
    source = str(sentence.get("source", "base"))
    return source if sentence.get("relevant", True) or source.startswith("irrelevant") else f"irrelevant_{source}"
