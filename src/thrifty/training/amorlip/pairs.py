"""Image-text pairs as people have them: a table of paths and captions, a folder, or the shards of webdataset."""

from __future__ import annotations

import io
import json
import logging
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from thrifty._common.extras import require
from thrifty._common.tables import read_table

_log = logging.getLogger(__name__)

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
Transform = Callable[[Any], dict[str, Tensor]]
Tokenize = Callable[[list[str]], dict[str, Tensor]]


def read_pairs(path: Path, *, image_field: str = "image", caption_field: str = "caption") -> list[tuple[Path, str]]:
    """Read paths of pictures and their captions.

    Args:
        path: A .csv, .tsv, .parquet or .jsonl file (paths relative to it), or a folder of pictures, each with its
            caption in a .txt file of the same name.
        image_field: The column of paths.
        caption_field: The column of captions.

    Raises:
        ValueError: There are none, a column is missing, or a caption is empty.
        FileNotFoundError: A picture is missing; the first one is named.
    """
    if path.is_dir():
        pictures = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
        found = [(file, file.with_suffix(".txt")) for file in pictures if file.with_suffix(".txt").exists()]
        pairs = [(file, text.read_text().strip()) for file, text in found]
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        pairs = [
            (path.parent / str(row[image_field]), _text(row[caption_field]))
            for row in _with(rows, path, image_field, caption_field)
        ]
    else:
        columns = read_table(path)
        for field in (image_field, caption_field):
            if field not in columns:
                raise ValueError(f"{path}: expected a column {field!r}, got {', '.join(columns)}")
        pairs = [
            (path.parent / str(image), _text(caption))
            for image, caption in zip(columns[image_field], columns[caption_field], strict=True)
        ]
    if not pairs:
        raise ValueError(f"data: expected pairs of pictures and captions in {path}, got none")
    if bare := next((picture for picture, caption in pairs if not caption.strip()), None):
        raise ValueError(f"data: expected a caption for every picture in {path}, got an empty one for {bare}")
    if missing := next((picture for picture, _ in pairs if not picture.exists()), None):
        raise FileNotFoundError(f"data: {path} names {missing}, which is not there")
    return pairs


def _text(cell: Any) -> str:
    """Return a caption as text, an empty one where a table misses it."""
    return "" if cell is None or cell != cell else str(cell)  # noqa: PLR0124  NaN alone differs from itself


def _with(rows: list[dict[str, Any]], path: Path, *names: str) -> list[dict[str, Any]]:
    for number, row in enumerate(rows, start=1):
        for name in names:
            if name not in row:
                raise ValueError(f"{path}, line {number}: expected a field {name!r}, got {', '.join(row)}")
    return rows


class Pairs(Dataset[dict[str, Tensor]]):
    """Pictures and captions as a model's inputs, with each pair's number in the data set.

    Args:
        pairs: As :func:`read_pairs` gives them.
        image: A picture to the model's inputs.
        tokenize: Captions to the model's inputs.
    """

    def __init__(self, pairs: Sequence[tuple[Path, str]], image: Transform, tokenize: Tokenize) -> None:
        self.pairs, self.image, self.tokenize = pairs, image, tokenize

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        path, caption = self.pairs[place]
        return _inputs(open_picture(path), caption, place, self.image, self.tokenize)


