"""Lists of evaluation tasks, and averages over them: DataComp's 38 by default (arXiv 2304.14108, appendix N).

A task counts by its main metric, acc1 unless the list names another. ``tasks.json`` holds the list; anybody may bring
one.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thrifty._common import settings

SCHEMA, VERSION = "thrifty.amorlip.tasks", 1
DEFAULT = Path(__file__).with_name("tasks.json")

#: Begins the key of retrieval on pairs that are no task of a list.
OWN = "pairs/"


@dataclass(frozen=True)
class Task:
    """One evaluation task.

    Args:
        key: As DataComp names it (``"vtab/pets"``): folder of its data, and name in result files.
        name: For people.
        group: Whose average it counts in.
        metric: The main one.
    """

    key: str
    name: str
    group: str
    metric: str = "acc1"

    @property
    def retrieval(self) -> bool:
        """Whether pictures and captions find each other, rather than pictures their class."""
        return "recall@" in self.metric


def load_tasks(path: Path = DEFAULT) -> tuple[Task, ...]:
    """Read a list of tasks.

    Raises:
        ValueError: It is none, a task lacks a field or has an unknown one, or two have one key.

    Example:
        >>> tasks = load_tasks()
        >>> len(tasks), sum(task.group == "ImageNet shifts" for task in tasks)
        (38, 6)
    """
    found = settings.parse(path.read_text(), SCHEMA, VERSION, known=("tasks",), needed=("tasks",), name=str(path))
    try:
        tasks = tuple(Task(**entry) for entry in found["tasks"])
    except TypeError as error:
        raise ValueError(f"{path}: expected tasks of key, name, group and metric: {error}") from None
    keys = [task.key for task in tasks]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(f"{path}: expected every key once, got {', '.join(twice)} again")
    return tasks


def read_results(path: Path, model: str | None = None) -> dict[str, dict[str, float]]:
    """Read results, one JSON object a line: ours, DataComp's (``key``), or clip-benchmark's (``dataset``).

    A last line that was cut off is left out; of two results of one task the later one counts.

    Args:
        path: The file; none is no results.
        model: Whose results they must be, if they say it.

    Raises:
        ValueError: Another line is no result, or is another model's.
    """
    lines = path.read_text().splitlines() if path.exists() else []
    found: dict[str, dict[str, float]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}, line {number}: expected JSON: {error}") from None
        key = record.get("key") or str(record.get("dataset", "")).removeprefix("wds/")
        if not key or not isinstance(record.get("metrics"), dict):
            raise ValueError(f"{path}, line {number}: expected a key (or dataset) and metrics, got {', '.join(record)}")
        if model is not None and record.get("model", model) != model:
            raise ValueError(f"out: {path} has results of another model, {key}'s for one; choose another file")
        found[key] = {name: float(value) for name, value in record["metrics"].items() if isinstance(value, int | float)}
    return found


def main_metrics(results: Mapping[str, Mapping[str, float]], tasks: Iterable[Task]) -> dict[str, float]:
    """Return the main metric of every task that has a result.

    Raises:
        ValueError: A result lacks its task's main metric.
    """
    found = {}
    for task in tasks:
        if task.key in results:
            metrics = _with_mean_recall(results[task.key])
            if task.metric not in metrics:
                raise ValueError(f"{task.key}: expected the metric {task.metric}, got {', '.join(metrics)}")
            found[task.key] = metrics[task.metric]
    return found


def others(results: Iterable[str], tasks: Sequence[Task]) -> list[Task]:
    """Return tasks for keys that the list does not have: one's own pairs, by ``mean_recall@1``."""
    known = {task.key for task in tasks}
    return [Task(key, key, "own", "mean_recall@1") for key in sorted(set(results) - known) if key.startswith(OWN)]


def averages(results: Mapping[str, Mapping[str, float]], tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the mean of each group and of all tasks; a mean over an incomplete set says how many it is of.

    Returns:
        By group, and under ``"all"``: ``mean`` (``None`` where there is no result), ``tasks`` and ``of``.

    Example:
        >>> averages({"cars": {"acc1": 0.5}, "mnist": {"acc1": 0.7}}, load_tasks())["all"]
        {'mean': 0.6, 'tasks': 2, 'of': 38}

    Source:
        arXiv 2304.14108: the average over 38 tasks.
    """
    scores = main_metrics(results, tasks)
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.group, []).append(task)
    groups["all"] = list(tasks)
    found = {}
    for group, members in groups.items():
        known = [scores[task.key] for task in members if task.key in scores]
        found[group] = {"mean": statistics.fmean(known) if known else None, "tasks": len(known), "of": len(members)}
    return found


def _with_mean_recall(metrics: Mapping[str, float]) -> Mapping[str, float]:
    """Add the mean of both directions where clip-benchmark reports them apart."""
    both = [metrics.get(f"{name}_retrieval_recall@1") for name in ("image", "text")]
    if "mean_recall@1" in metrics or None in both:
        return metrics
    return {**metrics, "mean_recall@1": sum(value for value in both if value is not None) / 2}
