"""Images a second of a model as it is and under reductions, measured side by side in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from thrifty._common.checks import whole
from thrifty.inference.token_reduction.config import Config
from thrifty.inference.token_reduction.inputs import check_images
from thrifty.inference.token_reduction.macs import count_macs
from thrifty.inference.token_reduction.patch import reduce_tokens, reduction_of


@dataclass(frozen=True)
class Throughput:
    """How fast one method is.

    Args:
        images_a_second: Median over the repeats.
        speedup: Median over the repeats of the plain model's time over this one's.
        macs: Multiply-accumulates of one image.
    """

    images_a_second: float
    speedup: float
    macs: int


def measure_throughput(
    model: nn.Module, x: Tensor, configs: Mapping[str, Config], *, repeats: int = 7
) -> dict[str, Throughput]:
    """Time forward passes, interleaved so that a machine that slows down slows all of them.

    Args:
        model: A vision transformer without a reduction in force; it is given back as it came.
        x: A batch of images.
        configs: Names and settings; ``"base"``, the model as it is, is always measured too.
        repeats: Rounds; the first call of each method is not counted.

    Returns:
        Name to :class:`Throughput`: images a second, speedup over ``"base"``, multiply-accumulates.

    Raises:
        ValueError: ``repeats`` is below 1, a reduction is in force, or these are no images or no settings.
        TypeError: No plain vision transformer is in the model.

    Example:
        >>> import timm
        >>> vit = timm.create_model("vit_tiny_patch16_224", depth=3, embed_dim=48).eval()
        >>> from thrifty.inference.token_reduction import FreqReduceConfig
        >>> x = torch.randn(1, 3, 224, 224)
        >>> sorted(measure_throughput(vit, x, {"ours": FreqReduceConfig((2,), 0.5)}, repeats=1))
        ['base', 'ours']
    """
    whole("repeats", repeats)
    check_images(x)
    if not isinstance(configs, Mapping) or "base" in configs or None in configs.values():
        raise ValueError(
            f"configs: expected a mapping of names to settings, 'base' (the model as it is) left out, got {configs!r}"
        )
    if reduction_of(model) is not None:
        raise ValueError("model: a token reduction is in force; remove() it first: each method is timed under its own")
    order: list[tuple[str, Config | None]] = [("base", None), *configs.items()]
    seconds: dict[str, list[float]] = {name: [] for name, _ in order}
    macs: dict[str, int] = {}
    training = model.training
    model.eval()
    try:
        for round_ in range(repeats + 1):
            for name, config in order[round_ % len(order) :] + order[: round_ % len(order)]:
                took, macs[name] = _timed(model, x, config)
                if round_:
                    seconds[name].append(took)
    finally:
        model.train(training)
    return {
        name: Throughput(
            len(x) / statistics.median(taken),
            statistics.median(base / ours for base, ours in zip(seconds["base"], taken, strict=True)),
            macs[name],
        )
        for name, taken in seconds.items()
    }


@torch.inference_mode()
def _timed(model: nn.Module, x: Any, config: Config | None) -> tuple[float, int]:
    reduction = None if config is None else reduce_tokens(model, config)
    try:
        _wait(x)
        start = time.perf_counter()
        model(x)
        _wait(x)
        took = time.perf_counter() - start
        return took, count_macs(model, (x.shape[-2], x.shape[-1]))
    finally:
        if reduction is not None:
            reduction.remove()


def _wait(x: Tensor) -> None:
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)