class Shards(IterableDataset[dict[str, Tensor]]):
    """Pairs streamed out of tar files, as webdataset lays them out: ``name.jpg`` beside ``name.txt``.

    Shards are shared out among loader workers; each epoch has another order of them. Of several processes the first
    reads and hands batches on, as Transformers has it for streams, so that all ranks get equally many. A picture that
    cannot be read is left out, with a remark.

    Args:
        shards: Paths of the tar files.
        image: A picture to the model's inputs.
        tokenize: Captions to the model's inputs.
        buffer: Pairs among which the next one is drawn.
        seed: Of the order.
    """

    def __init__(
        self, shards: Sequence[Path], image: Transform, tokenize: Tokenize, *, buffer: int = 1000, seed: int = 0
    ) -> None:
        self.shards, self.image, self.tokenize = shards, image, tokenize
        self.buffer, self.seed, self.epoch = buffer, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose another order."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + self.epoch)
        order = torch.randperm(len(self.shards), generator=generator).tolist()
        worker = get_worker_info()
        mine = order[worker.id :: worker.num_workers] if worker else order
        held: list[tuple[bytes, str]] = []
        for place in mine:
            for pair in tar_pairs(self.shards[place]):
                held.append(pair)
                if len(held) > self.buffer:
                    yield from self._one(held, generator)
        while held:
            yield from self._one(held, generator)

    def _one(self, held: list[tuple[bytes, str]], generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
        stored, caption = held.pop(int(torch.randint(len(held), (), generator=generator)))
        try:
            picture = open_picture(io.BytesIO(stored))
        except ValueError as error:
            _log.warning("the picture of %r is left out: %s", caption, error)
            return
        yield _inputs(picture, caption, None, self.image, self.tokenize)


def tar_members(path: Path) -> Iterator[dict[str, bytes]]:
    """Yield the samples of a tar file: the contents of members that share a name, by their suffix.

    Raises:
        ValueError: Members of one sample are not beside each other, as webdataset has them.
    """
    sample: dict[str, bytes] = {}
    seen: set[str] = set()
    before = None
    with tarfile.open(path) as packed:
        for member in packed:
            file = packed.extractfile(member)
            if file is None:  # a folder
                continue
            suffix = member.name.rpartition("/")[2].partition(".")[2]
            key = member.name[: len(member.name) - len(suffix)]
            if key != before:
                if sample:
                    yield sample
                if key in seen:
                    raise ValueError(
                        f"data: expected the members of a sample beside each other, as webdataset needs them, got "
                        f"{member.name} apart from its others in {path} (tar --sort=name)"
                    )
                seen.add(key)
                sample, before = {}, key
            sample[f".{suffix.lower()}"] = file.read()
    if sample:
        yield sample


def tar_pairs(path: Path) -> Iterator[tuple[bytes, str]]:
    """Yield picture (as stored) and caption of every sample that has both, and say how many have not."""
    lacking = 0
    for sample in tar_members(path):
        picture = next((sample[suffix] for suffix in SUFFIXES if suffix in sample), None)
        caption = sample.get(".txt", b"").decode().strip()
        if picture is not None and caption:
            yield picture, caption
        else:
            lacking += 1
    if lacking:
        _log.warning("data: %d samples in %s have no picture or no caption, and are left out", lacking, path)


def expand(pattern: str) -> list[Path]:
    """Return the files that ``shards-{000..012}.tar``, ``*.tar`` or a plain path names.

    Raises:
        FileNotFoundError: One of them is missing, or there is none.
    """
    found = re.fullmatch(r"(.*)\{(\d+)\.\.(\d+)\}(.*)", pattern)
    if found:
        head, low, high, tail = found.groups()
        paths = [Path(f"{head}{number:0{len(low)}d}{tail}") for number in range(int(low), int(high) + 1)]
    elif "*" in pattern:
        paths = sorted(Path(pattern).parent.glob(Path(pattern).name))
    else:
        paths = [Path(pattern)]
    missing = [path for path in paths if not path.exists()]
    if missing or not paths:
        raise FileNotFoundError(f"data: there is no {missing[0] if missing else pattern}")
    return paths


def collate(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Stack the inputs of a batch."""
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def open_picture(source: Path | io.BytesIO) -> Any:
    """Return a picture in RGB.

    Raises:
        ValueError: It is none, or is cut off.
    """
    try:
        with require("PIL.Image", extra="vision").open(source) as picture:
            return picture.convert("RGB")
    except (OSError, ValueError) as error:  # PIL does not name a file that is cut off
        name = source if isinstance(source, Path) else "what is stored"
        raise ValueError(f"data: {name} cannot be read as a picture: {error}") from None


def _inputs(picture: Any, caption: str, place: int | None, image: Transform, tokenize: Tokenize) -> dict[str, Tensor]:
    inputs = image(picture) | {name: tokens[0] for name, tokens in tokenize([caption]).items()}
    return inputs if place is None else inputs | {"index": torch.tensor(place)}
