"""A completion as text: what of it is the proof, its segments, its numbers, and its answer."""

from __future__ import annotations

import re
from fractions import Fraction

from thrifty._common.checks import one_of

PARTS = ("visible", "thinking", "both")
_THINK = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)
_MARKER = re.compile(
    r"answer\s*\(arabic numerals\)\s*(?:is|:)|\bfinal answer\b\s*(?:is|:)?|\banswer\s*(?:is|:)|\\boxed\s*\{|####",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
_RUN_ON = re.compile(r"\n\s*(?:Q|Question)\s*:")
_ITEM = re.compile(r"\s*(?:\d+[.)]|[-*•])\s+")
_SENTENCE_END = re.compile(r"([.!?])\s+")
_ABBREVIATED = ("Mr.", "Ms.", "Mrs.", "Dr.", "St.", "e.g.", "i.e.")
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: number for number, word in enumerate(_UNITS.split())}
_WORDS |= {word: 10 * number for number, word in enumerate(_TENS.split(), start=2)}
_SIGNS = str.maketrans("’‘−–—×·÷", "''---**/")
_REPLACED = (
    (re.compile(r"```.*?(?:```|\Z)", re.DOTALL), " "),
    (re.compile(r"\\(?:times|cdot)\b"), "*"),
    (re.compile(r"(\d)\s*[xX]\s*(?=\d)"), r"\1*"),
    (re.compile(r"\\div\b"), "/"),
    (re.compile(r"\\(?:text|mathrm|mathbf|boxed)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"(\d)(?:\{,\}|,|\\,)(?=\d{3}(?!\d))"), r"\1"),
    (re.compile(r"\\[()\[\]]|\$|\*\*|\\\\|&"), " "),
)


def proof_text(completion: str, trace: str = "both") -> str:
    """Return the part of a completion that is looked at, without what runs on after it.

    Args:
        completion: What the model wrote.
        trace: ``"visible"`` (outside ``<think>``), ``"thinking"`` (inside) or ``"both"``.
    """
    one_of("trace", trace, PARTS)
    completion = _RUN_ON.split(completion, maxsplit=1)[0]
    if trace == "visible":
        return _THINK.sub("\n", completion)
    if trace == "thinking":
        return "\n".join(match[1] for match in _THINK.finditer(completion))
    return completion.replace("<think>", "\n").replace("</think>", "\n")


def normalised(text: str) -> str:
    """Write numbers, signs, apostrophes and LaTeX in one plain way."""
    text = text.translate(_SIGNS)
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return text


def segments(text: str) -> list[str]:
    """Split a proof into sentences, numbered or not."""
    found: list[str] = []
    for line in text.split("\n"):
        item = _ITEM.match(line)
        going_on = False
        for part in _SENTENCE_END.sub(r"\1\n", line[item.end() if item else 0 :]).split("\n"):
            piece = " ".join(part.split())
            if going_on:
                found[-1] += f" {piece}"
            elif piece:
                found.append(piece)
            going_on = piece.endswith(_ABBREVIATED)
    return found


def answer_of(completion: str) -> int | None:
    """Return the answer that a completion gives: the number after the last marker, else its last number.

    Signs, separators of thousands, LaTeX, currency and numbers in words are read; what is no whole number is ``None``.
    """
    text = _RUN_ON.split(completion, maxsplit=1)[0]
    end = len(text)
    while end >= 0:  # line by line from the end: the last marker is nearly always there
        start = text.rfind("\n", 0, end) + 1
        for mark in reversed(list(_MARKER.finditer(text, start, end))):
            if found := _number(normalised(text[mark.end() :]), first=True):
                return _whole(found)
        end = start - 1
    found = _number(normalised(text), first=False)
    return _whole(found) if found else None


def _number(text: str, *, first: bool) -> str | None:
    numbers = _NUMBER.findall(re.sub(r"-\s+(?=\d)", "-", text) if first else text)
    line = text.strip().split("\n")[0]
    if first and not (line and _NUMBER.search(line)):
        words = re.findall(r"[a-z]+", line.lower())
        if any(word in _WORDS for word in words):
            return str(_spelled(words))
    return numbers[0 if first else -1] if numbers else None


def _spelled(words: list[str]) -> int:
    total = part = 0
    for word in words:
        if word in _WORDS:
            part += _WORDS[word]
        elif word == "hundred":
            part *= 100
        elif word == "thousand":
            total, part = total + part * 1000, 0
        elif (total or part) and word != "and":
            break
    return total + part


def _whole(text: str) -> int | None:
    value = Fraction(text)
    return int(value) if value.denominator == 1 else None
