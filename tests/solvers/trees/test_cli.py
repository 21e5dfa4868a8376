"""``thrifty trees``: on raw tables, from the first tree to the last; and every mistake in one line."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from thrifty.solvers.trees import Tree, improve_tree
from thrifty.solvers.trees.cli import app
from thrifty.solvers.trees.model.weka import tree_from_weka
from thrifty.solvers.trees.shell.inputs import monotonic_cst, read_inputs, read_training_table

WEKA = Path(__file__).parent / "weka" / "iris.txt"


@pytest.fixture
def trees(thrifty):
    """Run ``thrifty trees ...`` in this process: exit status, output, remarks."""
    return partial(thrifty, "trees")


@pytest.fixture
def table(tmp_path):
    """Iris with a column of text and a missing cell, as a CSV file."""
    iris = load_iris()
    colours = ["red", "blue", "green"]
    lines = [",".join([*(name.removesuffix(" (cm)") for name in iris.feature_names), "colour", "species"])]
    for i, (row, y) in enumerate(zip(iris.data, iris.target, strict=True)):
        lines.append(",".join([*(f"{x}" for x in row), colours[(i * 7) % 3], str(iris.target_names[y])]))
    lines[5] = lines[5].replace("5.0", "NA", 1)
    path = tmp_path / "iris.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def first(trees, table, tmp_path):
    """A first tree, spoilt so that there is something to gain."""
    path = tmp_path / "tree.json"
    code, *_ = trees("fit", "--data", table, "--target", "species", "--max-depth", 2, "--out", path)
    assert code == 0
    tree = Tree.load(path)
    threshold = tree.threshold.copy()
    threshold[0] = 5.0
    replace(tree, threshold=threshold).save(path, force=True)
    return path


def test_from_a_raw_table_to_a_better_tree(trees, table, first, tmp_path):
    assert Tree.load(first).feature_names == (
        "sepal length", "sepal width", "petal length", "petal width", "colour=blue", "colour=green", "colour=red",
    )  # fmt: skip
    out = tmp_path / "better.json"
    code, text, remarks = trees("improve", "--tree", first, "--data", table, "--target", "species", "--out", out)
    assert code == 0
    lines = text.splitlines()
    assert lines[0].endswith("after 1 change (optimal)")
    assert lines[1].startswith("cut 0: ")
    assert " → " in lines[1]
    assert "lower bound" in lines[2]
    assert f"written to {out}" in remarks
    before, after = Tree.load(first), Tree.load(out)
    assert (after.left == before.left).all()
    code, text, _ = trees("diff", first, out, "--data", table, "--target", "species")
    assert text.strip() == lines[1]
    assert trees("diff", first, first)[1].strip() == "no cut differs"
    assert trees("show", out)[1].startswith("0: ")


def test_the_command_finds_what_the_function_finds(trees, table, first):
    code, text, _ = trees(
        "improve", "--tree", first, "--data", table, "--target", "species", "--operation", "adjust", "--k", 1, "--json"
    )
    assert code == 0
    found = json.loads(text)
    tree = Tree.load(first)
    iris = load_iris()
    X = np.zeros((150, 7))
    X[:, :4] = iris.data
    X[4, 0] = np.nan
    for i in range(150):
        X[i, 4 + ["blue", "green", "red"].index(["red", "blue", "green"][(i * 7) % 3])] = 1
    _, report = improve_tree(tree, X, iris.target_names[iris.target], operation="adjust", k=1)
    assert (found["n_errors_before"], found["n_errors"]) == (report.n_errors_before, report.n_errors)
    assert found["difference"]["changes"][0]["kind"] == "adjust"
    assert found["parameters"]["n_cuts"] == tree.n_cuts


def test_report_and_options(trees, table, first):
    code, text, _ = trees("report", "--tree", first, "--data", table, "--target", "species", "--k", 2, "--delta-max")
    assert code == 0
    assert "delta_max" in text
    assert "solver" in text
    code, text, _ = trees("report", "--tree", first, "--data", table, "--target", "species", "--json")
    assert json.loads(text)["n_features"] == 7
    arguments = ("improve", "--tree", first, "--data", table, "--target", "species", "--report")
    code, text, _ = trees(*arguments, "--feature", "colour=red", "--feature", "sepal width", "--freeze", 0)
    assert code == 0
    assert "rows (n)" in text
    assert "cut 0:" not in text


def test_monotone_columns_are_named_with_their_direction(trees, table, first):
    arguments = ("--tree", first, "--data", table, "--target", "species", "--json")
    found = read_inputs(first, None, table, "species", None)
    errors = {}
    for words in ((), ("colour=red=+1", "petal width=1"), ("petal width=-1",)):
        options = [part for word in words for part in ("--monotonic", word)]
        errors[words] = json.loads(trees("improve", *arguments, *options).out)["n_errors"]
        signs = monotonic_cst(found.tree, words)
        assert errors[words] == improve_tree(found.tree, found.X, found.y, monotonic_cst=signs)[1].n_errors
    assert errors[()] < errors["petal width=-1",]
    assert monotonic_cst(replace(found.tree, feature_names=None), ["2=-1"])[2] == -1


def test_more_changes_than_cuts_are_all_cuts_with_a_note(trees, table, first):
    arguments = ("--tree", first, "--data", table, "--target", "species", "--k", 9)
    code, text, remarks = trees("improve", *arguments, "--operation", "adjust")
    assert code == 0
    assert "note: k: expected at most 2, the tree's cuts, got 9; 2 is used" in remarks
    assert "note" not in text


def test_the_table_of_four_budgets(trees, table, first, tmp_path):
    arguments = ("table", "--tree", first, "--data", table, "--target", "species", "--adjust", 2, "--prune", 2)
    code, text, _ = trees(*arguments)
    assert code == 0
    rows = [line.split() for line in text.splitlines()[:4]]
    assert rows[0] == ["adjust", "prune", "0", "prune", "1", "prune", "2"]
    assert rows[1][-1] == "100", "all cuts removed: the largest class is right 50 times"
    out = tmp_path / "smaller.json"
    code, text, _ = trees(*arguments, "--json", "--entry", "1,0,1,0", "--out", out)
    document = json.loads(text)
    assert np.array(document["errors"]).shape == (3, 1, 3, 1)
    assert Tree.load(out).n_cuts == 1
    code, _, err = trees(*arguments, "--entry", "3,0,0,0", "--out", out)
    assert (code, err.count("\n")) == (2, 1)
    assert "out" in trees(*arguments, "--entry", "1,0,1,0")[2]


def test_entries_without_a_pruning_are_null(trees, table, first):
    code, text, _ = trees(
        "table",
        "--tree",
        first,
        "--data",
        table,
        "--target",
        "species",
        "--adjust",
        0,
        "--prune",
        2,
        "--raise",
        2,
        "--json",
    )
    errors = json.loads(text)["errors"]
    assert errors[0][0][2][2] is None
    assert code == 0


def test_wekas_tree_is_improved_on_the_raw_table(trees, tmp_path):
    iris = load_iris(as_frame=True)
    frame = iris.data.assign(species=iris.target_names[iris.target])
    path = tmp_path / "iris.csv"
    frame.to_csv(path, index=False)
    out = tmp_path / "better.json"
    code, text, remarks = trees(
        "improve", "--weka", WEKA, "--data", path, "--target", "species", "--k", 1, "--out", out
    )  # fmt: skip
    assert code == 0
    assert text.startswith("2 training errors as given")
    assert "other rows" not in remarks
    assert Tree.load(out).feature_names == tuple(iris.data.columns)
    frame.assign(**{"petal length (cm)": 1.0}).to_csv(path, index=False)
    assert "leaves hold other rows of this table than WEKA counted" in trees(
        "improve", "--weka", WEKA, "--data", path, "--target", "species", "--k", 0
    )[2]  # fmt: skip
    assert trees("show", "--weka", WEKA)[1].startswith("0: petal length (cm) ≤ 1.9")


def test_wekas_classes_and_values_may_be_numbers_in_the_table(trees, tmp_path):
    (tmp_path / "t.csv").write_text("grade,x,y\n1,5,0\n2,6,1\n2,6,1\n1,7,1\n")
    (tmp_path / "t.txt").write_text("grade = 1: 0 (2.0/1.0)\ngrade != 1: 1 (2.0)")
    arguments = ("improve", "--weka", tmp_path / "t.txt", "--data", tmp_path / "t.csv", "--target", "y")
    code, text, remarks = trees(*arguments)
    assert code == 0, remarks
    assert text.splitlines()[1] == "cut 0: grade=1 ≤ 0.5 → x ≤ 5.5, −1 error"


def test_parquet_and_weights(trees, first, table, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.read_csv(table).assign(times=2)
    frame.to_parquet(tmp_path / "iris.parquet")
    arguments = ("improve", "--tree", first, "--target", "species", "--json", "--operation", "adjust")
    once = json.loads(trees(*arguments, "--data", table)[1])
    twice = json.loads(trees(*arguments, "--data", tmp_path / "iris.parquet", "--weight", "times")[1])
    assert twice["n_errors"] == 2 * once["n_errors"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--k", "-1"], "k: expected a whole number of cuts of at least 0, got -1"),
        (["--operation", "swap"], "operation: expected one of 'adjust', 'exchange', 'both', got 'swap'"),
        (["--solver", "luck"], "solver: expected one of"),
        (["--mode", "guess"], "mode: expected one of"),
        (["--min-samples-leaf", "-1"], "min_samples_leaf: expected a whole number of rows of at least 0, got -1"),
        (["--freeze", "1"], "frozen: expected cuts of the tree"),
        (["--feature", "height"], "features: expected columns, got ['height']"),
        (["--feature", "colour=red", "--operation", "adjust"], "features: expected None with operation='adjust'"),
        (["--monotonic", "height=+1"], "--monotonic: expected COLUMN=+1 or COLUMN=-1 with one of sepal length, sepal"),
        (["--monotonic", "colour=red"], "got 'colour=red'"),
        (["--monotonic", "petal width=1", "--k", "2"], "monotonic_cst: expected k of 0 or 1, mode='hillclimb'"),
        (["--weight", "height"], "--weight: expected a column of numbers in"),
        (["--weight", "colour"], "got 'colour'"),
        (["--weight", "sepal width"], "--data: expected a column 'sepal width', which the tree reads"),
        (["--weka", str(WEKA)], "--tree, --weka: expected one of them"),
        (["--target", "kind"], "--target: expected a column among"),
        (["--data", "nowhere.csv"], "No such file or directory: 'nowhere.csv'"),
        (["--tree", "nowhere.json"], "No such file or directory: 'nowhere.json'"),
    ],
)
def test_bad_arguments_are_one_line_and_status_2(trees, table, first, arguments, says):
    code, out, err = trees("improve", "--tree", first, "--data", table, "--target", "species", *arguments)
    assert (code, out) == (2, "")
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert says in errors[0]
    assert "Traceback" not in err


BROKEN_TREES = {
    "not json": "Expecting value",
    "[]": "document: expected a JSON object, got a list",
    '{"schema": "thrifty.tree", "version": 9}': "schema 'thrifty.tree' version 1, got 'thrifty.tree' version 9",
    '{"schema": "thrifty.tree", "version": 1}': "document: expected the keys",
}


@pytest.mark.parametrize(("text", "says"), BROKEN_TREES.items())
def test_broken_trees_are_one_line_and_status_2(trees, table, tmp_path, text, says):
    path = tmp_path / "broken.json"
    path.write_text(text)
    for command in ("improve", "report", "table"):
        code, out, err = trees(command, "--tree", path, "--data", table, "--target", "species")
        assert (code, out) == (2, "")
        assert says in err.splitlines()[-1]
    assert trees("show", path)[0] == 2
    assert trees("diff", path, path)[0] == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["left"].__setitem__(0, 99), "left[0]: expected a child in 1.."),
        (lambda d: d["left"].__setitem__(0, 0), "expected one parent a node"),
        (lambda d: d["feature"].__setitem__(0, 77), "feature[0]: expected a cut's feature in 0.."),
        (lambda d: d["feature_names"].__setitem__(0, "height"), "--data: expected a column 'height'"),
        (lambda d: d["classes"].__setitem__(0, "rose"), "got also ['setosa']"),
        (lambda d: d.__setitem__("missing_left", None), "X: expected no missing values for this tree, got NaN"),
        (lambda d: d["feature_names"].__setitem__(0, "colour"), "--data: expected numbers in column 'colour'"),
    ],
)
def test_trees_that_do_not_fit_are_one_line_and_status_2(trees, table, first, change, says):
    document = json.loads(first.read_text())
    change(document)
    first.write_text(json.dumps(document))
    code, out, err = trees("improve", "--tree", first, "--data", table, "--target", "species")
    assert (code, out) == (2, "")
    assert says in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a header line and rows"),
        ("x,x,y\n1,2,a\n", "names ['x'] more than once"),
        ("x,y\n1\n", "row 2: expected 2 cells"),
        ("x,y\n1,a\n2,\n", "expected a class in every row, got 1 without (the first is row 2)"),
        ("x,y\ninf,a\n2,b\n", "infinity"),
        ("x,y\n1e39,a\n2,b\n", "too large"),
    ],
)
def test_broken_tables_are_one_line_and_status_2(trees, tmp_path, text, says):
    (tmp_path / "t.csv").write_text(text)
    code, out, err = trees("fit", "--data", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "t.json")
    assert (code, out) == (2, "")
    assert says in err.splitlines()[-1]
    assert not (tmp_path / "t.json").exists()


def test_files_of_another_kind_are_named(trees, table, tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "odd.txt").write_bytes(b"\x80\x04\x95")
    for words, name in (
        (("show", tmp_path / "deep.json"), "deep.json: "),
        (("show", "--weka", tmp_path / "odd.txt"), "odd.txt: expected what WEKA's J48 printed"),
        (("report", "--weka", tmp_path / "odd.txt", "--data", table, "--target", "species"), "odd.txt: expected what"),
    ):
        code, out, err = trees(*words)
        assert (code, out) == (2, "")
        assert name in err.splitlines()[-1]


def test_a_single_leaf_has_nothing_to_improve(trees, tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,a\n2,a\n")
    arguments = ("--data", tmp_path / "t.csv", "--target", "y")
    assert trees("fit", *arguments, "--out", tmp_path / "t.json")[0] == 0
    code, text, _ = trees("improve", *arguments, "--tree", tmp_path / "t.json")
    assert code == 0
    assert text.startswith("0 training errors as given, 0 relabelled, 0 after 0 changes (optimal)")


def test_negative_weights_are_refused_and_zeros_dropped(trees, first, table):
    pandas = pytest.importorskip("pandas")
    pandas.read_csv(table).assign(w=-1).to_csv(table, index=False)
    arguments = ("improve", "--tree", first, "--data", table, "--target", "species", "--weight", "w")
    code, _, err = trees(*arguments)
    assert (code, "negative" in err.splitlines()[-1]) == (2, True)


def test_files_are_replaced_only_with_force(trees, table, first):
    before = first.read_text()
    for command in (("fit",), ("improve", "--tree", first)):
        code, out, err = trees(*command, "--data", table, "--target", "species", "--out", first)
        assert (code, out) == (2, "")
        assert "already exists; choose another path, or use --force" in err
        assert err.count("\n") == 1, "it is refused before anything is read"
    assert first.read_text() == before
    assert trees("improve", "--tree", first, "--data", table, "--target", "species", "--out", first, "--force")[0] == 0
    assert first.read_text() != before


def test_results_and_remarks_do_not_mix(trees, table, first):
    _, text, remarks = trees("improve", "--tree", first, "--data", table, "--target", "species", "--json")
    json.loads(text)
    assert "150 rows, 5 columns, 3 classes" in remarks


def test_help_teaches_with_an_example(trees):
    for command in ("fit", "improve", "diff", "show", "report", "table"):
        code, text, _ = trees(command, "--help")
        assert code == 0
        assert "Example:" in text
        assert f"thrifty trees {command}" in " ".join(text.split())
    assert app.info.no_args_is_help


def test_an_interrupt_leaves_no_file_behind(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 6)), rng.integers(2, size=4000)
    lines = ["a,b,c,d,e,f,y", *(",".join(map(str, [*row, label])) for row, label in zip(X, y, strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    chain = "".join(f"{'|   ' * d}a <= {d}: 0 (1.0)\n{'|   ' * d}a > {d}\n" for d in range(60))
    (tmp_path / "t.txt").write_text(chain + "|   " * 60 + "b <= 0: 1 (1.0)\n" + "|   " * 60 + "b > 0: 0 (1.0)\n")
    code = (
        "import signal, thrifty.solvers.trees.improve as i, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored where the tests run in the background
        "i.improve_tree = lambda *a, **k: (print('searching', flush=True), time.sleep(60))\n"
        "from thrifty.solvers.trees.cli import app\napp()"
    )
    arguments = ["improve", "--weka", "t.txt", "--data", "t.csv", "--target", "y", "--out", "better.json"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert process.stdout.readline().strip() == "searching"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode not in (0, None)
    assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.txt"]


def test_a_tree_of_wekas_round_trips_through_json(tmp_path):
    tree = tree_from_weka(WEKA.read_text())
    tree.save(tmp_path / "t.json")
    again = Tree.load(tmp_path / "t.json")
    assert again.to_dict() == tree.to_dict()


@pytest.mark.parametrize("weights", [(1.0, -1.0), (1.0, np.nan), (0.0, 0.0)])
def test_weights_that_are_none_are_refused_by_their_column(tmp_path, weights):
    data = tmp_path / "weighed.csv"
    pd.DataFrame({"size": [1.0, 2.0], "cls": ["a", "b"], "w": weights}).to_csv(data, index=False)
    with pytest.raises(ValueError, match="--weight: expected .*got in 'w' a negative"):
        read_training_table(data, "cls", "w")
