"""Recurrent cells whose state meets itself only channel by channel (and one that does not, to compare with)."""

from __future__ import annotations

from typing import Any

from thrifty.models.lrcssm.cells.base import DiagonalCell
from thrifty.models.lrcssm.cells.dense import DenseLRCCell
from thrifty.models.lrcssm.cells.gated import GRUCell, LSTMCell, MGUCell
from thrifty.models.lrcssm.cells.linear import LinearLRCCell
from thrifty.models.lrcssm.cells.lrc import ComplexLRCCell, LRCCell, LTCCell, STCCell

#: The names by which layers and models know cells.
CELLS: dict[str, type[DiagonalCell]] = {
    "lrc": LRCCell,
    "stc": STCCell,
    "ltc": LTCCell,
    "gru": GRUCell,
    "mgu": MGUCell,
    "lstm": LSTMCell,
    "lrc-complex": ComplexLRCCell,
    "lrc-linear": LinearLRCCell,
    "lrc-dense": DenseLRCCell,
}


def make_cell(name: str, input_size: int, hidden_size: int, **options: Any) -> DiagonalCell:
    """Build a cell by name.

    Raises:
        ValueError: There is no such cell, or it has no such option.
    """
    if name not in CELLS:
        raise ValueError(f"cell: expected one of {', '.join(CELLS)}, or a module, got {name!r}")
    try:
        return CELLS[name](input_size, hidden_size, **options)
    except TypeError as error:
        raise ValueError(f"cell: {name!r} does not take what was given: {error}") from error


__all__ = [
    "CELLS",
    "ComplexLRCCell",
    "DenseLRCCell",
    "DiagonalCell",
    "GRUCell",
    "LRCCell",
    "LSTMCell",
    "LTCCell",
    "LinearLRCCell",
    "MGUCell",
    "STCCell",
    "make_cell",
]
