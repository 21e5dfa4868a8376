"""MACs: published numbers, torch's counter, and every method's token counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from vit_hosts import first, hf, make, open_clip_tower, timm_model

from thrifty.inference.token_reduction import (
    FreqReduceConfig,
    ToMeConfig,
    ViTDims,
    count_macs,
    named,
    reduce_tokens,
    token_counts,
)
from thrifty.inference.token_reduction.config import METHODS

PUBLISHED = {192: (3, 1.254, 0.822), 384: (6, 4.599, 3.032), 768: (12, 17.564, 11.617)}


@pytest.mark.parametrize("width", PUBLISHED)
def test_published_models_cost_what_was_published(width):
    heads, base, reduced = PUBLISHED[width]
    dims = ViTDims(width=width, heads=heads)
    assert count_macs(dims) / 1e9 == pytest.approx(base, abs=6e-4)
    assert count_macs(dims, config=FreqReduceConfig()) / 1e9 == pytest.approx(reduced, abs=1e-3)


def test_floor_and_the_end_of_a_block_cost_otherwise():
    dims = ViTDims(width=768, heads=12)
    assert count_macs(dims, config=FreqReduceConfig(rounding="floor")) / 1e9 == pytest.approx(11.511, abs=2e-2)
    assert count_macs(dims, config=FreqReduceConfig(where="end")) / 1e9 == pytest.approx(12.2, abs=5e-2)


CONFIGS = {name: named(name, (2, 4, 5), 0.6) for name in METHODS} | {
    "base": None,
    "end": FreqReduceConfig((2, 4, 5), 0.6, where="end"),
    "whole": FreqReduceConfig((2, 4, 5), 1.0),
    "everywhere": ToMeConfig(layers=None, r=7),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_count_is_that_of_torch(name):
    model = timm_model(img_size=112, patch_size=8).eval()
    for block in model.blocks:
        block.attn.fused_attn = False  # the counter does not see into the CPU's fused kernel
    config = CONFIGS[name]
    reduction = None if config is None else reduce_tokens(model, config, trace=True)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.randn(1, 3, 112, 112))
    assert count_macs(model, (112, 112)) == pytest.approx(counter.get_total_flops() / 2, rel=5e-3)
    if reduction is not None:
        counts = token_counts(ViTDims.of(model), (112, 112), reduction.config)
        for stage in reduction.info():
            assert counts[stage.layer - 1][0] == stage.before
            if name != "end":
                assert counts[stage.layer - 1][1] == stage.after


@pytest.mark.parametrize(
    "model", [lambda: hf("vit"), lambda: hf("clip"), open_clip_tower], ids=["vit", "clip", "open_clip"]
)
def test_shapes_are_read_from_every_host(model, images):
    dims = ViTDims.of(model())
    assert (dims.depth, dims.width, dims.heads, dims.patch, dims.prefix) == (6, 32, 4, (4, 4), 1)
    assert dims.mlp == 4.0
    assert first(make("hf-vit")(images)).shape == (3, 7)
    assert ViTDims.of(hf("vit")).classes == 7


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"image_size: \(8, 8\) is smaller than a patch"):
        count_macs(ViTDims(), (8, 8))
    with pytest.raises(ValueError, match="layers: the model has 6 blocks"):
        count_macs(ViTDims(depth=6), config=FreqReduceConfig())
    with pytest.raises(TypeError, match="no plain vision transformer"):
        count_macs(torch.nn.Linear(2, 2))
