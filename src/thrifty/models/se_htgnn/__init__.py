"""SE-HTGNN: a graph neural network for typed entities over time, with a few hundred parameters."""

from thrifty.models.se_htgnn.config import PRESETS, SEHTGNNConfig
from thrifty.models.se_htgnn.conv import SEHTGNNConv
from thrifty.models.se_htgnn.database import from_database
from thrifty.models.se_htgnn.encoders import TypePrompt, build_type_embeddings
from thrifty.models.se_htgnn.events import EventTable, Forecast, from_events
from thrifty.models.se_htgnn.links import LinkForecaster
from thrifty.models.se_htgnn.loading import load_forecaster
from thrifty.models.se_htgnn.model import SEHTGNN
from thrifty.models.se_htgnn.nodes import NodeClassifier, NodeRegressor
from thrifty.models.se_htgnn.prior import TypePrior
from thrifty.models.se_htgnn.report import plot_attention
from thrifty.models.se_htgnn.sampling import NeighborSampler
from thrifty.models.se_htgnn.splits import Split, negative_edges, temporal_split
from thrifty.models.se_htgnn.temporal import Edges, HeteroTemporalData, WindowBatch

__all__ = [
    "PRESETS",
    "SEHTGNN",
    "Edges",
    "EventTable",
    "Forecast",
    "HeteroTemporalData",
    "LinkForecaster",
    "NeighborSampler",
    "NodeClassifier",
    "NodeRegressor",
    "SEHTGNNConfig",
    "SEHTGNNConv",
    "Split",
    "TypePrior",
    "TypePrompt",
    "WindowBatch",
    "build_type_embeddings",
    "from_database",
    "from_events",
    "load_forecaster",
    "negative_edges",
    "plot_attention",
    "temporal_split",
]
