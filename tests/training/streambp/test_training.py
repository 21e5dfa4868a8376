"""A streaming model is trained like any other: accumulation, hooks, dropout, offload, compiled parts."""

import functools

import pytest
import torch
from families import T, error, gradients, make_batch, make_model, reference

from thrifty.training.streambp import enable_streambp


def test_accumulation_and_clipping(model):
    batches = [make_batch("right", seed=seed) for seed in (1, 2)]
    wanted = [reference(model, *batch, items=30)[1] for batch in batches]
    total = {name: wanted[0][name] + wanted[1][name] for name in wanted[0]}
    with enable_streambp(model, layer_chunk_size=6):
        for inputs, labels in batches:
            model(**inputs, labels=labels, num_items_in_batch=30).loss.backward()
    got = {name: p.grad for name, p in model.named_parameters()}
    assert error(got, total) < 1e-10
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert norm.item() == pytest.approx(torch.stack([g.norm() for g in total.values()]).norm().item())


def test_every_hook_fires_once_a_backward_pass(model):
    counts = {}
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            functools.partial(lambda name, _: counts.__setitem__(name, counts.get(name, 0) + 1), name)
        )
    inputs, labels = make_batch("right")
    with enable_streambp(model, layer_chunk_size=4):
        model(**inputs, labels=labels).loss.backward()
        assert counts == {name: 1 for name, _ in model.named_parameters()}


def test_autograd_grad_and_another_loss_on_the_side(model):
    inputs, labels = make_batch("right")
    weight = model.model.layers[0].mlp.c_fc.weight
    plain = model(**inputs, use_cache=False)
    targets = labels[:, 1:].flatten()
    loss = torch.nn.functional.cross_entropy(plain.logits[:, :-1].flatten(0, 1), targets) + weight.square().sum()
    (wanted,) = torch.autograd.grad(loss, weight)
    with enable_streambp(model, layer_chunk_size=6):
        (got,) = torch.autograd.grad(model(**inputs, labels=labels).loss + weight.square().sum(), weight)
    assert (got - wanted).norm() < 1e-10 * wanted.norm()


def test_hidden_states_may_be_asked_for_and_differentiated(model):
    inputs, _ = make_batch("right")

    def run():
        states = model(**inputs, use_cache=False, output_hidden_states=True).hidden_states
        return gradients(model, sum((i + 1) * state.square().mean() for i, state in enumerate(states)))

    wanted = run()
    with enable_streambp(model, layer_chunk_size=6):
        assert error(run(), wanted) < 1e-10


@pytest.mark.parametrize("policy", ["recompute", "store"])
def test_dropout_is_drawn_again_as_it_was(policy):
    """Differentiating what the forward pass drew: finite differences under one seed agree."""
    model = make_model("starcoder2", residual_dropout=0.3, attention_dropout=0.2)
    inputs, labels = make_batch("right")
    weight = model.model.layers[0].self_attn.v_proj.weight

    def loss():
        torch.manual_seed(7)
        return model(**inputs, labels=labels).loss

    with enable_streambp(model, layer_chunk_size=5, kv_policy=policy):
        (slope,) = torch.autograd.grad(loss(), weight)
        state = torch.get_rng_state()
        other = loss()
        torch.autograd.grad(other, weight)
        assert torch.equal(torch.get_rng_state(), state), "the backward pass leaves the generator alone"
        with torch.no_grad():
            weight[1, 2] += 1e-5
        high = loss().item()
        with torch.no_grad():
            weight[1, 2] -= 2e-5
        low = loss().item()
    assert (high - low) / 2e-5 == pytest.approx(slope[1, 2].item(), rel=1e-6, abs=1e-9)


def test_dropout_needs_a_chunked_forward_pass():
    model = make_model("starcoder2", residual_dropout=0.3)
    inputs, labels = make_batch("none")
    with (
        enable_streambp(model, layer_chunk_size=5, chunk_forward=False),
        pytest.raises(ValueError, match="chunk_forward"),
    ):
        model(**inputs, labels=labels)


