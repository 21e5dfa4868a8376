"""The template grammar: how a form's slots become a sentence, and how the sentence gives them back.

A template is text with ``[slots]`` and ``{alternatives|of words}``. Of the templates whose condition holds and whose
slots can be filled, those that use most slots are kept, and one is drawn. Every template is also its own inverse: a
regular expression whose groups are the slots.

Source: arXiv 2510.25626 and MathGAP (arXiv 2410.13502), for the forms; the sentences, in ``templates.txt``, are ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import product
from pathlib import Path

from thrifty.evaluation.reasoning.problems.lexicon import Lexicon

_SLOT = re.compile(r"\[([a-z ]+)\]")
_CHOICE = re.compile(r"\{([^{}]+)\}")
_CONDITION = re.compile(r"when ([a-z]+) = ([a-z]+): (.*)")
_AGENTS = ("agent", "other", "third", "fourth", "receiver", "sender")
#: Words of the templates, which no thing's name holds: so no sentence has two readings.
_OF_SENTENCES = "per|more|less|fewer|than|that|as|many|from|to|in|is|and|does|do|has|have|combined|totaled|total"
_WORD = rf"(?!(?:{_OF_SENTENCES})\b)[a-z][a-z-]*"
_NUMBER = r"-?\d+(?:,\d{3})*"


@dataclass(frozen=True)
class Template:
    """One sentence of one form."""

    form: str
    text: str
    condition: tuple[str, str] | None = None

    @cached_property
    def slots(self) -> frozenset[str]:
        """The slots that it uses."""
        return frozenset(self.pieces[1::2])

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """Its literal pieces and its slots, in turn."""
        return tuple(_SLOT.split(self.text))

    def fill(self, values: Mapping[str, str]) -> str:
        """Put values into the slots."""
        return "".join(values[piece] if at % 2 else piece for at, piece in enumerate(self.pieces))

    def pattern(self, lexicon: Lexicon) -> re.Pattern[str]:
        """Return the regular expression that gives the slots back."""
        pieces = [re.escape(self.pieces[0])]
        seen: set[str] = set()
        for slot, literal in zip(self.pieces[1::2], self.pieces[2::2], strict=True):
            group = slot.replace(" ", "_")
            pieces += [f"(?P={group})" if slot in seen else f"(?P<{group}>{_kind(slot, lexicon)})", re.escape(literal)]
            seen.add(slot)
        return re.compile("".join(pieces))


def _kind(slot: str, lexicon: Lexicon) -> str:
    if slot == "agents":
        agent = lexicon.agent
        return f"{agent}(?:, {agent})* and {agent}"
    if slot in _AGENTS:
        return lexicon.agent
    if slot == "q":
        return _NUMBER
    if slot == "sum":
        return rf"{_NUMBER}(?: [-+*/] {_NUMBER})*"
    return f"{_WORD}(?: {_WORD})*"


@cache
def templates() -> Mapping[str, tuple[Template, ...]]:
    """Return every template, alternatives apart, by form."""
    found: dict[str, list[Template]] = {}
    form = ""
    for line in Path(__file__).with_name("templates.txt").read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if re.fullmatch(r"\[[a-z ]+\]", line):
            form = line[1:-1]
            found[form] = []
            continue
        condition = None
        if match := _CONDITION.match(line):
            condition = (match[1], match[2])
        pieces = _CHOICE.split(match[3] if match else line)
        choices = [piece.split("|") if at % 2 else [piece] for at, piece in enumerate(pieces)]
        found[form] += [Template(form, "".join(words), condition) for words in product(*choices)]
    return {form: tuple(several) for form, several in found.items()}


def write(form: str, values: Mapping[str, str], draw: float = 0.0) -> str:
    """Word a form.

    Args:
        form: A form of ``templates.txt``.
        values: What is known, by slot, and by what conditions ask.
        draw: In [0, 1): which of the fullest templates.

    Raises:
        ValueError: No template can be filled.
    """
    fitting = _fitting(form, frozenset(values), values.get("side"))
    if not fitting:
        raise ValueError(f"values: no template of {form!r} can be filled with {', '.join(values)}")
    return fitting[int(draw * len(fitting))].fill(values)


@cache
def _fitting(form: str, known: frozenset[str], side: str | None) -> tuple[Template, ...]:
    able = [t for t in templates()[form] if t.slots <= known and (t.condition is None or t.condition == ("side", side))]
    most = max((len(template.slots) for template in able), default=0)
    return tuple(template for template in able if len(template.slots) == most)


@dataclass(frozen=True)
class Read:
    """A sentence read back: its form and its slots."""

    form: str
    slots: dict[str, str]


class Reader:
    """Reads sentences of the grammar; one for each lexicon.

    Args:
        lexicon: The words.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self._patterns = [
            (form, template.pattern(lexicon)) for form, several in templates().items() for template in several
        ]
        # Variants of a problem share most of their sentences.
        self.read = lru_cache(maxsize=4096)(self._read)

    def _read(self, sentence: str) -> Read | None:
        """Return what a sentence says, or ``None`` where it is none of the grammar's."""
        text = straight(sentence)
        for form, pattern in self._patterns:
            match = pattern.fullmatch(text)
            if match:
                return Read(form, {slot.replace("_", " "): part for slot, part in match.groupdict().items()})
        return None

    def all(self, sentence: str) -> list[Read]:
        """Return every reading of a sentence, to see that there is one."""
        text = straight(sentence)
        matches = ((form, pattern.fullmatch(text)) for form, pattern in self._patterns)
        found = [
            Read(form, {slot.replace("_", " "): part for slot, part in match.groupdict().items()})
            for form, match in matches
            if match
        ]
        return [read for at, read in enumerate(found) if read not in found[:at]]


def straight(text: str) -> str:
    """Make typographic apostrophes and spaces plain."""
    return " ".join(text.replace("’", "'").replace("‘", "'").split())


def listed(words: Sequence[str]) -> str:
    """Join words as English does: ``"A, B and C"``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def unlisted(text: str) -> list[str]:
    """Split what :func:`listed` joined."""
    return re.split(r", | and ", text)
