"""The command, on files."""

import json
import re

import pandas as pd
import pytest
import skops.io
from sklearn.compose import make_column_transformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from thrifty.solvers.ellice import cli, explainer
from thrifty.solvers.ellice.reading import read_model


@pytest.fixture
def run(thrifty):
    """Run the command; what goes wrong is one line and status 2."""

    def run(*words, refused=None):
        code, out, err = thrifty("ellice", *words)
        if refused is None:
            assert code == 0, err
        else:
            assert (code, out) == (2, "")
            assert re.search(refused, err.splitlines()[-1])
        return out

    return run


@pytest.fixture
def files(credit, tmp_path):
    frame, y, model = credit
    frame.assign(decision=y).to_csv(tmp_path / "train.csv", index=False)
    frame[model.predict(frame) == "bad"][:6].to_csv(tmp_path / "query.csv", index=False)
    skops.io.dump(model, tmp_path / "model.skops")
    return tmp_path


def base(files, verb="explain", query=True):
    words = [verb, "--data", files / "train.csv", "--target", "decision"]
    return [*words, "--query", files / "query.csv"] if query else words


def test_explain(run, files):
    out = files / "cf.csv"
    given = ["--model", files / "model.skops", "--epsilon", 0.003, "--immutable", "age,job"]
    assert "optimal" in run(*base(files), *given, "--out", out)
    table = pd.read_csv(out)
    assert len(table) == 6
    assert set(table["cf_status"]) <= {"optimal", "infeasible"}
    assert (table["age"].dropna() == pd.read_csv(files / "query.csv")["age"][table["age"].notna()]).all()
    run(*base(files), "--out", out, refused="--force")
    said = run(*base(files), "--epsilon", 0.003, "--out", out, "--force", "--sentences")
    assert "every model within epsilon=0.003" in said


def test_explain_in_batches_shards_and_json(run, files):
    run(*base(files), "--epsilon", 0.003, "--out", files / "whole.json", "--batch", 4)
    whole = json.loads((files / "whole.json").read_text())["answers"]
    assert [answer["query"] for answer in whole] == list(range(6))
    for part in (0, 1):
        run(*base(files), "--epsilon", 0.003, "--out", files / "part.json", "--shard", f"{part}/2")
    parts = [a for p in (0, 1) for a in json.loads((files / f"part.{p}-of-2.json").read_text())["answers"]]
    distances = {answer["query"]: answer["distance"] for answer in parts}
    assert distances == pytest.approx({answer["query"]: answer["distance"] for answer in whole})


def test_evaluate_and_tune(run, files):
    out = run(*base(files, "evaluate"), "--epsilon", 0.005, "--n-models", 5)
    assert "robustness" in out
    scores = run(*base(files, "evaluate"), "--epsilon", 0.005, "--n-models", 5, "--json")
    assert json.loads(scores)["coverage"] == 1
    assert "coverage           1" in out
    tuned = run(*base(files, "tune", query=False), "--folds", 2, "--steps", 2, "--n-models", 4, "--robustness", 0.7)
    assert "epsilon" in tuned.splitlines()[-1]


def test_a_network_computes_where_it_is_told_to(run, files, credit, monkeypatch):
    frame, y, _ = credit
    steps = make_column_transformer((StandardScaler(), ["age", "income"]))
    model = make_pipeline(steps, MLPClassifier((4,), solver="lbfgs", tol=0.01, random_state=0)).fit(frame, y)
    skops.io.dump(model, files / "network.skops")
    places = []

    def read(model, X, *, head, device):
        places.append(device)
        return read_model(model, X, head=head)

    monkeypatch.setattr(explainer, "read_model", read)
    monkeypatch.setattr(cli, "device_of", lambda name: f"{name}:0")
    given = ["--model", files / "network.skops", "--epsilon", 1e-4]
    for device in ("cpu", "cuda"):
        run(*base(files), *given, "--out", files / f"{device}.csv", "--device", device)
    assert places == ["cpu", "cuda:0"]


