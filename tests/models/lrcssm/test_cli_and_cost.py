"""The command line on real files, and what the adviser is told."""

import json

import numpy as np
import pytest

from thrifty._common.ledger import Resource, Workload
from thrifty.models.lrcssm.cost import predict


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.standard_normal((40, 30, 2))
    X[y == 1, :, 0] += 1.5 * np.sin(np.arange(30) / 3)
    np.savez(tmp_path / "train.npz", X=X[:30], y=np.array(["no", "yes"])[y[:30]])
    np.savez(tmp_path / "test.npz", X=X[30:], y=np.array(["no", "yes"])[y[30:]])
    return tmp_path


SMALL = ("--d-model", 8, "--d-state", 8, "--layers", 1, "--schedule", "cosine", "--epochs", 8, "--lr", 1e-2)


def test_train_evaluate_check(thrifty, files):
    model = files / "model"
    code, out, err = thrifty("lrcssm", "train", "--data", files / "train.npz", "--out", model, "--rho", 0.99, *SMALL)
    assert code == 0, err
    assert "validation accuracy" in out
    assert "epoch 8 of 8: loss" in err
    code, out, err = thrifty(
        "lrcssm", "evaluate", model, "--data", files / "test.npz", "--json", "--out", files / "predicted.npy"
    )
    assert code == 0, err
    found = json.loads(out)
    predicted = np.load(files / "predicted.npy")
    with np.load(files / "test.npz") as held:
        assert found["accuracy"] == pytest.approx(np.mean(predicted == held["y"]))
    assert found["sequences"] == 10
    code, out, err = thrifty("lrcssm", "check", model, "--data", files / "test.npz")
    assert code == 0, err
    assert "certified: every step's Jacobian lies in [-0.99, 0.99]" in out
    assert "iterations at most" in out
    code, out, _ = thrifty("lrcssm", "check", model, "--json")
    assert json.loads(out)[0]["certified"] is True
    code, _, err = thrifty("lrcssm", "train", "--data", files / "train.npz", "--out", model, *SMALL)
    assert code == 2
    assert "already exists" in err


def test_regression(thrifty, files):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 20, 2))
    np.savez(files / "r.npz", X=X, y=X.mean((1, 2)))
    code, out, err = thrifty(
        "lrcssm", "train", "--data", files / "r.npz", "--out", files / "r", "--task", "regression", *SMALL
    )
    assert code == 0, err
    assert "-MSE" in out
    code, out, err = thrifty("lrcssm", "evaluate", files / "r", "--data", files / "r.npz", "--json")
    assert json.loads(out)["mse"] < 1


def test_a_layer_is_timed(thrifty):
    code, out, err = thrifty("lrcssm", "time", "--length", 64, "--d-state", 8, "--json")
    assert code == 0, err
    (row,) = json.loads(out)
    assert row["solver"] == "sequential (compiled)"
    assert row["ms"] > 0
    assert row["peak"] > 0


def test_mistakes_are_one_line(thrifty, files):
    np.savez(files / "bare.npz", X=np.zeros((4, 5, 2)))
    np.savez(files / "wide.npz", X=np.zeros((4, 5, 3)), y=np.arange(4))
    np.savez(files / "other.npz", X=np.zeros((4, 5, 2)), y=np.array(["a"] * 4))
    thrifty("lrcssm", "train", "--data", files / "train.npz", "--out", files / "m", *SMALL[:-4], "--epochs", 1)
    np.savez(files / "one.npz", X=np.zeros((4, 5, 2)), y=np.zeros(4, int))
    np.save(files / "array.npy", np.zeros((4, 5, 2)))
    (files / "array.npy").rename(files / "array.npz")
    for words, message in (
        (("train", "--data", files / "one.npz", "--out", files / "x"), "y: expected at least two classes"),
        (("train", "--data", files / "array.npz", "--out", files / "x"), "holds one array; expected an .npz archive"),
        (("train", "--data", files / "nothing.npz", "--out", files / "x"), "nothing.npz"),
        (("train", "--data", files / "bare.npz", "--out", files / "x"), "holds no labels"),
        (("train", "--data", files / "train.npz", "--out", files / "x", "--rho", 2), "rho: expected a bound in (0, 1]"),
        (("train", "--data", files / "train.npz", "--out", files / "x", "--cell", "lru"), "cell: expected one of"),
        (("train", "--data", files / "train.npz", "--out", files / "x", "--lr", 0), "lr: expected a number above 0"),
        (("evaluate", files / "m", "--data", files / "wide.npz"), "the model reads 2 channels"),
        (("evaluate", files / "m", "--data", files / "other.npz"), "the label 'a' was not in training"),
        (("time", "--length", 0), "expected at least 1 step"),
    ):
        code, _, err = thrifty("lrcssm", *words)
        assert code == 2, words
        assert message in err
        assert err.splitlines()[-1].startswith("error:"), err


def test_labels_of_any_kind_of_number_are_known_again(thrifty, files):
    X = np.random.default_rng(0).standard_normal((8, 5, 2))
    np.savez(files / "f.npz", X=X, y=np.array([0.1, 1.0] * 4, np.float32))
    np.savez(files / "bare.npz", X=X)
    code, _, err = thrifty(
        "lrcssm", "train", "--data", files / "f.npz", "--out", files / "m", *SMALL[:-4], "--epochs", 1
    )
    assert code == 0, err
    code, out, err = thrifty("lrcssm", "evaluate", files / "m", "--data", files / "f.npz")
    assert code == 0, err
    code, out, err = thrifty("lrcssm", "evaluate", files / "m", "--data", files / "bare.npz", "--out", files / "p.npy")
    assert (code, "8 predictions" in out) == (0, True), err
    (files / "m" / "labels.json").write_text("[]")
    code, _, err = thrifty("lrcssm", "evaluate", files / "m", "--data", files / "f.npz")
    assert (code, "expected JSON with 'classes'" in err) == (2, True)
    (files / "m" / "labels.json").unlink()
    code, _, err = thrifty("lrcssm", "evaluate", files / "m", "--data", files / "f.npz")
    assert (code, "the names of the classes are missing" in err) == (2, True)


def test_what_the_adviser_is_told():
    facts = {"sequence": 1000, "state": 64, "batch": 4, "layers": 2}
    delta = predict(Workload("sequence classification", facts))
    assert delta.total(Resource.ACTIVATIONS) == -4 * 2 * 4 * 1000 * 64
    assert delta.total(Resource.FLOPS) < 0
    assert "dependent steps" in delta.preconditions[0]
    lstm = predict(Workload("sequence classification", {**facts, "rnn": "lstm"}))
    assert lstm.total(Resource.ACTIVATIONS) == 3 * delta.total(Resource.ACTIVATIONS)
    assert not predict(Workload("tabular classification", {})).applies
    with pytest.raises(ValueError, match="'rnn' must be one of gru, lstm"):
        predict(Workload("sequence classification", {**facts, "rnn": "mamba"}))
