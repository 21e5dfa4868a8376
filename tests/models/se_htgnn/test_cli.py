"""The commands on files, the predictor of costs, and the picture."""

import json

import numpy as np
import pandas as pd
import pytest

from thrifty._common.ledger import Resource, Workload
from thrifty.models.se_htgnn import SEHTGNN, NodeRegressor, plot_attention
from thrifty.models.se_htgnn.cost import predict
from thrifty.models.se_htgnn.graph_file import read_graph
from thrifty.models.se_htgnn.rivals.htgnn import HTGNN


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "date": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 25, 400), unit="D"),
            "origin": rng.choice(["JFK", "LGA"], 400),
            "dest": rng.choice(["BOS", "ORD, Chicago"], 400),
            "delay": rng.normal(10, 5, 400),
        }
    )
    table.to_csv(tmp_path / "flights.csv", index=False)
    entities = {"origin": "airport", "dest": "airport"}
    entry = {
        "file": "flights.csv",
        "time": "date",
        "entities": entities,
        "values": ["delay"],
        "relations": [["origin", "to", "dest"]],
    }
    graph = {"tables": [entry], "forecast": {"entity": "dest", "value": "delay"}}

    def write(**changes):
        path = tmp_path / "graph.json"
        path.write_text(json.dumps({key: value for key, value in (graph | changes).items() if value is not None}))
        return path

    return write


SMALL = ("--hidden", 4, "--window", 3, "--epochs", 2, "--validation", 4, "--batch", 8)


def test_train_eval_predict_explain(thrifty, files, tmp_path):
    data, out = files(), tmp_path / "model"
    ran = thrifty("se-htgnn", "train", "--data", data, "--out", out, *SMALL, "--test", 3)
    assert ran.code == 0, ran.err
    assert "epoch 2 of 2" in ran.err
    assert "saved in" in ran.out
    assert thrifty("se-htgnn", "train", "--data", data, "--out", out, *SMALL).code == 2  # it is there
    ran = thrifty("se-htgnn", "eval", out, "--data", data, "--last", 3, "--json")
    assert {"snapshots", "mae", "rmse", "rmse_pooled"} == set(json.loads(ran.out))
    assert "trained the model" not in ran.err
    ran = thrifty("se-htgnn", "eval", out, "--data", data, "--last", 5)
    assert "2 of these 5 snapshots trained the model, or decided when to stop" in ran.err
    ran = thrifty("se-htgnn", "predict", out, "--data", data, "--pairs", data)
    assert "--pairs: this model forecasts nodes" in ran.err
    ran = thrifty("se-htgnn", "predict", out, "--data", data)
    lines = ran.out.splitlines()
    assert lines[0] == "node,step_1"
    assert '"ORD, Chicago",' in ran.out
    assert len(lines) == 3  # JFK and LGA never are a destination
    assert "2 of type 'airport' left out" in ran.err
    assert "forecast of what follows 2024-01-25" in ran.err
    assert thrifty("se-htgnn", "predict", out, "--data", data, "--out", tmp_path / "t.csv").code == 0
    assert (tmp_path / "t.csv").read_text() == ran.out
    ran = thrifty("se-htgnn", "explain", out, "--data", data, "--plot", tmp_path / "a.svg", "--json")
    rows = json.loads(ran.out)
    assert {tuple(row["relation"]) for row in rows} == {("airport", "to", "airport"), ("airport", "rev_to", "airport")}
    assert np.sum([row["weights"] for row in rows], axis=0) == pytest.approx(np.ones(3), abs=1e-3)
    assert "<svg" in (tmp_path / "a.svg").read_text()


