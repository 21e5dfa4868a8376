"""Text for fine-tuning: documents from files, cut to blocks of tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def documents(path: Path, field: str = "text") -> Iterator[str]:
    """Yield the texts of a ``.jsonl`` file (one object a line), of a text file, or of a folder of ``.txt`` and ``.py``.

    Raises:
        ValueError: A line is no JSON object with that field, or there is no text.
    """
    found = False
    for file in sorted(p for p in path.rglob("*") if p.suffix in {".txt", ".py"}) if path.is_dir() else [path]:
        if file.suffix != ".jsonl":
            text = file.read_text(encoding="utf-8", errors="replace")
            found = found or bool(text.strip())
            yield text
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)[field]
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{file}, line {number}: expected an object with {field!r}, got {line[:60]!r}"
                ) from error
            found = True
            yield str(text)
    if not found:
        raise ValueError(f"{path}: expected text, got none")


def blocks(tokenizer: Any, texts: Iterator[str], length: int) -> list[dict[str, list[int]]]:
    """Join the texts, an end-of-text token between them, and cut them to blocks of ``length`` tokens.

    Raises:
        ValueError: There is not even one block.
    """
    ids: list[int] = []
    for text in texts:
        ids += tokenizer(text, add_special_tokens=False)["input_ids"]
        if tokenizer.eos_token_id is not None:
            ids.append(tokenizer.eos_token_id)
    whole = [ids[start : start + length] for start in range(0, len(ids) - length + 1, length)]
    if not whole:
        raise ValueError(f"seq_len: the text has {len(ids)} tokens, fewer than one sequence of {length}")
    return [{"input_ids": block, "labels": block} for block in whole]
