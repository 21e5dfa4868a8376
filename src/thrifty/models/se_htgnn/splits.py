"""Splits in time, and pairs that are not linked: nothing of the future is in what is learnt from.

Splits are by target snapshot: the last ones test, those before validate, the rest train (arXiv 2510.18467,
section 5.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from thrifty._common.checks import whole
from thrifty.models.se_htgnn.temporal import HeteroTemporalData, Triple

#: Times that pairs which turn out to be links are drawn anew, before those that are none are listed.
REDRAWS = 20


@dataclass(frozen=True)
class Split:
    """Numbers of first target snapshots.

    Args:
        train: To learn from.
        validation: To stop by and to choose settings by.
        test: To judge by.

    Example:
        >>> len(temporal_split(20, window=7, validation=3, test=3).train)
        7
    """

    train: Int[np.ndarray, " n"]
    validation: Int[np.ndarray, " n"]
    test: Int[np.ndarray, " n"]

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.int64))


def temporal_split(
    data: HeteroTemporalData | int, window: int, validation: int = 30, test: int = 30, horizon: int = 1
) -> Split:
    """Split target snapshots in time; a forecast's whole horizon lies in its own split.

    Args:
        data: The graph, or the number of its snapshots.
        window: Snapshots T before a target.
        validation: Snapshots to validate on.
        test: The last snapshots.
        horizon: Steps β of a forecast.

    Returns:
        The three parts.

    Raises:
        ValueError: Nothing would be left to train on.

    Example:
        >>> split = temporal_split(20, window=7, validation=3, test=3)
        >>> split.train, split.test
        (array([ 7,  8,  9, 10, 11, 12, 13]), array([17, 18, 19]))

    Source:
        arXiv 2510.18467, section 5.1.
    """
    total = data if isinstance(data, int) else len(data)
    window, horizon = whole("window", window), whole("horizon", horizon)
    validation, test = whole("validation", validation, least=0), whole("test", test, least=0)
    ends = [total - validation - test, total - test, total]
    begins = [window, ends[0], ends[1]]
    parts = [np.arange(begin, end - horizon + 1) for begin, end in zip(begins, ends, strict=True)]
    if not len(parts[0]):
        raise ValueError(
            f"window, validation, test: {window} + {validation} + {test} of {total} snapshots leave none to train on"
        )
    return Split(*(part[part >= window] for part in parts))


def positive_edges(
    data: HeteroTemporalData, relation: Triple, target: int, known: bool = True
) -> Int[Tensor, "2 edge"]:
    """Return the pairs that a snapshot links, each once.

    Args:
        data: The graph.
        relation: Which links.
        target: Which snapshot.
        known: Leave out those of nodes that no earlier snapshot has seen.
    """
    held = data.edges[relation]
    pairs: Tensor = torch.unique(held.index[:, held.snapshot == target], dim=1)
    if known and pairs.shape[1]:
        before = [seen_before(data, name, target) for name in (relation[0], relation[2])]
        pairs = pairs[:, before[0][pairs[0]] & before[1][pairs[1]]]
    return pairs


def seen_before(data: HeteroTemporalData, name: str, target: int) -> Bool[Tensor, " node"]:
    """Tell which nodes had an edge or a feature before a snapshot."""
    found: Tensor = data.present[name][:target].any(0)
    return found


def negative_edges(
    data: HeteroTemporalData,
    relation: Triple,
    target: int,
    rng: np.random.Generator,
    *,
    per_positive: int = 1,
    known: bool = True,
) -> Int[Tensor, "2 edge"]:
    """Draw pairs that a snapshot does not link: the same sources, other destinations.

    Destinations are drawn from those that the relation has led to before, so that a pair is not told from a link by
    who is new, or by who never is a destination; none is a link of the target snapshot. A source that is linked to all
    of them has no such pair, and is left out.

    Args:
        data: The graph.
        relation: Which links.
        target: Which snapshot.
        rng: Draws them.
        per_positive: How many for each link.
        known: As in :func:`positive_edges`.

    Returns:
        Source and destination of each pair.

    Example:
        >>> from thrifty.models.se_htgnn import Edges
        >>> buys = ("user", "buys", "item")
        >>> edges = {buys: Edges(torch.tensor([[0, 1, 0], [0, 1, 1]]), torch.tensor([0, 0, 1]))}
        >>> data = HeteroTemporalData({"user": 2, "item": 2}, edges)
        >>> negative_edges(data, buys, 1, np.random.default_rng(0)).tolist()
        [[0], [0]]

    Source:
        arXiv 2510.18467, section 5.1: one sampled negative a positive.
    """
    pairs = positive_edges(data, relation, target, known)
    if not pairs.shape[1]:
        return pairs
    held, count = data.edges[relation], data.num_nodes[relation[2]]
    universe = np.unique(held.index[1, held.snapshot < target].numpy())
    universe = universe if len(universe) else np.arange(count)
    source = np.repeat(pairs[0].numpy(), whole("per_positive", per_positive))
    linked = np.unique(pairs[0].numpy() * count + pairs[1].numpy())
    drawn: NDArray = rng.choice(universe, len(source))
    for _ in range(REDRAWS):
        wrong = np.isin(source * count + drawn, linked)
        if not wrong.any():
            break
        drawn[wrong] = rng.choice(universe, int(wrong.sum()))
    kept = np.ones(len(source), dtype=bool)
    for k in np.flatnonzero(np.isin(source * count + drawn, linked)):  # nearly all are linked: list those that are not
        free = universe[~np.isin(source[k] * count + universe, linked)]
        kept[k] = len(free) > 0
        drawn[k] = rng.choice(free) if len(free) else drawn[k]
    return torch.from_numpy(np.stack([source, drawn])[:, kept])
