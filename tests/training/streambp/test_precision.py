"""Autocast is replayed, and 16-bit gradients are summed in more bits."""

import copy

import pytest
import torch
from families import error, gradients, make_batch, make_model, reference

from thrifty.training.streambp import enable_streambp


def test_scaler_and_scaled_losses(model):
    inputs, labels = make_batch("right")
    _, wanted = reference(model, inputs, labels)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with enable_streambp(model, layer_chunk_size=6):
        scaler.scale(model(**inputs, labels=labels).loss).backward()
    scaler.unscale_(optimizer)
    assert error({name: p.grad for name, p in model.named_parameters()}, wanted) < 1e-10


@pytest.mark.parametrize("kind", ["right", "none"])
def test_autocast_is_replayed(kind):
    """Without padding the kernels are called by name, where autocast does not see them."""
    model = make_model("llama").float()
    inputs, labels = make_batch(kind)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(**inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
    wanted = gradients(model, loss)
    with enable_streambp(model, layer_chunk_size=6):
        with torch.autocast("cpu", torch.bfloat16):
            ours = model(**inputs, labels=labels).loss
        got = gradients(model, ours)
    assert ours.item() == pytest.approx(loss.item(), rel=1e-3)
    assert error(got, wanted) < 0.05  # what bfloat16 leaves of two orders of summation


def test_sixteen_bit_model_sums_in_float32():
    """Gradients of a bfloat16 model are as close to the exact ones as ordinary back-propagation's."""
    exact_model = make_model("starcoder2")
    inputs, labels = make_batch("none", length=64)
    _, exact = reference(exact_model, inputs, labels)
    model = copy.deepcopy(exact_model).bfloat16()
    _, ordinary = reference(model, inputs, labels)
    with enable_streambp(model, layer_chunk_size=2, head_chunk_size=2):
        got = gradients(model, model(**inputs, labels=labels).loss)
    names = [name for name in exact if exact[name].norm() > 0.05 * max(g.norm() for g in exact.values())]

    def distance(grads):
        return max(float((grads[n].double() - exact[n]).norm() / exact[n].norm()) for n in names)

    assert distance(got) < 1.3 * distance(ordinary) + 1e-3


def test_half_precision_with_a_scaler():
    """Nothing is stepped or unscaled inside the forward pass, so that scaled gradients overflow and recover as ever."""
    model = make_model("llama").float()
    inputs, labels = make_batch("none")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
    start = model.lm_head.weight.detach().clone()
    with enable_streambp(model, layer_chunk_size=6):
        for _ in range(20):
            with torch.autocast("cpu", torch.float16):
                loss = model(**inputs, labels=labels).loss
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert scaler.get_scale() < 2.0**30, "an overflow was seen, and its step left out"
    assert not torch.equal(model.lm_head.weight, start), "and then it trained"
    assert model.lm_head.weight.isfinite().all()
