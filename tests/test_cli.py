"""The command: it teaches, it exits as it says, and results stay apart from remarks."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from thrifty import cli
from thrifty.bench import registry


def thrifty(capsys, *arguments):
    """Run the command in this process; return its exit status, output and remarks."""
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out, captured.err


def test_help_names_the_commands_and_the_methods(capsys):
    code, out, _ = thrifty(capsys, "--help")
    assert code == 0
    for name in ("list", "find", "cite", "env", "bench", *(m.name for m in registry.METHODS if m.has_cli)):
        assert name in out


def test_list_find_cite_env(capsys):
    assert "trees" in thrifty(capsys, "list")[1]
    assert thrifty(capsys, "list", "--markdown")[1].strip() == registry.markdown_table()
    assert "trees" in thrifty(capsys, "find", "decision", "tree")[1]
    assert thrifty(capsys, "cite", "trees")[1].startswith("@inproceedings{harviainen2025")
    code, out, _ = thrifty(capsys, "env")
    assert code == 0
    assert "cache" in out
    assert "[torch]" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bench", "tree"], "method: there is no 'tree'; did you mean trees?"),
        (["bench", "--device", "abacus"], "--device: expected cpu or cuda, got 'abacus'"),
        (["find", "teapot"], "no method matches 'teapot'"),
        (["cite", "teapot"], "there is no 'teapot'"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys, arguments, says):
    code, out, err = thrifty(capsys, *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_a_device_that_is_not_there_is_refused_before_anything_runs(capsys, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, _, err = thrifty(capsys, "bench", "--device", "cuda")
    assert code == 2
    assert "--device: torch finds no CUDA device on this machine" in err


def test_files_that_are_not_ours_are_refused(capsys, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    code, _, err = thrifty(capsys, "bench", "trees", "--out", str(tmp_path))
    assert code == 2
    assert "use --force" in err
    code, _, err = thrifty(capsys, "bench", "trees", "--json", str(tmp_path / "notes.txt"))
    assert code == 2
    assert "already exists" in err
    assert (tmp_path / "notes.txt").read_text() == "mine"


FAKE_BENCH = """
import sys
from thrifty import cli
from thrifty.bench import registry
made = dict(title="", room="solvers", line="made up", saves="", host="", maturity="research", citation="", exports=())
registry.METHODS = tuple(registry.Method(name=name, package=f"fake_{name}", **made) for name in sys.argv[1].split(","))
cli.main(sys.argv[2:])
"""


def start_bench(methods, *arguments):
    fakes = Path(__file__).parent / "bench" / "fakes"
    return subprocess.Popen(
        [sys.executable, "-c", FAKE_BENCH, methods, "bench", *arguments],
        env={**os.environ, "PYTHONPATH": str(fakes)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_json_on_standard_output_is_json_alone(tmp_path):
    process = start_bench("steady", "--json", "-", "--out", str(tmp_path / "out"))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, "a claim that falls short is a finding"
    results = json.loads(out)
    assert [record["name"] for record in results["methods"]] == ["steady"]
    assert "Ours takes half the bytes." in err


def test_json_and_tables_go_where_they_should(tmp_path):
    process = start_bench("steady", "--json", str(tmp_path / "r.json"), "--out", str(tmp_path / "out"))
    out, _ = process.communicate(timeout=60)
    assert "falls short" in out
    assert json.loads((tmp_path / "r.json").read_text())["methods"][0]["name"] == "steady"
    assert "\x1b" not in out, "no colour codes where nobody looks"


def test_a_fault_of_the_experiment_is_told_by_the_status(tmp_path):
    bench = start_bench("crash,unprepared,steady", "--out", str(tmp_path / "out"))
    _, err = bench.communicate(timeout=120)
    assert bench.returncode == 1
    assert "the experiment itself failed: crash, unprepared" in err
    found = {m["name"]: m for m in json.loads((tmp_path / "out" / "results.json").read_text())["methods"]}
    assert found["steady"]["complete"], "the rest goes on"
    assert found["unprepared"]["error"] == "the experiment could not be prepared: KeyError: 'kernels'"
    assert [claim["status"] for claim in found["unprepared"]["claims"]] == ["cannot show"]


def test_data_that_nobody_would_read_is_refused(capsys, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n")
    for names in ([], ["lrcssm"]):
        code, _, err = thrifty(capsys, "bench", *names, "--data", str(path), "--out", str(tmp_path / "out"))
        assert code == 2
        assert "--data: name the methods that it is for" in err
        assert "trees: a table with a header line" in err


def test_ctrl_c_ends_the_child_and_keeps_what_was_finished(tmp_path):
    out = tmp_path / "out"
    process = start_bench("steady,hang", "--out", str(out))
    finished = out / "results" / "steady.json"
    while not finished.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    time.sleep(2)  # the second method is under way
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; finished methods are in" in err
    assert [record["name"] for record in json.loads((out / "results.json").read_text())["methods"]] == ["steady"]
    assert not _running("fake_hang"), "nothing of the interrupted method goes on"


def _running(word):
    return word in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
