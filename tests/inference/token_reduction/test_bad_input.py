"""What is no image, no setting, no schedule and no file of ours is refused in one line that names it."""

import math
import os
import pickle

import numpy as np
import pytest
import torch
from vit_hosts import make

from thrifty.inference.token_reduction import (
    Analysis,
    Distiller,
    EViTConfig,
    FreqReduceConfig,
    Recipe,
    ToMeConfig,
    ViTDims,
    analyze_tokens,
    config_from_json,
    count_macs,
    distillation_loss,
    finetune,
    load_reduced,
    measure_throughput,
    noise_sensitivity,
    reduce_tokens,
    reduction_of,
    restore_tokens,
    search_schedule,
    token_counts,
    visualize,
)
from thrifty.inference.token_reduction.partition import Stage

HALF = FreqReduceConfig((2, 4), 0.5)
X = torch.randn(2, 3, 40, 40, generator=torch.Generator().manual_seed(0))
NAN = math.nan


@pytest.fixture(scope="module")
def vit():
    return make("timm")


@pytest.fixture
def reduced():
    model = make("timm")
    reduce_tokens(model, HALF)
    return model


NO_IMAGES = [
    (None, TypeError, "got NoneType"),
    ([1], TypeError, "got list"),
    (X[0], ValueError, r"got shape \(3, 40, 40\)"),
    (X[:0], ValueError, r"got shape \(0, 3, 40, 40\)"),
    (X.long(), ValueError, "got torch.int64"),
    (X * NAN, ValueError, "got NaN"),
    (X * math.inf, ValueError, "got NaN or infinite"),
]


@pytest.mark.parametrize(("x", "kind", "says"), NO_IMAGES)
def test_images_that_are_none(vit, x, kind, says):
    for call in (
        lambda: analyze_tokens(vit, x, ("base",)),
        lambda: noise_sensitivity(vit, x, lambda out: out[:, 0], layer=1),
        lambda: measure_throughput(vit, x, {"ours": HALF}, repeats=1),
    ):
        with pytest.raises(kind, match=f"^x: expected .*{says}"):
            call()
    assert not any(module._forward_hooks for module in vit.modules())
    assert reduction_of(vit) is None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m: analyze_tokens(m, X, ()), "methods: expected names"),
        (lambda m: analyze_tokens(m, X, "base"), "methods: expected names .* got 'base'"),
        (lambda m: Analysis((), {}).column("base", "tokens"), "method: expected one of"),
        (lambda m: Analysis((), {}).plot("a.xyz"), r"path: expected a name that ends in .png or .svg, got a\.xyz"),
        (lambda m: noise_sensitivity(m, X, len, layer=1.5), "layer: expected a whole number"),
        (lambda m: noise_sensitivity(m, X, len, layer=1, trials=0), "trials: expected a whole number"),
        (lambda m: noise_sensitivity(m, X, len, layer=1, sigma=NAN), "sigma: expected a number of at least 0, got nan"),
        (lambda m: noise_sensitivity(m, X, len, layer=1, share=NAN), "share: expected a number"),
        (lambda m: noise_sensitivity(m, X, len, layer=1, seed=2**70), r"seed: expected .*below 2\*\*63"),
        (lambda m: noise_sensitivity(m, X, len, layer=1), "judge: expected a tensor of 2 numbers"),
        (lambda m: search_schedule(m, len, trials=1.5), "trials: expected a whole number"),
        (
            lambda m: search_schedule(m, lambda _: NAN),
            "evaluate: expected an accuracy that is a finite number, got nan",
        ),
        (lambda m: search_schedule(m, lambda _: None), "evaluate: expected an accuracy .*got None"),
        (lambda m: search_schedule(m, len, drops=()), "drops, windows: expected at least one"),
        (lambda m: search_schedule(m, len, drops=(1.0,)), r"drops: expected shares in \[0, 1\), got 1.0"),
        (lambda m: search_schedule(m, len, windows=(0, 1)), "windows: expected whole numbers of at least 1, got 0"),
        (lambda m: search_schedule(m, len, windows=(1.5,)), "windows: expected whole numbers"),
        (lambda m: search_schedule(m, len, alpha=NAN), "alpha: expected a finite number"),
        (lambda m: search_schedule(m, len, seed=-1), "seed: expected"),
        (lambda m: search_schedule(m, len, template=ToMeConfig()), "template: expected FreqReduceConfig"),
        (lambda m: measure_throughput(m, X, {}, repeats=1.5), "repeats: expected a whole number"),
        (lambda m: measure_throughput(m, X, {"a": None}), "configs: expected a mapping"),
        (lambda m: measure_throughput(m, X, {"base": HALF}), "configs: expected .*'base'"),
        (lambda m: measure_throughput(m, X, [HALF]), "configs: expected a mapping"),
        (lambda m: count_macs("vit"), "model: expected a vision transformer or its ViTDims, got str"),
        (lambda m: token_counts(m, (224, 224)), "dims: expected ViTDims"),
        (lambda m: count_macs(ViTDims(), 224), "image_size: expected two numbers of pixels, .*got 224"),
        (lambda m: count_macs(ViTDims(), (224.5, 224)), "image_size: expected two whole numbers"),
        (lambda m: count_macs(ViTDims(), config="x"), "config: expected a setting"),
        (lambda m: ViTDims(depth="3"), "depth: expected a whole number"),
        (lambda m: ViTDims(width=0), "width: expected a whole number"),
        (lambda m: ViTDims(patch=(0.5, 16)), "patch: expected two whole numbers"),
        (lambda m: ViTDims(mlp=NAN), "mlp: expected"),
        (lambda m: ToMeConfig(proportional="no"), "proportional: expected True or False, got 'no'"),
        (lambda m: EViTConfig(fuse=1), "fuse: expected True or False, got 1"),
        (lambda m: config_from_json(None), "text: expected JSON as text, got a NoneType"),
        (lambda m: config_from_json(b"\x80\x04"), "text: expected JSON, got"),
        (lambda m: restore_tokens(X[0], None), "x, tokens: expected a tensor, and Tokens"),
    ],
)
def test_settings_that_are_none(vit, call, says):
    with pytest.raises((ValueError, TypeError), match=f"^{says}"):
        call(vit)
    assert reduction_of(vit) is None


