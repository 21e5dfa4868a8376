"""What Inspect finds by the entry point ``inspect_ai``: importing this registers the task. It needs inspect-ai."""

from inspect_ai import task  # type: ignore[import-not-found, unused-ignore]

from thrifty.evaluation.reasoning.hosts import inspect_task

proof_efficiency = task(inspect_task.proof_efficiency)
