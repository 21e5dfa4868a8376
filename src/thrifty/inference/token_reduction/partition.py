"""Which tokens stay, and the DC tokens that stand for the others: one reduction of a sequence.

A sequence is ``[prefix | live patches in raster order | DC tokens in cell order]``. DC cells are squares of the
*original* patch grid, so positions are tracked through all reductions. The equations are those of arXiv 2511.21477,
sections 3.2 and 3.3.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, repr=False)
class Stage:
    """What one reduction did, for those who asked for a trace.

    Args:
        layer: Where, numbered from 1.
        kept: Places of the kept patches in the original grid, batch x kept (``None`` for methods that merge).
        dropped: Places of the patches that were dropped here.
        cell: DC cell of each dropped patch, in this stage's window (``None`` without DC tokens).
        dc_size: Patches that each DC token stands for.
        before: Tokens that entered, prefix included.
        after: Tokens that left.
        score: Of the live patches that entered, if the method scores.
        window: DC cells along each side.
        dropped_values: The dropped tokens as they were, if dense restoring will add what changed since.
        dc_values: The DC tokens as they were made, likewise.
    """

    layer: int
    kept: Int[Tensor, "batch kept"] | None
    dropped: Int[Tensor, "batch dropped"] | None
    cell: Int[Tensor, "batch dropped"] | None
    dc_size: Float[Tensor, "batch dc"] | None
    before: int
    after: int
    score: Float[Tensor, "batch n"] | None = None
    window: int = 0
    dropped_values: Float[Tensor, "batch dropped d"] | None = None
    dc_values: Float[Tensor, "batch dc d"] | None = None

    def __repr__(self) -> str:
        return f"Stage(layer {self.layer}: {self.before} -> {self.after} tokens)"


@dataclass(frozen=True)
class Tokens:
    """What is known of the tokens behind the prefix, besides their values.

    Args:
        grid: Rows and columns of the original patch grid.
        prefix: Class, distillation and register tokens at the front, which are never dropped.
        position: Place of each live patch in the original grid, raster order; for tokens that merged, ``None``.
        size: Patches that each token behind the prefix stands for.
        summaries: How many tokens at the end stand for dropped ones.
        window: DC cells along each side of the image; 0 if there is no DC token yet.
        owner: For each original patch the token behind the prefix that now stands for it, -1 for none; kept only where
            it does not follow from ``position`` and ``window``.
        shape: Rows and columns of the live tokens, while they form a grid.
        history: What the reductions so far did, if someone asked for a trace.
    """

    grid: tuple[int, int]
    prefix: int
    position: Int[Tensor, "batch n"] | None
    size: Float[Tensor, "batch live"]
    summaries: int = 0
    window: int = 0
    owner: Int[Tensor, "batch patches"] | None = None
    shape: tuple[int, int] | None = None
    history: tuple[Stage, ...] = ()

    @property
    def live(self) -> int:
        """Return how many patch tokens are live, summaries not counted."""
        return self.size.shape[1] - self.summaries


def begin(batch: int, grid: tuple[int, int], prefix: int, device: torch.device | str) -> Tokens:
    """Return what is known before the first reduction: every patch is live and stands for itself."""
    patches = grid[0] * grid[1]
    position = torch.arange(patches, device=device).expand(batch, patches)
    size = torch.ones((), device=device).expand(batch, patches)
    return Tokens(grid, prefix, position, size, shape=grid)


def cell_of(position: Int[Tensor, "batch n"], grid: tuple[int, int], window: int) -> Int[Tensor, "batch n"]:
    """Return the DC cell of each place: floor(row w / gh) w + floor(column w / gw)."""
    rows, columns = grid
    row, column = position // columns, position % columns
    return (row * window // rows) * window + column * window // columns


def coarser(window: int, onto: int, device: torch.device | str) -> Int[Tensor, " cells"]:
    """Return, for each cell of one window, the cell of a coarser window that holds it."""
    return cell_of(torch.arange(window * window, device=device)[None], (window, window), onto)[0]


def highest(score: Float[Tensor, "batch n"], count: int) -> tuple[Int[Tensor, "batch kept"], Int[Tensor, "batch low"]]:
    """Return the indices of the ``count`` highest scores and those of the others, each in rising order.

    Of equal scores the lower index comes first, so that the choice is the same on every run and device.
    """
    order = ranked(score)
    return order[:, :count].sort(dim=1).values, order[:, count:].sort(dim=1).values


def ranked(score: Float[Tensor, "batch n"]) -> Int[Tensor, "batch n"]:
    """Return the indices from the highest score to the lowest; of equal ones the lower index comes first."""
    if torch.compiler.is_exporting():  # ONNX has no stable sort; its plain one prefers the lower index by definition
        return torch.sort(score, dim=1, descending=True).indices
    return torch.sort(score, dim=1, descending=True, stable=True).indices


def take(x: Float[Tensor, "batch n d"], index: Int[Tensor, "batch k"]) -> Float[Tensor, "batch k d"]:
    """Return the tokens at an index, each image its own."""
    return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def reduce_by_score(
    x: Float[Tensor, "batch n d"],
    tokens: Tokens,
    score: Float[Tensor, "batch live"],
    keep: int,
    window: int,
    *,
    update: Literal["weighted", "uniform"] = "weighted",
    dc_embedding: Float[Tensor, "cells d"] | None = None,
) -> tuple[Float[Tensor, "batch reduced d"], Tokens, tuple[Tensor, Tensor]]:
    """Keep the ``keep`` highest patches and replace the others by the means of their cells.

    Args:
        x: The sequence: prefix, live patches, DC tokens.
        tokens: What is known of it.
        score: Of the live patches.
        keep: How many stay, below the number that is live.
        window: DC cells along each side of the image; 0 makes no DC token.
        update: How earlier DC tokens enter: by their sizes, or each as one token.
        dc_embedding: Added to each new DC token.

    Returns:
        The shorter sequence, what is known of it, and the (kept, dropped) indices among the live patches.

    Source:
        arXiv 2511.21477, equations 8 to 10; the paper's equation 11 is open, see the card.
    """
    assert tokens.position is not None
    kept, low = highest(score, keep)
    first, live = tokens.prefix, tokens.live
    place = tokens.position.gather(1, kept)
    head = [x[:, :first], take(x[:, first : first + live], kept)]
    if not window:
        known = replace(tokens, position=place, size=torch.ones_like(place, dtype=torch.float32), shape=None)
        return torch.cat(head, dim=1), known, (kept, low)
    weight, size = _shares(tokens, kept, window, update, torch.promote_types(x.dtype, torch.float32))
    means = weighted_means(weight, x[:, first:])
    if dc_embedding is not None:
        means = means + dc_embedding.to(means.dtype)
    known = replace(
        tokens,
        position=place,
        size=torch.cat((torch.ones_like(place, dtype=size.dtype), size), dim=1),
        summaries=window * window,
        window=window,
        shape=None,
    )
    return torch.cat([*head, means], dim=1), known, (kept, low)


def _shares(
    tokens: Tokens, kept: Int[Tensor, "batch kept"], window: int, update: str, dtype: torch.dtype
) -> tuple[Float[Tensor, "batch cells n"], Float[Tensor, "batch cells"]]:
    """Return the share that every token behind the prefix has in each new DC token, and the DC tokens' sizes."""
    assert tokens.position is not None
    device, cells = tokens.size.device, window * window
    is_low = torch.ones(tokens.position.shape, device=device, dtype=dtype).scatter(1, kept, 0.0)
    cell = torch.arange(cells, device=device)[None, :, None]
    inside = is_low[:, None, :] * (cell_of(tokens.position, tokens.grid, window)[:, None, :] == cell)
    size = inside.sum(dim=2)
    if tokens.summaries:
        earlier_size = tokens.size[:, tokens.live :]
        held = (coarser(tokens.window, window, device)[None, None, :] == cell).to(dtype)
        size = size + (held * earlier_size[:, None, :]).sum(dim=2)
        earlier = held * earlier_size[:, None, :] if update == "weighted" else held.expand(len(kept), -1, -1)
        inside = torch.cat((inside, earlier), dim=2)
        is_low = torch.nn.functional.pad(is_low, (0, tokens.summaries))
    total = inside.sum(dim=2, keepdim=True)
    # An empty cell holds the mean of all low-frequency tokens, and stands for no patch.
    everything = is_low / is_low.sum(dim=1, keepdim=True)
    return torch.where(total > 0, inside / total.clamp(min=1e-12), everything[:, None, :]), size


