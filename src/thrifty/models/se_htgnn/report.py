"""What a trained model looks at: attention over relations and time, as a table, and as a plot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty.models.se_htgnn.temporal import Triple

Attention = Mapping[tuple[int, Triple], Float[np.ndarray, "window time head"]]


def attention_rows(attention: Attention) -> list[dict[str, Any]]:
    """Return a row for every layer, relation and head: the mean weight over windows at each step, oldest first.

    Args:
        attention: What an estimator's ``attention_weights`` gave.
    """
    return [
        {"layer": layer, "relation": list(triple), "head": head, "weights": w[:, :, head].mean(0).round(4).tolist()}
        for (layer, triple), w in sorted(attention.items())
        for head in range(w.shape[2])
    ]


def plot_attention(attention: Attention, path: str | Path, *, force: bool = False) -> Path:
    """Draw every relation's weight over the steps of a window, one panel a node type and layer, as PNG, PDF or SVG.

    Args:
        attention: What an estimator's ``attention_weights`` gave.
        path: Where to write; its ending says the format.
        force: Replace what is there.

    Returns:
        The path.

    Raises:
        FileExistsError: ``path`` is there, and ``force`` is off.
        ImportError: matplotlib is not installed.

    Example:
        >>> weights = {(0, ("a", "to", "a")): np.ones((1, 3, 1))}
        >>> plot_attention(weights, "attention.svg", force=True).name
        'attention.svg'

    Source:
        arXiv 2510.18467, figures on attention over time.
    """
    matplotlib: Any = require("matplotlib.figure", extra="bench")
    panels = sorted({(layer, triple[2]) for layer, triple in attention})
    figure = matplotlib.Figure(figsize=(4.5 * max(1, len(panels)), 3.2), layout="constrained")
    axes = figure.subplots(1, max(1, len(panels)), squeeze=False)[0]
    for axis, (layer, name) in zip(axes, panels, strict=False):
        for (where, triple), w in sorted(attention.items()):
            if (where, triple[2]) == (layer, name):
                for head in range(w.shape[2]):
                    label = f"{triple[0]} {triple[1]}" + (f", head {head}" if w.shape[2] > 1 else "")
                    axis.plot(range(-w.shape[1], 0), w[:, :, head].mean(0), marker=".", label=label)
        axis.set(title=f"into {name}, layer {layer + 1}", xlabel="snapshots before the forecast", ylabel="attention")
        axis.set_ylim(0, 1)
        axis.legend(fontsize="small")
    kind = Path(path).suffix.lstrip(".") or "png"
    return write_whole(path, lambda file: figure.savefig(file, format=kind), force=force)
