"""Sentences of four domains: a mixed pool, and tweets as the task that counts.

Rows are split once, by a fixed permutation: text to pre-train on, text to tune on, and the rest, from which each seed
draws its pool, its target and its test examples. No row is on two sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from thrifty._common.tables import read_table
from thrifty.bench.data import vader
from thrifty.bench.data.vader import Sentence

#: The domain that the target comes from.
TASK = "tweets"

#: Sentences of each domain in a pool, of the target, of the test, and those that only pre-training or tuning sees.
POOL, TARGET, TEST, PRETRAIN, TUNE = 300, 16, 200, 1800, 600

#: Shorter ones say little to a byte model.
SHORTEST = 24


@dataclass(frozen=True)
class Draw:
    """What one seed works with.

    Args:
        pool: Sentences of all domains, one domain after the other.
        domains: Domain of each pool sentence.
        target: The task, a few sentences.
        test: The task, held out.
    """

    pool: tuple[Sentence, ...]
    domains: tuple[str, ...]
    target: tuple[Sentence, ...]
    test: tuple[Sentence, ...]


@cache
def splits(data: Path | None = None) -> dict[str, dict[str, tuple[Sentence, ...]]]:
    """Return split to domain to sentences: ``pretrain``, ``tune`` and ``rest``.

    Args:
        data: A table with columns ``text`` and ``domain`` (the task is called ``tweets``) in place of the carried ones.
    """
    found = vader.load() if data is None else _read(data)
    out: dict[str, dict[str, tuple[Sentence, ...]]] = {"pretrain": {}, "tune": {}, "rest": {}}
    for place, (domain, rows) in enumerate(found.items()):
        long = [row for row in rows if len(row.text.encode()) >= SHORTEST]
        mixed = [long[i] for i in np.random.default_rng(place).permutation(len(long))]
        out["pretrain"][domain] = tuple(mixed[:PRETRAIN])
        out["tune"][domain] = tuple(mixed[PRETRAIN : PRETRAIN + TUNE])
        out["rest"][domain] = tuple(mixed[PRETRAIN + TUNE :])
    return out


def draw(seed: int, *, split: str = "rest", pool: int = POOL, test: int = TEST, data: Path | None = None) -> Draw:
    """Draw a pool, a target and a test set."""
    rng = np.random.default_rng(seed)
    parts = splits(data)[split]
    mixed = {domain: [rows[i] for i in rng.permutation(len(rows))] for domain, rows in parts.items()}
    left = mixed[TASK][pool:]
    return Draw(
        pool=tuple(row for rows in mixed.values() for row in rows[:pool]),
        domains=tuple(domain for domain, rows in mixed.items() for _ in rows[:pool]),
        target=tuple(left[:TARGET]),
        test=tuple(left[TARGET : TARGET + test]),
    )


def _read(path: Path) -> dict[str, tuple[Sentence, ...]]:
    table = read_table(path)
    if not {"text", "domain"} <= set(table) or TASK not in set(table["domain"]):
        raise ValueError(f"--data: expected columns text and domain, some of them {TASK!r}, in {path}")
    rows = list(zip(table["domain"], table["text"], strict=True))
    return {
        str(domain): tuple(Sentence(str(text), 0.0) for other, text in rows if other == domain)
        for domain in dict.fromkeys(table["domain"])
    }
