"""Exact local search on decision trees: fewer training errors, the same size."""

from thrifty.solvers.trees.boxes.error_table import ErrorTable, error_table
from thrifty.solvers.trees.estimator import TreeLocalSearchClassifier
from thrifty.solvers.trees.forest import improve_forest
from thrifty.solvers.trees.improve import improve_tree
from thrifty.solvers.trees.instance.gadgets import hitting_set_instance
from thrifty.solvers.trees.instance.parameters import InstanceParameters, instance_parameters
from thrifty.solvers.trees.instance.preparation import prepare
from thrifty.solvers.trees.model.tree import Tree
from thrifty.solvers.trees.model.weka import tree_from_weka
from thrifty.solvers.trees.model.wording import Difference, describe_difference
from thrifty.solvers.trees.report import Report
from thrifty.solvers.trees.rivals import tao
from thrifty.solvers.trees.selection import fewest_changes

__all__ = [
    "Difference",
    "ErrorTable",
    "InstanceParameters",
    "Report",
    "Tree",
    "TreeLocalSearchClassifier",
    "describe_difference",
    "error_table",
    "fewest_changes",
    "hitting_set_instance",
    "improve_forest",
    "improve_tree",
    "instance_parameters",
    "prepare",
    "tao",
    "tree_from_weka",
]
