"""Evaluating a model on local data, task by task; what is done already is not done again.

A task's data is a folder: pictures in a folder a class, with ``templates.txt`` beside them if there is one; or the
layout of clip-benchmark's webdatasets (``classnames.txt``, ``zeroshot_classification_templates.txt``, ``test/*.tar``
with ``.cls``, or with ``.txt`` of captions, one a line); or, for retrieval, a table of pairs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from thrifty._common.files import write_whole
from thrifty.training.amorlip.evaluation.retrieval import recalls
from thrifty.training.amorlip.evaluation.tasks import Task, read_results
from thrifty.training.amorlip.evaluation.zeroshot import TEMPLATES, classification_metrics, zero_shot_classifier
from thrifty.training.amorlip.hosts import Host, embed_images, embed_texts
from thrifty.training.amorlip.pairs import SUFFIXES, open_picture, read_pairs, tar_members

#: What pictures in a folder a class can tell.
MEASURED = ("acc1", "acc5", "mean_per_class_recall", "F1-macro_all")
TABLES = ("pairs.jsonl", "pairs.csv", "pairs.tsv", "pairs.parquet")
Told = Callable[[int, int, str], object]


def evaluate(
    host: Host,
    tasks: Sequence[Task],
    root: Path,
    out: Path,
    *,
    batch: int = 64,
    progress: Told = lambda done, total, name: None,
) -> dict[str, dict[str, float]]:
    """Evaluate the tasks whose data is there, append each result to ``out`` at once, and return all of them.

    Args:
        host: The model.
        tasks: Which.
        root: Folder of the tasks' folders, named by their keys (``/`` may be written ``_``).
        out: JSON lines; this model's results that are there are kept.
        batch: Pictures at once.
        progress: Told (done, total, what is being done).

    Raises:
        FileNotFoundError: There is data for no task.
        ValueError: A task's data is not what it should be, its main metric needs more than pictures and classes, or
            ``out`` has results of another model.
    """
    there = [(task, folder) for task in tasks if (folder := _folder(root, task.key)) is not None]
    if not there:
        raise FileNotFoundError(f"data: expected folders named as tasks ({tasks[0].key}, ...) in {root}, got none")
    if beyond := [
        f"{task.key} ({task.metric})" for task, _ in there if not task.retrieval and task.metric not in MEASURED
    ]:
        raise ValueError(
            f"data: expected tasks measured by {', '.join(MEASURED)} or recall, got {', '.join(beyond)}: their results "
            "are read from DataComp's or clip-benchmark's files (`thrifty amorlip compare`)"
        )
    _mend(out)
    model = _fingerprint(host.model)
    done = read_results(out, model)
    host.model.eval()
    for place, (task, folder) in enumerate(there):
        if task.key in done:
            continue
        progress(place, len(there), task.name)
        metrics = retrieval(host, folder, batch) if task.retrieval else classification(host, folder, batch)
        done[task.key] = metrics
        _append(out, {"key": task.key, "model": model, "metrics": metrics})
    return done


def classification(host: Host, folder: Path, batch: int = 64) -> dict[str, float]:
    """Return the metrics of zero-shot classification on one folder."""
    classes, templates = _classes(folder)
    features, labels = [], []
    for pictures, numbers in _batched(_labelled(folder, classes), batch):
        features.append(_embed(host, pictures))
        labels += numbers
    if not labels:
        raise ValueError(f"data: expected pictures in {folder}, got none")
    classifier = zero_shot_classifier(
        host.model, host.tokenize, [name.replace("_", " ") for name in classes], templates
    )
    return classification_metrics(torch.cat(features), classifier, torch.tensor(labels))


def retrieval(host: Host, data: Path, batch: int = 64) -> dict[str, float]:
    """Return recalls in both directions on one folder or table; equal pictures share their captions."""
    features, captions, owner = [], [], []
    count = 0
    for pictures, texts in _batched(_captioned(data), batch):
        features.append(_embed(host, pictures))
        for found in texts:
            captions += found
            owner += [count] * len(found)
            count += 1
    if not captions:
        raise ValueError(f"data: expected pairs in {data}, got none")
    device = next(host.model.parameters()).device
    texts_ = [
        embed_texts(host.model, {k: x.to(device) for k, x in host.tokenize(captions[low : low + batch]).items()})
        for low in range(0, len(captions), batch)
    ]
    return recalls(torch.cat(features), torch.cat(texts_), torch.tensor(owner))


def _embed(host: Host, pictures: Sequence[Any]) -> Tensor:
    device = next(host.model.parameters()).device
    inputs = [host.image(picture) for picture in pictures]
    return embed_images(host.model, {name: torch.stack([row[name] for row in inputs]).to(device) for name in inputs[0]})


def _folder(root: Path, key: str) -> Path | None:
    for name in (key, key.replace("/", "_"), f"wds_{key.replace('/', '_')}", key.rpartition("/")[2]):
        if (root / name).is_dir():
            return root / name
    return None


def _classes(folder: Path) -> tuple[list[str], Sequence[str]]:
    names = folder / "classnames.txt"
    classes = (
        names.read_text().split("\n") if names.exists() else sorted(x.name for x in folder.iterdir() if x.is_dir())
    )
    templates = next(
        (
            p.read_text()
            for n in ("templates.txt", "zeroshot_classification_templates.txt")
            if (p := folder / n).exists()
        ),
        "",
    )
    return [name for name in classes if name], [line for line in templates.splitlines() if line.strip()] or TEMPLATES


def _labelled(folder: Path, classes: Sequence[str]) -> Iterator[tuple[Any, int]]:
    for sample in _samples(folder):
        if ".cls" not in sample:
            raise ValueError(f"data: expected a .cls with every picture in {folder}, got {', '.join(sample)}")
        yield _picture(sample), int(sample[".cls"])
    if not (folder / "test").is_dir():
        for label, name in enumerate(classes):
            for path in sorted((folder / name).iterdir()):
                if path.suffix.lower() in SUFFIXES:
                    yield open_picture(path), label


def _captioned(data: Path) -> Iterator[tuple[Any, list[str]]]:
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


def _samples(folder: Path) -> Iterator[dict[str, bytes]]:
    for shard in sorted((folder / "test").glob("*.tar")):
        yield from tar_members(shard)


def _picture(sample: dict[str, bytes]) -> Any:
    for suffix in SUFFIXES:
        if suffix in sample:
            return open_picture(io.BytesIO(sample[suffix]))
    raise ValueError(f"data: expected a picture ({', '.join(SUFFIXES)}) in every sample, got {', '.join(sample)}")


def _batched(rows: Iterator[tuple[Any, Any]], size: int) -> Iterator[tuple[list[Any], list[Any]]]:
    held: list[tuple[Any, Any]] = []
    for row in rows:
        held.append(row)
        if len(held) == size:
            yield [a for a, _ in held], [b for _, b in held]
            held = []
    if held:
        yield [a for a, _ in held], [b for _, b in held]


def _fingerprint(model: nn.Module) -> str:
    """Return what tells one model's weights from another's."""
    digest = hashlib.sha256()
    for name, weight in model.state_dict().items():
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _mend(path: Path) -> None:
    """Cut off a last line that an interrupt left unfinished."""
    if path.exists():
        written = path.read_bytes()
        whole = written.rpartition(b"\n")[0]
        if not written.endswith(b"\n"):
            write_whole(path, whole + b"\n" if whole else b"", force=True)


def _append(path: Path, record: dict[str, Any]) -> None:
    """Write a whole line, and wait until it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write((json.dumps(record) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
