"""Which layers, shares and windows to take: a search over schedules, with cost counted and quality measured.

Source: arXiv 2511.21477, appendix F: one layer of each third of the network, drop ratios of 0.1 to 0.9, windows of 1, 2
or 4; the aim is (1 - MAC / MAC_0) + accuracy / accuracy_0. The paper's weights of the two terms are not recoverable.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from thrifty._common.checks import number, whole
from thrifty.inference.token_reduction.config import FreqReduceConfig
from thrifty.inference.token_reduction.hosts import find_host
from thrifty.inference.token_reduction.macs import ViTDims, count_macs
from thrifty.inference.token_reduction.patch import reduce_tokens

DROPS = tuple(round(0.1 * k, 1) for k in range(1, 10))
WINDOWS = (1, 2, 4)

Progress = Callable[[int, int, float], object]


@dataclass(frozen=True)
class Candidate:
    """One schedule, measured.

    Args:
        config: The setting.
        macs: Of one image.
        accuracy: What ``evaluate`` gave.
        aim: alpha (1 - MAC / MAC_0) + accuracy / accuracy_0.
    """

    config: FreqReduceConfig
    macs: int
    accuracy: float
    aim: float


@dataclass(frozen=True)
class Schedules:
    """What a search found.

    Args:
        best: The candidate of the highest aim.
        pareto: Those that no other beats in both MACs and accuracy, cheapest first.
        all: Every candidate, in the order in which it was tried.
        base_macs: Of the model as it is.
        base_accuracy: Likewise.
    """

    best: Candidate
    pareto: tuple[Candidate, ...]
    all: tuple[Candidate, ...]
    base_macs: int
    base_accuracy: float


def layer_thirds(depth: int) -> tuple[tuple[int, ...], ...]:
    """Return the layers that each of three reductions may take: 2-4, 5-7 and 8-11 of twelve, and so on in proportion.

    Raises:
        ValueError: The model has fewer than four blocks.
    """
    if depth < 4:
        raise ValueError(f"depth: a schedule of three reductions needs at least 4 blocks, got {depth}")
    bounds = [round(depth * share) for share in (1 / 12, 4 / 12, 7 / 12, 11 / 12)]
    return tuple(tuple(range(a + 1, b + 1)) for a, b in itertools.pairwise(bounds))


def search_schedule(
    model: nn.Module,
    evaluate: Callable[[nn.Module], float],
    *,
    trials: int = 50,
    image_size: tuple[int, int] = (224, 224),
    alpha: float = 1.0,
    drops: Sequence[float] = DROPS,
    windows: Sequence[int] = WINDOWS,
    template: FreqReduceConfig | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Schedules:
    """Search schedules at random, then around the best, and return the Pareto set of MACs and accuracy.

    Cost is counted from shapes; only accuracy needs the model, which is given back as it came.

    Args:
        model: A vision transformer without a reduction in force.
        evaluate: Returns the accuracy (or any quality above 0, higher is better) of the model that it is given. Use a
            validation split.
        trials: Schedules to evaluate: half at random, half by changing one choice of the best so far.
        image_size: Pixels, rows and columns, for the count.
        alpha: Weight of what is saved against what is kept of the accuracy.
        drops: Shares of the remaining tokens that a reduction may drop.
        windows: Windows that it may have.
        template: The other fields of the setting.
        seed: Of the search.
        progress: Told (done, trials, best aim so far).

    Returns:
        All candidates that were tried, those of them on the Pareto front, and the best by the aim.

    Raises:
        ValueError: ``trials`` or another choice is out of range, an accuracy is not finite, or the model's own is not
            above 0.
        TypeError: No plain vision transformer is in the model, or ``template`` is none.

    Example:
        >>> import timm
        >>> vit = timm.create_model("vit_tiny_patch16_224", depth=4, embed_dim=48).eval()
        >>> found = search_schedule(vit, lambda model: 0.8, trials=2)  # your accuracy on validation images
        >>> len(found.all), found.best.aim > 1
        (2, True)

    Source:
        arXiv 2511.21477, appendix F.
    """
    whole("trials", trials)
    whole("seed", seed, least=0)
    number("alpha", alpha, "a finite number")
    drops = [number("drops", drop, "shares in [0, 1)", least=0, below=1) for drop in drops]
    windows = [whole("windows", window, what="whole numbers") for window in windows]
    if not drops or not windows:
        raise ValueError(f"drops, windows: expected at least one of each, got {drops} and {windows}")
    template = FreqReduceConfig() if template is None else template
    if not isinstance(template, FreqReduceConfig):
        raise TypeError(f"template: expected FreqReduceConfig, got {type(template).__name__}")
    dims = ViTDims.of(model)
    thirds = layer_thirds(len(find_host(model).blocks))
    rng = np.random.default_rng(seed)
    base_macs, base = count_macs(dims, image_size), _quality(evaluate(model))
    if base <= 0:
        raise ValueError(f"evaluate: expected an accuracy above 0 for the model as it is, got {base}")
    tried: dict[_Genes, Candidate] = {}
    for genes in _proposals(rng, thirds, tuple(drops), tuple(windows), tried, trials):
        config = _config(genes, template)
        with reduce_tokens(model, config):
            accuracy = _quality(evaluate(model))
        macs = count_macs(dims, image_size, config)
        tried[genes] = Candidate(config, macs, accuracy, alpha * (1 - macs / base_macs) + accuracy / base)
        if progress is not None:
            progress(len(tried), trials, max(c.aim for c in tried.values()))
    found = tuple(tried.values())
    return Schedules(max(found, key=lambda c: c.aim), pareto_set(found), found, base_macs, base)


def pareto_set(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates that none beats in both MACs and accuracy, cheapest first."""
    front: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.macs, -c.accuracy)):
        if not front or candidate.accuracy > front[-1].accuracy:
            front.append(candidate)
    return tuple(front)


