"""Rated sentences from four domains, carried by the source distribution of ``vaderSentiment``.

Tweets, snippets of product reviews, of film reviews, and of newspaper editorials, each with the mean sentiment that
twenty people gave it, between -4 and 4. Reference: Hutto and Gilbert, "VADER: A Parsimonious Rule-based Model for
Sentiment Analysis of Social Media Text", ICWSM 2014.
"""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass

from thrifty.bench import carried

NAME = "vadersentiment"

#: Domain to the stem of its file.
DOMAINS = {
    "tweets": "tweets",
    "products": "amazonReviewSnippets",
    "films": "movieReviewSnippets",
    "editorials": "nytEditorialSnippets",
}


@dataclass(frozen=True)
class Sentence:
    """One rated sentence.

    Args:
        text: As it stands in the file.
        rating: Mean sentiment, -4 to 4.
    """

    text: str
    rating: float


def load() -> dict[str, tuple[Sentence, ...]]:
    """Return the sentences of each domain, in the order of their files.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
    """
    with tarfile.open(carried.archive(NAME)) as outer:
        packed = outer.extractfile(carried.CARRIED[NAME].inside)
        assert packed is not None
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as inner:
            return {domain: _read(inner, stem) for domain, stem in DOMAINS.items()}


def _read(archive: tarfile.TarFile, stem: str) -> tuple[Sentence, ...]:
    file = archive.extractfile(f"hutto_ICWSM_2014/{stem}_GroundTruth.txt")
    assert file is not None
    rows = [line.split("\t", 2) for line in file.read().decode("latin-1").splitlines()]
    return tuple(Sentence(row[2].strip(), float(row[1])) for row in rows if len(row) == 3 and row[2].strip())
