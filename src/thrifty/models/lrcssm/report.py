"""What a person wants to know of a trained network: certificates and Newton traces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from thrifty.models.lrcssm.cells.lrc import LRCCell
from thrifty.models.lrcssm.certificate import Certificate, certificate
from thrifty.models.lrcssm.layer import DiagonalRNN
from thrifty.models.lrcssm.network import LrcSSMModel
from thrifty.models.lrcssm.solvers.info import SolveInfo


@dataclass(frozen=True)
class LayerReport:
    """One recurrent layer.

    Args:
        cell: Name of its cell.
        certificate: What holds of it; ``None`` where no bound applies.
        info: How a Newton solve of the data went.
    """

    cell: str
    certificate: Certificate | None
    info: SolveInfo | None

    def describe(self) -> str:
        """Return it in words."""
        lines = [self.cell]
        lines += [self.certificate.describe()] if self.certificate else ["no bound applies to this cell"]
        if self.info is not None:
            trace = " ".join(f"{error:.1e}" for error in self.info.errors)
            lines.append(
                f"Newton on the data: {int(self.info.n_iter.max())} iterations at most, residual "
                f"{float(self.info.residual.max()):.1e}, {int(self.info.fallback.sum())} sequences finished in order"
            )
            lines.append(f"updates: {trace}")
        return "\n  ".join("\n".join(lines).splitlines())

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        found = self.certificate
        info = self.info
        return {
            "cell": self.cell,
            "certified": None if found is None else found.jacobian is not None,
            "jacobian": None if found is None else found.jacobian,
            "state_bound": None if found is None else float(found.state.max()),
            "n_iter": None if info is None else int(info.n_iter.max()),
            "residual": None if info is None else float(info.residual.max()),
            "fallback": None if info is None else int(info.fallback.sum()),
        }


@torch.no_grad()
def examine(model: LrcSSMModel, u: NDArray | None = None) -> list[LayerReport]:
    """Report on every recurrent layer of a network, with data on what each of them then meets."""
    model.eval()
    met: dict[int, Tensor] = {}
    layers: list[Any] = [block.rnn for block in model.blocks]
    hooks = [
        layer.register_forward_pre_hook(lambda _, given, i=i: met.__setitem__(i, given[0]))
        for i, layer in enumerate(layers)
    ]
    try:
        if u is not None:
            model(torch.from_numpy(u))
    finally:
        for hook in hooks:
            hook.remove()
    return [_examine(layer, met.get(i)) for i, layer in enumerate(layers)]


def _examine(layer: DiagonalRNN, y: Float[Tensor, "batch time n"] | None) -> LayerReport:
    cell = layer.cell
    bounded = isinstance(cell, LRCCell) and cell.saturating and not cell.state_dtype.is_complex
    bounded = (
        bounded and not layer.bidirectional and not (cell.elastance_sign == "free" and cell.elastance == "symmetric")
    )
    info = None
    if y is not None:
        before = layer.options
        layer.options = replace(before, solver="newton", chunk=y.shape[1])
        try:
            info = layer(y, return_info=True)[2]
        finally:
            layer.options = before
    return LayerReport(type(cell).__name__, certificate(layer, y) if bounded else None, info)
