"""ERACS: a training subset that is chosen anew when its gradients disagree among themselves."""

from typing import Any

from thrifty.data.coreset.core import Coreset
from thrifty.data.coreset.gradients import DenseGradients, GradientSource, LastLayerGradients
from thrifty.data.coreset.history import History
from thrifty.data.coreset.loader import CoresetBatchSampler, CoresetLoader
from thrifty.data.coreset.pursuit import Pursuit, matching_pursuit
from thrifty.data.coreset.quadratic import QuadraticTrigger
from thrifty.data.coreset.quotas import class_quotas
from thrifty.data.coreset.scoring import GradientScorer
from thrifty.data.coreset.selectors import Craig, Crest, Glister, GradMatch, InfoBatch, RandomSubset
from thrifty.data.coreset.signal import gradient_discrepancy, gradient_snr, relative_error_bound
from thrifty.data.coreset.subsets import Selector, Subset
from thrifty.data.coreset.triggers import Check, RepresentativenessMonitor

__all__ = [
    "Check",
    "Coreset",
    "CoresetBatchSampler",
    "CoresetCallback",
    "CoresetLoader",
    "Craig",
    "Crest",
    "DenseGradients",
    "Glister",
    "GradMatch",
    "GradientScorer",
    "GradientSource",
    "History",
    "InfoBatch",
    "LastLayerGradients",
    "LightningCoreset",
    "Pursuit",
    "QuadraticTrigger",
    "RandomSubset",
    "RepresentativenessMonitor",
    "Selector",
    "Subset",
    "class_quotas",
    "gradient_discrepancy",
    "gradient_snr",
    "matching_pursuit",
    "relative_error_bound",
]


def __getattr__(name: str) -> Any:
    if name == "CoresetCallback":  # Transformers' Trainer takes seconds to import
        from thrifty.data.coreset.trainer import CoresetCallback

        return CoresetCallback
    if name == "LightningCoreset":
        from thrifty.data.coreset.lightning import LightningCoreset

        return LightningCoreset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
