"""Thrifty: published methods that make machine learning cheaper, in the libraries that you already use.

Every method's main names are here too, and are imported when they are first used::

    from thrifty import TreeLocalSearchClassifier
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from thrifty.bench import registry as _registry

if TYPE_CHECKING:
    from thrifty.data.influence import (
        InfluenceDistillation,
        JVPEmbedding,
        WeightedLossMixin,
        less_selection,
        rds_plus_selection,
    )
    from thrifty.data.v2v import (
        EventCamera,
        EventCameraSampler,
        VideoToVoxel,
        VideoVoxelDataset,
        events_to_voxel,
        frames_to_events,
    )
    from thrifty.evaluation.reasoning import efficiency_reward, evaluate, shortest_proof
    from thrifty.inference.speculation import (
        GammaController,
        MoEShape,
        SpeculationModel,
        SpeculativeDecoder,
        fit_speculation_model,
        recommend_schedule,
    )
    from thrifty.inference.token_reduction import (
        EViTConfig,
        FreqReduceConfig,
        PoolConfig,
        TokenReduction,
        ToMeConfig,
        analyze_tokens,
        count_macs,
        load_reduced,
        reduce_tokens,
    )
    from thrifty.models.lrcssm import DiagonalRNN, LrcSSMClassifier, LrcSSMModel, LrcSSMRegressor, affine_scan
    from thrifty.models.se_htgnn import SEHTGNN, HeteroTemporalData, LinkForecaster, NodeClassifier, NodeRegressor
    from thrifty.solvers.ellice import ElliCE, RashomonEllipsoid, evaluate_recourse, tune_epsilon
    from thrifty.solvers.games import (
        ColonelBlotto,
        NetworkCongestion,
        SpanningTreeCongestion,
        exploitability,
        solve_cce,
        solve_nash,
    )
    from thrifty.solvers.trees import TreeLocalSearchClassifier, error_table, improve_forest, improve_tree
    from thrifty.training.amorlip import (
        AmorLIPConfig,
        AmorLIPLoss,
        FastCLIPLoss,
        NeuCLIPLoss,
        PartitionAmortizer,
        SogCLRLoss,
        amortized_clip_loss,
    )
    from thrifty.training.amorlip.trainer import AmorLIPTrainer
    from thrifty.training.leff import LeffClient, LeffConfig, LeffServer
    from thrifty.training.leff.flower import LeffStrategy, leff_client_app, leff_server_app
    from thrifty.training.streambp import (
        MemoryEstimate,
        StreamBPConfig,
        StreamBPHandle,
        enable_streambp,
        estimate_peak_memory,
        stream_block,
        streamed_dpo_loss,
        streamed_grpo_loss,
        streamed_linear_cross_entropy,
        streamed_token_logps,
    )
    from thrifty.training.streambp.trainers import StreamDPOTrainer, StreamGRPOTrainer, StreamSFTTrainer
    from thrifty.training.sumo import SUMO, attach_layerwise, extract_lora, sumo_param_groups

__version__ = metadata.version("thrifty")

_HOME = {name: method.package for method in _registry.METHODS for name in method.exports}

__all__ = [
    "SEHTGNN",
    "SUMO",
    "AmorLIPConfig",
    "AmorLIPLoss",
    "AmorLIPTrainer",
    "ColonelBlotto",
    "DiagonalRNN",
    "EViTConfig",
    "ElliCE",
    "EventCamera",
    "EventCameraSampler",
    "FastCLIPLoss",
    "FreqReduceConfig",
    "GammaController",
    "HeteroTemporalData",
    "InfluenceDistillation",
    "JVPEmbedding",
    "LeffClient",
    "LeffConfig",
    "LeffServer",
    "LeffStrategy",
    "LinkForecaster",
    "LrcSSMClassifier",
    "LrcSSMModel",
    "LrcSSMRegressor",
    "MemoryEstimate",
    "MoEShape",
    "NetworkCongestion",
    "NeuCLIPLoss",
    "NodeClassifier",
    "NodeRegressor",
    "PartitionAmortizer",
    "PoolConfig",
    "RashomonEllipsoid",
    "SogCLRLoss",
    "SpanningTreeCongestion",
    "SpeculationModel",
    "SpeculativeDecoder",
    "StreamBPConfig",
    "StreamBPHandle",
    "StreamDPOTrainer",
    "StreamGRPOTrainer",
    "StreamSFTTrainer",
    "ToMeConfig",
    "TokenReduction",
    "TreeLocalSearchClassifier",
    "VideoToVoxel",
    "VideoVoxelDataset",
    "WeightedLossMixin",
    "affine_scan",
    "amortized_clip_loss",
    "analyze_tokens",
    "attach_layerwise",
    "count_macs",
    "efficiency_reward",
    "enable_streambp",
    "error_table",
    "estimate_peak_memory",
    "evaluate",
    "evaluate_recourse",
    "events_to_voxel",
    "exploitability",
    "extract_lora",
    "fit_speculation_model",
    "frames_to_events",
    "improve_forest",
    "improve_tree",
    "leff_client_app",
    "leff_server_app",
    "less_selection",
    "load_reduced",
    "rds_plus_selection",
    "recommend_schedule",
    "reduce_tokens",
    "shortest_proof",
    "solve_cce",
    "solve_nash",
    "stream_block",
    "streamed_dpo_loss",
    "streamed_grpo_loss",
    "streamed_linear_cross_entropy",
    "streamed_token_logps",
    "sumo_param_groups",
    "tune_epsilon",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'thrifty' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
