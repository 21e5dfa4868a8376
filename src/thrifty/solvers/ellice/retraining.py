"""Training again: what a scikit-learn estimator, or a network, becomes from another seed or another sample."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.base import clone

from thrifty._common.extras import require


def refit(model: Any, X: Any, y: NDArray, seed: int, rows: Int[np.ndarray, " k"] | None = None) -> Any:
    """Return a clone of a scikit-learn estimator, fitted on some rows from another seed."""
    fresh = clone(model)
    seeds = {name: seed for name in fresh.get_params() if name.endswith("random_state")}
    fresh.set_params(**seeds)
    if rows is None:
        return fresh.fit(X, y)
    return fresh.fit(X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows], np.asarray(y)[rows])


def retrain_network(
    module: Any,
    rows: Float[np.ndarray, "n d"],
    y: NDArray,
    seed: int,
    *,
    l2: float = 1e-3,
    lr: float = 1e-3,
    epochs: int = 200,
    patience: int = 20,
) -> Any:
    """Train a network of the same architecture from fresh weights, as the paper does: Adam, λ, early stopping.

    Args:
        module: The architecture: a network with one logit (or two) whose layers have ``reset_parameters``.
        rows: Encoded training rows; a tenth of them decides when to stop.
        y: Labels in {0, 1}.
        seed: Of the weights, the split and the order of batches.
        l2: λ of the penalty (λ/2)‖parameters‖².
        lr: Of Adam.
        epochs: At most.
        patience: Epochs without improvement on the held-out tenth after which training stops.

    Returns:
        A new network, in eval mode.
    """
    torch = require("torch", extra="torch")
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = copy.deepcopy(module)
        for part in fresh.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
        first = next(iter(fresh.parameters()))
        inputs = torch.as_tensor(rows).to(first)
        labels = torch.as_tensor(np.asarray(y)).to(first)
        order = torch.randperm(len(inputs), generator=generator)
        held, used = order[: len(order) // 10], order[len(order) // 10 :]
        for parameter in fresh.parameters():
            parameter.requires_grad_(True)
        adam = torch.optim.Adam(fresh.parameters(), lr=lr, weight_decay=l2)

        def loss(at: Any) -> Any:
            out = fresh(inputs[at]).reshape(len(at), -1)
            logit = out[:, 0] if out.shape[1] == 1 else out[:, 1] - out[:, 0]
            return torch.nn.functional.binary_cross_entropy_with_logits(logit, labels[at])

        best, best_state, since = float("inf"), copy.deepcopy(fresh.state_dict()), 0
        for _ in range(epochs):
            fresh.train()
            for batch in used[torch.randperm(len(used), generator=generator)].split(64):
                if len(batch) < 2:
                    continue  # batch normalisation needs two rows
                adam.zero_grad()
                loss(batch).backward()
                adam.step()
            fresh.eval()
            with torch.no_grad():
                now = float(loss(held if len(held) else used))
            if now < best - 1e-5:
                best, best_state, since = now, copy.deepcopy(fresh.state_dict()), 0
            else:
                since += 1
                if since >= patience:
                    break
        fresh.load_state_dict(best_state)
    return fresh.eval()
