import numpy as np
import pytest

from thrifty.bench.data import stdlib_text


def test_the_standard_library_is_megabytes_of_source_in_three_disjoint_splits():
    text = stdlib_text.load()
    assert text.train.size > 3e6
    assert text.validation.size > 1e5
    assert text.test.size > 1e5
    assert b"import os" in text.train.tobytes()
    assert stdlib_text.load().sha256 == text.sha256, "the order of files does not depend on the file system"


def test_whole_files_go_to_one_split_and_tests_are_left_out(tmp_path):
    for number in range(20):
        (tmp_path / f"m{number:02}.py").write_text(f"<{number:02}>")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "a.py").write_text("secret")
    text = stdlib_text.load(tmp_path)
    assert text.validation.tobytes() == b"<08>\n<18>"
    assert text.test.tobytes() == b"<09>\n<19>"
    assert b"secret" not in text.train.tobytes()
    with pytest.raises(ValueError, match="at least ten"):
        stdlib_text.load(tmp_path / "test")


def test_windows_are_drawn_by_the_generator():
    text = np.arange(100, dtype=np.uint8)
    drawn = stdlib_text.windows(text, 8, 5, np.random.default_rng(0))
    assert drawn.shape == (5, 9)
    assert (np.diff(drawn, axis=1) == 1).all()
    assert (drawn == stdlib_text.windows(text, 8, 5, np.random.default_rng(0))).all()
    with pytest.raises(ValueError, match="more than 101 bytes"):
        stdlib_text.windows(text, 100, 1, np.random.default_rng(0))