def test_an_accuracy_that_fails_in_the_middle_leaves_the_model_as_it_was(vit):
    found = iter([0.5, 0.4, NAN])
    with pytest.raises(ValueError, match="evaluate: expected"):
        search_schedule(vit, lambda _: next(found), trials=3, image_size=(40, 40))
    assert reduction_of(vit) is None


def test_noise_goes_on_a_model_without_a_reduction(reduced):
    with pytest.raises(ValueError, match="model: a token reduction is in force"):
        noise_sensitivity(reduced, X, lambda out: out[:, 0], layer=1)


PIXELS = np.full((8, 8, 3), 200, np.uint8)
STAGE = Stage(4, torch.tensor([[0, 3]]), torch.tensor([[1, 2]]), None, None, before=5, after=3)


@pytest.mark.parametrize(
    ("image", "fields", "says"),
    [
        (PIXELS[..., 0], {}, r"image: expected .*got uint8 \(8, 8\)"),
        (PIXELS / 255, {}, "image: expected .*got float64"),
        (torch.zeros(3, 8, 8), {}, "image: expected .*got Tensor"),
        (PIXELS, {"grid": (0, 0)}, "grid: expected patches of at least a pixel"),
        (PIXELS, {"grid": (50, 50)}, "grid: expected patches of at least a pixel"),
        (PIXELS, {"grid": (1, 1)}, "grid: expected the one of these stages, which keep patch 3"),
        (PIXELS, {"index": 7}, "index: expected an image of a batch of 1, got 7"),
        (PIXELS, {"dim": 5}, "dim: expected a share"),
        (PIXELS, {"dim": NAN}, "dim: expected a share"),
    ],
)
def test_pictures_that_cannot_be_drawn(image, fields, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        visualize(image, [STAGE], **({"grid": (2, 2)} | fields))


LOGITS = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("arguments", "fields", "says"),
    [
        ((LOGITS, torch.zeros(2, 4)), {}, r"teacher: expected logits of shape \(2, 3\), got \(2, 4\)"),
        ((LOGITS, torch.zeros(1, 3)), {}, "teacher: expected logits of shape"),
        ((LOGITS[:0], LOGITS[:0]), {}, "student: expected logits"),
        ((LOGITS[0], LOGITS[0]), {}, "student: expected logits"),
        ((LOGITS.long(), LOGITS), {}, "student: expected logits, .*got torch.int64"),
        ((None, LOGITS), {}, "student: expected logits, .*got NoneType"),
        ((LOGITS, LOGITS, [0, 1]), {}, "labels: expected a tensor of 2 classes, got list"),
        ((LOGITS, LOGITS, torch.tensor([0])), {}, "labels: expected a tensor of 2 classes"),
        ((LOGITS, LOGITS), {"weight": NAN}, "weight: expected"),
        ((LOGITS, LOGITS), {"temperature": "a"}, "temperature: expected"),
    ],
)
def test_logits_that_do_not_fit(arguments, fields, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        distillation_loss(*arguments, **fields)


def test_numbers_of_a_distiller_and_of_a_recipe(reduced):
    for fields in ({"weight": -1}, {"temperature": 0}, {"decay": 2}, {"decay": NAN}):
        with pytest.raises(ValueError, match=f"^{next(iter(fields))}: expected"):
            Distiller(reduced, **fields)
    for fields in ({"lr": math.inf}, {"lr": "a"}, {"weight_decay": -1}, {"temperature": 0}, {"teacher": "x"}):
        with pytest.raises(ValueError, match=f"^{next(iter(fields))}: expected"):
            Recipe(**fields)


def batches(x=X):
    return lambda epoch, training: iter([(x, torch.tensor([0, 1]))])


ONE = Recipe(epochs=1, ema=0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((lambda epoch, training: iter([]), 1, ONE), "batches: expected batches of images and labels to train on"),
        ((batches(), 0, ONE), "steps_an_epoch: expected a whole number"),
        ((batches(), 1, {"epochs": 1}), "recipe: expected a Recipe, got dict"),
        ((batches(X * NAN), 1, ONE), "lr: the weights .* are no longer finite after epoch 1"),
    ],
)
def test_training_that_cannot_be(reduced, tmp_path, arguments, says):
    with pytest.raises((ValueError, TypeError), match=f"^{says}"):
        finetune(reduced, *arguments, out=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "pickle", "other"])
