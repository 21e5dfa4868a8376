"""Models that answer prompts on this machine: Transformers and vLLM; for endpoints see :mod:`.endpoint`.

Each has a ``name`` and ``complete(prompts, max_tokens)``, which yields (number of the prompt, completion) as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from thrifty._common.checks import whole
from thrifty._common.extras import require
from thrifty.evaluation.reasoning.runners.prompts import Messages

#: Where a model that goes on begins to ask itself the next question.
RUN_ON = "\nQ:"


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


class TransformersModel:
    """A causal language model of Hugging Face Transformers, greedy.

    Args:
        model: The model, in evaluation mode.
        tokenizer: Its tokenizer; without a chat template the messages are joined by line breaks.
        name: How it is called in results.
        batch: Prompts at a time; what is done is kept batch by batch.

    Raises:
        ValueError: ``batch`` is not a whole number of at least 1.

    Example:
        >>> TransformersModel(None, None, name="mine").name
        'mine'

    Source:
        transformers' ``generate``; ``continue_final_message`` as the published vLLM branch does.
    """

    def __init__(self, model: Any, tokenizer: Any, *, name: str = "transformers", batch: int = 8) -> None:
        self.model, self.tokenizer, self.name, self.batch = model, tokenizer, name, whole("batch", batch)

    @classmethod
    def from_pretrained(cls, path: str, *, batch: int = 8, **options: Any) -> TransformersModel:
        """Load a model and its tokenizer; ``options`` go to both (``gguf_file=``, ``revision=``).

        Raises:
            ImportError: transformers is not installed.
        """
        transformers = require("transformers", extra="llm")
        model = transformers.AutoModelForCausalLM.from_pretrained(path, **options).eval()
        return cls(
            model, transformers.AutoTokenizer.from_pretrained(path, **options), name=Path(path).name, batch=batch
        )

    def complete(self, prompts: Sequence[Messages], max_tokens: int) -> Iterator[tuple[int, Completion]]:
        """Yield completions in the order of the prompts."""
        for start in range(0, len(prompts), self.batch):
            texts = [rendered(self.tokenizer, messages) for messages in prompts[start : start + self.batch]]
            yield from enumerate(self._written(texts, max_tokens), start=start)

    def _written(self, texts: Sequence[str], max_tokens: int) -> Iterator[Completion]:
        torch = require("torch", extra="llm")
        rows = [self.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        width = max(map(len, rows))
        ends = self._ends()
        filler = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else min(ends, default=0)
        device = self.model.device
        ids = torch.tensor([[filler] * (width - len(row)) + row for row in rows], device=device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)

        def next_question(ids: Any, *_: Any) -> Any:
            tails = self.tokenizer.batch_decode(ids[:, width:][:, -8:])  # stop_strings= refuses tokenizers without one
            return torch.tensor([RUN_ON in tail for tail in tails], device=device)

        with torch.inference_mode():
            out = self.model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=max_tokens,
                do_sample=False,
                pad_token_id=filler,
                stopping_criteria=[next_question],
            )
        for row, new in zip(rows, out[:, width:].tolist(), strict=True):
            stop = next((at for at, token in enumerate(new) if token in ends), len(new))
            text = self.tokenizer.decode(new[:stop], skip_special_tokens=True)
            cut_off = stop == max_tokens and RUN_ON not in text
            yield Completion(text, "length" if cut_off else "stop", len(row), stop)

    def _ends(self) -> set[int]:
        """Return the tokens that end an answer."""
        known = [self.tokenizer.eos_token_id, getattr(self.model.generation_config, "eos_token_id", None)]
        return {token for each in known for token in (each if isinstance(each, list) else [each]) if token is not None}


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
