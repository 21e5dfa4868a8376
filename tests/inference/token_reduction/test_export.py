"""Compilers and files: torch.compile, torch.export, ONNX, saving and loading."""

import warnings

import pytest
import torch
from vit_hosts import first, make

from thrifty.inference.token_reduction import FreqReduceConfig, load_reduced, named, reduce_tokens, reduction_of

HALF = FreqReduceConfig(layers=(2, 4, 5), keep=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timm", "hf-vit"])
@pytest.mark.parametrize("method", ["frequency", "tome"])
def test_a_whole_graph_is_compiled(name, method, images):
    if name == "hf-vit" and method == "tome":
        pytest.skip("one host is enough for the rival")
    model = make(name)
    reduce_tokens(model, named(method, (2, 4, 5), 0.5))
    with torch.no_grad():
        expected = first(model(images))
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        torch.testing.assert_close(first(compiled(images)), expected)
        torch.testing.assert_close(first(compiled(images.flip(0))), expected.flip(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timm", "hf-dinov2"])
def test_the_graph_can_be_exported(name, images):
    model = make(name)
    reduce_tokens(model, HALF)
    with torch.no_grad():
        program = torch.export.export(model, (images,))
        torch.testing.assert_close(first(program.module()(images)), first(model(images)), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_onnx_runtime_gives_the_same_for_any_batch(tmp_path, images):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = make("timm")
    reduce_tokens(model, HALF)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model(images)
        program = torch.onnx.export(
            model, (images,), dynamo=True, verbose=False, dynamic_shapes=({0: torch.export.Dim("batch")},)
        )
    program.save(tmp_path / "vit.onnx")
    session = runtime.InferenceSession(tmp_path / "vit.onnx")
    for count in (3, 2):
        (out,) = session.run(None, {session.get_inputs()[0].name: images[:count].numpy()})
        torch.testing.assert_close(torch.from_numpy(out), expected[:count], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["timm", "open_clip", "hf-vit", "hf-siglip"])
def test_saved_models_come_back_reduced(tmp_path, images, name):
    model = make(name)
    reduction = reduce_tokens(model, HALF)
    with torch.no_grad():
        for parameter in reduction.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(0))
        expected = first(model(images))
        if name.startswith("hf"):
            model.save_pretrained(tmp_path / "saved")  # the host's own name, which writes the setting too
        else:
            reduction.save_pretrained(tmp_path / "saved")
        again = load_reduced(type(model) if name.startswith("hf") else make(name, seed=9), tmp_path / "saved")
        torch.testing.assert_close(first(again.eval()(images)), expected)
        assert reduction_of(again).config == HALF
    if not name.startswith("hf"):
        with pytest.raises(FileExistsError, match="already exists"):
            reduction.save_pretrained(tmp_path / "saved")
        reduction.save_pretrained(tmp_path / "saved", force=True)
    reduction.remove()
    assert "save_pretrained" not in model.__dict__


def test_a_refused_or_a_killed_save_leaves_no_mixture(tmp_path, monkeypatch):
    model = make("timm")
    reduction = reduce_tokens(model, HALF)
    setting = tmp_path / "token_reduction.json"
    setting.write_text(FreqReduceConfig(layers=(2,), keep=0.9).to_json())
    with pytest.raises(FileExistsError, match="token_reduction.json already exists"):
        reduction.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["token_reduction.json"]

    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("thrifty.inference.token_reduction.saving.write_whole", killed)
    with pytest.raises(KeyboardInterrupt):
        reduction.save_pretrained(tmp_path, force=True)
    with pytest.raises(FileNotFoundError):
        load_reduced(make("timm"), tmp_path)


def test_a_model_that_does_not_fit_is_left_alone(tmp_path):
    reduction = reduce_tokens(make("timm"), HALF)
    reduction.save_pretrained(tmp_path)
    other = make("timm-distilled", seed=4)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(ValueError, match="are not this model's"):
        load_reduced(other, tmp_path)
    assert reduction_of(other) is None
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.state_dict().items())
    (tmp_path / "model.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(ValueError, match=r"model\.safetensors, which is damaged"):
        load_reduced(other, tmp_path)


def test_a_damaged_folder_is_refused(tmp_path):
    model = make("timm")
    reduction = reduce_tokens(model, HALF)
    reduction.save_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_reduced(make("timm"), tmp_path / "nowhere")
    with pytest.raises(ValueError, match="are not this model's"):
        load_reduced(make("timm-no-class"), tmp_path)
    (tmp_path / "token_reduction.json").write_text("{}")
    with pytest.raises(ValueError, match="expected schema"):
        load_reduced(make("timm"), tmp_path)
    reduction.remove()
    with pytest.raises(ValueError, match="no token reduction is in force"):
        reduction.save_pretrained(tmp_path)
