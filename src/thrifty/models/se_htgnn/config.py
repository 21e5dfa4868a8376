"""The settings of a model, saved beside its weights as JSON with a schema and a version."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from thrifty._common import settings
from thrifty._common.checks import number, one_of, whole
from thrifty.models.se_htgnn.attention import Core
from thrifty.models.se_htgnn.temporal import Metadata
from thrifty.models.se_htgnn.topology import Aggregation, Degree

SCHEMA, VERSION = "thrifty.se_htgnn", 1

Norm = Literal["node", "graph"]

#: Arguments of :class:`SEHTGNN` in published runs: COVID-19 by the authors' script, the others by the best
#: of the second implementation.
PRESETS: dict[str, dict[str, Any]] = {
    "covid": {"hidden_channels": 8, "num_layers": 1, "window": 7, "dropout": 0.0, "norm": None},
    "covid-openhgnn": {"hidden_channels": 32, "num_layers": 1, "window": 7},
    "yelp": {"hidden_channels": 32, "num_layers": 2, "window": 12, "dropout": 0.6, "norm": "node"},
    "aminer": {"hidden_channels": 32, "num_layers": 3, "window": 9},
    "mag": {"hidden_channels": 32, "num_layers": 2, "window": 3},
}


@dataclass(frozen=True)
class SEHTGNNConfig:
    """Settings of :class:`SEHTGNN`.

    Args:
        node_types: Node types.
        edge_types: Edge types, as triples.
        in_channels: Features of each type that has some; -1: known when the model first sees them.
        num_nodes: Nodes of each type without features, which gets an embedding table.
        hidden_channels: Width d.
        out_channels: Numbers to predict a node and step.
        num_layers: Layers L.
        window: Snapshots T of a window.
        horizon: Steps β to predict.
        heads: Attention weights a relation, each for a group of channels.
        attention: The core; see ``attention.py``.
        aggr: How neighbours are joined: ``"mean"``, ``"none"``, ``"gcn"``, ``"gat"``.
        degree: ``"exact"``, or ``"released"`` as in the authors' code.
        norm: ``None`` (residual), ``"node"`` or ``"graph"`` (layer norm over a node's channels, or over all nodes too;
            no residual).
        dropout: Of input features, while training.
        prior: ``"projected"``, ``"similarity"``, ``"uniform"``, ``"zero"``, ``"random"``, or ``"given"``.
        mask_absent: Let means over nodes leave out those without an edge or feature.

    Raises:
        ValueError: A setting is unknown or out of its range.

    Example:
        >>> config = SEHTGNNConfig(("a",), (("a", "to", "a"),), {"a": 3}, hidden_channels=8)
        >>> SEHTGNNConfig.from_json(config.to_json()) == config
        True
    """

    node_types: tuple[str, ...]
    edge_types: tuple[tuple[str, str, str], ...]
    in_channels: dict[str, int]
    num_nodes: dict[str, int] | None = None
    hidden_channels: int = 32
    out_channels: int = 1
    num_layers: int = 2
    window: int = 7
    horizon: int = 1
    heads: int = 1
    attention: Core = "gru"
    aggr: Aggregation = "mean"
    degree: Degree = "exact"
    norm: Norm | None = None
    dropout: float = 0.0
    prior: str = "uniform"
    mask_absent: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "node_types", tuple(self.node_types))
        object.__setattr__(self, "edge_types", tuple((str(a), str(b), str(c)) for a, b, c in self.edge_types))
        for name in ("hidden_channels", "out_channels", "num_layers", "window", "horizon", "heads"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if self.hidden_channels % self.heads:
            raise ValueError(
                f"heads: expected a divisor of hidden_channels ({self.hidden_channels}), got {self.heads}; "
                "channels are split among heads"
            )
        one_of("attention", self.attention, get_args(Core))
        one_of("aggr", self.aggr, get_args(Aggregation))
        one_of("degree", self.degree, get_args(Degree))
        one_of("norm", self.norm, (None, *get_args(Norm)))
        number("dropout", self.dropout, "a share in [0, 1)", least=0, below=1)
        if len(set(self.edge_types)) < len(self.edge_types) or len(set(self.node_types)) < len(self.node_types):
            raise ValueError(f"metadata: expected types that differ, got {self.node_types} and {self.edge_types}")
        for triple in self.edge_types:
            for name in (triple[0], triple[2]):
                if name not in self.node_types:
                    raise ValueError(
                        f"metadata: {triple} names the node type {name!r}, which is not among {self.node_types}"
                    )

    @property
    def metadata(self) -> Metadata:
        """Node types and edge types, as PyG has them."""
        return list(self.node_types), list(self.edge_types)

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return settings.dump(asdict(self), SCHEMA, VERSION)

    @classmethod
    def from_json(cls, text: str) -> SEHTGNNConfig:
        """Read settings.

        Raises:
            ValueError: It is not JSON, of another schema or version, or has a key that is unknown or missing.
        """
        known, needed = [field.name for field in fields(cls)], ("node_types", "edge_types", "in_channels")
        return cls(**settings.parse(text, SCHEMA, VERSION, known=known, needed=needed, name="config"))