def test_a_damaged_state_is_named(reduced, tmp_path, damage):
    finetune(reduced, batches(), 1, ONE, out=tmp_path)
    path = tmp_path / "training.pt"
    if damage == "other":
        torch.save({"epoch": 1}, path)
    else:
        pickled = pickle.dumps({"a": os.getcwd})
        path.write_bytes({"empty": b"", "cut": path.read_bytes()[:-500], "text": b"hello", "pickle": pickled}[damage])
    with pytest.raises(ValueError, match=r"^out: expected .*training\.pt"):
        finetune(reduced, batches(), 1, ONE, out=tmp_path)


def test_a_folder_that_holds_another_model_is_left_alone(reduced, tmp_path):
    (tmp_path / "model.safetensors").write_text("mine")
    with pytest.raises(FileExistsError, match="already exists"):
        finetune(reduced, batches(), 1, ONE, out=tmp_path)
    assert (tmp_path / "model.safetensors").read_text() == "mine"


def test_saved_weights_of_another_kind(reduced, tmp_path):
    from safetensors.torch import load_file, save_file

    reduction_of(reduced).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    for make_ in ("vit", None):
        with pytest.raises(TypeError, match="^make: expected a model, or a class with from_pretrained"):
            load_reduced(make_, tmp_path)
    weights = load_file(path)
    name = min(name for name in weights if name.startswith("blocks"))
    save_file(weights | {name: weights[name].to(torch.int8)}, path)
    with pytest.raises(ValueError, match=f"2 names, shapes or types differ, first {name}"):
        load_reduced(make("timm"), tmp_path)
    (tmp_path / "token_reduction.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"token_reduction\.json: expected text in UTF-8"):
        load_reduced(make("timm"), tmp_path)