def _quality(value: Any) -> float:
    """Return what ``evaluate`` gave: a number of any library, a tensor of one included."""
    value = value.item() if hasattr(value, "item") else value
    return number("evaluate", value, "an accuracy that is a finite number")


_Genes = tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]]


def _config(genes: _Genes, template: FreqReduceConfig) -> FreqReduceConfig:
    layers, drops, windows = genes
    return replace(template, layers=layers, keep=tuple(round(1 - drop, 6) for drop in drops), window=windows)


def _proposals(
    rng: np.random.Generator,
    thirds: tuple[tuple[int, ...], ...],
    drops: tuple[float, ...],
    windows: tuple[int, ...],
    tried: dict[_Genes, Candidate],
    trials: int,
) -> Iterator[_Genes]:
    """Yield schedules that were not tried: the first half at random, then neighbours of the best."""
    fresh = 0
    for _ in range(100 * trials):  # a small space may hold fewer schedules than were asked for
        if len(tried) >= trials:
            return
        if fresh < (trials + 1) // 2:
            genes = _draw(rng, thirds, drops, windows)
        else:
            best = max(tried, key=lambda g: tried[g].aim)
            genes = _neighbour(rng, best, thirds, drops, windows)
        if genes not in tried and _nested(genes[2]):
            fresh += 1
            yield genes


def _draw(
    rng: np.random.Generator, thirds: tuple[tuple[int, ...], ...], drops: tuple[float, ...], windows: tuple[int, ...]
) -> _Genes:
    chosen = sorted((int(rng.choice(windows)) for _ in thirds), reverse=True)
    return (
        tuple(int(rng.choice(third)) for third in thirds),
        tuple(float(rng.choice(drops)) for _ in thirds),
        tuple(chosen),
    )


def _neighbour(
    rng: np.random.Generator,
    genes: _Genes,
    thirds: tuple[tuple[int, ...], ...],
    drops: tuple[float, ...],
    windows: tuple[int, ...],
) -> _Genes:
    """Change one choice of one reduction."""
    layers, shares, cells = (list(part) for part in genes)
    stage, kind = int(rng.integers(len(thirds))), int(rng.integers(3))
    if kind == 0:
        layers[stage] = int(rng.choice(thirds[stage]))
    elif kind == 1:
        shares[stage] = float(rng.choice(drops))
    else:
        cells[stage] = int(rng.choice(windows))
    return tuple(layers), tuple(shares), tuple(cells)  # type: ignore[arg-type]


def _nested(windows: tuple[int, ...]) -> bool:
    return all(before % after == 0 for before, after in itertools.pairwise(windows))
