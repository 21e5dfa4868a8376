"""Fixtures of the token-reduction tests; the hosts themselves are in ``vit_hosts.py``."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from vit_hosts import HOSTS


@pytest.fixture(params=list(HOSTS))
def host(request):
    return request.param


@pytest.fixture
def images():
    return torch.randn(3, 3, 40, 40, generator=torch.Generator().manual_seed(5))
