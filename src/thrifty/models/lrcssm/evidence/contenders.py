"""Who is compared, as one recurrent layer in the same block, at a rate of its own from one grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from thrifty.models.lrcssm import DiagonalRNN, rivals

#: One grid of Adam's rates for all.
GRID = (1e-3, 3e-3, 1e-2)

#: From ``tuning.py``: the best mean validation accuracy over three sets and three seeds (Mamba: ItalyPowerDemand
#: only; the dense cell: ItalyPowerDemand and JapaneseVowels).
RATES: dict[str, float] = {
    "LrcSSM": 3e-3,
    "LrcSSM, certified": 3e-3,
    "GruSSM": 3e-3,
    "nn.GRU": 3e-3,
    "nn.LSTM": 3e-3,
    "LRU": 3e-3,
    "S5": 1e-2,
    "minGRU": 1e-2,
    "Transformer": 1e-3,
    "LRC, dense": 3e-3,
    "Mamba": 1e-3,
}

#: The rivals among which the best recurrent one is sought.
RECURRENT = ("nn.GRU", "nn.LSTM", "LRU", "S5", "minGRU", "GruSSM")


def make_layer(name: str, width: int, longest: int) -> nn.Module:
    """Build a contender's recurrent layer of ``width`` inputs and channels.

    Raises:
        KeyError: There is no contender of that name.
        ImportError: Its package is not installed.
    """
    kinds: dict[str, Callable[[], nn.Module]] = {
        "LrcSSM": lambda: _ours("lrc", width),
        "LrcSSM, certified": lambda: _ours("lrc", width, rho=0.99),
        "LRC, dense": lambda: _ours("lrc-dense", width, solver="sequential"),  # the same states, sooner than Newton's
        "GruSSM": lambda: _ours("gru", width),
        "nn.GRU": lambda: rivals.Host(nn.GRU, width, width),
        "nn.LSTM": lambda: rivals.Host(nn.LSTM, width, width),
        "LRU": lambda: rivals.LRU(width, width),
        "S5": lambda: rivals.S5(width, width),
        "minGRU": lambda: rivals.MinGRU(width, width),
        "Mamba": lambda: rivals.Mamba(width),
        "Transformer": lambda: rivals.Attention(width, longest),
    }
    return kinds[name]()


def _ours(cell: str, width: int, **options: Any) -> nn.Module:
    return DiagonalRNN(cell, width, width, **options)
