"""The dense grid back from a reduced sequence, for segmenters and for pictures of what a model sees.

Source: arXiv 2511.21477, appendix G.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty.inference.token_reduction.partition import Tokens, ownership, take


def restore_tokens(
    x: Float[Tensor, "batch n d"], tokens: Tokens, mode: Literal["dc", "residual"] = "dc"
) -> Float[Tensor, "batch patches d"]:
    """Return one token for each patch of the original grid, in raster order.

    Args:
        x: The reduced sequence, prefix included.
        tokens: What is known of it (:attr:`TokenReduction.tokens` after a forward pass).
        mode: A dropped place gets the token that stands for it (``"dc"``: its cell's DC token, or what it merged into),
            or what it was when it was dropped plus what its DC token has changed since (``"residual"``). A place for
            which no token stands gets the mean of those behind the prefix.

    Raises:
        TypeError: One of them is something else.
        ValueError: The sequence is not of that pass, the mode is unknown, or ``"residual"`` lacks what it needs.

    Example:
        >>> from thrifty.inference.token_reduction.partition import begin, reduce_by_score
        >>> x, tokens = torch.arange(5.0).reshape(1, 5, 1), begin(1, (2, 2), 1, "cpu")
        >>> short, tokens, _ = reduce_by_score(x, tokens, torch.tensor([[9.0, 1.0, 2.0, 8.0]]), keep=2, window=1)
        >>> short.flatten().tolist()  # prefix, two kept, the mean of the others
        [0.0, 1.0, 4.0, 2.5]
        >>> restore_tokens(short, tokens).flatten().tolist()
        [1.0, 2.5, 2.5, 4.0]

    Source:
        arXiv 2511.21477, appendix G.
    """
    if mode not in ("dc", "residual"):
        raise ValueError(f"mode: expected 'dc' or 'residual', got {mode!r}")
    if not isinstance(tokens, Tokens) or not isinstance(x, Tensor):
        raise TypeError(
            f"x, tokens: expected a tensor, and Tokens of the pass that made it, got {type(x).__name__} and "
            f"{type(tokens).__name__}"
        )
    batch, expected = len(tokens.size), tokens.prefix + tokens.size.shape[1]
    if x.ndim != 3 or x.shape[:2] != (batch, expected):
        raise ValueError(f"x: expected ({batch}, {expected}, width) as the last pass left it, got {tuple(x.shape)}")
    behind = x[:, tokens.prefix :]
    owner = ownership(tokens)
    dense = take(behind, owner.clamp(min=0))
    if not tokens.summaries or mode == "dc":
        return torch.where((owner < 0).unsqueeze(-1), behind.mean(dim=1, keepdim=True), dense)
    for stage in tokens.history:
        if stage.dropped_values is None or stage.dc_values is None or stage.dropped is None or stage.cell is None:
            raise ValueError("mode: 'residual' needs reduce_tokens(..., restored='residual') before the forward pass")
        then = take(stage.dc_values, stage.cell)
        now = take(behind, owner.gather(1, stage.dropped))
        value = stage.dropped_values + (now - then).to(stage.dropped_values.dtype)
        dense = dense.scatter(1, stage.dropped.unsqueeze(-1).expand(-1, -1, x.shape[-1]), value.to(dense.dtype))
    return dense


def restored_sequence(
    x: Float[Tensor, "batch n d"], tokens: Tokens, mode: Literal["dc", "residual"]
) -> Float[Tensor, "batch full d"]:
    """Return the prefix and one token for each patch."""
    return torch.cat((x[:, : tokens.prefix], restore_tokens(x, tokens, mode)), dim=1)
