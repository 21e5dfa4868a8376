"""Exact local search on decision trees: fewer training errors, the same size."""

from thrifty.solvers.trees.estimator import TreeLocalSearchClassifier
from thrifty.solvers.trees.improve import improve_tree
from thrifty.solvers.trees.report import CutChange, Report
from thrifty.solvers.trees.tree import Tree

__all__ = ["CutChange", "Report", "Tree", "TreeLocalSearchClassifier", "improve_tree"]
