"""Made-up methods, whose ``evidence.py`` lies in ``fakes/``."""

import os
from pathlib import Path

import pytest

from thrifty.bench.registry import Method

FAKES = Path(__file__).parent / "fakes"


@pytest.fixture
def fake(monkeypatch):
    """Return what makes a registry entry of a folder in ``fakes/``, importable in the bench's processes."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKES), os.environ.get("PYTHONPATH", "")]))

    def make(name, **entry):
        facts = {"title": name, "room": "solvers", "line": "made up", "saves": "nothing", "host": "none"}
        return Method(
            name=name,
            package=f"fake_{name}",
            maturity="research",
            citation="@misc{}",
            exports=(),
            **{**facts, **entry},
        )

    return make


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    """Let carried data be looked for where there is none."""
    monkeypatch.setenv("THRIFTY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
