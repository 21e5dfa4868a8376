"""LrcSSM: non-linear recurrent layers with a diagonal Jacobian, solved over the whole sequence at once."""

from thrifty.models.lrcssm.cells import (
    ComplexLRCCell,
    DenseLRCCell,
    DiagonalCell,
    GRUCell,
    LinearLRCCell,
    LRCCell,
    LSTMCell,
    LTCCell,
    MGUCell,
    STCCell,
)
from thrifty.models.lrcssm.certificate import Certificate, Observed, certificate
from thrifty.models.lrcssm.config import LrcSSMConfig
from thrifty.models.lrcssm.estimator import LrcSSMClassifier, LrcSSMRegressor
from thrifty.models.lrcssm.layer import DiagonalRNN
from thrifty.models.lrcssm.network import LrcSSMBlock, LrcSSMModel
from thrifty.models.lrcssm.scans.affine import affine_scan
from thrifty.models.lrcssm.scans.tree import Levels, associative_scan
from thrifty.models.lrcssm.solvers.info import ConvergenceError, SolveInfo
from thrifty.models.lrcssm.solvers.newton import newton_solve
from thrifty.models.lrcssm.solvers.options import SolveOptions

__all__ = [
    "Certificate",
    "ComplexLRCCell",
    "ConvergenceError",
    "DenseLRCCell",
    "DiagonalCell",
    "DiagonalRNN",
    "GRUCell",
    "LRCCell",
    "LSTMCell",
    "LTCCell",
    "Levels",
    "LinearLRCCell",
    "LrcSSMBlock",
    "LrcSSMClassifier",
    "LrcSSMConfig",
    "LrcSSMModel",
    "LrcSSMRegressor",
    "MGUCell",
    "Observed",
    "STCCell",
    "SolveInfo",
    "SolveOptions",
    "affine_scan",
    "associative_scan",
    "certificate",
    "newton_solve",
]
