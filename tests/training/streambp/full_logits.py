"""What the streamed head is held against: full logits, in float64."""

import torch
import torch.nn.functional as F

V, D, B, T = 11, 5, 2, 9


def logits_of(hidden, weight, bias=None, scale=1.0, softcap=None, temperature=1.0):
    z = F.linear(hidden, weight, bias) * scale
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    return z / temperature


def assert_same(ours, theirs, inputs, tolerance=1e-10):
    assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-13)
    upstream = torch.linspace(0.3, 1.7, ours.numel(), dtype=ours.dtype).view(ours.shape)
    got = torch.autograd.grad(ours, inputs, upstream)
    wanted = torch.autograd.grad(theirs, inputs, upstream, retain_graph=True)
    for a, b in zip(got, wanted, strict=True):
        assert (a - b).norm() <= tolerance * b.norm()
