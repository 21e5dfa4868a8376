"""The command line on files of one's own, and the prediction for the adviser."""

import json
import re

import numpy as np
import pytest

from thrifty._common.ledger import Resource, Workload
from thrifty.inference.token_reduction import FreqReduceConfig, ViTDims, config_from_json, count_macs, load_reduced
from thrifty.inference.token_reduction.cost import predict
from thrifty.inference.token_reduction.files import labelled_folder, load_model

NAME = "vit_tiny_patch16_224"


@pytest.fixture
def pictures(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "data" / label).mkdir(parents=True)
        for index in range(2):
            pixels = rng.integers(0, 255, (60, 90, 3), dtype=np.uint8)
            image.fromarray(pixels).save(tmp_path / "data" / label / f"{index}.png")
    return tmp_path / "data"


@pytest.fixture
def call(thrifty):
    pytest.importorskip("timm")

    def run(*words):
        ran = thrifty("token-reduction", *words)
        assert ran.code == 0, ran.err
        return ran.out

    return run


@pytest.fixture
def refused(thrifty):
    pytest.importorskip("timm")

    def run(*words):
        ran = thrifty("token-reduction", *words)
        assert ran.code == 2
        return ran.err.splitlines()[-1]

    return run


@pytest.mark.slow
def test_a_model_is_timed_saved_and_loaded(tmp_path, call, refused):
    out = call("time", NAME, "--random", "--batch", 1, "--repeats", 1, "--methods", "frequency,pool", "--json")
    found = json.loads(out)
    assert set(found) == {"base", "frequency", "pool"}
    assert found["frequency"]["macs"] == count_macs(ViTDims(width=192, heads=3), config=FreqReduceConfig())
    call("patch", NAME, "--random", "--keep", "0.5", "--out", tmp_path / "saved")
    config = config_from_json((tmp_path / "saved" / "token_reduction.json").read_text())
    assert config == FreqReduceConfig(keep=0.5)
    import timm

    assert load_reduced(timm.create_model(NAME), tmp_path / "saved") is not None
    assert "holds files already" in refused("patch", NAME, "--random", "--out", tmp_path / "saved")


@pytest.mark.slow
def test_pictures_are_analysed_and_shown(tmp_path, pictures, call, refused):
    table = call("analyze", NAME, "--random", "--images", pictures, "--limit", 1, "--methods", "base,frequency")
    assert len(table.splitlines()) == 1 + 2 * 12
    call("show", NAME, pictures / "cat" / "0.png", "--random", "--out", tmp_path / "kept.png")
    assert (tmp_path / "kept.png").read_bytes().startswith(b"\x89PNG")
    words = ("show", NAME, pictures / "cat" / "0.png", "--random", "--out", tmp_path / "kept.png")
    assert "kept.png already exists" in refused(*words)


@pytest.mark.slow
@pytest.mark.ci
def test_a_model_is_finetuned_and_searched(tmp_path, pictures, call):
    words = ("--random", "--data", pictures, "--batch", 2)
    out = call("finetune", NAME, *words, "--out", tmp_path / "tuned", "--epochs", 1, "--ema", 0)
    result = json.loads(out)
    assert result["steps"] == 2  # three images, one held out
    assert (tmp_path / "tuned" / "result.json").exists()
    found = json.loads(call("search", NAME, *words, "--trials", 2, "--json"))
    assert found["pareto"]


def test_bad_input_says_what_would_do(tmp_path, pictures, refused):
    for words, message in [
        (("time", "no_such_model", "--random"), "model: 'no_such_model' is no folder of transformers"),
        (("time", NAME, "--random", "--layers", "0,4"), "layers: they are numbered from 1"),
        (("time", NAME, "--random", "--layers", "4,x"), "layers: expected numbers with commas .* got '4,x'"),
        (("time", NAME, "--random", "--keep", "2"), "keep: expected shares"),
        (("time", NAME, "--random", "--window", "1,2,2"), "window: each must be a multiple"),
        (("time", NAME, "--random", "--methods", "magic"), "method: expected one of"),
        (("finetune", NAME, "--random", "--data", pictures / "cat", "--out", tmp_path / "x"), "expected one folder of"),
    ]:  # fmt: skip
        assert re.search(message, refused(*words))
    (tmp_path / "broken.png").write_bytes(b"no image")
    said = refused("show", NAME, tmp_path / "broken.png", "--random", "--out", tmp_path / "o.png")
    assert re.search(r"images: .*broken.png cannot be read as an image", said)
    (tmp_path / "empty").mkdir()
    assert "images: no image at" in refused("analyze", NAME, "--random", "--images", tmp_path / "empty")
    weights = tmp_path / "w.safetensors"
    import safetensors.torch
    import torch

    safetensors.torch.save_file({"x": torch.zeros(2)}, weights)
    assert re.search(f"weights: .* does not fit {NAME}", refused("time", NAME, "--weights", weights))
    import timm

    plain = timm.create_model(NAME).state_dict()
    for change in ({"head.weight": torch.zeros(5, 192)}, {"dist_token": torch.zeros(1, 1, 192)}):
        safetensors.torch.save_file(plain | change, weights)
        with pytest.raises(ValueError, match=f"weights: .* first {next(iter(change))}"):
            load_model(NAME, weights)
    safetensors.torch.save_file(plain, weights)
    assert load_model(NAME, weights, classes=3).head.out_features == 3  # a new head


def test_classes_are_those_of_training_and_of_the_model(tmp_path, pictures):
    held = tmp_path / "held"
    (held / "dog").mkdir(parents=True)
    (pictures / "dog" / "0.png").rename(held / "dog" / "0.png")
    names = labelled_folder(pictures)[1]
    assert [label for _, label in labelled_folder(held, names)[0]] == [1]
    (held / "bird").mkdir()
    with pytest.raises(ValueError, match="has the folder 'bird', which is no class of the training images"):
        labelled_folder(held, names)


def test_the_prediction_is_the_count():
    delta = predict(Workload("image classification", {"images": 10}))
    dims = ViTDims()
    saved = count_macs(dims) - count_macs(dims, config=FreqReduceConfig())
    assert -delta.total(Resource.FLOPS) == pytest.approx(2 * 10 * saved, rel=1e-3)
    assert predict(Workload("image-model training", {"images": 10, "passes": 3})).total(
        Resource.FLOPS
    ) == pytest.approx(3 * delta.total(Resource.FLOPS))
    assert not predict(Workload("tabular classification")).applies
    assert not predict(Workload("image embedding", {"images": 1, "patch": 32})).applies
    with pytest.raises(ValueError, match="'images' is needed"):
        predict(Workload("image embedding"))
    with pytest.raises(ValueError, match="'keep' must be in"):
        predict(Workload("image embedding", {"images": 1, "keep": 0}))