def test_whole_forward_pass_and_inplace_and_offload_and_every_second_layer(model):
    inputs, labels = make_batch("right")
    _, wanted = reference(model, inputs, labels)
    for settings in ({"chunk_forward": False}, {"grad_mode": "inplace"}, {"offload": True}, {"every_n_layers": 2}):
        with enable_streambp(model, layer_chunk_size=5, **settings):
            assert error(gradients(model, model(**inputs, labels=labels).loss), wanted) < 1e-10, settings


def test_offloaded_inputs_and_offloaded_keys(model):
    """torch's own offload sees the layers' inputs (and stored keys and values), and nothing else of a layer."""
    inputs, labels = make_batch("none")
    _, wanted = reference(model, inputs, labels)
    for policy, saved_a_layer in (("recompute", 1), ("store", 3)):
        packed = []

        def pack(tensor, packed=packed):
            packed.append(tensor.shape)
            return tensor.numpy().copy() if not tensor.requires_grad else tensor

        def unpack(kept):
            return torch.from_numpy(kept) if not isinstance(kept, torch.Tensor) else kept

        with enable_streambp(model, layer_chunk_size=5, kv_policy=policy):
            body = [0]

            def count(call, *args, run=model.model.layers[0]._gradient_checkpointing_func, body=body, packed=packed):
                before = len(packed)
                found = run(call, *args)
                body[0] += len(packed) - before
                return found

            for layer in model.model.layers:
                layer._gradient_checkpointing_func = count
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                loss = model(**inputs, labels=labels).loss
            assert body[0] == saved_a_layer * len(model.model.layers)
            assert error(gradients(model, loss), wanted) < 1e-10


def test_embeddings_in_place_of_ids(model):
    _, labels = make_batch("none")
    generator = torch.Generator().manual_seed(6)
    size = (2, T, model.config.hidden_size)
    embeds = torch.randn(size, generator=generator, dtype=torch.float64, requires_grad=True)
    logits = model(inputs_embeds=embeds, use_cache=False).logits[:, :-1].flatten(0, 1)
    (wanted,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten()), embeds)
    with enable_streambp(model, layer_chunk_size=4):
        (got,) = torch.autograd.grad(model(inputs_embeds=embeds, labels=labels).loss, embeds)
    assert (got - wanted).norm() < 1e-10 * wanted.norm()


@pytest.mark.slow
def test_a_compiled_model_and_compiled_parts(model):
    inputs, labels = make_batch("right")
    _, wanted = reference(model, inputs, labels)
    with enable_streambp(model, layer_chunk_size=4):
        compiled = torch.compile(model, backend="aot_eager")
        assert error(gradients(model, compiled(**inputs, labels=labels).loss), wanted) < 1e-10
    for layer in model.model.layers:
        layer.mlp.compile(backend="aot_eager", dynamic=True)
    with enable_streambp(model, layer_chunk_size=4):
        assert error(gradients(model, model(**inputs, labels=labels).loss), wanted) < 1e-10


def test_budget_chooses_the_chunk(model):
    inputs, labels = make_batch("none", length=64)
    with enable_streambp(model, memory_budget_bytes=1) as handle:
        model(**inputs, labels=labels).loss.backward()
        small = handle.stats().backward_chunks
    with enable_streambp(model, memory_budget_bytes=2**40) as handle:
        model(**inputs, labels=labels).loss.backward()
        assert handle.stats().backward_chunks == 6, "a third of the sequence at most"
    assert small > 6


@pytest.mark.slow
def test_a_shorter_last_chunk_does_not_compile_again_every_step(model):
    from torch._dynamo.utils import counters

    for layer in model.model.layers:
        layer.mlp.compile(backend="aot_eager", dynamic=True)
    with enable_streambp(model, layer_chunk_size=4):
        for length in (19, 18, 17):  # last chunks of 3, 2 and 1
            inputs, labels = make_batch("none", length=length)
            model(**inputs, labels=labels).loss.backward()
            if length == 18:
                compiled = counters["stats"]["unique_graphs"]
        assert counters["stats"]["unique_graphs"] <= compiled + 2  # a size of one is a case of its own
        for length in (19, 18, 17, 15):
            before = counters["stats"]["unique_graphs"]
            inputs, labels = make_batch("none", length=length)
            model(**inputs, labels=labels).loss.backward()
            assert counters["stats"]["unique_graphs"] == before
