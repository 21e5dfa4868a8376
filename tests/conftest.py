"""What tests of several methods share: one thread, the ``thrifty`` command in this process, and ``torchrun``."""

import os
import subprocess
import sys
from contextlib import nullcontext
from typing import NamedTuple

import pytest

from thrifty import cli
from thrifty.bench.timing import threads


@pytest.fixture(autouse=True, scope="module")
def _one_thread(request):
    """Small matrices gain nothing from threads, and lose much where several test runs share the cores."""
    with nullcontext() if "bench" in request.path.parts else threads(1):  # the bench's own tests set threads themselves
        yield


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def thrifty(capsys):
    """Run ``thrifty ...`` in this process, as a shell would: exit status, output, remarks."""

    def run(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main([str(word) for word in words])
        return Ran(ended.value.code or 0, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def torchrun():
    """Run a script, or a command, in several processes that find each other; it must succeed. Returns its output."""

    def run(*words, processes=2, **environment):
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        command = [*start, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run
