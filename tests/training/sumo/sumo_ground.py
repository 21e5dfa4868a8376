"""Ways to run the optimizer, and the plain float64 form of Algorithm 1 that it is held against."""

import torch

from thrifty.training.sumo import SUMO


def matrix(rng, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)


def conditioned(rng, r, n, condition, dtype=torch.float32):
    """A matrix with singular values spaced evenly on a log scale from 1 to 1/condition."""
    U = torch.linalg.qr(matrix(rng, r, r, dtype=torch.float64)).Q
    V = torch.linalg.qr(matrix(rng, n, r, dtype=torch.float64)).Q
    sigma = torch.logspace(0, -torch.tensor(float(condition)).log10().item(), r, dtype=torch.float64)
    return (U * sigma @ V.T).to(dtype)


def run(gradients, start=None, *, shape=None, **options):
    """Step through gradients; return the weight after each step, and the optimizer."""
    start = torch.zeros_like(gradients[0]) if start is None else start
    weight = torch.nn.Parameter(start.clone())
    optimizer = SUMO([weight], **options)
    weights = []
    for gradient in gradients:
        weight.grad = None if gradient is None else gradient.clone()
        optimizer.step()
        weights.append(weight.detach().clone())
    return weights, optimizer


def polar(M):
    U, sigma, Vh = torch.linalg.svd(M, full_matrices=False)
    return U * (sigma > 1e-10 * sigma[0]) @ Vh


def algorithm_1(gradients, W, *, lr, momentum, rank, gap, scale, decay=0.0, residual=1.0, transport=True):
    """Algorithm 1 for a tall weight in float64, line by line."""
    M = Q = None
    for t, G in enumerate(gradients):
        if t % gap == 0:
            new = torch.linalg.svd(G, full_matrices=False).U[:, :rank]
            M = torch.zeros(rank, G.shape[1], dtype=G.dtype) if Q is None else (new.T @ Q @ M if transport else M)
            Q = new
        hat = Q.T @ G
        M = momentum * M + hat
        outside = G - Q @ hat
        W = W - lr * (scale * Q @ polar(M) + residual * outside) - lr * decay * W
        yield W
