"""Every host: identity, undoing, token counts, copies, and what cannot be reduced."""

import copy
import functools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from vit_hosts import first, hf, make, open_clip_tower, timm_model

from thrifty.inference.token_reduction import (
    FreqReduceConfig,
    ToMeConfig,
    count_macs,
    named,
    reduce_tokens,
    reduction_of,
    restore_tokens,
)
from thrifty.inference.token_reduction.analyze import watch_attention
from thrifty.inference.token_reduction.config import METHODS
from thrifty.inference.token_reduction.hosts import find_host
from thrifty.inference.token_reduction.partition import begin

LAYERS = (2, 4, 5)
HALF = FreqReduceConfig(layers=LAYERS, keep=0.5)


def run(model, images):
    with torch.no_grad():
        return first(model(images))


def test_keeping_everything_changes_nothing(host, images):
    model = make(host)
    before = run(model, images)
    with reduce_tokens(model, FreqReduceConfig(layers=LAYERS, keep=1.0, reweight="all", beta_init=1.0)):
        after = run(model, images)
    exact = not host.startswith("open_clip")  # torch's attention module has a fast path of its own in eval mode
    assert (after - before).abs().max() <= (0 if exact else 1e-5)


def test_removing_puts_back_every_bit(host, images):
    model = make(host)
    before, keys = run(model, images), list(model.state_dict())
    attributes = {name: set(part.__dict__) for name, part in model.named_modules()}
    reduction = reduce_tokens(model, FreqReduceConfig(layers=LAYERS, keep=0.5, dc_pos_embed="learned"))
    during = run(model, images)
    new = set(model.state_dict()) - set(keys)
    assert new
    assert all(".freq_" in key for key in new)
    assert (during - before).abs().max() > 1e-5
    assert reduction.remove() is model
    assert list(model.state_dict()) == keys
    assert torch.equal(run(model, images), before)
    assert {name: set(part.__dict__) for name, part in model.named_modules()} == attributes
    assert reduction_of(model) is None
    reduction.remove()  # once more does nothing


def test_counts_and_order_are_the_schedules(host, images):
    model = make(host)
    reduction = reduce_tokens(model, HALF, trace=True)
    run(model, images)
    prefix, stages = reduction.host.prefix, reduction.info()
    assert [stage.after for stage in stages] == [prefix + 50 + 4, prefix + 25 + 1, prefix + 13 + 1]
    assert [stage.layer for stage in stages] == list(LAYERS)
    for stage in stages:
        assert (stage.kept.diff(dim=1) > 0).all()
        assert (stage.dc_size.sum(1) + stage.kept.shape[1] == 100).all()
    assert prefix == {"timm-distilled": 2, "timm-registers": 5, "timm-no-class": 0, "timm-map-pool": 0, "hf-deit": 2,
                      "hf-dinov2-registers": 5, "hf-dinov3": 5, "timm-dinov3": 5,
                      "hf-siglip": 0}.get(host, 1)  # fmt: skip


