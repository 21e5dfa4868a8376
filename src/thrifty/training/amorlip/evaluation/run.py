"""Evaluating a model on local data, task by task; what is done already is not done again."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from thrifty._common.files import write_whole
from thrifty.training.amorlip.evaluation.layouts import captioned, classes_of, folder_of, games, labelled
from thrifty.training.amorlip.evaluation.retrieval import recalls
from thrifty.training.amorlip.evaluation.tasks import Task, read_results
from thrifty.training.amorlip.evaluation.zeroshot import (
    associate,
    classification_metrics,
    jaccard,
    zero_shot_classifier,
)
from thrifty.training.amorlip.hosts import Host, embed_images, embed_texts

T = TypeVar("T")
Told = Callable[[int, int, str], object]


def available(tasks: Sequence[Task], root: Path) -> list[tuple[Task, Path]]:
    """Return the tasks whose folder is there, by its key (``/`` may be written ``_``)."""
    return [(task, folder) for task in tasks if (folder := folder_of(root, task.key)) is not None]


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
        root: Folder of the tasks' folders.
        out: JSON lines; this model's results that are there are kept.
        batch: Pictures at once.
        progress: Told (done, total, what is being done).

    Raises:
        FileNotFoundError: There is data for no task.
        ValueError: A task's data is not what it should be, does not tell its main metric, or ``out`` has results of
            another model.
    """
    there = available(tasks, root)
    if not there:
        raise FileNotFoundError(
            f"data: expected pairs, or folders named as tasks ({tasks[0].key}, ...), in {root}, got neither"
        )
    results = Results(out, host.model)
    host.model.eval()
    for place, (task, folder) in enumerate(there):
        if task.key not in results.done:
            progress(place, len(there), task.name)
            metrics = _measure(task)(host, folder, batch)
            if task.metric not in metrics:
                raise ValueError(
                    f"data: {folder} does not tell {task.metric}, but {', '.join(metrics)}; no group (.npy)?"
                )
            results.add(task.key, metrics)
    return results.done


def _measure(task: Task) -> Callable[[Host, Path, int], dict[str, float]]:
    if task.retrieval:
        return retrieval
    return association if task.metric.startswith("jaccard") else classification


def classification(host: Host, folder: Path, batch: int = 64) -> dict[str, float]:
    """Return the metrics of zero-shot classification on one folder."""
    classes, templates = classes_of(folder)
    features, labels, groups = [], [], []
    for rows in _batched(labelled(folder, classes), batch):
        features.append(_embed(host, [row.picture for row in rows]))
        labels += [row.label for row in rows]
        groups += [row.group for row in rows]
    if not labels:
        raise ValueError(f"data: expected pictures in {folder}, got none")
    names = [name.replace("_", " ") for name in classes]
    classifier = zero_shot_classifier(host.model, host.tokenize, names, templates)
    of = torch.tensor(groups) if min(groups) >= 0 else None
    return classification_metrics(torch.cat(features), classifier, torch.tensor(labels), of)


def retrieval(host: Host, data: Path, batch: int = 64) -> dict[str, float]:
    """Return recalls in both directions on one folder or table; equal pictures share their captions."""
    features, captions, owner = [], [], []
    count = 0
    for rows in _batched(captioned(data), batch):
        features.append(_embed(host, [picture for picture, _ in rows]))
        for _, found in rows:
            captions += found
            owner += [count] * len(found)
            count += 1
    if not captions:
        raise ValueError(f"data: expected pairs in {data}, got none")
    texts = [_read(host, captions[low : low + batch]) for low in range(0, len(captions), batch)]
    return recalls(torch.cat(features), torch.cat(texts), torch.tensor(owner))


def association(host: Host, folder: Path, batch: int = 64) -> dict[str, float]:
    """Return the mean Jaccard index of the pictures nearest to a cue, of games with 5 or 6, and with 10 or 12."""
    scores: dict[str, list[float]] = {}
    for game in games(folder):
        article = "An" if game.cue[:1].lower() in "aeiou" else "A"
        cue = _read(host, [f"{article} {game.cue.lower()}"])[0]
        score = jaccard(associate(_embed(host, game.pictures), cue, len(game.right)), game.right)
        size = "jaccard_score_5-6" if len(game.pictures) <= 6 else "jaccard_score_10-12"
        for name in ("avg_jaccard_score", size):
            scores.setdefault(name, []).append(score)
    return {name: statistics.fmean(found) for name, found in scores.items()}


def _embed(host: Host, pictures: Sequence[Any]) -> Tensor:
    device = next(host.model.parameters()).device
    inputs = [host.image(picture) for picture in pictures]
    return embed_images(host.model, {name: torch.stack([row[name] for row in inputs]).to(device) for name in inputs[0]})


def _read(host: Host, captions: list[str]) -> Tensor:
    device = next(host.model.parameters()).device
    return embed_texts(host.model, {name: tokens.to(device) for name, tokens in host.tokenize(captions).items()})


def _batched(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    held: list[T] = []
    for row in rows:
        held.append(row)
        if len(held) == size:
            yield held
            held = []
    if held:
        yield held


class Results:
    """A file of one model's results, a line each; a last line that an interrupt left unfinished is cut off.

    Args:
        path: The file; it need not be there.
        model: Whose results they are.

    Raises:
        ValueError: It has results of another model.
    """

    def __init__(self, path: Path, model: nn.Module) -> None:
        if path.exists() and not (written := path.read_bytes()).endswith(b"\n"):
            whole = written.rpartition(b"\n")[0]
            write_whole(path, whole + b"\n" if whole else b"", force=True)
        self.path, self.model = path, _fingerprint(model)
        self.done = read_results(path, self.model)

    def add(self, key: str, metrics: dict[str, float]) -> None:
        """Write a whole line, and wait until it is on the disk."""
        self.done[key] = metrics
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write((json.dumps({"key": key, "model": self.model, "metrics": metrics}) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())


def _fingerprint(model: nn.Module) -> str:
    """Return what tells one model's weights from another's."""
    digest = hashlib.sha256()
    for name, weight in model.state_dict().items():
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
