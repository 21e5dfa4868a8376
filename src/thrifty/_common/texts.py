"""Text for language models: documents and rows from files, and blocks of tokens cut out of documents.

A line of a JSONL file is a document; any other file is one document.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

#: What is read of a folder.
SUFFIXES = (".jsonl", ".jsonl.gz", ".json.gz", ".txt", ".py")
_BY_LINE = (".jsonl", ".jsonl.gz", ".json.gz")


def text_files(paths: Path | Sequence[Path]) -> list[Path]:
    """Return the files meant, those of a folder in sorted order.

    Raises:
        FileNotFoundError: There are none, or one is missing.
    """
    given = [paths] if isinstance(paths, Path) else list(paths)
    files: list[Path] = []
    for path in given:
        files += sorted(p for p in path.rglob("*") if p.name.endswith(SUFFIXES)) if path.is_dir() else [path]
    missing = [str(file) for file in files if not file.is_file()]
    if missing or not files:
        raise FileNotFoundError(f"data: expected text files, got none at {', '.join(missing or map(str, given))}")
    return files


def documents(paths: Path | Sequence[Path], field: str = "text") -> Iterator[str]:
    """Yield the documents of files, or of folders of them, one after the other.

    Args:
        paths: Files or folders; see :func:`text_files`.
        field: Of a JSON object, what holds the text.

    Raises:
        FileNotFoundError: There are none.
        ValueError: A line is no JSON object with that field, or there is no text.
    """
    found = False
    for file in text_files(paths):
        if not file.name.endswith(_BY_LINE):
            text = file.read_text(encoding="utf-8", errors="replace")
            found = found or bool(text.strip())
            yield text
            continue
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    text = json.loads(line)[field]
                except (json.JSONDecodeError, KeyError, TypeError, RecursionError) as error:
                    where = f"{file}, line {number}"
                    raise ValueError(f"{where}: expected an object with {field!r}, got {line[:60]!r}") from error
                found = True
                yield str(text)
    if not found:
        raise ValueError(f"data: expected text, got none in {paths}")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a JSONL file: one object a line; blank lines are skipped.

    Raises:
        ValueError: A line is no JSON object in UTF-8, or the file has none.
        OSError: It cannot be read.
    """
    rows = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode())
            except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or nested beyond all sense
                raise ValueError(f"{path}, line {number}: expected a JSON object: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: expected a JSON object, got {type(row).__name__}")
            rows.append(row)
    if not rows:
        raise ValueError(f"{path}: expected at least one line, got none")
    return rows


def blocks(tokenizer: Any, texts: Iterable[str], length: int) -> Iterator[list[int]]:
    """Join documents, an end-of-text token behind each, and yield blocks of ``length`` tokens; a rest is left out."""
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    ids: list[int] = []
    texts = iter(texts)
    while some := list(islice(texts, 256)):  # fast tokenizers take many documents at once
        for tokens in tokenizer(some, add_special_tokens=False)["input_ids"]:
            ids += [*tokens, *end]
        whole = len(ids) // length * length
        yield from (ids[start : start + length] for start in range(0, whole, length))
        del ids[:whole]
