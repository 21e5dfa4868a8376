"""Acceptance from a live server: the counters that vLLM, SGLang and TensorRT-LLM show to Prometheus.

vLLM and TensorRT-LLM count since the start, so that two readings are subtracted. SGLang's gauges are means already.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field

from thrifty.inference.speculation.acceptance import Acceptance

#: name{labels} value, as in Prometheus' text format.
_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+([-+0-9.eEinfINFa]+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_DRAFTS = {"vllm:spec_decode_num_drafts"}
_DRAFTED = {"vllm:spec_decode_num_draft_tokens", "trtllm_spec_decode_num_draft_tokens"}
_ACCEPTED = {"vllm:spec_decode_num_accepted_tokens", "trtllm_spec_decode_num_accepted_tokens"}
_POSITION = {"vllm:spec_decode_num_accepted_tokens_per_pos"}
_LENGTH = {"sglang:spec_accept_length"}


@dataclass(frozen=True)
class Counters:
    """What a server has counted, all of its engines together.

    Args:
        drafts: Rounds.
        drafted: Draft tokens.
        accepted: Accepted draft tokens.
        per_position: Accepted at position 0, 1, ...
        length: SGLang's mean tokens a round, bonus included, where that is all there is.

    Example:
        >>> earlier, now = Counters(10, 40, 20), Counters(110, 440, 320)
        >>> now.since(earlier).acceptance().expected_tokens(4).round(6).tolist()
        4.0
    """

    drafts: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    per_position: dict[int, float] = field(default_factory=dict)
    length: float | None = None

    def since(self, before: Counters) -> Counters:
        """Return what was counted after ``before``; a server that was restarted in between counts from nothing."""
        if self.drafted < before.drafted or self.accepted < before.accepted or self.drafts < before.drafts:
            return self
        positions = {i: n - before.per_position.get(i, 0.0) for i, n in self.per_position.items()}
        return Counters(
            self.drafts - before.drafts,
            self.drafted - before.drafted,
            self.accepted - before.accepted,
            positions,
            self.length,
        )

    def acceptance(self, gamma: int | None = None) -> Acceptance:
        """Return the acceptance that was counted.

        Args:
            gamma: Draft length, where the server does not say how many rounds there were (TensorRT-LLM, SGLang).

        Raises:
            ValueError: No data, or ``gamma`` is needed.
        """
        if self.length is not None and not self.drafted:
            if self.length <= 0:
                raise ValueError("metrics: no data: the server has speculated nothing yet")
            if gamma is None:
                raise ValueError("gamma: the server shows the accept length alone; the draft length is needed too")
            return Acceptance.from_length(self.length, gamma)
        if not self.drafted:
            raise ValueError("metrics: no data: nothing was drafted between the readings")
        if not self.drafts:
            if gamma is None:
                raise ValueError("gamma: the server does not count rounds; the draft length is needed too")
            return Acceptance.from_engine_rate(self.accepted / self.drafted, gamma)
        counts = [self.per_position[i] for i in sorted(self.per_position)] or None
        return Acceptance.from_counts(self.drafts, self.drafted, self.accepted, counts)


def read_metrics(text: str) -> Counters:
    """Read the counters out of a page of metrics; names with and without ``_total`` are accepted.

    Args:
        text: The page, in Prometheus' text format.

    Returns:
        What was counted, all engines of the server together.

    Raises:
        ValueError: None of the counters is there.

    Example:
        >>> page = "vllm:spec_decode_num_draft_tokens_total 40", "vllm:spec_decode_num_accepted_tokens_total 30"
        >>> read_metrics(chr(10).join(page)).accepted
        30.0

    Source:
        The counters ``vllm:spec_decode_*`` of vLLM and ``trtllm_spec_decode_*`` of TensorRT-LLM, and SGLang's gauge
        ``sglang:spec_accept_length``.
    """
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    lengths: list[float] = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if not found:
            continue
        name, labels, value = found[1].removesuffix("_total"), dict(_LABEL.findall(found[2] or "")), float(found[3])
        if name in _POSITION:
            place = int(labels.get("position", "0"))
            positions[place] = positions.get(place, 0.0) + value
        elif name in _LENGTH:
            lengths.append(value)
        elif name in _DRAFTS | _DRAFTED | _ACCEPTED:
            kind = "drafts" if name in _DRAFTS else "drafted" if name in _DRAFTED else "accepted"
            sums[kind] = sums.get(kind, 0.0) + value
    if not sums and not lengths:
        raise ValueError(
            "metrics: expected counters of speculative decoding (vllm:spec_decode_num_draft_tokens_total, "
            "sglang:spec_accept_length, ...), got none; is speculation switched on?"
        )
    spoken = [length for length in lengths if length > 0]
    mean = sum(spoken) / len(spoken) if spoken else 0.0
    return Counters(**sums, per_position=positions, length=mean if lengths else None)


def scrape_acceptance(
    url: str, *, seconds: float = 10.0, gamma: int | None = None, timeout: float = 10.0
) -> Acceptance:
    """Read a live server's acceptance over some seconds of its work.

    Args:
        url: The server, or its page of metrics: ``http://host:8000`` or ``http://host:8000/metrics``; SGLang's
            ``/server_info`` too.
        seconds: Between two readings of counters.
        gamma: Draft length, where the server does not say.
        timeout: Seconds to wait for an answer.

    Returns:
        The acceptance, by position where the server counts so.

    Raises:
        OSError: The server cannot be reached.
        ValueError: It counts no speculation, or has speculated nothing in between.

    Example:
        >>> scrape_acceptance("http://localhost:8000", seconds=60).expected_tokens(4)  # doctest: +SKIP

    Source:
        As for :func:`read_metrics`; SGLang's ``/server_info`` holds ``avg_spec_accept_length``.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url: expected http://host:port, got {url!r}")
    if url.rstrip("/").endswith(("/server_info", "/get_server_info")):
        return _server_info(_get(url, timeout), gamma)
    page = url if url.rstrip("/").endswith("/metrics") else f"{url.rstrip('/')}/metrics"
    before = read_metrics(_get(page, timeout))
    if before.length is not None and not before.drafted:
        return before.acceptance(gamma)
    time.sleep(seconds)
    return read_metrics(_get(page, timeout)).since(before).acceptance(gamma)


def _server_info(text: str, gamma: int | None) -> Acceptance:
    """Read SGLang's mean accept length, which counts since its start."""
    info = json.loads(text)
    states = info.get("internal_states") or [{}]
    lengths = [s["avg_spec_accept_length"] for s in states if s.get("avg_spec_accept_length")]
    steps = gamma or info.get("speculative_num_steps")
    if not lengths:
        raise ValueError("server_info: no data: avg_spec_accept_length is absent; is speculation switched on?")
    return Counters(length=sum(lengths) / len(lengths)).acceptance(int(steps) if steps else None)


def _get(url: str, timeout: float) -> str:
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:  # noqa: S310  # the scheme was checked
            return str(answer.read().decode())
    except urllib.error.URLError as error:
        raise OSError(f"{url}: cannot be read ({error.reason})") from None
