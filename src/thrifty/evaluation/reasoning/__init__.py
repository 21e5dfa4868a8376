"""How much of a language model's proof was necessary: word problems with distractors, shortest proofs, alignment."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from thrifty.evaluation.reasoning.logic.chaining import execute
from thrifty.evaluation.reasoning.logic.datalog import Rule
from thrifty.evaluation.reasoning.logic.errors import GoalNotDerivable, InconsistentProgram
from thrifty.evaluation.reasoning.logic.hypergraph import Hypergraph
from thrifty.evaluation.reasoning.logic.program import Program
from thrifty.evaluation.reasoning.logic.shortest import Proof, shortest_proof, shortest_proofs
from thrifty.evaluation.reasoning.metrics import wilson
from thrifty.evaluation.reasoning.problems.gate import faults
from thrifty.evaluation.reasoning.problems.generator import bundles, fresh_seed, generate
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.official import read_official, read_problem
from thrifty.evaluation.reasoning.problems.problem import Problem, read_problems, write_problems
from thrifty.evaluation.reasoning.traces.align import Alignment, Step, align
from thrifty.evaluation.reasoning.traces.scores import Scores, score