@pytest.mark.filterwarnings("ignore:linked. only one kind")
def test_links_and_classes(thrifty, files, tmp_path):
    data = files(forecast=None, links=["airport", "to", "airport"])
    assert thrifty("se-htgnn", "train", "--data", data, "--out", tmp_path / "links", *SMALL).code == 0
    pairs = tmp_path / "pairs.csv"
    pairs.write_text('source,destination\nJFK,BOS\nLGA,"ORD, Chicago"\n')
    ran = thrifty("se-htgnn", "predict", tmp_path / "links", "--data", data, "--pairs", pairs)
    assert ran.out.splitlines()[0] == "source,destination,probability"
    assert len(ran.out.splitlines()) == 3
    assert thrifty("se-htgnn", "predict", tmp_path / "links", "--data", data).code == 2
    pairs.write_text("source,destination\nJFK,Mars\n")
    ran = thrifty("se-htgnn", "predict", tmp_path / "links", "--data", data, "--pairs", pairs)
    assert "'Mars' is no 'airport' of the graph" in ran.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"forecast": None}, "says nothing to forecast"),
        ({"forecast": {"entity": "gate"}}, "forecast: expected an entity among origin, dest, got 'gate'"),
        ({"forecast": {"value": "delay"}}, "forecast: expected 'entity', got none"),
        ({"forecast": {"entity": "dest", "table": 4}}, "forecast: expected a table below 1, got 4"),
        ({"tables": [{"file": "flights.csv"}]}, "table 0: expected 'time', 'entities', got none"),
        ({"tables": [{"file": "none.csv", "time": "date", "entities": {}}]}, "none.csv"),
        (
            {"tables": [{"file": "flights.csv", "time": "day", "entities": {"dest": "airport"}}]},
            "expected the columns day, dest",
        ),
        ({"forecast": None, "links": ["a", "b", "c"]}, "links: expected an edge type among"),
        ({"links": ["airport", "to", "airport"]}, "expected either 'forecast' or 'links', got both"),
        ({"freq": "MS"}, "freq: expected the length of a period as pandas names it"),
        (
            {"tables": [{"file": "flights.csv", "time": "date", "entities": {"dest": "airport"}, "values": "delay"}]},
            "values: expected a list of columns, got 'delay'",
        ),
        (
            {
                "tables": [
                    {"file": "flights.csv", "time": "date", "entities": {"dest": "a"}, "relations": [["dest", "dest"]]}
                ]
            },
            "relations: expected (column, name, column), got ['dest', 'dest']",
        ),
        ({"tables": [{"file": "flights.csv", "time": "date", "entities": ["dest"]}]}, "expected column to node type"),
        ({"frequency": "D"}, "got also 'frequency'"),
    ],
)
def test_files_that_will_not_do_are_refused_in_one_line(thrifty, files, tmp_path, changes, message):
    ran = thrifty("se-htgnn", "train", "--data", files(**changes), "--out", tmp_path / "m", *SMALL)
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"forecast": {"entity": "dest"}}, "fitted to a graph with forecast"),
        ({"freq": "W"}, "fitted to a graph with period 'D', got 'W'"),
        ({"forecast": None}, "target: expected a node type with y, among none, got 'airport'"),
    ],
)
def test_a_model_is_not_used_on_a_graph_that_was_made_otherwise(thrifty, files, tmp_path, changes, message):
    out = tmp_path / "model"
    assert thrifty("se-htgnn", "train", "--data", files(), "--out", out, *SMALL).code == 0
    ran = thrifty("se-htgnn", "eval", out, "--data", files(**changes), "--last", 1)
    assert ran.code == 2
    assert message in ran.err


def test_a_renamed_relation_is_told(thrifty, files, tmp_path):
    out, data = tmp_path / "model", files()
    assert thrifty("se-htgnn", "train", "--data", data, "--out", out, *SMALL).code == 0
    data.write_text(data.read_text().replace('"to"', '"goes"'))
    ran = thrifty("se-htgnn", "predict", out, "--data", data)
    assert ran.code == 2
    assert "fitted to a graph with relations" in ran.err


def test_classes_with_names_are_forecast_by_name(thrifty, files, tmp_path):
    data = files(forecast={"entity": "dest", "value": "mood", "classes": True})
    table = pd.read_csv(tmp_path / "flights.csv").assign(mood=lambda t: np.where(t.delay > 10, "late", "early"))
    table.to_csv(tmp_path / "flights.csv", index=False)
    ran = thrifty("se-htgnn", "train", "--data", data, "--out", tmp_path / "m", *SMALL)
    assert "validation macro_f1 " in ran.out, ran.err
    ran = thrifty("se-htgnn", "predict", tmp_path / "m", "--data", data)
    assert {line.rsplit(",", 1)[1] for line in ran.out.splitlines()[1:]} <= {"late", "early"}


