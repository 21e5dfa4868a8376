"""Analysis, schedule search, pictures, throughput, dense restore."""

import csv
import io

import numpy as np
import pytest
import torch
from vit_hosts import make

from thrifty.inference.token_reduction import (
    FreqReduceConfig,
    analyze_tokens,
    count_macs,
    measure_throughput,
    named,
    noise_sensitivity,
    reduce_tokens,
    reduction_of,
    search_schedule,
    visualize,
)
from thrifty.inference.token_reduction.metrics import hf_ratio
from thrifty.inference.token_reduction.overlay import save_picture
from thrifty.inference.token_reduction.search import Candidate, layer_thirds, pareto_set

LAYERS = (2, 4, 5)


@pytest.mark.parametrize("name", ["timm-registers", "hf-siglip", "open_clip"])
def test_the_table_has_a_row_a_method_and_layer(name, images):
    model = make(name).train()
    methods = ["base", "frequency", "tome", "pool", "random"] + ([] if name == "hf-siglip" else ["evit"])
    found = analyze_tokens(model, images, methods, layers=LAYERS, keep=0.6)
    assert model.training
    assert reduction_of(model) is None
    assert not any(module._forward_hooks for module in model.modules())
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert len(rows) == 6 * len(methods)
    base = found.column("base", "hf_ratio")
    assert found.column("frequency", "hf_ratio")[0] == base[0]  # nothing is dropped yet
    assert found.column("frequency", "tokens")[-1] < found.column("base", "tokens")[-1]
    assert all(np.isfinite(found.column(m, "log_amplitude")).all() for m in methods)
    assert found.column("tome", "to_last")[-1] == pytest.approx(1)
    hidden = []
    model.eval()
    from thrifty.inference.token_reduction.hosts import find_host

    find_host(model).blocks[2].register_forward_hook(lambda _, __, out: hidden.append(out))
    with torch.no_grad():
        model(images)
    assert base[2] == pytest.approx(float(hf_ratio(hidden[0]).mean()))


