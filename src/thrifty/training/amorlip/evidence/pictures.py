"""The workload: emoji and their names, split by emoji, and two small towers that are trained from scratch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thrifty.bench.data import emoji

#: Width of the embeddings, as of the pilot that the targets come from.
DIM = 64

#: Emoji that are held out: to report, and to tune.
TEST, VALIDATION = 800, 400

#: Words of a name, at most.
WORDS = 16


@dataclass(frozen=True)
class Split:
    """Some of the emoji, as tensors.

    Args:
        images: (style, emoji, 3, 32, 32), bytes.
        words: (emoji, WORDS), 0 where a name is shorter; 1 for a word that no training name has.
        classes: (emoji,), the sub-category.
    """

    images: Tensor
    words: Tensor
    classes: Tensor

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class Workload:
    """The three splits, the vocabulary, and the names of the sub-categories as words."""

    train: Split
    validation: Split
    test: Split
    vocabulary: int
    class_words: Tensor


@cache
def load() -> Workload:
    """Return the emoji, split at random but always alike."""
    data = emoji.load()
    order = np.random.default_rng(0).permutation(len(data))
    parts = {"test": order[:TEST], "validation": order[TEST : TEST + VALIDATION], "train": order[TEST + VALIDATION :]}
    known: dict[str, int] = {}
    for place in parts["train"]:
        for word in words(data.names[place]):
            known.setdefault(word, len(known) + 2)
    labels = sorted(set(data.subcategories))
    images = torch.from_numpy(data.images).permute(0, 1, 4, 2, 3).contiguous()
    all_words = torch.tensor([_numbers(name, known) for name in data.names])
    classes = torch.tensor([labels.index(label) for label in data.subcategories])
    splits = {name: Split(images[:, part], all_words[part], classes[part]) for name, part in parts.items()}
    return Workload(**splits, vocabulary=len(known) + 2, class_words=torch.tensor([_numbers(x, known) for x in labels]))


def words(name: str) -> list[str]:
    """Cut a name into words."""
    return re.findall(r"[^\W_]+|[#*]", name)


def _numbers(name: str, known: dict[str, int]) -> list[int]:
    found = [known.get(word, 1) for word in words(name)][:WORDS]
    return found + [0] * (WORDS - len(found))


class Towers(nn.Module):
    """Four strided convolutions, and the mean of word embeddings with an MLP: both end on the sphere."""

    def __init__(self, vocabulary: int, seed: int, scale: float, bias: float | None = None) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            layers: list[nn.Module] = []
            for before, after in ((3, 32), (32, 64), (64, 128), (128, 128)):
                layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
            self.image = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, DIM))
            self.words = nn.Embedding(vocabulary, 128, padding_idx=0)
            self.text = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, DIM))
        self.logit_scale = nn.Parameter(torch.tensor(scale).log())
        self.logit_bias = None if bias is None else nn.Parameter(torch.tensor(bias))

    def embed_images(self, images: Tensor) -> Tensor:
        """Return image features of unit length."""
        return functional.normalize(self.image(images.float() / 127.5 - 1), dim=1)

    def embed_texts(self, tokens: Tensor) -> Tensor:
        """Return text features of unit length."""
        held = self.words(tokens).sum(1) / (tokens > 0).sum(1, keepdim=True).clamp_min(1)
        return functional.normalize(self.text(held), dim=1)


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Move a batch of pictures by up to two pixels."""
    dx, dy = torch.randint(0, 5, (2,), generator=generator).tolist()
    padded = functional.pad(images, (2, 2, 2, 2), value=255)
    return padded[..., dy : dy + emoji.SIZE, dx : dx + emoji.SIZE]


def batches(size: int, count: int, steps: int, generator: torch.Generator) -> list[Tensor]:
    """Return the places of every step's samples: whole epochs in a new order each, short last batches dropped."""
    found: list[Tensor] = []
    while len(found) < steps:
        order = torch.randperm(count, generator=generator)
        found += list(torch.split(order[: count // size * size], size))
    return found[:steps]
