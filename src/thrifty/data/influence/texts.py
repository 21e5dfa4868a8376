"""Rows of JSON as tokenised examples: plain text, prompt and completion, or chat messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def tokenize_examples(rows: Iterable[Mapping[str, Any]], tokenizer: Any, *, max_length: int = 2048) -> Any:
    """Tokenise rows for a causal model; only what the model shall produce carries a label.

    Args:
        rows: Each with ``input_ids`` (taken as they are), ``messages`` (chat; the loss is on the last one),
            ``prompt`` and ``completion`` (the loss is on the completion), or ``text`` (the loss is on all of it). To
            the latter two the end-of-sequence token is appended.
        tokenizer: Of the model.
        max_length: Longer examples are cut.

    Returns:
        Dictionaries of ``input_ids`` and ``labels``, one a row; of a ``datasets.Dataset`` one that has these columns
        beside its own.

    Raises:
        ValueError: A row has none of these fields, or something else in them; the message names the row.

    Example:
        >>> class Letters:
        ...     eos_token_id = 0
        ...     def __call__(self, text, add_special_tokens=True):
        ...         return {"input_ids": [ord(letter) - 96 for letter in text]}
        >>> tokenize_examples([{"prompt": "ab", "completion": "c"}], Letters())
        [{'input_ids': [1, 2, 3, 0], 'labels': [-100, -100, 3, 0]}]

    Source:
        The conversational, prompt-completion and language-modelling formats of TRL; chat templates as in transformers.
    """
    made = []
    for i, row in enumerate(rows):
        try:
            made.append(_one(i, row, tokenizer, max_length))
        except TypeError as error:  # of the tokenizer: half of a surrogate pair, say, is no text
            raise ValueError(f"row {i}: expected text that the tokenizer takes, got another: {error}") from None
    if not hasattr(rows, "add_column") or not made:
        return made
    table: Any = rows
    for name in made[0]:
        table = table.remove_columns(name) if name in table.column_names else table
        table = table.add_column(name, [row[name] for row in made])
    return table


def _one(index: int, row: Mapping[str, Any], tokenizer: Any, max_length: int) -> dict[str, Any]:
    if "input_ids" in row:
        for name in ("input_ids", "labels", "attention_mask"):
            _refuse_other_numbers(index, name, row)
        return {name: row[name][:max_length] for name in ("input_ids", "labels", "attention_mask") if name in row}
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    if isinstance(row.get("messages"), list):
        ids, labels = _chat(row["messages"], tokenizer)
    elif isinstance(row.get("prompt"), str) and isinstance(row.get("completion"), str):
        prompt = tokenizer(row["prompt"])["input_ids"]
        completion = tokenizer(row["completion"], add_special_tokens=False)["input_ids"] + end
        ids, labels = prompt + completion, [-100] * len(prompt) + completion
    elif isinstance(row.get("text"), str):
        ids = tokenizer(row["text"])["input_ids"] + end
        labels = list(ids)
    else:
        raise ValueError(
            f"row {index}: expected the field text, prompt and completion, messages, or input_ids, "
            f"got {', '.join(map(str, row)) or 'none'}"
        )
    if not ids:
        raise ValueError(f"row {index}: the text is empty")
    return {"input_ids": ids[:max_length], "labels": labels[:max_length]}


def _refuse_other_numbers(index: int, name: str, row: Mapping[str, Any]) -> None:
    if name not in row:
        return
    found = row[name]
    if not (isinstance(found, list) and found and all(type(i) is int and -(2**63) <= i < 2**63 for i in found)):
        raise ValueError(f"row {index}: expected {name} as a list of whole numbers, got {found!r}")
    if len(found) != (tokens := len(row["input_ids"])):
        raise ValueError(f"row {index}: expected {name} for each of {tokens} tokens, got {len(found)}")


def _chat(messages: list[Any], tokenizer: Any) -> tuple[list[int], list[int]]:
    whole = _ids(tokenizer.apply_chat_template(messages, tokenize=True))
    before = _ids(tokenizer.apply_chat_template(messages[:-1], tokenize=True, add_generation_prompt=True))
    shared = 0
    while shared < min(len(before), len(whole)) and before[shared] == whole[shared]:
        shared += 1
    return whole, [-100] * shared + whole[shared:]


def _ids(found: Any) -> list[int]:
    return list(found["input_ids"] if hasattr(found, "keys") else found)
