"""Problems in files: JSONL, a record a line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from thrifty._common.files import write_whole
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.problem import Problem

#: Of a problem's record.
SCHEMA_VERSION = 1


def write_problems(problems: Iterable[Problem], path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write problems as JSONL, one a line.

    Args:
        problems: What to write.
        path: Where; it appears whole or not at all.
        force: Replace a file that is there.

    Returns:
        The path.

    Raises:
        FileExistsError: It is there, and ``force`` is False.

    Example:
        >>> from thrifty.evaluation.reasoning import generate
        >>> path = write_problems(generate(2, seed=0), "problems.jsonl")
        >>> len(read_problems(path))
        2

    Source:
        The fields are those that arXiv 2510.25626's code keeps, under plain names; logical forms are our keys.
    """
    lines = [json.dumps({"schema_version": SCHEMA_VERSION, **p.to_record()}, ensure_ascii=False) for p in problems]
    return write_whole(path, "".join(line + "\n" for line in lines), force=force)


def read_problems(path: str | os.PathLike[str], lexicon: Lexicon | None = None) -> list[Problem]:
    """Read what :func:`write_problems` wrote.

    Args:
        path: A JSONL file.
        lexicon: The words that the problems are in; ``None``: those of the package.

    Returns:
        The problems.

    Raises:
        ValueError: A line is no problem's record; the message has its number.

    Example:
        >>> from thrifty.evaluation.reasoning import generate
        >>> path = write_problems(generate(1, seed=3), "one.jsonl")
        >>> read_problems(path)[0].seed
        3

    Source:
        See :func:`write_problems`.
    """
    problems = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or record.get("schema_version") != SCHEMA_VERSION:
                raise ValueError(f"expected schema_version {SCHEMA_VERSION}, got {line[:60]!r}")
            problems.append(Problem.from_record(record, lexicon))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    if not problems:
        raise ValueError(f"{path}: expected problems, got none")
    return problems
