"""How a task's data lies in its folder.

Classification: pictures in a folder a class, with ``templates.txt`` beside them if there is one; or clip-benchmark's
webdatasets: ``classnames.txt``, ``zeroshot_classification_templates.txt`` and ``test/*.tar`` with a ``.cls`` a picture
and, where groups of pictures are scored apart, an ``.npy`` whose first number is the group. Retrieval: a table or
folder of pairs, or tars with captions in ``.txt``, one a line. WinoGAViL: ``games.jsonl`` (``cue``, ``candidates``,
which are paths of pictures, and those of them that are ``associations``), or the Parquet files of its authors.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thrifty._common.extras import require
from thrifty.training.amorlip.evaluation.zeroshot import TEMPLATES
from thrifty.training.amorlip.pairs import SUFFIXES, open_picture, read_pairs, tar_members

TABLES = ("pairs.jsonl", "pairs.csv", "pairs.tsv", "pairs.parquet")
GAMES = "games.jsonl"


class Labelled(NamedTuple):
    """A picture, its class and its group; -1: it says none."""

    picture: Any
    label: int
    group: int


class Game(NamedTuple):
    """Pictures, a cue, and the places of the pictures that go with it."""

    pictures: list[Any]
    cue: str
    right: list[int]


def folder_of(root: Path, key: str) -> Path | None:
    """Return the folder of a task, which may be named by its key in several ways."""
    for name in (key, key.replace("/", "_"), f"wds_{key.replace('/', '_')}", key.rpartition("/")[2]):
        if (root / name).is_dir():
            return root / name
    return None


def holds_pairs(data: Path) -> bool:
    """Tell whether it is a table or a folder of pairs (or tars of them)."""
    if data.is_file() or (data / "test").is_dir() or any((data / name).exists() for name in TABLES):
        return True
    return any(path.with_suffix(".txt").exists() for path in data.rglob("*") if path.suffix.lower() in SUFFIXES)


def classes_of(folder: Path) -> tuple[list[str], Sequence[str]]:
    """Return the names of the classes, and the templates."""
    names = folder / "classnames.txt"
    if names.exists():
        classes = names.read_text().split("\n")
    else:
        classes = sorted(inside.name for inside in folder.iterdir() if inside.is_dir())
    lines: list[str] = []
    for name in ("templates.txt", "zeroshot_classification_templates.txt"):
        if not lines and (folder / name).exists():
            lines = [line for line in (folder / name).read_text().splitlines() if line.strip()]
    return [name for name in classes if name], lines or TEMPLATES


def labelled(folder: Path, classes: Sequence[str]) -> Iterator[Labelled]:
    """Yield the pictures of a classification task.

    Raises:
        ValueError: A sample lacks its picture or its class.
    """
    for sample in _samples(folder):
        if ".cls" not in sample:
            raise ValueError(f"data: expected a .cls with every picture in {folder}, got {', '.join(sample)}")
        group = -1
        if ".npy" in sample:
            group = int(np.load(io.BytesIO(sample[".npy"]), allow_pickle=False).reshape(-1)[0])
        yield Labelled(_picture(sample), int(sample[".cls"]), group)
    if not (folder / "test").is_dir():
        for label, name in enumerate(classes):
            for path in sorted((folder / name).iterdir()):
                if path.suffix.lower() in SUFFIXES:
                    yield Labelled(open_picture(path), label, -1)


def captioned(data: Path) -> Iterator[tuple[Any, list[str]]]:
    """Yield the pictures of a retrieval task, each with its captions."""
    if data.is_dir() and (data / "test").is_dir():
        for sample in _samples(data):
            yield _picture(sample), [line for line in sample[".txt"].decode().splitlines() if line.strip()]
        return
    table = next((data / name for name in TABLES if (data / name).exists()), data) if data.is_dir() else data
    captions: dict[Path, list[str]] = {}
    for path, caption in read_pairs(table):
        captions.setdefault(path, []).append(caption)
    for path, found in captions.items():
        yield open_picture(path), found


def games(folder: Path) -> Iterator[Game]:
    """Yield the games of WinoGAViL.

    Raises:
        ValueError: There are none, or one lacks a field.
    """
    listed = folder / GAMES
    if listed.exists():
        rows = [json.loads(line) for line in listed.read_text().splitlines() if line.strip()]
    else:
        tables = sorted(folder.glob("**/*.parquet"))
        rows = [
            row for path in tables for row in require("pyarrow.parquet", extra="tabular").read_table(path).to_pylist()
        ]
    if not rows:
        raise ValueError(f"data: expected {GAMES} or .parquet files of games in {folder}, got none")
    for number, row in enumerate(rows, start=1):
        if missing := {"cue", "candidates", "associations"} - set(row):
            raise ValueError(f"data: game {number} in {folder} lacks {', '.join(sorted(missing))}")
        right = [place for place, name in enumerate(row["candidates"]) if name in row["associations"]]
        if not right:
            raise ValueError(f"data: expected associations among the candidates of game {number} in {folder}, got none")
        stored = row.get("candidate_images") or [folder / name for name in row["candidates"]]
        yield Game([open_picture(_source(held)) for held in stored], row["cue"], right)


def _source(held: Any) -> Any:
    """A path, or a picture as the ``datasets`` library stores it."""
    return io.BytesIO(held["bytes"]) if isinstance(held, dict) else held


def _samples(folder: Path) -> Iterator[dict[str, bytes]]:
    for shard in sorted((folder / "test").glob("*.tar")):
        yield from tar_members(shard)


def _picture(sample: dict[str, bytes]) -> Any:
    for suffix in SUFFIXES:
        if suffix in sample:
            return open_picture(io.BytesIO(sample[suffix]))
    raise ValueError(f"data: expected a picture ({', '.join(SUFFIXES)}) in every sample, got {', '.join(sample)}")
