"""A run's folder: what a killed process left in it is no obstacle, and two processes do not share it."""

import subprocess
import sys

import pytest

from thrifty._common.runs import alone, enter_run


def test_a_run_goes_on_from_its_last_whole_checkpoint(tmp_path):
    (tmp_path / ".sumo_run.json.0123abcd").write_text("half a fi")  # a process that was killed left it
    assert enter_run(tmp_path, "sumo", {"lr": 1})[0] is None
    for step, state in ((2, '{"global_step": 2}'), (4, '{"global_step": 4}'), (6, '{"global_st')):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-8").mkdir()
    checkpoint, reached = enter_run(tmp_path, "sumo", {"lr": 1})
    assert checkpoint == str(tmp_path / "checkpoint-4")
    assert reached == {"global_step": 4}
    with pytest.raises(ValueError, match=r"^lr: the run in .* has 1, got 2"):
        enter_run(tmp_path, "sumo", {"lr": 2})


@pytest.mark.parametrize(
    ("content", "says"), [(b"{", "expected JSON"), (b"\xff", "in UTF-8"), (b"[]", "a JSON object")]
)
def test_a_damaged_record_is_named(tmp_path, content, says):
    (tmp_path / "sumo_run.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"sumo_run\.json: .*{says}"):
        enter_run(tmp_path, "sumo", {"lr": 1})


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(FileExistsError, match="no run to go on with"):
        enter_run(tmp_path, "sumo", {})


def test_two_processes_do_not_share_a_folder(tmp_path):
    code = "from pathlib import Path\nfrom sys import argv\nfrom thrifty._common.runs import alone\n"
    code += "with alone(Path(argv[1])): pass"
    other = [sys.executable, "-c", code, str(tmp_path)]
    with alone(tmp_path):
        done = subprocess.run(other, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ValueError: out: another process is at work in")
    assert subprocess.run(other, check=False).returncode == 0
    assert not list(tmp_path.iterdir()), "the lock goes with the run"
