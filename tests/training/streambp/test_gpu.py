"""What takes another path on a GPU: kernels, random numbers, pinned offloading, 16-bit products, the peak meter."""

import pytest
import torch
from families import error, gradients, make_batch, make_model, reference

from thrifty.bench.memory import allocated_peak
from thrifty.training.streambp import enable_streambp, streamed_linear_cross_entropy

pytestmark = pytest.mark.gpu


def on_gpu(inputs, labels):
    return {name: tensor.cuda() for name, tensor in inputs.items()}, labels.cuda()


@pytest.mark.parametrize("kind", ["none", "right", "left", "packed"])
@pytest.mark.parametrize("family", ["llama", "starcoder2", "gemma3", "gpt-neox", "mixtral"])
def test_gradients_are_plain_autograds(family, kind):
    """Grouped keys, windows and padding each take their own kernel."""
    model = make_model(family).cuda()
    inputs, labels = on_gpu(*make_batch(kind))
    _, wanted = reference(model, inputs, labels)
    for settings in ({}, {"kv_policy": "store"}, {"offload": True}):
        with enable_streambp(model, layer_chunk_size=5, **settings):
            assert error(gradients(model, model(**inputs, labels=labels).loss), wanted) < 1e-6, settings


def test_flash_attention_in_bfloat16():
    model = make_model("starcoder2", sliding_window=None)
    inputs, labels = make_batch("none", length=64)
    _, exact = reference(model, inputs, labels)
    model = model.cuda().bfloat16()
    inputs, labels = on_gpu(inputs, labels)
    _, ordinary = reference(model, inputs, labels)
    with enable_streambp(model, layer_chunk_size=16, head_chunk_size=16):
        got = gradients(model, model(**inputs, labels=labels).loss)
    names = [name for name in exact if exact[name].norm() > 0.05 * max(g.norm() for g in exact.values())]

    def distance(grads):
        return max(float((grads[n].double().cpu() - exact[n]).norm() / exact[n].norm()) for n in names)

    assert distance(got) < 1.3 * distance(ordinary) + 1e-3


def test_dropout_is_drawn_again_as_it_was():
    model = make_model("starcoder2", residual_dropout=0.3).cuda()
    inputs, labels = on_gpu(*make_batch("right"))
    weight = model.model.layers[0].self_attn.v_proj.weight

    def loss():
        torch.cuda.manual_seed(7)
        return model(**inputs, labels=labels).loss

    with enable_streambp(model, layer_chunk_size=5):
        (slope,) = torch.autograd.grad(loss(), weight)
        ends = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                weight[1, 2] += step
            ends.append(loss().item())
            with torch.no_grad():
                weight[1, 2] -= step
    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(slope[1, 2].item(), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_sixteen_bit_weights_accumulate_in_float32(low):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(512, 16, generator=generator).to(low).cuda().requires_grad_()
    weight = (torch.randn(32, 16, generator=generator) / 3).to(low).cuda().requires_grad_()
    labels = torch.randint(0, 32, (512,), generator=generator).cuda()
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    torch.nn.functional.cross_entropy(exact[0] @ exact[1].t(), labels, reduction="sum").backward()
    streamed_linear_cross_entropy(hidden, weight, labels, shift=False, reduction="sum", chunk_size=8).backward()
    assert (weight.grad.double() - exact[1].grad).norm() / exact[1].grad.norm() < 8e-3


def test_a_step_allocates_less_than_checkpointing():
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=16384,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).cuda().train()
    ids = torch.zeros(1, 16384, dtype=torch.long, device="cuda")

    def peak():
        model.zero_grad(set_to_none=True)

        def step():
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()

        return allocated_peak(step, device="cuda")

    model.activation_checkpointing_enable({"use_reentrant": False})
    plain = peak()
    model.activation_checkpointing_disable()
    with enable_streambp(model, layer_chunk_size=1024):
        assert peak() < 0.5 * plain
