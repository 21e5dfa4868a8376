"""Rotary positions: kept patches turn by where they were, DC tokens by the middle of their cell."""

import pytest
import torch
from vit_hosts import hf, make

from thrifty.inference.token_reduction import FreqReduceConfig, analyze_tokens, named, noise_sensitivity, reduce_tokens
from thrifty.inference.token_reduction.partition import begin, reduce_by_score
from thrifty.inference.token_reduction.rotary import Rotary, cell_middles


@pytest.mark.parametrize("name", ["timm-dinov3", "timm-rope-mixed", "timm-eva02"])
def test_timms_own_blocks_on_the_kept_rows_give_the_same(name, images):
    """timm turns an image's own rows where patches were dropped at the entrance: pruning must be the same."""
    model = make(name)
    hidden = []
    with reduce_tokens(model, FreqReduceConfig((2,), 0.5, window=0, reweight="none"), trace=True) as reduction:
        hooks = [model.blocks[i].register_forward_hook(lambda _, __, out: hidden.append(out)) for i in (1, 5)]
        with torch.no_grad():
            model(images)
        for hook in hooks:
            hook.remove()
        kept = reduction.info()[0].kept
    rope, x = model.rope.get_embed(shape=(10, 10)), hidden[0]
    with torch.no_grad():
        for index in range(2, 6):
            rows = rope[index][:, kept].transpose(0, 1) if rope.ndim == 4 else rope[kept][:, None]
            x = model.blocks[index](x, rope=rows)
    torch.testing.assert_close(hidden[1], x, atol=1e-5, rtol=1e-4)


def test_a_cell_turns_as_the_patch_in_its_middle():
    assert cell_middles((14, 14), 1, "cpu").tolist() == [[7 * 14 + 7]]
    assert cell_middles((4, 8), 2, "cpu").tolist() == [[1 * 8 + 2, 1 * 8 + 6, 3 * 8 + 2, 3 * 8 + 6]]
    table = torch.arange(32.0)[:, None].expand(32, 6)  # a row says its place
    score = torch.randn(2, 32, generator=torch.Generator().manual_seed(0))
    x, tokens = torch.zeros(2, 35, 6), begin(2, (4, 8), 3, "cpu")
    whole = Rotary(table, table, paired=True, prefix=3)
    assert whole.at(tokens) is whole
    _, tokens, _ = reduce_by_score(x, tokens, score, 10, 2)
    left = whole.at(tokens)
    assert left.cos.shape == (2, 1, 14, 6)
    assert left.sin[:, 0, :10, 0].tolist() == tokens.position.tolist()
    assert left.cos[0, 0, 10:, 0].tolist() == [10, 14, 26, 30]
    heads = Rotary(torch.stack((table, table + 100)), table.expand(2, 32, 6), paired=True, prefix=3).at(tokens)
    assert (heads.cos[:, 1] - heads.cos[:, 0] == 100).all()


@pytest.mark.parametrize("paired", [True, False])
def test_turning_is_multiplication_of_complex_numbers(paired):
    angle = torch.randn(5, 3, dtype=torch.float64)
    table = angle.repeat_interleave(2, dim=-1) if paired else angle.repeat(1, 2)
    x = torch.randn(2, 4, 7, 6, dtype=torch.float64)
    out = Rotary(table.cos(), table.sin(), paired, prefix=2).turn(x)
    assert torch.equal(out[:, :, :2], x[:, :, :2])
    pairs = [t[:, :, 2:].unflatten(-1, (3, 2) if paired else (2, 3)) for t in (x, out)]
    before, after = (torch.complex(*t.unbind(-1 if paired else -2)) for t in pairs)
    torch.testing.assert_close(after, before * torch.polar(torch.ones_like(angle), angle))


def test_tools_see_turned_queries(images):
    model = make("timm-dinov3")
    found = analyze_tokens(model, images, ("base", "frequency"), layers=(2, 4, 5))
    assert found.column("frequency", "tokens") == [105, 79, 79, 55, 41, 41]
    assert found.column("frequency", "collapse_ratio")[1] == found.column("base", "collapse_ratio")[1]
    lost = noise_sensitivity(model, images, lambda out: out.sum(1), layer=3, trials=1, sigma=0.0)
    assert lost == {"high": [0.0], "low": [0.0]}


def test_rivals_have_no_places_to_turn_by():
    for method in ("tome", "evit", "pool"):
        with pytest.raises(TypeError, match="config: this model's positions are rotary"):
            reduce_tokens(hf("dinov3"), named(method, (2, 4)))
