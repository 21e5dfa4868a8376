"""How much of a language model's proof was necessary: word problems with distractors, shortest proofs, alignment."""

from thrifty.evaluation.reasoning.hosts.procedural import ReasoningDataset
from thrifty.evaluation.reasoning.hosts.rewards import efficiency_reward, reward_rows
from thrifty.evaluation.reasoning.logic.chaining import execute
from thrifty.evaluation.reasoning.logic.datalog import Rule
from thrifty.evaluation.reasoning.logic.errors import GoalNotDerivable, InconsistentProgram
from thrifty.evaluation.reasoning.logic.hypergraph import Hypergraph
from thrifty.evaluation.reasoning.logic.program import Program
from thrifty.evaluation.reasoning.logic.shortest import Proof, shortest_proof, shortest_proofs
from thrifty.evaluation.reasoning.metrics import wilson
from thrifty.evaluation.reasoning.pages import proof_html
from thrifty.evaluation.reasoning.problems.files import read_problems, write_problems
from thrifty.evaluation.reasoning.problems.gate import faults
from thrifty.evaluation.reasoning.problems.generator import bundles, fresh_seed, generate
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.official import read_official, read_problem
from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.report import Report, evaluate, score_all
from thrifty.evaluation.reasoning.runners.endpoint import EndpointModel
from thrifty.evaluation.reasoning.runners.models import TransformersModel, VLLMModel
from thrifty.evaluation.reasoning.runners.run import run
from thrifty.evaluation.reasoning.traces.align import Alignment, Step, align
from thrifty.evaluation.reasoning.traces.scores import Scores, score

__all__ = [
    "Alignment",
    "EndpointModel",
    "GoalNotDerivable",
    "Hypergraph",
    "InconsistentProgram",
    "Lexicon",
    "Problem",
    "Program",
    "Proof",
    "ReasoningDataset",
    "Report",
    "Rule",
    "Scores",
    "Step",
    "TransformersModel",
    "VLLMModel",
    "align",
    "bundles",
    "efficiency_reward",
    "evaluate",
    "execute",
    "faults",
    "fresh_seed",
    "generate",
    "proof_html",
    "read_official",
    "read_problem",
    "read_problems",
    "reward_rows",
    "run",
    "score",
    "score_all",
    "shortest_proof",
    "shortest_proofs",
    "wilson",
    "write_problems",
]
