"""Acceptance from the log of a vLLM server."""

from __future__ import annotations

import re

from thrifty.inference.speculation.acceptance import Acceptance

_LINE = re.compile(
    r"SpecDecoding metrics:.*?Mean acceptance length:.*?(?:Drafted: *(?P<drafted>[\d.]+) *tokens.*?)?"
    r"Per-position acceptance rate: *(?P<rates>[\d., ]+)"
)


def acceptance_of_log(text: str) -> Acceptance:
    """Average the lines "SpecDecoding metrics: Mean acceptance length: ..., Per-position acceptance rate: ...".

    Lines that tell their drafted tokens weigh as much.

    Args:
        text: Of the log.

    Returns:
        The acceptance by position.

    Raises:
        ValueError: There is no such line.

    Example:
        >>> line = "SpecDecoding metrics: Mean acceptance length: 2.30, Per-position acceptance rate: 0.800, 0.500"
        >>> acceptance_of_log(line).survival
        (0.8, 0.5)

    Source:
        vLLM's log of speculative decoding (``vllm/v1/spec_decode/metrics.py``).
    """
    found, weights = [], []
    for line in _LINE.finditer(text):
        found.append([float(x) for x in line["rates"].replace(",", " ").split()])
        weights.append(float(line["drafted"] or 1) / len(found[-1]))  # rounds, where they are told
    if not found or not sum(weights):
        raise ValueError("log: no data: there is no line 'SpecDecoding metrics: ... Per-position acceptance rate: ...'")
    width = min(len(rates) for rates in found)
    means = [sum(w * rates[i] for w, rates in zip(weights, found, strict=True)) / sum(weights) for i in range(width)]
    return Acceptance.from_survival(means)