def test_constraints_file(run, files):
    (files / "limits.json").write_text(json.dumps({"features_to_vary": ["income"]}))
    run(*base(files), "--epsilon", 0.002, "--constraints", files / "limits.json", "--out", files / "cf.parquet")
    table = pd.read_parquet(files / "cf.parquet")
    assert set(table["cf_changed"]) <= {"", "income"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--target", "x"], "--target: expected .*got 'x'"),
        (["--desired", "great"], "--desired: expected one of the labels bad, good, got 'great'"),
        (["--sparsity", "few"], "--sparsity: expected .*got 'few'"),
        (["--shard", "2/2"], "--shard: expected .*got '2/2'"),
        (["--epsilon", "9"], "epsilon: expected a tolerance below"),
        (["--out", "cf.xlsx"], "--out: expected .* .csv, .parquet or .json, got 'cf.xlsx'"),
        (["--target", "age"], "--target: expected two labels, got 50 in column 'age'"),
        (["--model", __file__], "--model: expected a skops file"),
        (["--sparsity", "\u00b2"], "--sparsity: expected .*got '\u00b2'"),
        (["--shard", "\u00b2/3"], "--shard: expected .*got '\u00b2/3'"),
        (["--l2", "nan"], "--l2: expected a number of at least 0, got nan"),
        (["--device", "tpu"], "device: expected auto or one of those that are here .*got 'tpu'"),
    ],
)
def test_mistakes(run, files, words, says):
    run(*base(files), "--out", files / "cf.csv", *words, refused=says)
    assert not (files / "cf.csv").exists()


def test_a_model_file_with_other_types_is_refused(run, files):
    forest = pytest.importorskip("sklearn.ensemble").RandomForestClassifier()
    skops.io.dump({"model": forest, "f": json.dumps}, files / "odd.skops")
    says = "--model: expected types on this command's list"
    run(*base(files), "--model", files / "odd.skops", "--out", files / "cf.csv", refused=says)


def test_tables_with_holes_are_named(run, files):
    for name, option in (("train", "data"), ("query", "query")):
        text = (files / f"{name}.csv").read_text().splitlines()
        (files / f"{name}.csv").write_text("\n".join([text[0], "," + text[1].split(",", 1)[1], *text[2:]]))
        run(*base(files), "--out", files / "cf.csv", refused=f"--{option}.* no missing values .*got some in .*age")
        (files / f"{name}.csv").write_text("\n".join(text))


def test_tables_of_numbers_alone_and_numbers_beyond_all_sense(run, files):
    table = pd.read_csv(files / "train.csv").drop(columns="job")
    table.to_csv(files / "train.csv", index=False)
    assert "optimal" in run(*base(files), "--epsilon", 0.003, "--out", files / "cf.csv")
    for wrong in (float("inf"), 1e200):
        table.assign(age=wrong).to_csv(files / "train.csv", index=False)
        run(*base(files), "--out", files / "n.csv", refused=r"--data: expected numbers below 1e\+150 .*got .*'age'")


def test_whole_numbers_stay_whole_and_the_true_set_can_be_asked_for(run, files):
    run(*base(files), "--epsilon", 0.003, "--immutable", "age", "--certify", "rashomon", "--out", files / "cf.csv")
    table = pd.read_csv(files / "cf.csv")
    assert table["age"].tolist() == pd.read_csv(files / "query.csv")["age"].tolist()
    assert (files / "cf.csv").read_text().splitlines()[1].split(",")[0].isdigit()
    assert (table["cf_worst_logit"] >= 0).all()


def test_help_teaches(run):
    for verb, words in {
        "explain": ["--immutable age,sex", '"one_way"', "cf_radius", "1 / (C n)"],
        "evaluate": ["--kind bootstrap", "agreement"],
        "tune": ["--robustness 0.95", "--immutable"],
    }.items():
        said = " ".join(run(verb, "--help").replace("\u2502", " ").split())
        assert all(word in said for word in words), said
