"""A seed that no generator takes is refused before anything is read."""

import pytest


@pytest.mark.parametrize("seed", ["-1", str(2**32), str(2**70), "1.5", "x"])
def test_seeds_that_no_generator_takes(thrifty, tmp_path, seed):
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    data = ("--data", tmp_path / "rows.jsonl", "--target", tmp_path / "rows.jsonl")
    ran = thrifty("influence", "select", tmp_path, *data, "-k", 1, "--out", tmp_path / "o.jsonl", "--seed", seed)
    assert ran.code == 2
    assert "Invalid value for '--seed'" in ran.err
    assert "Traceback" not in ran.err
