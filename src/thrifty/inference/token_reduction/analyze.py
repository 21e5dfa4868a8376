"""What token reduction does to rank and frequency, layer by layer, for any of the methods."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty._common.checks import one_of
from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty.inference.token_reduction import metrics
from thrifty.inference.token_reduction.config import Config, named
from thrifty.inference.token_reduction.hosts import Host, find_host
from thrifty.inference.token_reduction.inputs import check_images
from thrifty.inference.token_reduction.partition import Tokens, begin
from thrifty.inference.token_reduction.patch import TokenReduction, reduce_tokens, reduction_of
from thrifty.inference.token_reduction.restore import restore_tokens


@dataclass(frozen=True)
class LayerRow:
    """One method at one layer, averaged over images.

    Args:
        method: Its name.
        layer: Numbered from 1; tokens are those that the block hands on.
        tokens: Their number, prefix included.
        hf_ratio: Share of the high-frequency part.
        collapse_ratio: How much of the high-frequency part the block's attention leaves.
        log_amplitude: Relative log amplitude at 1.0 π, of the restored grid.
        token_cosine: Mean cosine of two tokens.
        effective_rank: Exponential of the entropy of singular values.
        dc_similarity: Mean cosine of a token with the mean token.
        class_dc: Cosine of the class token with the mean patch (NaN without a class token).
        to_last: Mean cosine of a restored token with the same place at the last layer.
    """

    method: str
    layer: int
    tokens: int
    hf_ratio: float
    collapse_ratio: float
    log_amplitude: float
    token_cosine: float
    effective_rank: float
    dc_similarity: float
    class_dc: float
    to_last: float


_COLUMNS = [field.name for field in fields(LayerRow)]


@dataclass(frozen=True)
class Analysis:
    """The table of :func:`analyze_tokens`: a row a method and layer.

    Attributes:
        rows: A method and layer each.
        amplitudes: Method to (frequencies in units of π, relative log amplitudes) of its last layer.

    Example:
        >>> row = LayerRow("base", 1, 197, 0.9, 0.8, -3.0, 0.1, 40.0, 0.2, 0.3, 0.6)
        >>> table = Analysis((row,), {})
        >>> table.column("base", "hf_ratio")
        [0.9]
        >>> table.to_csv().splitlines()[0][:23]
        'method,layer,tokens,hf_'
    """

    rows: tuple[LayerRow, ...]
    amplitudes: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]

    def column(self, method: str, name: str) -> list[float]:
        """Return one quantity of one method, layer by layer.

        Raises:
            ValueError: There is no such method or quantity.
        """
        one_of("method", method, dict.fromkeys(row.method for row in self.rows))
        one_of("name", name, _COLUMNS)
        return [float(getattr(row, name)) for row in self.rows if row.method == method]

    def to_csv(self) -> str:
        """Return the table with a header line."""
        held = io.StringIO()
        writer = csv.DictWriter(held, _COLUMNS)
        writer.writeheader()
        writer.writerows(asdict(row) for row in self.rows)
        return held.getvalue()

    def plot(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Draw how the metrics run over the layers, and the spectra at the last, as PNG or SVG.

        Raises:
            ImportError: matplotlib is not installed.
            FileExistsError: The file exists, and ``force`` is off.
            ValueError: Its name ends in neither ``.png`` nor ``.svg``.
        """
        path = Path(path)
        kind = path.suffix.lstrip(".").lower() or "png"
        if kind not in ("png", "svg"):
            raise ValueError(f"path: expected a name that ends in .png or .svg, got {path.name}")
        require("matplotlib", extra="bench").use("Agg")
        pyplot = require("matplotlib.pyplot", extra="bench")
        names = ("hf_ratio", "log_amplitude", "token_cosine", "effective_rank", "tokens")
        figure, axes = pyplot.subplots(2, 3, figsize=(13, 7), layout="constrained")
        for axis, name in zip(axes.flat, names, strict=False):
            for method in dict.fromkeys(row.method for row in self.rows):
                values = self.column(method, name)
                axis.plot(range(1, len(values) + 1), values, marker=".", label=method)
            axis.set(xlabel="layer", title=name.replace("_", " "))
        for method, (frequency, amplitude) in self.amplitudes.items():
            axes[1, 2].plot(frequency, amplitude, label=method)
        axes[1, 2].set(xlabel="frequency (x π)", title="relative log amplitude, last layer")
        axes[1, 2].legend()
        write_whole(path, lambda file: figure.savefig(file, format=kind), force=force)
        pyplot.close(figure)
        return path


