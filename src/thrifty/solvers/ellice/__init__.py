"""Recourse that stays valid when the model is retrained."""

from thrifty.solvers.ellice.constraints import Constraints
from thrifty.solvers.ellice.ellipsoid import RashomonEllipsoid
from thrifty.solvers.ellice.ensembles import Ensemble, make_ensemble
from thrifty.solvers.ellice.errors import EpsilonTooLargeError, UnsupportedModelError
from thrifty.solvers.ellice.evaluation import Scores, evaluate_recourse
from thrifty.solvers.ellice.explainer import ElliCE
from thrifty.solvers.ellice.figures import plot_changes, plot_price_of_robustness
from thrifty.solvers.ellice.leaves import LeafEmbedding
from thrifty.solvers.ellice.result import RecourseResult
from thrifty.solvers.ellice.tuning import Tuned, tune_epsilon

__all__ = [
    "Constraints",
    "ElliCE",
    "Ensemble",
    "EpsilonTooLargeError",
    "LeafEmbedding",
    "RashomonEllipsoid",
    "RecourseResult",
    "Scores",
    "Tuned",
    "UnsupportedModelError",
    "evaluate_recourse",
    "make_ensemble",
    "plot_changes",
    "plot_price_of_robustness",
    "tune_epsilon",
]
