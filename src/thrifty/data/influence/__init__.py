"""Influence Distillation: which examples to fine-tune on, and their weights, by the second-order effect on a target."""

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
