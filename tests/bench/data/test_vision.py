"""The vision transformer and the images that packages carry."""

import os
import zipfile

import numpy as np
import pytest
import torch

from thrifty.bench import carried
from thrifty.bench.data import fashion, vit_s14

pytestmark = pytest.mark.net


@pytest.fixture(scope="module")
def archive():
    for name in (vit_s14.NAME, fashion.NAME):
        if missing := carried.warm([name], offline="THRIFTY_OFFLINE" in os.environ):
            pytest.skip(missing[name])
    return carried.archive(vit_s14.NAME)


def test_the_backbone_computes_what_the_package_computes(archive):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    with zipfile.ZipFile(archive) as packed:
        model = onnx.load_model_from_string(packed.read(carried.CARRIED[vit_s14.NAME].inside))
    last = [node.output[0] for node in model.graph.node if node.output[0].startswith("/backbone/layernorm/")][-1]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(last))
    session = runtime.InferenceSession(model.SerializeToString())
    pixels = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    (expected,) = session.run([last], {session.get_inputs()[0].name: pixels})
    with torch.no_grad():
        got = vit_s14.load()(torch.from_numpy(pixels)).last_hidden_state.numpy()
    assert np.abs(got - expected).max() < 2e-4
    large = torch.randn(1, 3, 518, 518, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, timms = vit_s14.load()(large).last_hidden_state, vit_s14.load_timm(518).forward_features(large)
    torch.testing.assert_close(ours, timms, atol=1e-3, rtol=1e-3)


def test_fashion_mnist_is_whole(archive):
    for split, count in (("train", 60_000), ("test", 10_000)):
        images, labels = fashion.load(split)
        assert images.shape == (count, 28, 28)
        assert np.bincount(labels).tolist() == [count // 10] * 10
    assert fashion.CLASSES[labels[0]] == "ankle boot"