def test_entities_in_a_csv_are_text_as_it_stands_there(tmp_path):
    (tmp_path / "t.csv").write_text(
        "day,who,where,n\n20240101,001,NA,1\n20240103,9007199254740993,x,NA\n20240103,9007199254740992,,2\n"
    )
    entry = {"file": "t.csv", "time": "day", "entities": {"who": "who", "where": "where"}, "values": ["n"]}
    (tmp_path / "g.json").write_text(json.dumps({"tables": [entry | {"time_format": "%Y%m%d"}]}))
    data = read_graph(tmp_path / "g.json").data
    assert list(data.times) == ["2024-01-01", "2024-01-02", "2024-01-03"]
    assert data.ids == {"who": ["001", "9007199254740993", "9007199254740992"], "where": ["NA", "x"]}
    (tmp_path / "g.json").write_text(json.dumps({"tables": [entry]}))
    with pytest.raises(ValueError, match=r"time: expected dates or times in 'day', got numbers \(20240101\)"):
        read_graph(tmp_path / "g.json")


def test_a_model_that_could_not_be_saved_is_not_lost(thrifty, files, tmp_path, monkeypatch):
    data, out = files(), tmp_path / "model"
    whole = NodeRegressor.save_pretrained

    def full(self, folder, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NodeRegressor, "save_pretrained", full)
    ran = thrifty("se-htgnn", "train", "--data", data, "--out", out, *SMALL)
    assert ran.code == 2
    assert [path.name for path in out.iterdir()] == ["checkpoint.pt"]
    (out / ".checkpoint.pt.0123abcd").write_bytes(b"a process that was killed left it")
    monkeypatch.setattr(NodeRegressor, "save_pretrained", whole)
    ran = thrifty("se-htgnn", "train", "--data", data, "--out", out, *SMALL)
    assert ran.code == 0
    assert "epoch" not in ran.err  # both were done
    assert {path.name for path in out.iterdir()} == {"config.json", "model.safetensors", "estimator.json"}


def test_an_interrupt_says_how_to_go_on(thrifty, files, tmp_path, monkeypatch):
    calls = []

    def interrupted(self, *more):
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return 1.0

    monkeypatch.setattr(NodeRegressor, "_score", interrupted)
    ran = thrifty("se-htgnn", "train", "--data", files(), "--out", tmp_path / "m", *SMALL)
    assert ran.code == 130
    assert "interrupted; the same command goes on from" in ran.err
    monkeypatch.undo()
    ran = thrifty("se-htgnn", "train", "--data", files(), "--out", tmp_path / "m", *SMALL, "--test", 5)
    assert "split: the run in" in ran.err
    ran = thrifty("se-htgnn", "train", "--data", files(), "--out", tmp_path / "m", *SMALL, "--seed", 3)
    assert "random_state: the run in" in ran.err
    assert "has 0, got 3" in ran.err
    ran = thrifty("se-htgnn", "train", "--data", files(), "--out", tmp_path / "m", *SMALL)
    assert "epoch 1 of" not in ran.err
    assert "epoch 2 of 2" in ran.err


def test_an_encoder_that_is_not_there_is_told(thrifty, files, tmp_path):
    ran = thrifty(
        "se-htgnn", "train", "--data", files(), "--out", tmp_path / "m", *SMALL, "--encoder", str(tmp_path / "no")
    )
    assert ran.code == 2
    assert "offline there are 'minilm'" in ran.err


def test_costs_are_those_of_the_networks():
    facts = {"nodes": 123, "edges": 851, "relations": 6, "hidden": 16, "window": 7, "layers": 2}
    triples = [
        ("a", "r1", "a"),
        ("a", "r2", "a"),
        ("b", "r3", "a"),
        ("a", "r4", "b"),
        ("a", "r5", "b"),
        ("b", "r6", "a"),
    ]
    metadata = (["a", "b"], triples)
    ours = SEHTGNN(metadata, {"a": 3, "b": 2}, 16, num_layers=2, window=7).num_parameters()
    theirs = sum(p.numel() for p in HTGNN(metadata, {"a": 3, "b": 2}, 16, num_layers=2, window=7).parameters())
    delta = predict(Workload("temporal graph forecasting", facts))
    assert delta.total(Resource.WEIGHTS) == 4 * (ours - theirs)
    assert delta.total(Resource.ACTIVATIONS) < 0
    assert delta.total(Resource.FLOPS) < 0
    with pytest.raises(ValueError, match="'hidden' is needed"):
        predict(Workload("temporal graph forecasting", {"nodes": 1, "edges": 1, "relations": 1}))


def test_a_picture_is_not_overwritten(tmp_path):
    weights = {(0, ("a", "to", "a")): np.ones((2, 3, 2))}
    plot_attention(weights, tmp_path / "a.png")
    with pytest.raises(FileExistsError):
        plot_attention(weights, tmp_path / "a.png")
