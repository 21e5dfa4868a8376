"""Switching streaming on and off leaves no trace."""

import pytest
import torch
from families import T, V, error, gradients, make_batch, make_model, reference

from thrifty.training.streambp import StreamBPConfig, enable_streambp


def test_two_models_at_once(model):
    other = make_model("llama", seed=3)
    inputs, labels = make_batch("right")
    _, wanted = reference(model, inputs, labels)
    with enable_streambp(model, layer_chunk_size=5), enable_streambp(other, layer_chunk_size=7):
        losses = model(**inputs, labels=labels).loss, other(**inputs, labels=labels).loss
        sum(losses).backward()
    assert error({name: p.grad for name, p in model.named_parameters()}, wanted) < 1e-10


def test_evaluation_and_generation_are_untouched(model):
    inputs, labels = make_batch("left")
    model.eval()
    before = model(**inputs, labels=labels)
    generated = model.generate(**inputs, max_new_tokens=5, do_sample=False)
    with enable_streambp(model, layer_chunk_size=5) as handle:
        for mode in (False, True):
            model.train(mode)
            with torch.no_grad():
                after = model(**inputs, labels=labels, use_cache=False)
            assert torch.equal(after.logits, before.logits)
            assert after.loss == before.loss
            assert torch.equal(model.generate(**inputs, max_new_tokens=5, do_sample=False), generated)
        assert handle.stats().forward_chunks == 0


def test_disable_gives_the_model_back(model, tmp_path):
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    keys = list(model.state_dict())
    implementation = model.config._attn_implementation
    handle = enable_streambp(model, layer_chunk_size=5)
    assert list(model.state_dict()) == keys
    model.save_pretrained(tmp_path)
    assert "streambp" not in (tmp_path / "config.json").read_text()
    with pytest.raises(ValueError, match="streams already"):
        enable_streambp(model)
    handle.remove()
    handle.remove()
    assert model.config._attn_implementation == implementation
    for name, module in model.named_modules():
        now = dict(module.__dict__)
        for key in (
            "_forward_hooks",
            "_forward_pre_hooks",
            "_forward_hooks_with_kwargs",
            "_forward_hooks_always_called",
        ):
            assert len(now.pop(key)) == len(before[name].pop(key)) or key.startswith("_forward_hooks_")
        assert now.keys() == before[name].keys()


def test_an_error_inside_the_model_leaves_no_trace(model):
    with enable_streambp(model, layer_chunk_size=5):
        with pytest.raises(ValueError, match="output_attentions"):
            model(**make_batch("none")[0], output_attentions=True)
        assert model.config._attn_implementation == "sdpa"
        with pytest.raises(ValueError, match="labels: expected ids"):
            model(**make_batch("none")[0], labels=torch.full((2, T), V))


def test_settings_travel_as_json(tmp_path):
    config = StreamBPConfig(layer_chunk_size=64, offload=True)
    config.save_pretrained(tmp_path)
    assert StreamBPConfig.from_pretrained(tmp_path) == config
    with pytest.raises(FileExistsError):
        config.save_pretrained(tmp_path)
    path = tmp_path / "streambp.json"
    path.write_text(path.read_text().replace("offload", "upload"))
    with pytest.raises(ValueError, match="upload"):
        StreamBPConfig.from_pretrained(tmp_path)


def test_a_backward_pass_within_another_models_step(model):
    """No state is shared: gradients taken between forward and backward pass of a step do not disturb it."""
    inputs, labels = make_batch("right")
    other_inputs, other_labels = make_batch("packed", seed=2)
    _, wanted = reference(model, inputs, labels)
    _, wanted_other = reference(model, other_inputs, other_labels)
    with enable_streambp(model, layer_chunk_size=5):
        loss = model(**inputs, labels=labels).loss
        parameters = list(model.parameters())
        names = [name for name, _ in model.named_parameters()]
        inner = torch.autograd.grad(model(**other_inputs, labels=other_labels).loss, parameters)
        assert error(gradients(model, loss), wanted) < 1e-10
    assert error(dict(zip(names, inner, strict=True)), wanted_other) < 1e-10
