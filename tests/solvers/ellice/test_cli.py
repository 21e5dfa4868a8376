"""The command, on files."""

import contextlib
import json

import pandas as pd
import pytest
import skops.io
import typer

from thrifty.solvers.ellice.cli import app


def run(*words):
    """Run in this process, as the main program does; expected errors come through."""
    command = typer.main.get_command(app)
    command.main(args=[str(word) for word in words], standalone_mode=False)


@pytest.fixture
def files(credit, tmp_path):
    frame, y, model = credit
    frame.assign(decision=y).to_csv(tmp_path / "train.csv", index=False)
    frame[model.predict(frame) == "bad"][:6].to_csv(tmp_path / "query.csv", index=False)
    skops.io.dump(model, tmp_path / "model.skops")
    return tmp_path


def base(files, verb="explain", query=True):
    words = [verb, "--train", files / "train.csv", "--target", "decision"]
    return [*words, "--query", files / "query.csv"] if query else words


def test_explain(files, capsys):
    out = files / "cf.csv"
    run(*base(files), "--model", files / "model.skops", "--epsilon", 0.003, "--immutable", "age,job", "--out", out)
    table = pd.read_csv(out)
    assert len(table) == 6
    assert set(table["cf_status"]) <= {"optimal", "infeasible"}
    assert (table["age"].dropna() == pd.read_csv(files / "query.csv")["age"][table["age"].notna()]).all()
    assert "optimal" in capsys.readouterr().out
    with pytest.raises(FileExistsError, match="--force"):
        run(*base(files), "--out", out)
    run(*base(files), "--epsilon", 0.003, "--out", out, "--force", "--sentences")
    assert "every model within epsilon=0.003" in capsys.readouterr().out


def test_explain_in_batches_shards_and_json(files, capsys):
    run(*base(files), "--epsilon", 0.003, "--out", files / "whole.json", "--batch-size", 4)
    whole = json.loads((files / "whole.json").read_text())["answers"]
    assert [answer["query"] for answer in whole] == list(range(6))
    for part in (0, 1):
        run(*base(files), "--epsilon", 0.003, "--out", files / "part.json", "--shard", f"{part}/2")
    parts = [a for p in (0, 1) for a in json.loads((files / f"part.{p}-of-2.json").read_text())["answers"]]
    distances = {answer["query"]: answer["distance"] for answer in parts}
    assert distances == pytest.approx({answer["query"]: answer["distance"] for answer in whole})


def test_evaluate_and_tune(files, capsys):
    run(*base(files, "evaluate"), "--epsilon", 0.005, "--n-models", 5)
    out = capsys.readouterr().out
    assert "robustness" in out
    assert "coverage           1" in out
    run(*base(files, "tune", query=False), "--folds", 2, "--steps", 2, "--n-models", 4, "--robustness", 0.7)
    assert "epsilon" in capsys.readouterr().out.splitlines()[-1]


def test_constraints_file(files):
    (files / "limits.json").write_text(json.dumps({"features_to_vary": ["income"]}))
    run(*base(files), "--epsilon", 0.002, "--constraints", files / "limits.json", "--out", files / "cf.parquet")
    table = pd.read_parquet(files / "cf.parquet")
    assert set(table["cf_changed"]) <= {"", "income"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--target", "x"], "--target is 'x'"),
        (["--desired", "great"], "--desired is 'great'; the labels are bad, good"),
        (["--sparsity", "few"], "--sparsity is 'few'"),
        (["--shard", "2/2"], "--shard is '2/2'"),
        (["--epsilon", "9"], "unless it is below"),
        (["--out", "cf.xlsx"], "--out is 'cf.xlsx'; it ends in .csv, .parquet or .json"),
        (["--target", "age"], "--target: column 'age' of .* holds 50 labels"),
        (["--model", __file__], "--model: .* is no skops file"),
    ],
)
def test_mistakes(files, words, says):
    with pytest.raises(ValueError, match=says):
        run(*base(files), "--out", files / "cf.csv", *words)
    assert not (files / "cf.csv").exists()


def test_a_model_file_with_other_types_is_refused(files):
    skops.io.dump(
        {"model": pytest.importorskip("sklearn.ensemble").RandomForestClassifier(), "f": run}, files / "odd.skops"
    )
    with pytest.raises(ValueError, match="not on this command's list"):
        run(*base(files), "--model", files / "odd.skops", "--out", files / "cf.csv")


def test_tables_with_holes_are_named(files):
    for name in ("train", "query"):
        text = (files / f"{name}.csv").read_text().splitlines()
        (files / f"{name}.csv").write_text("\n".join([text[0], "," + text[1].split(",", 1)[1], *text[2:]]))
        with pytest.raises(ValueError, match=f"--{name}.* missing values in .*age"):
            run(*base(files), "--out", files / "cf.csv")
        (files / f"{name}.csv").write_text("\n".join(text))


def test_whole_numbers_stay_whole_and_the_true_set_can_be_asked_for(files):
    run(*base(files), "--epsilon", 0.003, "--immutable", "age", "--certify", "rashomon", "--out", files / "cf.csv")
    table = pd.read_csv(files / "cf.csv")
    assert table["age"].tolist() == pd.read_csv(files / "query.csv")["age"].tolist()
    assert (files / "cf.csv").read_text().splitlines()[1].split(",")[0].isdigit()
    assert (table["cf_worst_logit"] >= 0).all()


def test_help_teaches(capsys):
    for verb, words in {
        "explain": ["--immutable age,sex", '"one_way"', "cf_radius", "1 / (C n)"],
        "evaluate": ["--kind bootstrap", "agreement"],
        "tune": ["--robustness 0.95", "--immutable"],
    }.items():
        with contextlib.suppress(SystemExit):
            run(verb, "--help")
        said = " ".join(capsys.readouterr().out.replace("\u2502", " ").split())
        assert all(word in said for word in words), said
