"""Cells with known weights, and the recurrence step by step, to compare with."""

import torch
from torch import Tensor

from thrifty.models.lrcssm import cells as kinds
from thrifty.models.lrcssm.solvers.recurrence import Recurrence

#: Every cell of the house, with its options: name to (kind, options, factor on the weights).
EVERY_CELL = {
    "lrc": ("lrc", {}, 2.0),
    "lrc, symmetric": ("lrc", {"elastance": "symmetric"}, 2.0),
    "lrc, symmetric and free": ("lrc", {"elastance": "symmetric", "elastance_sign": "free"}, 1.5),
    "lrc, elastance reads the input": ("lrc", {"elastance_input": True}, 2.0),
    "lrc, symmetric, reads the input": ("lrc", {"elastance": "symmetric", "elastance_input": True}, 2.0),
    "lrc, synapse before": ("lrc", {"input_synapse": "pre"}, 2.0),
    "lrc, certified": ("lrc", {"rho": 0.95}, 4.0),
    "lrc, A of the input": ("lrc", {"state_dependent_A": False}, 2.0),
    "lrc, linear": ("lrc", {"state_dependent_A": False, "state_dependent_b": False, "elastance_input": True}, 2.0),
    "stc": ("stc", {}, 2.0),
    "ltc": ("ltc", {}, 0.4),
    "gru": ("gru", {}, 2.0),
    "mgu": ("mgu", {}, 2.0),
    "lstm": ("lstm", {}, 2.0),
    "complex": ("lrc-complex", {}, 1.0),
    "linear, tanh": ("lrc-linear", {}, 2.0),
    "linear, softplus": ("lrc-linear", {"eigenvalue": "softplus", "rho": 0.9}, 2.0),
    "dense": ("lrc-dense", {}, 1.0),
}

NAMES = ("m", "s", "W", "H", "mu", "a", "w", "k", "g", "e", "alpha", "beta", "kappa")


def golden_cell(**options):
    """The LRC cell whose weights are sines, in double precision."""
    cell = kinds.LRCCell(2, 3, dtype=torch.float64, **options)
    for q, name in enumerate(NAMES):
        if hasattr(cell, name):
            fill(getattr(cell, name), 1 + q)
    return cell


def fill(parameter: Tensor, phase: float) -> None:
    """Fill with sin(phase + j / 2), row by row."""
    j = torch.arange(parameter.numel(), dtype=parameter.dtype)
    parameter.data = torch.sin(phase + 0.5 * j).reshape(parameter.shape)


def golden_input(T: int) -> Tensor:
    """One sequence of two sines."""
    t = torch.arange(T, dtype=torch.float64)
    return torch.sin(0.7 * t[:, None] + 1.3 * torch.arange(2))[None]


def make(name: str, n: int, D: int, seed: int = 0, dtype=torch.float64):
    """A cell of `EVERY_CELL` with random weights."""
    kind, options, factor = EVERY_CELL[name]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        cell = kinds.make_cell(kind, n, D, dtype=dtype, **options)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.mul_(factor)
        if kind == "ltc":
            cell.g.abs_().add_(0.3)  # a conductance that is negative would make it diverge
    return cell


def in_order(cell, u: Tensor, x0: Tensor) -> Tensor:
    """All states, one step after the other, on autograd's tape."""
    problem = Recurrence(cell, cell.precompute(u), (u.shape[0], u.shape[1]))
    states, x = [], x0
    for t in range(u.shape[1]):
        x = problem.at(t, x)
        states.append(x)
    return torch.stack(states, 1)


def random(*shape: int, seed: int = 0, dtype=torch.float64) -> Tensor:
    """Normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
