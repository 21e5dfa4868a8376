"""Run by torchrun: every process fits a part of a table; the first writes what came out."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from thrifty.solvers.ellice import ElliCE, RashomonEllipsoid


def facts(near, explainer, persons):
    return {
        "cholesky": near.ellipsoid_.cholesky.tolist(),
        "objective": near.objective_,
        "epsilon": near.epsilon_,
        "answers": explainer.explain(persons).counterfactuals.to_numpy(float).tolist(),
    }


def both(X, y, model, persons, center, *, sharded):
    near = RashomonEllipsoid(0.1, epsilon_mode="relative", center=center).fit(model, X, y, sharded=sharded)
    explainer = ElliCE(model, epsilon=0.005, center=center).fit(X, y, sharded=sharded)
    return facts(near, explainer, persons)


def main(out):
    X, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (1e-3 * len(X)), tol=1e-10)).fit(X, y)
    persons = X[y == 0][:4]
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    order = np.argsort(X[:, 0])  # parts that differ: small tumours here, large ones there
    mine = order[: len(X) // 3] if rank == 0 else order[len(X) // 3 :]
    assert world == 2
    with warnings.catch_warnings():
        warnings.simplefilter(
            "error"
        )  # a part alone is not what the model was fitted to, and must not be held against it
        found = {center: both(X[mine], y[mine], model, persons, center, sharded=True) for center in ("as_is", "refit")}
    if rank == 0:
        whole = {center: both(X, y, model, persons, center, sharded=False) for center in ("as_is", "refit")}
        Path(out).write_text(json.dumps({"parts": found, "whole": whole}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
