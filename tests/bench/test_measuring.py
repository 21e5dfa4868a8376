"""The measuring tools count what they should."""

import subprocess
import time
from pathlib import Path

import pytest

from thrifty.bench import ceilings, isolated, memory, timing

MIB = 2**20


def test_contenders_are_timed_round_by_round_and_leave_threads_as_they_were():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    times = timing.time_contenders({"long": lambda: time.sleep(0.02), "short": lambda: None}, repeats=3)
    assert torch.get_num_threads() == before
    assert len(times["long"].seconds.values) == len(times["short"].seconds.values) == 3
    assert min(times["long"].seconds.values) >= 0.02 > min(times["short"].seconds.values)
    assert times["long"].seconds.timed


def test_no_round_begins_after_the_time_given():
    times = timing.time_contenders({"slow": lambda: time.sleep(0.05)}, repeats=50, at_most=0.0)
    assert len(times["slow"].seconds.values) == timing.FEWEST_ROUNDS


def test_thread_counts_hold_inside_and_end_with_an_error():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    with pytest.raises(KeyError), timing.threads(1):
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == before


def test_allocated_peak_sees_scratch_that_is_freed_again():
    torch = pytest.importorskip("torch")

    def work():
        first = torch.ones(4 * MIB // 4)
        second = first + 1  # two at once
        del first
        return second.sum()

    assert memory.allocated_peak(work) == pytest.approx(8 * MIB, rel=0.01)


@pytest.fixture
def importable(monkeypatch):
    """Let a fresh process import this file by its bare name (some packages install a ``tests`` of their own)."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def fill(mebibytes):
    """Touch that much memory, in the fresh process of the test below."""
    return sum(bytearray(b"\1") * (mebibytes * MIB))


def test_resident_peak_agrees_with_what_was_touched(importable):
    assert memory.resident_peak("test_measuring:fill", 64) == pytest.approx(64 * MIB, rel=0.1)


def fail(text):
    """Fail in the fresh process."""
    raise ValueError(text)


def test_a_function_runs_in_a_process_of_its_own_and_its_failure_comes_through(importable):
    assert isolated.call("math:hypot", 3, 4) == 5
    with pytest.raises(RuntimeError, match="failed in a fresh process: ValueError: so it is"):
        memory.resident_peak("test_measuring:fail", "so it is")
    with pytest.raises(ImportError, match="no_such_module:work needs what is not installed: 'no_such_module'"):
        isolated.call("no_such_module:work")
    with pytest.raises(subprocess.TimeoutExpired):
        isolated.call("time:sleep", 60, timeout=0.5)


def test_ceilings_are_positive_and_carry_their_units():
    found = ceilings.measure()
    assert found["bandwidth"].unit == "GB/s"
    assert found["flops"].unit == "GFLOP/s"
    assert all(value.median > 0 for value in found.values())
