"""Lets the tests of this folder share `families`."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def model():
    from families import make_model

    return make_model("starcoder2", sliding_window=None)


@pytest.fixture
def head():
    from full_logits import B, D, T, V

    generator = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    hidden, weight, bias = make(B, T, D).requires_grad_(), make(V, D).requires_grad_(), make(V).requires_grad_()
    labels = torch.randint(0, V, (B, T), generator=generator)
    labels[0, :4] = -100  # a prompt
    labels[1, 6:] = -100  # padding
    return hidden, weight, bias, labels
