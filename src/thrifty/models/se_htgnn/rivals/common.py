"""What rival networks share with the model they are set beside: the same projection, the same types left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from jaxtyping import Float
from torch import Tensor, nn, randn

from thrifty.models.se_htgnn.temporal import Metadata, WindowBatch


class Projection(nn.Module):
    """One linear map a node type with features, one learnable table a type without."""

    def __init__(
        self, metadata: Metadata, in_channels: Mapping[str, int], d: int, num_nodes: Mapping[str, int] | None
    ) -> None:
        super().__init__()
        tables = dict(num_nodes or {})
        self.names = [name for name in metadata[0] if name not in tables]
        self.linear = nn.ModuleList(nn.Linear(in_channels[name], d) for name in self.names)
        self.table_names = list(tables)
        self.tables = nn.ParameterList(randn(count, d) / d**0.5 for count in tables.values())

    def forward(self, batch: WindowBatch, name: str) -> Float[Tensor, "frame node d"]:
        """Return a type's states in the unique snapshots."""
        if name in self.table_names:
            return cast(Tensor, self.tables[self.table_names.index(name)]).expand(len(batch.unique), -1, -1)
        return cast(Tensor, self.linear[self.names.index(name)](batch.x(name)))


def needed_types(metadata: Metadata, wanted: str | Sequence[str] | None, layers: int) -> list[list[str]]:
    """Return the types on which the wanted ones depend: for the input of each layer, and at last the wanted ones."""
    chosen = list(metadata[0]) if wanted is None else [wanted] if isinstance(wanted, str) else list(wanted)
    levels = [set(chosen)]
    for _ in range(layers):
        levels.append(levels[-1] | {t[0] for t in metadata[1] if t[2] in levels[-1]})
    return [sorted(level, key=list(metadata[0]).index) for level in reversed(levels)]