def analyze_tokens(
    model: nn.Module,
    x: Float[Tensor, "batch channel height width"],
    methods: Sequence[str] | Mapping[str, Config | None] = ("base", "frequency", "tome", "evit", "pool"),
    *,
    layers: tuple[int, ...] = (4, 7, 10),
    keep: tuple[float, ...] | float = 0.7,
) -> Analysis:
    """Measure rank and frequency of the tokens behind every block, for a model as it is and under reductions.

    Args:
        model: A vision transformer without a reduction in force; it is given back as it came.
        x: Images, as the model takes them.
        methods: Names (``"base"`` is the model as it is), for the schedule below; or names with settings.
        layers: Where, numbered from 1.
        keep: Shares of the remaining tokens.

    Returns:
        One row a method and layer, and the spectrum at the last layer.

    Raises:
        ValueError: A method is unknown, a reduction is in force, or these are no images.
        TypeError: No plain vision transformer is in the model, or a setting is none.

    Example:
        >>> import timm
        >>> vit = timm.create_model("vit_tiny_patch16_224", depth=3, embed_dim=48).eval()
        >>> found = analyze_tokens(vit, torch.randn(1, 3, 224, 224), ("base", "tome"), layers=(2,), keep=0.5)
        >>> found.column("base", "tokens"), found.column("tome", "tokens")
        ([197.0, 197.0, 197.0], [197.0, 99.0, 99.0])

    Source:
        arXiv 2511.21477, sections 2 and 4.
    """
    check_images(x)
    if isinstance(methods, str) or not methods:
        raise ValueError(f"methods: expected names of methods, or a mapping of names to settings, got {methods!r}")
    if not isinstance(methods, Mapping):
        methods = {name: None if name == "base" else named(name, layers, keep) for name in methods}
    if reduction_of(model) is not None:
        raise ValueError("model: a token reduction is in force; remove() it first: analyze_tokens sets its own")
    rows: list[LayerRow] = []
    spectra = {}
    for name, config in methods.items():
        seen = _observe(model, x, config)
        rows += _rows(name, seen)
        frequency, amplitude = metrics.relative_log_amplitude(seen[-1].dense, seen[-1].grid)
        spectra[name] = (tuple(frequency.tolist()), tuple(amplitude.tolist()))
    return Analysis(tuple(rows), spectra)


@dataclass(frozen=True)
class _Seen:
    """One block's work: what attention saw and gave, and the tokens that were handed on."""

    grid: tuple[int, int]
    prefix: int
    has_class: bool
    sequence: Tensor
    dense: Tensor
    collapse: Tensor


def _observe(model: nn.Module, x: Tensor, config: Config | None) -> list[_Seen]:
    """Run the model once, and keep what every block hands on."""
    host = find_host(model)
    seen: list[_Seen] = []
    batch = len(x)
    grid: list[tuple[int, int]] = []
    collapse: list[Tensor] = []

    def on_patches(_: Any, __: Any, maps: Tensor) -> None:
        grid.append((int(maps.shape[-2]), int(maps.shape[-1])))

    def on_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> None:
        """Attention's own share: plain attention on what the block's first norm gives."""
        mixed = torch.softmax(query * scale @ key.transpose(-2, -1), dim=-1) @ value
        collapse.append(metrics.collapse_ratio(mixed.transpose(1, 2).flatten(2), value.transpose(1, 2).flatten(2)))

    def place(length: int) -> Tokens:
        return _tokens(reduction, batch, length, grid[-1], host.prefix, x.device)

    def on_block(_: Any, __: Any, out: Any) -> None:
        sequence = out[0] if isinstance(out, tuple) else out
        dense = restore_tokens(sequence, place(sequence.shape[1]))
        seen.append(_Seen(grid[-1], host.prefix, host.has_class_token, sequence, dense, collapse[-1]))

    reduction = None if config is None else reduce_tokens(model, config, trace=True)
    hooks: list[Any] = []
    training = model.training
    try:
        hooks.append(host.patches.register_forward_hook(on_patches))
        for index, block in enumerate(host.blocks):
            hooks += watch_attention(host, index, place, on_attention)
            hooks.append(block.register_forward_hook(on_block))
        model.eval()
        with torch.no_grad():
            model(x)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
        if reduction is not None:
            reduction.remove()
    return seen


def watch_attention(
    host: Host, index: int, place: Callable[[int], Tokens], then: Callable[[Tensor, Tensor, Tensor, float], None]
) -> list[Any]:
    """Call ``then`` with queries, keys, values and scale of a block whenever it runs, and return the hooks.

    ``place`` tells, for the length of the sequence, what is known of its tokens: rotary positions need it.
    """
    part, block = host.part(index), host.blocks[index]
    norm = next(child for name, child in block.named_children() if "norm" in name or name == "ln_1")
    given: dict[str, Any] = {}

    def on_block(_: Any, __: Any, kwargs: dict[str, Any]) -> None:
        given["rotary"] = part.rotary(kwargs)

    def on_norm(_: Any, __: Any, normed: Tensor) -> None:
        rotary = given["rotary"]
        then(*part.query_key_value(normed, None if rotary is None else rotary.at(place(normed.shape[1]))), part.scale)

    return [block.register_forward_pre_hook(on_block, with_kwargs=True), norm.register_forward_hook(on_norm)]


def _tokens(
    reduction: TokenReduction | None, batch: int, length: int, grid: tuple[int, int], prefix: int, device: torch.device
) -> Tokens:
    """Return what is known of the tokens behind a block; before the first reduction, all are there."""
    if reduction is None or length == prefix + grid[0] * grid[1]:
        return begin(batch, grid, prefix, device)
    return reduction.tokens


def _rows(method: str, seen: Sequence[_Seen]) -> list[LayerRow]:
    last = seen[-1].dense
    return [
        LayerRow(
            method=method,
            layer=layer,
            tokens=s.sequence.shape[1],
            hf_ratio=_mean(metrics.hf_ratio(s.sequence)),
            collapse_ratio=_mean(s.collapse),
            log_amplitude=float(metrics.relative_log_amplitude(s.dense, s.grid)[1][-1]),
            token_cosine=_mean(metrics.token_cosine(s.sequence)),
            effective_rank=_mean(metrics.effective_rank(s.sequence)),
            dc_similarity=_mean(metrics.dc_similarity(s.sequence)),
            class_dc=_mean(metrics.class_dc_similarity(s.sequence, s.prefix)) if s.has_class else float("nan"),
            to_last=_mean(metrics.layer_similarity(s.dense, last)),
        )
        for layer, s in enumerate(seen, start=1)
    ]


def _mean(x: Tensor) -> float:
    return float(x.float().mean())
