"""What the tests of this folder share: batches, and the loss written out with all of its logits."""

import torch
from torch.nn import functional


def pairs(seed=0, batch=32, dim=16, dtype=torch.float32):
    """Two leaves of unit rows."""
    generator = torch.Generator().manual_seed(seed)
    drawn = (torch.randn(batch, dim, generator=generator, dtype=torch.float64) for _ in range(2))
    return [functional.normalize(x, dim=1).to(dtype).requires_grad_() for x in drawn]


def coefficients(batch, kappa=1.0, omega=1.0, ids=None):
    c = torch.full((batch, batch), omega, dtype=torch.float64)
    if ids is not None:
        c[ids[:, None] == ids] = 0
    c.fill_diagonal_(kappa)
    return c


def plain_loss(u, v, s, log_image, log_text, c, b=0.0):
    A = s * u @ v.T + b
    w = c * (A - log_image[:, None]).exp() + c * (A - log_text).exp()
    return -2 * A.diagonal().mean() + w.sum() / len(u)


def gradients(value, *leaves):
    for leaf in leaves:
        leaf.grad = None
    value.backward()
    return [leaf.grad.clone() for leaf in leaves]
