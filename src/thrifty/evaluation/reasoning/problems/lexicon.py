"""The words of word problems: first names, relations that make lexical variants of them, and things to count.

The lists are our own, in ``words.json``. A *topic* is a whole ("music instruments") with its parts (drums, flutes) and
a holder (a case of them), so that totals and rates make sense.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from thrifty._common.extras import require

if TYPE_CHECKING:
    from thrifty.evaluation.reasoning.problems.templates import Reader

#: Singular and plural.
Noun = tuple[str, str]
#: Words at the beginning of a sentence that a name may not be.
RESERVED = frozenset(
    {"So", "If", "The", "Prove", "How", "Then", "Therefore", "Since", "Because", "And", "Now", "First"}
)
_NAME = re.compile(r"[^\W\d_a-z][\w-]*(?: [^\W\d_a-z][\w-]*)*")
_THING = re.compile(r"[a-z][a-z-]*(?: [a-z][a-z-]*)*")


@dataclass(frozen=True)
class Topic:
    """A whole, what holds its parts, and the parts."""

    whole: Noun
    holder: Noun
    parts: tuple[Noun, ...]


@dataclass(frozen=True)
class Lexicon:
    """Names, relations and things that can be told from one another in text.

    Args:
        names: First names; capitalised.
        relations: What follows ``’s`` in a lexical variant (``"boss"``); lower case.
        topics: Wholes with their parts.
        plain: Things of no topic.

    Raises:
        ValueError: A word stands twice, a part belongs to two wholes, or something does not look like its kind.

    Example:
        >>> words = Lexicon.default()
        >>> words.plural("guinea pig"), words.lemma("guinea pigs"), words.topic_of("drum").whole[0]
        ('guinea pigs', 'guinea pig', 'music instrument')
    """

    names: tuple[str, ...]
    relations: tuple[str, ...]
    topics: tuple[Topic, ...]
    plain: tuple[Noun, ...]
    _plural: dict[str, str] = field(init=False, repr=False, compare=False, default_factory=dict)
    _lemma: dict[str, str] = field(init=False, repr=False, compare=False, default_factory=dict)
    _topic: dict[str, Topic] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        _distinct("names", self.names)
        _distinct("relations", self.relations)
        for name in self.names:
            if not _NAME.fullmatch(name) or name.split()[0] in RESERVED:
                raise ValueError(f"names: expected capitalised names that begin no sentence, got {name!r}")
        for relation in self.relations:
            if not _THING.fullmatch(relation):
                raise ValueError(f"relations: expected lower-case words, got {relation!r}")
        for topic in self.topics:
            for noun in (topic.whole, topic.holder, *topic.parts):
                self._enter(noun)
            for singular, _ in topic.parts:
                if singular in self._topic:
                    raise ValueError(f"topics: {singular!r} is a part of two wholes")
                self._topic[singular] = topic
        for noun in self.plain:
            self._enter(noun)

    def _enter(self, noun: Noun) -> None:
        singular, plural = noun
        if not (_THING.fullmatch(singular) and _THING.fullmatch(plural)):
            raise ValueError(f"topics, plain: expected lower-case words, got {noun!r}")
        taken = {self._lemma.get(form, singular) for form in noun}
        if taken != {singular} or singular in self._plural:
            other = next((held for held in taken if held != singular), singular)
            raise ValueError(f"topics, plain: {noun!r} cannot be told from {(other, self._plural[other])!r}")
        self._plural[singular] = plural
        self._lemma[singular] = self._lemma[plural] = singular

    @classmethod
    @cache
    def default(cls) -> Lexicon:
        """Return the words that come with the package."""
        return cls.from_file(Path(__file__).with_name("words.json"))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Lexicon:
        """Read lists of your own, in the form of the ``words.json`` of this package.

        Raises:
            ValueError: They are no lists of words, or cannot be told from one another.
        """
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            topics = tuple(
                Topic(_noun(t["whole"]), _noun(t["holder"]), tuple(map(_noun, t["parts"]))) for t in found["topics"]
            )
            plain = tuple(map(_noun, found["plain"]))
            return cls(tuple(found["names"]), tuple(found["relations"]), topics, plain)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            message = f"{path}: expected JSON with names, relations, topics and plain: {type(error).__name__}: {error}"
            raise ValueError(message) from None

    def plural(self, singular: str) -> str:
        """Return a thing's plural, by the lists or else by rule."""
        return self._plural.get(singular) or _by_rule(singular, to_plural=True)

    def lemma(self, form: str) -> str:
        """Return the singular of a thing in either form, by the lists or else by rule."""
        return self._lemma.get(form) or _by_rule(form, to_plural=False)

    def knows(self, form: str) -> bool:
        """Tell whether the lists hold a form."""
        return form in self._lemma

    def topic_of(self, part: str) -> Topic | None:
        """Return the topic of which a thing is a part."""
        return self._topic.get(part)

    def is_part(self, thing: str, whole: str) -> bool:
        """Tell whether a thing is a part of a whole, both in the singular."""
        topic = self._topic.get(thing)
        return topic is not None and topic.whole[0] == whole

    @cached_property
    def agent(self) -> str:
        """A regular expression of agents: a name, and relations behind it, known or not; apostrophes are straight."""
        relations = "|".join([*sorted(map(re.escape, self.relations), key=len, reverse=True), "[a-z]+"])
        reserved = "|".join(sorted(RESERVED))
        name = r"[^\W\d_a-z][\w-]*"
        return rf"(?!(?:{reserved})\b){name}(?: {name})*(?:'s (?:{relations}))*"

    @cached_property
    def reader(self) -> Reader:
        """What reads sentences in these words; made once."""
        from thrifty.evaluation.reasoning.problems.templates import Reader

        return Reader(self)


@cache
def _by_rule(form: str, *, to_plural: bool) -> str:
    engine = require("inflect", extra="reasoning").engine()
    if to_plural:
        return str(engine.plural_noun(form))
    return str(engine.singular_noun(form) or form)


def _noun(pair: Sequence[str]) -> Noun:
    singular, plural = pair
    return singular, plural


def _distinct(name: str, words: Sequence[str]) -> None:
    if not words or len(set(words)) < len(words):
        twice = sorted({word for word in words if words.count(word) > 1})
        raise ValueError(f"{name}: expected different words, got {twice or 'none'}")
