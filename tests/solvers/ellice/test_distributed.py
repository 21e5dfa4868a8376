"""Two processes: a table in two parts, and queries in two parts."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from thrifty.solvers.ellice import ElliCE, RashomonEllipsoid

pytest.importorskip("torch")


@pytest.mark.dist
@pytest.mark.slow
def test_two_parts_of_a_table_give_the_ellipsoid_of_the_whole(torchrun, tmp_path):
    torchrun(Path(__file__).with_name("ellice_ranks.py"), tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    for center in ("as_is", "refit"):
        parts, whole = found["parts"][center], found["whole"][center]
        for name in ("objective", "epsilon"):
            assert parts[name] == pytest.approx(whole[name], rel=1e-12)
        np.testing.assert_allclose(parts["cholesky"], whole["cholesky"], rtol=1e-9, atol=1e-12)
        # the same bounds too: the range of the whole table, of which neither part has both ends
        np.testing.assert_allclose(parts["answers"], whole["answers"], rtol=1e-6, atol=1e-6)


@pytest.mark.dist
@pytest.mark.slow
def test_processes_share_the_queries_of_the_command(torchrun, credit, tmp_path):
    frame, y, model = credit
    frame.assign(decision=y).to_csv(tmp_path / "train.csv", index=False)
    frame[model.predict(frame) == "bad"][:5].to_csv(tmp_path / "query.csv", index=False)
    words = ["ellice", "explain", "--data", tmp_path / "train.csv", "--target", "decision"]
    words += ["--query", tmp_path / "query.csv", "--epsilon", 0.003, "--out", tmp_path / "cf.csv"]
    torchrun("--no-python", Path(sys.executable).with_name("thrifty"), *words)
    parts = [pd.read_csv(tmp_path / f"cf.{part}-of-2.csv") for part in (0, 1)]
    assert sorted(pd.concat(parts)["cf_query"]) == list(range(5))


def test_parts_need_processes(cancer):
    X, y, model = cancer
    with pytest.raises(
        ValueError, match="sharded: expected False, since no processes are joined .start them with torchrun"
    ):
        RashomonEllipsoid().fit(model, X, y, sharded=True)
    with pytest.raises(ValueError, match="sharded: expected False"):
        ElliCE(model).fit(X, y, sharded=True)
