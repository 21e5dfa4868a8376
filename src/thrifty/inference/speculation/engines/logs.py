"""Acceptance from the log of a vLLM server."""

from __future__ import annotations

import re

from thrifty.inference.speculation.acceptance import Acceptance

_LINE = re.compile(
    r"SpecDecoding metrics:.*?(?:Mean acceptance length:\s*(?P<length>[\d.]+)).*?"
    r"Per-position acceptance rate:\s*(?P<rates>[\d.,\s]+)"
)


def acceptance_of_log(text: str) -> Acceptance:
    """Average the lines "SpecDecoding metrics: Mean acceptance length: ..., Per-position acceptance rate: ...".

    Raises:
        ValueError: There is no such line.
    """
    found = [[float(x) for x in m["rates"].replace(",", " ").split()] for m in _LINE.finditer(text)]
    if not found:
        raise ValueError("log: no data: there is no line 'SpecDecoding metrics: ... Per-position acceptance rate: ...'")
    width = min(len(rates) for rates in found)
    means = [sum(rates[i] for rates in found) / len(found) for i in range(width)]
    return Acceptance.from_survival(means)