def weighted_means(
    weight: Float[Tensor, "batch cells n"], x: Float[Tensor, "batch n d"]
) -> Float[Tensor, "batch cells d"]:
    """Return the weighted means in x's precision, summed in float32 at least, whatever autocast is on."""
    wide = torch.promote_types(x.dtype, torch.float32)
    whole = nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)
    with whole:
        return (weight.to(wide) @ x.to(wide)).to(x.dtype)


def ownership(tokens: Tokens) -> Int[Tensor, "batch patches"]:
    """Return, for each original patch, the token behind the prefix that stands for it (-1: none).

    Raises:
        ValueError: Tokens merged, and nobody asked to follow them.
    """
    if tokens.owner is not None:
        return tokens.owner
    if tokens.position is None:
        raise ValueError("tokens: whom a merged token stands for was not followed; use reduce_tokens(..., trace=True)")
    batch, kept = tokens.position.shape
    patches, device = tokens.grid[0] * tokens.grid[1], tokens.position.device
    if tokens.summaries:
        everywhere = torch.arange(patches, device=device).expand(batch, patches)
        owner = kept + cell_of(everywhere, tokens.grid, tokens.window)
    else:
        owner = torch.full((batch, patches), -1, device=device)
    return owner.scatter(1, tokens.position, torch.arange(kept, device=device).expand(batch, kept))


def refuse_nonfinite(score: Float[Tensor, "batch n"], layer: int) -> None:
    """Refuse to rank scores that are not numbers.

    Raises:
        ValueError: Some score is NaN or infinite.
    """
    bad = int((~torch.isfinite(score)).sum())
    if bad:
        raise ValueError(
            f"score: {bad} of {score.numel()} scores at layer {layer} are not finite; the activations overflowed or "
            "held NaN before it (in float16, try bfloat16)"
        )
