"""SE-HTGNN: a graph neural network for typed entities over time, with a few hundred parameters."""

from thrifty.models.se_htgnn.config import SEHTGNNConfig
from thrifty.models.se_htgnn.conv import SEHTGNNConv
from thrifty.models.se_htgnn.model import SEHTGNN
from thrifty.models.se_htgnn.prior import TypePrior
from thrifty.models.se_htgnn.temporal import Edges, HeteroTemporalData, WindowBatch

__all__ = [
    "SEHTGNN",
    "Edges",
    "HeteroTemporalData",
    "SEHTGNNConfig",
    "SEHTGNNConv",
    "TypePrior",
    "WindowBatch",
]
