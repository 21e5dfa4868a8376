"""Many small networks of one architecture, trained together: the paper's recipe from different seeds.

Their parameters are stacked, so that a step of all of them is a few batched products. Adam works on every number by
itself, so each network becomes what it would have become alone: Adam, λ on all parameters, early stopping on a tenth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

#: Width of the hidden layer, as in the paper's MLP16.
HIDDEN = 16
RATE, BATCH, EPOCHS, PATIENCE = 1e-3, 64, 300, 20


@dataclass(frozen=True, eq=False)
class Stack:
    """Parameters of ``k`` networks with one hidden layer of ReLUs; float64."""

    inner: Float[Tensor, "k d h"]
    shift: Float[Tensor, "k 1 h"]
    outer: Float[Tensor, "k h 1"]
    bias: Float[Tensor, "k 1 1"]

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.inner, self.shift, self.outer, self.bias))

    def logits(self, rows: Float[Tensor, "k n d"]) -> Float[Tensor, "k n"]:
        """Return every network's logits on rows of its own."""
        return ((rows @ self.inner + self.shift).relu() @ self.outer + self.bias)[..., 0]

    def judge(self, rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "k n"]:
        """Return every network's logits on the same rows."""
        with torch.no_grad():
            return self.logits(torch.as_tensor(rows).expand(len(self.inner), *rows.shape)).numpy()

    def split(self) -> tuple[nn.Sequential, Stack]:
        """Return the first network by itself, and the others."""
        d, hidden = self.inner.shape[1:]
        lower, upper = nn.Linear(d, hidden).double(), nn.Linear(hidden, 1).double()
        with torch.no_grad():
            for layer, weight, bias in ((lower, self.inner, self.shift), (upper, self.outer, self.bias)):
                layer.weight.copy_(weight[0].T)
                layer.bias.copy_(bias[0, 0])
        first = nn.Sequential(lower, nn.ReLU(), upper)
        return first.eval(), Stack(*(part[1:] for part in self))


def train(X: Float[np.ndarray, "n d"], y: np.ndarray, k: int, seed: int, l2: float) -> Stack:
    """Train ``k`` networks: weights, held-out tenth and order of batches differ, the table does not."""
    generator = torch.Generator().manual_seed(seed)
    rows, labels = torch.as_tensor(X), torch.as_tensor(y).double()
    n, d = X.shape
    parts = [(k, d, HIDDEN, d), (k, 1, HIDDEN, d), (k, HIDDEN, 1, HIDDEN), (k, 1, 1, HIDDEN)]
    # torch's own start of a linear layer: uniform within 1/√inputs
    stack = Stack(
        *(
            ((2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1) / inputs**0.5).requires_grad_(True)
            for *shape, inputs in parts
        )
    )
    adam = torch.optim.Adam(list(stack), lr=RATE, weight_decay=l2)

    def loss(at: Tensor) -> Tensor:
        signs = 1 - 2 * labels[at]
        return softplus(signs * stack.logits(rows[at])).mean(1)

    orders = torch.argsort(torch.rand((k, n), generator=generator), dim=1)
    held, used = orders[:, : n // 10], orders[:, n // 10 :]
    best = torch.full((k,), float("inf"), dtype=torch.float64)
    kept = [part.detach().clone() for part in stack]
    since = torch.zeros(k)
    for _ in range(EPOCHS):
        shuffled = used.gather(1, torch.argsort(torch.rand(used.shape, generator=generator), dim=1))
        for batch in torch.split(shuffled, BATCH, dim=1):
            adam.zero_grad()
            torch.autograd.backward(loss(batch).sum())
            adam.step()
        with torch.no_grad():
            now = loss(held)
            better = (now < best - 1e-5) & (since < PATIENCE)
            best = torch.where(better, now, best)
            for keep, part in zip(kept, stack, strict=True):
                keep[better] = part.detach()[better]
            since = torch.where(better, 0.0, since + 1)
        if bool((since >= PATIENCE).all()):
            break
    return Stack(*kept)
