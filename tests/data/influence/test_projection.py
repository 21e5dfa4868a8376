"""Projections keep lengths and inner products, whole and in blocks."""

import pytest
import torch

from thrifty.data.influence import projection as module
from thrifty.data.influence.projection import Projection, coordinate_mask, walsh_hadamard


@pytest.mark.parametrize("size", [1, 2, 8, 64, 128, 4096])
def test_walsh_hadamard_is_its_own_inverse(size):
    x = torch.randn(3, size, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(walsh_hadamard(walsh_hadamard(x)), x, atol=1e-5)
    H = walsh_hadamard(torch.eye(min(size, 64)))
    signs = torch.tensor([[(-1) ** bin(i & j).count("1") for i in range(len(H))] for j in range(len(H))])
    assert torch.allclose(H, signs / len(H) ** 0.5, atol=1e-6)


def test_all_coordinates_kept_is_an_isometry():
    x = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    block = module._Block.draw(0, 50, 64, torch.Generator().manual_seed(1), torch.device("cpu"))
    assert torch.allclose(block(x).norm(dim=1), x.norm(dim=1), rtol=1e-5)
    assert Projection(50, 64)(x) is x


@pytest.mark.parametrize("kind", ["srht", "rademacher"])
@pytest.mark.parametrize("blocks", [False, True])
def test_lengths_and_inner_products_are_unbiased(kind, blocks, monkeypatch):
    if blocks:
        monkeypatch.setattr(module, "WHOLE", 64)
        monkeypatch.setattr(module, "BLOCK", 64)
    x = torch.randn(2, 300, generator=torch.Generator().manual_seed(0))
    x[0, :40] *= 4
    found = [Projection(300, 64, kind, seed)(x) for seed in range(1500)]
    lengths = torch.stack([y.square().sum(1) for y in found]).mean(0)
    assert torch.allclose(lengths, x.square().sum(1), rtol=0.01)
    inner = torch.tensor([float(y[0] @ y[1]) for y in found])
    assert abs(float(inner.mean() - x[0] @ x[1])) < 4 * float(inner.std()) / 1500**0.5


@pytest.mark.parametrize("blocks", [False, True])
def test_no_vector_is_lost_between_the_kept_coordinates(blocks, monkeypatch):
    if blocks:
        monkeypatch.setattr(module, "WHOLE", 64)
        monkeypatch.setattr(module, "BLOCK", 64)
    flat = torch.ones(1, 256)  # one entry of its Walsh-Hadamard transform holds all of it, were it not for the signs
    lengths = torch.cat([Projection(256, 64, "srht", seed)(flat).square().sum(1) for seed in range(100)]) / 256
    assert lengths.min() > 0.3
    assert lengths.max() < 3


def test_the_same_seed_is_the_same_map_and_rows_do_not_mix():
    x = torch.randn(5, 200, generator=torch.Generator().manual_seed(0))
    for kind in ("srht", "rademacher"):
        project = Projection(200, 32, kind, 7)
        assert torch.allclose(project(x), Projection(200, 32, kind, 7)(x))
        assert torch.allclose(project(x)[2:3], project(x[2:3]), atol=1e-5)
        assert not torch.allclose(project(x), Projection(200, 32, kind, 8)(x))
        assert project(x).shape == (5, 32)
    with pytest.raises(ValueError, match="rows of 200"):
        project(x[:, :10])


def test_the_mask_is_shared_in_proportion():
    shapes = {"a": torch.Size([30, 10]), "b": torch.Size([100]), "c": torch.Size([7])}
    mask = coordinate_mask(shapes, 41, seed=0)
    assert [len(mask[name]) for name in shapes] == [30, 10, 1]
    assert all(len(set(kept.tolist())) == len(kept) for kept in mask.values())
    assert coordinate_mask(shapes, None) == dict.fromkeys(shapes)
    assert coordinate_mask(shapes, 407) == dict.fromkeys(shapes)
    with pytest.raises(ValueError, match="mask_numel"):
        coordinate_mask(shapes, 0)
