"""``thrifty games``: a user's own games, runs that go on, pictures, and mistakes in one line."""

import json

import numpy as np
import pytest

from thrifty._common.ledger import Resource, Workload
from thrifty.solvers.games.cost import TASK, predict

BLOTTO = ("games", "solve", "--soldiers", "4,3", "--values", "1,2", "--seed", 1)
ROADS = "tail,head,weight\na,b,1\nb,d,2\na,c,2\nc,d,1\nb,c,1\n"


def test_solve_gap_show_and_draw(thrifty, tmp_path):
    run = tmp_path / "run.npz"
    ran = thrifty(*BLOTTO, "--horizon", 100, "--out", run)
    assert ran.code == 0
    assert "zero-sum" not in ran.out or "Nash" in ran.out
    assert "round 100: gap" in ran.err
    again = thrifty("games", "gap", run, "--json")
    told = json.loads(thrifty("games", "show", run, "--json").out)
    assert json.loads(again.out)["from_plays"]
    assert json.loads(again.out)["gap"] == pytest.approx(told["gap"])
    shown = thrifty("games", "show", run, "--top", 2, "--trace", tmp_path / "t.svg", "--draw", tmp_path / "d.png")
    assert shown.code == 0
    assert "battlefield" in shown.out
    assert (tmp_path / "t.svg").read_text().lstrip().startswith("<?xml")
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")
    assert thrifty("games", "show", run, "--draw", tmp_path / "d.png").code == 2


def test_a_run_is_kept_and_goes_on(thrifty, tmp_path):
    run, whole = tmp_path / "run.npz", tmp_path / "whole.npz"
    assert thrifty(*BLOTTO, "--horizon", 60, "--out", run).code == 0
    refused = thrifty(*BLOTTO, "--horizon", 60, "--out", run)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "already exists" in refused.err
    assert thrifty(*BLOTTO, "--horizon", 60, "--out", run, "--resume").code == 0
    assert "eta: the run in" in thrifty(*BLOTTO, "--horizon", 60, "--out", run, "--resume", "--eta", 0.1).err
    assert thrifty(*BLOTTO, "--horizon", 60, "--out", whole).code == 0
    assert thrifty(*BLOTTO, "--horizon", 60, "--out", run, "--force").code == 0
    with np.load(run) as one, np.load(whole) as other:
        assert (one["history"] == other["history"]).all()


def test_games_of_files(thrifty, tmp_path):
    roads, game = tmp_path / "roads.csv", tmp_path / "game.json"
    roads.write_text(ROADS)
    for words in (("--od", "a:d,a:d,b:d"), ("--players", 2)):
        ran = thrifty("games", "solve", "--edges", roads, *words, "--horizon", 20, "--json", "--feedback", "expected")
        assert ran.code == 0, ran.err
        assert len(json.loads(ran.out)["players"]) == (3 if words[0] == "--od" else 2)
    game.write_text('{"game": "network", "edges": [["a", "b"], ["b", "c", {"weight": 2}]], "od_pairs": [["a", "c"]]}')
    out = tmp_path / "r.npz"
    assert thrifty("games", "solve", game, "--horizon", 5, "--out", out).code == 0
    shown = thrifty("games", "show", out, "--draw", tmp_path / "n.svg")
    assert "a -> b -> c" in shown.out
    assert (tmp_path / "n.svg").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "game: expected one of a JSON file"),
        (("--soldiers", "3,3"), "expected both, got one"),
        (("--soldiers", "3;3", "--values", "1"), "--soldiers: expected numbers"),
        (("--soldiers", "3,3", "--values", "1,2"), "horizon: expected a number of rounds"),
        (("--soldiers", "3,3", "--values", "1,2", "--horizon", "5", "--eta", "big"), "eta: expected"),
        (("--soldiers", "3,3", "--values", "1,2", "--horizon", "5", "--feedback", "all"), "feedback: expected one of"),
        (("--soldiers", "3,3", "--values", "1,2", "--horizon", "9", "--resume"), "--resume: expected --out"),
        (("--edges", "roads.csv"), "--od, --players: expected one of them"),
        (("--edges", "roads.csv", "--od", "a"), "od_pairs: expected"),
        (("--edges", "roads.csv", "--od", "a:z", "--horizon", "5"), "target: expected a node"),
        (("--edges", "roads.csv", "--players", "2", "--cost", "bpr", "--horizon", "5"), "expected the attribute"),
        (("no.json",), "no.json"),
        (("words.json",), "expected JSON"),
        (("chess.json",), "game: expected one of"),
        (("more.json",), "got also 'colour'"),
        (("less.json",), "got none of 'values'"),
        (("odd.json",), "a game of blotto"),
        (("cycle.json", "--horizon", "5"), "expected no cycle"),
        (("costs.json", "--horizon", "5"), "costs: expected a list for each of 1 edges"),
        (("few.json", "--horizon", "5"), "costs: expected one for each number of players up to 2, got 1"),
    ],
)
def test_mistakes_are_one_line(thrifty, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    files = {
        "roads.csv": ROADS, "words.json": "hello", "chess.json": '{"game": "chess"}',
        "more.json": '{"game": "blotto", "soldiers": [3, 3], "values": [1], "colour": 1}',
        "less.json": '{"game": "blotto", "soldiers": [3, 3]}',
        "odd.json": '{"game": "blotto", "soldiers": 3, "values": [1]}',
        "cycle.json": '{"game": "network", "edges": [[1, 2], [2, 1], [2, 3]], "od_pairs": [[1, 3]]}',
        "costs.json": '{"game": "trees", "players": 2, "edges": [[1, 2]], "costs": [[1, 2], [3, 4]]}',
        "few.json": '{"game": "trees", "players": 2, "edges": [[1, 2]], "costs": [[1]]}',
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ran = thrifty("games", "solve", *words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_files_that_are_no_runs(thrifty, tmp_path):
    (tmp_path / "r.npz").write_text("no run")
    for verb in ("gap", "show"):
        ran = thrifty("games", verb, tmp_path / "r.npz")
        assert ran.code == 2
        assert "expected a run of play that was saved here" in ran.err


def test_what_it_costs():
    small, large = (predict(Workload(TASK, {"soldiers": n, "battlefields": 6})) for n in (10, 40))
    assert large.total(Resource.SECONDS) < small.total(Resource.SECONDS) < 0
    assert small.total(Resource.HOST) == -3003 * 32
    assert not predict(Workload("chess")).applies
