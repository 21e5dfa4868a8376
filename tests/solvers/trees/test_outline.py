"""A tree as text."""

from thrifty.solvers.trees.model.outline import outline
from thrifty.solvers.trees.model.weka import tree_from_weka


def test_branches_where_the_test_holds_come_first():
    tree = tree_from_weka("x <= 1.5\n|   y <= 0: a (2.0/0.5)\n|   y > 0: b (3.0)\nx > 1.5: a (4.0)")
    assert outline(tree).splitlines() == [
        "0: x ≤ 1.5",
        "   1: y ≤ 0",
        "      2: a (1.5 of 2)",
        "      3: b (3 of 3)",
        "   4: a (4 of 4)",
    ]
