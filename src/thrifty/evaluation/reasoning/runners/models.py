"""Models that answer prompts: an OpenAI-compatible endpoint, Transformers, vLLM, and saved completions.

Each has a ``name`` and ``complete(prompts, max_tokens)``, which yields (number of the prompt, completion) as they come.
"""

from __future__ import annotations

import json
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from thrifty._common.checks import number, whole
from thrifty._common.extras import require
from thrifty.evaluation.reasoning.runners.prompts import Messages, without_prefill

_LOG = logging.getLogger(__name__)
#: Where a model that goes on begins to ask itself the next question.
RUN_ON = "\nQ:"
#: Statuses after which another try may do.
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class Completion(NamedTuple):
    """What a model wrote, why it stopped, and how many tokens went in and out (0: not told)."""

    text: str
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Model(Protocol):
    """What answers prompts."""

    name: str

    def complete(self, prompts: Sequence[Messages], max_tokens: int) -> Iterator[tuple[int, Completion]]:
        """Yield the number of a prompt, and its completion, as they come."""
        ...


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


class TransformersModel:
    """A causal language model of Hugging Face Transformers, greedy, one prompt at a time.

    Args:
        model: The model, in evaluation mode.
        tokenizer: Its tokenizer; without a chat template the messages are joined by line breaks.
        name: How it is called in results.

    Example:
        >>> TransformersModel(None, None, name="mine").name
        'mine'

    Source:
        transformers' ``generate``; ``continue_final_message`` as the published vLLM branch does.
    """

    def __init__(self, model: Any, tokenizer: Any, *, name: str = "transformers") -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name

    @classmethod
    def from_pretrained(cls, path: str, **options: Any) -> TransformersModel:
        """Load a model and its tokenizer; ``options`` go to both (``gguf_file=``, ``revision=``).

        Raises:
            ImportError: transformers is not installed.
        """
        transformers = require("transformers", extra="llm")
        model = transformers.AutoModelForCausalLM.from_pretrained(path, **options).eval()
        return cls(model, transformers.AutoTokenizer.from_pretrained(path, **options), name=Path(path).name)

    def complete(self, prompts: Sequence[Messages], max_tokens: int) -> Iterator[tuple[int, Completion]]:
        """Yield completions in the order of the prompts."""
        torch = require("torch", extra="llm")

        def next_question(ids: Any, *_: Any) -> Any:
            tails = self.tokenizer.batch_decode(ids[:, -8:])  # stop_strings= refuses tokenizers that cannot write one
            return torch.tensor([RUN_ON in tail for tail in tails], device=ids.device)

        for at, messages in enumerate(prompts):
            inputs = self.tokenizer(rendered(self.tokenizer, messages), return_tensors="pt", add_special_tokens=False)
            ids = inputs["input_ids"].to(self.model.device)
            with torch.inference_mode():
                out = self.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=max_tokens,
                    do_sample=False,
                    pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id,
                    stopping_criteria=[next_question],
                )
            new = out[0, ids.shape[1] :]
            reason = "length" if len(new) >= max_tokens else "stop"
            yield at, Completion(self.tokenizer.decode(new, skip_special_tokens=True), reason, ids.shape[1], len(new))


def rendered(tokenizer: Any, messages: Messages) -> str:
    """Write messages with the tokenizer's chat template, the last of them to be continued."""
    if getattr(tokenizer, "chat_template", None):
        return str(tokenizer.apply_chat_template(messages, tokenize=False, continue_final_message=True))
    return "\n\n".join(message["content"] for message in messages)


class VLLMModel:
    """A model run offline by vLLM, all prompts at once.

    Args:
        path: Name or folder of the model.
        engine: ``vllm.LLM``, or what makes one; ``None``: vLLM's, with ``options``.
        **options: To ``vllm.LLM``.

    Example:
        >>> VLLMModel("org/model").name
        'model'

    Source:
        vLLM's ``LLM.chat`` with ``continue_final_message``.
    """

    def __init__(self, path: str, *, engine: Callable[..., Any] | None = None, **options: Any) -> None:
        self.name, self._path, self._engine, self._options = Path(path).name, path, engine, options

    def complete(self, prompts: Sequence[Messages], max_tokens: int) -> Iterator[tuple[int, Completion]]:
        """Yield completions once all are there.

        Raises:
            ImportError: vLLM is not installed (it is in no extra: it wants a torch of its own).
        """
        if self._engine is None:
            try:
                import vllm  # type: ignore[import-not-found, unused-ignore]
            except ModuleNotFoundError as error:
                raise ImportError("vllm is not installed: pip install vllm, in an environment of its own") from error
            engine, sampling = vllm.LLM(self._path, **self._options), vllm.SamplingParams
        else:
            engine, sampling = self._engine(self._path, **self._options), dict
        settings = sampling(temperature=0.0, max_tokens=max_tokens, stop=[RUN_ON])
        outputs = engine.chat(list(prompts), settings, add_generation_prompt=False, continue_final_message=True)
        for at, output in enumerate(outputs):
            first = output.outputs[0]
            tokens = len(output.prompt_token_ids or ()), len(first.token_ids)
            yield at, Completion(first.text, first.finish_reason or "stop", *tokens)
