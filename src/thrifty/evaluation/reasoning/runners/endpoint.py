"""A model behind an OpenAI-compatible endpoint: requests at a time, tried again, with a key that is never kept."""

from __future__ import annotations

import json
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from thrifty._common.checks import number, whole
from thrifty.evaluation.reasoning.runners.models import Completion
from thrifty.evaluation.reasoning.runners.prompts import Messages, without_prefill

_LOG = logging.getLogger(__name__)
#: Statuses after which another try may do.
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class EndpointModel:
    """A model behind an OpenAI-compatible ``/chat/completions``: a provider's, vLLM's, SGLang's, llama.cpp's.

    The key is read from the environment when a request is made; it is never kept, shown or logged.

    Args:
        name: The model's name there.
        base_url: Up to and without ``/chat/completions``; ``None``: the variable ``OPENAI_BASE_URL``.
        key_variable: The environment variable that holds the key; an endpoint without keys needs none.
        concurrency: Requests at a time.
        retries: Tries after the first, each twice as long after the one before.
        wait: Seconds before the first of them.
        timeout: Seconds for one request.
        prefill: The endpoint continues the assistant's message (vLLM and SGLang do when told so, which is done); else
            it is asked without a beginning.
        body: Fields of the request in place of what is sent; ``None`` leaves one out. Some endpoints want
            ``{"max_tokens": None, "max_completion_tokens": 4000, "temperature": None}``.

    Raises:
        ValueError: There is no URL, or a number will not do.

    Example:
        >>> EndpointModel("tiny", "http://localhost:8000/v1").name
        'tiny'

    Source:
        OpenAI's chat completions; ``continue_final_message`` is vLLM's and SGLang's.
    """

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        *,
        key_variable: str = "OPENAI_API_KEY",
        concurrency: int = 16,
        retries: int = 5,
        wait: float = 1.0,
        timeout: float = 600.0,
        prefill: bool = True,
        body: Mapping[str, Any] | None = None,
    ) -> None:
        url = base_url or os.environ.get("OPENAI_BASE_URL", "")
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"base_url: expected http(s)://..., or the variable OPENAI_BASE_URL, got {url!r}")
        self.name, self.base_url, self.key_variable = name, url.rstrip("/"), key_variable
        self.concurrency, self.retries = whole("concurrency", concurrency), whole("retries", retries, least=0)
        self.wait = number("wait", wait, "seconds", least=0)
        self.timeout = number("timeout", timeout, "seconds above 0", least=1e-3)
        self.prefill, self.body = prefill, dict(body or {})

    def complete(self, prompts: Sequence[Messages], max_tokens: int) -> Iterator[tuple[int, Completion]]:
        """Yield completions as they come.

        Raises:
            RuntimeError: A request failed for good; those that came before it have been yielded.
        """
        with ThreadPoolExecutor(self.concurrency) as pool:
            jobs = {pool.submit(self._ask, messages, max_tokens): at for at, messages in enumerate(prompts)}
            failed: BaseException | None = None
            for job in as_completed(jobs):
                if job.cancelled():
                    continue
                error = job.exception()
                if error is None:
                    yield jobs[job], job.result()
                elif failed is None:
                    failed = error
                    for other in jobs:
                        other.cancel()
            if failed is not None:
                raise failed

    def _ask(self, messages: Messages, max_tokens: int) -> Completion:
        body: dict[str, Any] = {"model": self.name, "messages": messages, "max_tokens": max_tokens, "temperature": 0}
        if self.prefill:
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        else:
            body["messages"] = without_prefill(messages)
        body = {field: value for field, value in (body | self.body).items() if value is not None}
        why, wait = "", 0.0
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(max(wait, self.wait * 2 ** (attempt - 1)))
                _LOG.info("attempt %d of %d: %s", attempt + 1, self.retries + 1, why)
            try:
                return self._read(self._post(body))
            except urllib.error.HTTPError as error:
                why, wait = f"status {error.code}", _seconds(error.headers.get("Retry-After"))
                if error.code not in _PASSING:
                    said = _said(error).replace(os.environ.get(self.key_variable) or "\0", "...")
                    raise RuntimeError(f"{self.base_url} refused the request: {why}{said}") from None
            except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
                why, wait = type(error).__name__, 0.0
        raise RuntimeError(f"{self.base_url} did not answer in {self.retries + 1} attempts: {why}")

    def _post(self, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(self.key_variable):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked when the model is made
            f"{self.base_url}/chat/completions", json.dumps(body).encode(), headers
        )
        with urllib.request.build_opener(_StayHere).open(request, timeout=self.timeout) as response:
            return json.load(response)

    @staticmethod
    def _read(found: Any) -> Completion:
        choice, usage = found["choices"][0], found.get("usage") or {}
        message = choice["message"]
        thought = message.get("reasoning_content")
        text = (f"<think>{thought}</think>" if thought else "") + (message.get("content") or "")
        reason = choice.get("finish_reason") or "stop"
        return Completion(text, reason, usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0))


class _StayHere(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would take the key along to wherever it leads."""

    def redirect_request(self, *_: Any) -> None:
        """Make none."""


def _seconds(retry_after: str | None) -> float:
    """Return what a Retry-After header asks for, at most a minute."""
    return min(60.0, float(retry_after)) if retry_after and retry_after.isdigit() else 0.0


def _said(error: urllib.error.HTTPError) -> str:
    """Return what a refusal says for itself, in a line."""
    try:
        said = json.loads(error.read(10_000))["error"]
        return f": {' '.join(str(said.get('message', said) if isinstance(said, dict) else said).split())[:200]}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