def test_the_table_is_drawn(tmp_path, images):
    pytest.importorskip("matplotlib")
    found = analyze_tokens(make("timm"), images, ("base", "frequency"), layers=LAYERS)
    path = found.plot(tmp_path / "curves.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FileExistsError):
        found.plot(path)


def test_an_analysis_sets_its_own_reductions(images):
    model = make("timm")
    with pytest.raises(ValueError, match="method: expected one of"):
        analyze_tokens(model, images, ("base", "magic"), layers=LAYERS)
    reduce_tokens(model, FreqReduceConfig(LAYERS, 0.5))
    for tool in (lambda: analyze_tokens(model, images, layers=LAYERS), lambda: measure_throughput(model, images, {})):
        with pytest.raises(ValueError, match="a token reduction is in force"):
            tool()


def test_noise_on_tokens_is_judged(images):
    model = make("timm")
    clean = model(images).argmax(1)
    lost = noise_sensitivity(model, images, lambda out: out.argmax(1).eq(clean).float(), layer=3, trials=3, sigma=5.0)
    assert len(lost["high"]) == len(lost["low"]) == 3
    assert max(lost["high"] + lost["low"]) > 0
    quiet = noise_sensitivity(model, images, lambda out: out.argmax(1).eq(clean).float(), layer=3, trials=2, sigma=0.0)
    assert quiet == {"high": [0, 0], "low": [0, 0]}
    with pytest.raises(ValueError, match="layer: expected 1 to 6, got 7"):
        noise_sensitivity(model, images, lambda out: out, layer=7)


def test_noise_lies_on_the_patches_of_the_highest_and_of_the_lowest_scores(images):
    model, seen = make("timm"), []
    with reduce_tokens(model, FreqReduceConfig((3,), 0.5), trace=True) as reduction, torch.no_grad():
        model(images)
        ranked = reduction.info()[0].score.argsort(dim=1)
    model.blocks[2].register_forward_hook(lambda _, __, out: seen.append(out))
    model.blocks[3].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    noise_sensitivity(model, images, lambda out: out[:, 0], layer=3, share=0.3, trials=1)
    _, _, *noisy = seen  # without noise; then the high and the low, before and behind it
    for before, behind, expected in zip(noisy[::2], noisy[1::2], (ranked[:, 70:], ranked[:, :30]), strict=True):
        moved = (before != behind).any(dim=2)
        for image in range(3):
            assert moved[image].nonzero().flatten().tolist() == sorted((1 + expected[image]).tolist())


def test_search_returns_the_front_of_macs_and_accuracy():
    model = make("timm")

    def quality(m):
        """Stands in for accuracy: the more the model computes, the better, with a taste for layer 3."""
        reduction = reduction_of(m)
        if reduction is None:
            return 1.0
        return count_macs(m, (40, 40)) / count_macs(m, (40, 40), FreqReduceConfig(LAYERS, 1.0)) + 0.1 * (
            3 in reduction.config.layers
        )

    told = []
    found = search_schedule(model, quality, trials=12, image_size=(40, 40), seed=1, progress=lambda *s: told.append(s))
    assert reduction_of(model) is None
    assert len(found.all) == 12
    assert told[-1][:2] == (12, 12)
    assert found.best.aim == max(c.aim for c in found.all)
    for c in found.all:
        assert not any(
            o.macs < c.macs and o.accuracy > c.accuracy for o in found.pareto if o in found.pareto and c in found.pareto
        )
        assert c.aim == pytest.approx(1 - c.macs / found.base_macs + c.accuracy)
    again = search_schedule(model, quality, trials=12, image_size=(40, 40), seed=1)
    assert [c.config for c in again.all] == [c.config for c in found.all]
    assert layer_thirds(12) == ((2, 3, 4), (5, 6, 7), (8, 9, 10, 11))
    with pytest.raises(ValueError, match="trials"):
        search_schedule(model, quality, trials=0)
    with pytest.raises(ValueError, match="evaluate: expected an accuracy above 0"):
        search_schedule(model, lambda m: 0.0, trials=1, image_size=(40, 40))
    with pytest.raises(ValueError, match="at least 4 blocks"):
        layer_thirds(3)


def test_the_front_holds_what_none_beats():
    config = FreqReduceConfig()
    a, b, c, d = (Candidate(config, m, q, 0) for m, q in ((1, 0.2), (2, 0.5), (3, 0.4), (4, 0.6)))
    assert pareto_set([d, c, b, a]) == (a, b, d)


def test_a_picture_darkens_what_was_dropped(tmp_path, images):
    pixels = np.full((80, 80, 3), 200, np.uint8)
    model = make("timm")
    with reduce_tokens(model, FreqReduceConfig(LAYERS, 0.5), trace=True) as reduction:
        model(images)
        picture = visualize(pixels, reduction.info(), reduction.tokens.grid, index=1)
        kept = reduction.info()[1].kept[1].tolist()
    assert picture.shape == (80, 4 * 80 + 3 * 4, 3)
    panel = picture[:, 2 * 84 : 2 * 84 + 80]
    for place in range(100):
        row, column = divmod(place, 10)
        assert panel[row * 8 + 4, column * 8 + 4, 0] == (200 if place in kept else 50)
    assert save_picture(tmp_path / "a.png", picture).read_bytes().startswith(b"\x89PNG")
    with reduce_tokens(model, named("tome", LAYERS), trace=True) as merged:
        model(images)
        with pytest.raises(ValueError, match="merging has no kept patches"):
            visualize(pixels, merged.info(), (10, 10))


def test_throughput_is_measured_beside_the_model_as_it_is(images):
    model = make("timm").train()
    found = measure_throughput(model, images, {"ours": FreqReduceConfig(LAYERS, 0.5)}, repeats=2)
    assert set(found) == {"base", "ours"}
    assert found["base"].speedup == 1
    assert found["ours"].macs < found["base"].macs
    assert model.training
    with pytest.raises(ValueError, match="repeats"):
        measure_throughput(model, images, {}, repeats=0)


def test_restored_places_hold_their_token_and_residuals_add_what_changed(images):
    """Where all tokens change alike after the drop, the residual form gives back what the whole sequence became."""
    model = make("timm")
    with torch.no_grad():
        for block in model.blocks[2:]:  # every token gains the same behind the second block
            block.attn.proj.weight.zero_()
            block.attn.proj.bias.zero_()
            block.mlp.fc2.weight.zero_()
            block.mlp.fc2.bias.fill_(0.3)
        model.blocks[1].mlp.fc2.weight.zero_()
        model.blocks[1].mlp.fc2.bias.zero_()
        seen = []
        hook = model.blocks[-1].register_forward_hook(lambda _, __, out: seen.append(out))
        model(images)
        for mode in ("residual", "dc"):
            with reduce_tokens(model, FreqReduceConfig((2,), 0.5, window=2), restored=mode, trace=True) as reduction:
                model(images)
                kept = reduction.info()[0].kept
        hook.remove()
    whole, residual, dc = seen
    torch.testing.assert_close(residual, whole, atol=1e-5, rtol=1e-4)
    index = 1 + kept[0]
    torch.testing.assert_close(dc[0, index], whole[0, index], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(dc, whole, atol=1e-3)
