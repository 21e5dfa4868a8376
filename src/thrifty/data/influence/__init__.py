"""Influence Distillation: which examples to fine-tune on, and their weights, by the second-order effect on a target."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thrifty.data.influence.coefficients import StepCoefficients, optimizer_coefficients
    from thrifty.data.influence.config import InfluenceConfig
    from thrifty.data.influence.corpus import CorpusScorer, score_corpus
    from thrifty.data.influence.embeddings import JVPEmbedding
    from thrifty.data.influence.less import Checkpoint, less_selection
    from thrifty.data.influence.results import ScoreResult, SelectionResult
    from thrifty.data.influence.rivals import (
        length_matched_selection,
        mid_perplexity_selection,
        random_selection,
        rds_embeddings,
        rds_plus_selection,
    )
    from thrifty.data.influence.selection import choose, sum_checkpoints
    from thrifty.data.influence.selector import InfluenceDistillation
    from thrifty.data.influence.stores import StaleStoreError
    from thrifty.data.influence.texts import tokenize_examples
    from thrifty.data.influence.training import WeightedLossMixin, weighted_dataset
    from thrifty.data.influence.warmup import WarmStart, load_trainer_optimizer, warm_up
    from thrifty.data.influence.weights import SparseWeights, sparse_simplex_weights

#: Where each name is; it is imported when it is first used: what selecting costs is told without torch.
_HOME = {
    "StepCoefficients": "coefficients",
    "optimizer_coefficients": "coefficients",
    "InfluenceConfig": "config",
    "CorpusScorer": "corpus",
    "score_corpus": "corpus",
    "JVPEmbedding": "embeddings",
    "Checkpoint": "less",
    "less_selection": "less",
    "ScoreResult": "results",
    "SelectionResult": "results",
    "length_matched_selection": "rivals",
    "mid_perplexity_selection": "rivals",
    "random_selection": "rivals",
    "rds_embeddings": "rivals",
    "rds_plus_selection": "rivals",
    "choose": "selection",
    "sum_checkpoints": "selection",
    "InfluenceDistillation": "selector",
    "StaleStoreError": "stores",
    "tokenize_examples": "texts",
    "WeightedLossMixin": "training",
    "weighted_dataset": "training",
    "WarmStart": "warmup",
    "load_trainer_optimizer": "warmup",
    "warm_up": "warmup",
    "SparseWeights": "weights",
    "sparse_simplex_weights": "weights",
}

__all__ = [
    "Checkpoint",
    "CorpusScorer",
    "InfluenceConfig",
    "InfluenceDistillation",
    "JVPEmbedding",
    "ScoreResult",
    "SelectionResult",
    "SparseWeights",
    "StaleStoreError",
    "StepCoefficients",
    "WarmStart",
    "WeightedLossMixin",
    "choose",
    "length_matched_selection",
    "less_selection",
    "load_trainer_optimizer",
    "mid_perplexity_selection",
    "optimizer_coefficients",
    "random_selection",
    "rds_embeddings",
    "rds_plus_selection",
    "score_corpus",
    "sparse_simplex_weights",
    "sum_checkpoints",
    "tokenize_examples",
    "warm_up",
    "weighted_dataset",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