def test_the_first_choice_is_that_of_the_hosts_own_attention(host, images):
    """What enters the first reduction is not reduced yet, so that plain attention there gives the score."""
    model = make(host)
    vit, seen = find_host(model), []
    begun = begin(3, (10, 10), vit.prefix, "cpu")
    hooks = watch_attention(vit, LAYERS[0] - 1, lambda _: begun, lambda *qkv: seen.append(qkv))
    run(model, images)
    for hook in hooks:
        hook.remove()
    q, k, _, scale = seen[0]
    a = (q.double() @ k.double().transpose(-2, -1) * scale).softmax(-1)
    reduction = reduce_tokens(model, HALF, trace=True)
    run(model, images)
    score = a.mean(dim=(1, 2))[:, reduction.host.prefix :]
    expected = score.argsort(dim=1, descending=True, stable=True)[:, :50].sort(dim=1).values
    assert torch.equal(reduction.info()[0].kept, expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("host", ["timm-registers", "timm-no-class", "hf-dinov2", "open_clip"])
def test_every_method_runs_on_hosts_of_every_kind(host, images, method):
    model = make(host)
    if method == "evit" and not find_host(model).has_class_token:
        with pytest.raises(ValueError, match="class token"):
            reduce_tokens(model, named(method, LAYERS, 0.6))
        return
    full = run(model, images)
    with reduce_tokens(model, named(method, LAYERS, 0.6), trace=True) as reduction:
        out = run(model, images)
        assert out.shape[0] == 3
        assert torch.isfinite(out).all()
        size = reduction.tokens.size
        assert reduction.info()[-1].after == reduction.host.prefix + size.shape[1] < 100
        if method != "random":
            torch.testing.assert_close(size.sum(1), torch.full((3,), 100.0))
    assert torch.equal(run(model, images), full)


@pytest.mark.parametrize("mode", ["dc", "residual"])
@pytest.mark.parametrize("host", ["timm-registers", "timm-map-pool", "hf-clip", "open_clip"])
def test_a_restored_sequence_has_its_full_length(host, images, mode):
    model = make(host)
    with reduce_tokens(model, HALF, restored=mode):
        hidden = []
        hook = find_host(model).blocks[-1].register_forward_hook(lambda _, __, out: hidden.append(out))
        run(model, images)
        hook.remove()
    prefix = find_host(model).prefix
    assert hidden[0].shape == (3, prefix + 100, 32)


def test_copies_have_a_reduction_of_their_own(host, images):
    model = make(host)
    plain = run(model, images)
    reduce_tokens(model, HALF)
    reduced = run(model, images)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    assert torch.equal(run(twin, images), reduced)
    reduction_of(twin).remove()
    assert torch.equal(run(twin, images), plain)
    assert reduction_of(model) is not None


def test_a_plain_checkpoint_loads_into_a_reduced_model(host, images):
    plain, reduced = make(host), make(host, seed=1)
    weights = plain.state_dict()
    reduce_tokens(reduced, HALF)
    reduced.load_state_dict(weights)  # strictly: what the reduction added may be missing, and nothing else
    with pytest.raises(RuntimeError, match="Missing key"):
        reduced.load_state_dict(dict(list(weights.items())[1:]))
    reduce_tokens(plain, HALF)
    assert torch.equal(run(plain, images), run(reduced, images))


def test_threads_do_not_meet(images):
    model = make("timm")
    reduce_tokens(model, HALF)
    pictures = [images, torch.randn(2, 3, 40, 40), torch.randn(5, 3, 40, 40)]
    alone = [run(model, x) for x in pictures]

    def serve(index):
        for _ in range(10):
            torch.testing.assert_close(run(model, pictures[index]), alone[index], atol=1e-6, rtol=1e-5)

    with ThreadPoolExecutor(3) as workers:
        for served in [workers.submit(serve, index) for index in range(3)]:
            served.result()  # raises what the thread raised


def test_an_images_result_does_not_depend_on_its_batch(images):
    model = make("timm")
    for method in METHODS:
        with reduce_tokens(model, named(method, LAYERS, 0.6)):
            together = run(model, images)
            torch.testing.assert_close(run(model, images[1:2]), together[1:2], atol=1e-4, rtol=1e-4)


def test_sizes_that_are_not_square_and_vary():
    model = timm_model(dynamic_img_size=True).eval()
    with reduce_tokens(model, HALF, trace=True) as reduction:
        for height, width in ((40, 40), (32, 48), (56, 40)):
            run(model, torch.randn(2, 3, height, width))
            grid = (height // 4, width // 4)
            assert reduction.tokens.grid == grid
            assert reduction.info()[0].kept.shape[1] == -(-grid[0] * grid[1] // 2)
    model = hf("vit").eval()
    with reduce_tokens(model, HALF, trace=True) as reduction, torch.no_grad():
        model(torch.randn(1, 3, 48, 80), interpolate_pos_encoding=True)
        assert reduction.tokens.grid == (12, 20)


def test_features_come_out_of_every_door_of_a_host(images):
    model = make("timm")
    with reduce_tokens(model, HALF), torch.no_grad():
        assert model.forward_features(images).shape == (3, 15, 32)
        assert model.forward_intermediates(images, output_fmt="NLC", intermediates_only=True)[-1].shape == (3, 14, 32)
    model = make("hf-vit")
    with reduce_tokens(model, HALF), torch.no_grad():
        states = model(images, output_hidden_states=True).hidden_states
        assert [state.shape[1] for state in states] == [101, 101, 55, 55, 27, 15, 15]
    from open_clip import CLIP

    clip = CLIP(7, {"image_size": 40, "patch_size": 4, "width": 32, "layers": 6, "head_width": 8},
                {"width": 16, "layers": 1, "heads": 2, "context_length": 8, "vocab_size": 20}).eval()  # fmt: skip
    with reduce_tokens(clip.visual, HALF) as reduction, torch.no_grad():
        assert clip.encode_image(images).shape == (3, 7)
        assert reduction.tokens.live == 13


def test_attention_may_be_explicit_in_the_host(images):
    fused, explicit = make("timm"), make("timm")
    for block in explicit.blocks:
        block.attn.fused_attn = False
    for model in (fused, explicit):
        reduce_tokens(model, FreqReduceConfig(layers=LAYERS, keep=0.5, reweight="all", dc_size_bias=True))
    torch.testing.assert_close(run(fused, images), run(explicit, images), atol=1e-5, rtol=1e-4)


def test_merging_in_every_layer_and_long_chunks(images):
    model = make("timm")
    with reduce_tokens(model, ToMeConfig(layers=None, r=10), trace=True) as reduction:
        run(model, images)
        assert [stage.after for stage in reduction.info()] == [91, 81, 71, 61, 51, 41]
        assert repr(reduction.info()[0]) == "Stage(layer 1: 101 -> 91 tokens)"
    big = timm_model(img_size=160).eval()  # 1601 tokens: scored in chunks of queries
    with reduce_tokens(big, HALF, trace=True) as reduction:
        run(big, torch.randn(1, 3, 160, 160))
        assert reduction.info()[0].before == 1601


def test_dc_tokens_may_weigh_what_they_stand_for(images):
    model = make("timm")
    outs = []
    for bias in (False, True):
        with reduce_tokens(model, FreqReduceConfig(layers=LAYERS, keep=0.5, window=4, dc_size_bias=bias)):
            outs.append(run(model, images))
    assert torch.isfinite(outs[1]).all()
    assert (outs[0] - outs[1]).abs().max() > 1e-5


def test_version_4_of_transformers_is_known_by_its_names(images):
    from old_transformers import OldViT

    model = OldViT().eval()
    host = find_host(model)
    assert (host.kind, host.prefix, len(host.blocks)) == ("transformers", 1, 6)
    before = run(model, images)
    with reduce_tokens(model, FreqReduceConfig(layers=LAYERS, keep=1.0)):
        torch.testing.assert_close(run(model, images), before)
    with reduce_tokens(model, HALF, trace=True) as reduction:
        run(model, images)
        assert reduction.info()[-1].after == 15
    assert torch.equal(run(model, images), before)


@pytest.mark.parametrize(
    "name", ["swin_tiny_patch4_window7_224", "convnext_atto", "samvit_base_patch16_224", "resnet18",
             "vit_small_resnet26d_224", "beit_base_patch16_224"],
)  # fmt: skip
def test_models_without_a_plain_grid_are_refused(name):
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        model = timm.create_model(name)
    with pytest.raises(TypeError, match=r"model: .*(Looked for timm's|not a plain pre-norm block)"):
        reduce_tokens(model)


def test_other_blocks_and_other_things_are_refused():
    from timm.models.vision_transformer import ParallelScalingBlock, ResPostBlock

    for block in (ResPostBlock, ParallelScalingBlock):
        with pytest.raises(TypeError, match="model: "):
            reduce_tokens(timm_model(block_fn=block))
    with pytest.raises(TypeError, match="expected a torch module, got str"):
        reduce_tokens("vit")
    with pytest.raises(TypeError, match="holds 2 vision transformers; pass the one"):
        reduce_tokens(torch.nn.ModuleList([timm_model(), timm_model()]))
    with pytest.raises(TypeError, match="config: expected FreqReduceConfig"):
        reduce_tokens(timm_model(), {"keep": 0.5})
    with pytest.raises(TypeError, match="not a plain|Looked for"):
        reduce_tokens(open_clip_tower(qk_norm=True))


def test_a_schedule_beyond_the_depth_or_twice_is_refused():
    model = make("timm")
    with pytest.raises(ValueError, match=r"layers: the model has 6 blocks, got \(4, 7, 10\)"):
        reduce_tokens(model, FreqReduceConfig())
    with reduce_tokens(model) as by_depth:  # 1/3, 7/12 and 5/6 of it
        assert by_depth.config.layers == (2, 4, 5)
    first_one = reduce_tokens(model, HALF)
    with pytest.raises(ValueError, match="in force already"):
        reduce_tokens(model, HALF)
    assert repr(first_one).startswith("TokenReduction(FreqReduceConfig(layers=(2, 4, 5)")
    second = reduce_tokens(model, FreqReduceConfig(layers=LAYERS, keep=0.6), replace_existing=True)
    assert reduction_of(model) is second
    first_one.remove()  # it was removed when it was replaced
    assert reduction_of(model) is second
    with pytest.raises(ValueError, match="in force already"):
        reduce_tokens(torch.nn.Sequential(model), HALF)
    with pytest.raises(ValueError, match="window: 16 cells along a side of a grid of 10 x 10 patches"):
        reduce_tokens(model, FreqReduceConfig(LAYERS, 0.5, window=16), replace_existing=True)
    with pytest.raises(ValueError, match="restored: expected None, 'dc' or 'residual', got 'full'"):
        reduce_tokens(model, HALF, restored="full", replace_existing=True)
    assert reduction_of(model) is second


def test_other_patches_are_neither_bypassed_nor_undone():
    model = make("timm")
    plain = model.blocks[3].forward
    model.blocks[3].forward = functools.partial(plain)
    with pytest.raises(ValueError, match=r"model: block 4 \(Block\) has a forward of its own"):
        reduce_tokens(model, HALF)
    del model.blocks[3].forward
    reduction = reduce_tokens(model, HALF)
    ours = model.blocks[3].forward
    model.blocks[3].forward = functools.partial(ours)
    with pytest.raises(RuntimeError, match="Block.forward was replaced after the reduction; undo that first"):
        reduction.remove()
    assert reduction_of(model) is reduction
    model.blocks[3].forward = ours
    reduction.remove()
    assert "forward" not in model.blocks[3].__dict__


def test_a_model_reduced_in_inference_mode_can_be_trained(images):
    model = make("timm")
    with torch.inference_mode():
        reduction = reduce_tokens(model, HALF)
    model(images).sum().backward()
    assert all(parameter.grad is not None for parameter in reduction.parameters())


def test_what_needs_a_class_token_says_so():
    model = make("timm-no-class")
    for config in (FreqReduceConfig(layers=LAYERS, score="cls"), named("evit", LAYERS)):
        with pytest.raises(ValueError, match="score: attention of the class token was asked for"):
            reduce_tokens(model, config)
    with pytest.raises(ValueError, match="restored: 'residual' needs DC tokens"):
        reduce_tokens(model, named("tome", LAYERS), restored="residual")


def test_maps_and_masks_are_refused(images):
    model = make("hf-vit")
    with reduce_tokens(model, HALF):
        with pytest.raises(ValueError, match="output_attentions: attention goes through a fused kernel"):
            model(images, output_attentions=True)
        with pytest.raises(ValueError, match="attention_mask"):
            model(images, attention_mask=torch.ones(3, 101))
    model = make("hf-vit-eager")
    model.config.output_attentions = True
    with reduce_tokens(model, HALF), pytest.raises(ValueError, match="output_attentions"):
        model(images)
    model = make("timm")
    with reduce_tokens(model, HALF), pytest.raises(ValueError, match="attention_mask: a reduced model"):
        model(images, attn_mask=torch.zeros(101, 101))


def test_a_text_mask_beside_images_is_none_of_our_business(images):
    t = pytest.importorskip("transformers")
    vision = {"hidden_size": 32, "num_hidden_layers": 6, "num_attention_heads": 4, "image_size": 40, "patch_size": 4}
    text = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 50}
    model = t.CLIPModel(t.CLIPConfig(vision_config=vision, text_config=text, projection_dim=8)).eval()
    with reduce_tokens(model, HALF) as reduction, torch.no_grad():
        words = torch.tensor([[1, 3, 2]])
        out = model(input_ids=words, pixel_values=images, attention_mask=torch.ones_like(words))
        assert out.logits_per_image.shape == (3, 1)
        assert reduction.tokens.live == 13


def test_an_empty_batch_is_a_batch(images):
    model = make("timm")  # the other hosts refuse one themselves
    for method in METHODS:
        with reduce_tokens(model, named(method, LAYERS, 0.6)):
            assert run(model, images[:0]).shape == (0, 7)


def test_few_patches_are_warned_of():
    with pytest.warns(UserWarning, match="25 patches are few"):
        reduce_tokens(timm_model(patch_size=8), HALF)


def test_dropped_patches_in_training_are_refused(images):
    model = timm_model(patch_drop_rate=0.5).train()
    with reduce_tokens(model, HALF), pytest.raises(ValueError, match="patch dropout and packed sequences"):
        model(images)


def test_blocks_alone_and_questions_too_early_say_what_to_do(images):
    model = make("timm")
    reduction = reduce_tokens(model, HALF)
    with pytest.raises(RuntimeError, match="no forward pass has run"):
        _ = reduction.tokens
    with pytest.raises(RuntimeError, match="run the whole model"):
        model.blocks[3](torch.zeros(1, 101, 32))
    run(model, images)
    with pytest.raises(RuntimeError, match="trace=True"):
        reduction.info()
    with pytest.raises(ValueError, match="'residual' needs reduce_tokens"):
        reduce_tokens(model, HALF, trace=True, replace_existing=True)
        x = model.forward_features(images)
        restore_tokens(x, reduction_of(model).tokens, "residual")
    with pytest.raises(ValueError, match=r"x: expected \(3, 15, width\)"):
        restore_tokens(x[:, :5], reduction_of(model).tokens)
    with pytest.raises(ValueError, match="mode: expected"):
        restore_tokens(x, reduction_of(model).tokens, "full")
    merged = reduce_tokens(model, named("tome", LAYERS), replace_existing=True)
    with pytest.raises(ValueError, match="was not followed; use reduce_tokens"):
        merged.restore(model.forward_features(images))


def test_numbers_that_are_none_are_not_hidden(images):
    model = make("timm")
    images = images.clone()
    images[0, 0, 0, 0] = float("nan")
    with reduce_tokens(model, HALF):
        out = run(model, images)
        assert torch.isnan(out[0]).all()
        assert torch.isfinite(out[1:]).all()
    with reduce_tokens(model, HALF, debug=True), pytest.raises(ValueError, match="scores at layer 2 are not finite"):
        run(model, images)


def test_a_constant_image_is_reduced_without_a_fuss():
    model = make("timm")
    with torch.no_grad():
        model.pos_embed.zero_()
    with reduce_tokens(model, HALF, trace=True, debug=True) as reduction:
        out = run(model, torch.full((2, 3, 40, 40), 0.5))
        assert torch.isfinite(out).all()
        assert reduction.info()[0].kept.shape == (2, 50)


def test_a_module_around_a_host_is_reduced_in_it(images):
    model = torch.nn.Sequential(torch.nn.Identity(), make("timm"), torch.nn.Linear(7, 2))
    with reduce_tokens(model, HALF) as reduction:
        assert run(model, images).shape == (3, 2)
        assert count_macs(model, (40, 40)) < count_macs(model, (40, 40), FreqReduceConfig(LAYERS, 1.0))
        assert reduction.tokens.live == 13
