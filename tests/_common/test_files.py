"""A file appears whole or not at all."""

import os

import pytest

from thrifty._common.extras import require
from thrifty._common.files import write_whole


def test_text_and_bytes_are_written_and_folders_made(tmp_path):
    assert write_whole(tmp_path / "a" / "b.txt", "ä").read_bytes() == b"\xc3\xa4"
    assert write_whole(tmp_path / "c.bin", b"\0").read_bytes() == b"\0"


def test_what_is_there_is_only_replaced_by_force(tmp_path):
    path = write_whole(tmp_path / "model.json", "old")
    with pytest.raises(FileExistsError, match=r"model.json already exists; .* --force"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert write_whole(path, "new", force=True).read_text() == "new"


def test_a_folder_is_no_file_to_write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (".", tmp_path):
        with pytest.raises(IsADirectoryError, match="expected a file to write, got a folder"):
            write_whole(folder, "new", force=True)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    path = write_whole(tmp_path / "model.json", "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new", force=True)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.json"]


def test_an_interrupt_loses_nothing(tmp_path, monkeypatch):
    path = write_whole(tmp_path / "model.json", "old")

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new", force=True)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.json"]


def test_a_missing_extra_says_how_to_get_it():
    with pytest.raises(ImportError, match=r'no_such_host is not installed: pip install "thrifty\[graph\]"'):
        require("no_such_host.part", extra="graph")
    assert require("json", extra="graph").dumps(1) == "1"
