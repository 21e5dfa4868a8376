"""A streaming model is trained like any other: accumulation, scaling, hooks, dropout, adapters, offload, trainers."""

import copy
import functools

import pytest
import torch
from families import T, V, error, gradients, make_batch, make_model, reference

from thrifty.training.streambp import StreamBPConfig, enable_streambp, stream_block
from thrifty.training.streambp.decoder_layer import CACHE_NAMES


@pytest.fixture
def model():
    return make_model("starcoder2", sliding_window=None)


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


def test_scaler_and_scaled_losses(model):
    inputs, labels = make_batch("right")
    _, wanted = reference(model, inputs, labels)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with enable_streambp(model, layer_chunk_size=6):
        scaler.scale(model(**inputs, labels=labels).loss).backward()
    scaler.unscale_(optimizer)
    assert error({name: p.grad for name, p in model.named_parameters()}, wanted) < 1e-10


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


def test_autocast_is_replayed():
    model = make_model("llama").float()
    inputs, labels = make_batch("right")
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


@pytest.mark.parametrize("targets", [["q_proj", "v_proj", "c_fc"], ["q_proj", "lm_head"]])
def test_adapters(model, targets):
    from peft import LoraConfig, get_peft_model

    peft = get_peft_model(model, LoraConfig(r=2, target_modules=targets, lora_dropout=0.0)).double()
    with torch.no_grad():
        for name, parameter in peft.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4)) / 9)
    peft.train()
    inputs, labels = make_batch("right")
    _, wanted = reference(peft, inputs, labels)
    with enable_streambp(peft, layer_chunk_size=6, head_chunk_size=4):
        got = gradients(peft, peft(**inputs, labels=labels).loss)
    assert all("lora" in name for name in got)
    assert error(got, wanted) < 1e-10


def square(kind):
    """Return a mask [batch, 1, length, length] of a user's own."""
    mask = torch.ones(2, 1, T, T, dtype=torch.bool).tril()
    if kind == "window":
        mask &= torch.ones(T, T, dtype=torch.bool).triu(-6)
    if kind == "prefix":
        mask[..., :5] = True
    return mask


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("kind", ["causal", "window", "prefix"])
def test_masks_of_ones_own_are_cut_into_rows_if_they_are_causal(model, kind, additive):
    mask = square(kind)
    if additive:
        mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -1e9)
    inputs, labels = make_batch("none")
    inputs["attention_mask"] = mask
    _, wanted = reference(model, inputs, labels)
    with enable_streambp(model, layer_chunk_size=4):
        if kind == "prefix":
            with pytest.raises(ValueError, match="see later ones"):
                model(**inputs, labels=labels)
            return
        assert error(gradients(model, model(**inputs, labels=labels).loss), wanted) < 1e-10


@pytest.mark.parametrize("by_vmap", [False, True])
def test_spans_read_in_both_directions_are_refused(by_vmap):
    """Such as images among text, which a few tokens of text at enable time cannot show."""
    from transformers.masking_utils import causal_mask_function, or_masks

    from thrifty.training.streambp.masks import keep_rule

    spans = torch.zeros(2, T, dtype=torch.bool)
    options = {"batch_size": 2, "q_length": T, "kv_length": T, "allow_is_causal_skip": False, "use_vmap": by_vmap}
    sees = or_masks(causal_mask_function, lambda batch, head, query, key: spans[batch, query] & spans[batch, key])
    assert not keep_rule(mask_function=sees, **options).plain
    spans[1, 7:9] = True
    with pytest.raises(ValueError, match="see later ones"):
        keep_rule(mask_function=sees, **options)


def test_attention_that_misuses_its_cache_is_refused():
    for change, message in (("twice", "writes its cache twice"), ("never", "ignores its cache")):
        model = make_model("llama")
        attention = model.model.layers[0].self_attn

        def misuse(*args, own=attention.forward, change=change, **kwargs):
            if change == "twice":
                own(*args, **kwargs)
            else:
                kwargs = {key: value for key, value in kwargs.items() if key not in CACHE_NAMES}
            return own(*args, **kwargs)

        attention.forward = misuse
        with pytest.raises(ValueError, match=f"LlamaDecoderLayer cannot be streamed: it {message}"):
            enable_streambp(model)


def test_a_cache_is_not_kept_in_training_and_labels_must_fit(model):
    inputs, labels = make_batch("none")
    _, wanted = reference(model, inputs, labels)
    with enable_streambp(model, layer_chunk_size=4):
        output = model(**inputs, labels=labels, use_cache=True)
        assert not output.past_key_values
        assert error(gradients(model, output.loss), wanted) < 1e-10
        with pytest.raises(ValueError, match="labels: expected one a position"):
            model(**inputs, labels=labels[:, :-1])
        loss = model(**inputs, labels=torch.full_like(labels, -100)).loss
        assert loss.item() == 0
        assert all(not grad.any() for grad in gradients(model, loss).values())


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
    handle.disable()
    handle.disable()
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


def test_second_order_is_refused(model):
    inputs, _ = make_batch("none")
    with enable_streambp(model, layer_chunk_size=5, head="own"):
        loss = model(**inputs, use_cache=False).logits.square().mean()
        with pytest.raises(NotImplementedError, match="create_graph"):
            torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        loss = model(**inputs, use_cache=False).logits.square().mean()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_budget_chooses_the_chunk(model):
    inputs, labels = make_batch("none", length=64)
    with enable_streambp(model, memory_budget_bytes=1) as handle:
        model(**inputs, labels=labels).loss.backward()
        small = handle.stats().backward_chunks
    with enable_streambp(model, memory_budget_bytes=2**40) as handle:
        model(**inputs, labels=labels).loss.backward()
        assert handle.stats().backward_chunks == 6, "a third of the sequence at most"
    assert small > 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_chunk_size": 0}, "layer_chunk_size"),
        ({"head_chunk_size": "large"}, "head_chunk_size"),
        ({"kv_policy": "forget"}, "kv_policy"),
        ({"grad_mode": "global"}, "grad_mode"),
        ({"accum_dtype": "bfloat16"}, "accum_dtype"),
        ({"every_n_layers": 0}, "every_n_layers"),
        ({"memory_budget_bytes": 0.5}, "memory_budget_bytes"),
        ({"chunk": 3}, "chunk: no such setting"),
        ({"head": "trl"}, "head"),
    ],
)
def test_bad_settings_are_named(model, change, message):
    with pytest.raises(ValueError, match=message):
        enable_streambp(model, **change)


def test_other_models_are_refused():
    from transformers import BertConfig, BertModel, T5Config, T5ForConditionalGeneration

    small = {
        "hidden_size": 8,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "vocab_size": 9,
    }
    with pytest.raises(ValueError, match="Linear"):
        enable_streambp(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="BertLayer cannot be streamed: .*bidirectional"):
        enable_streambp(BertModel(BertConfig(**small)))
    t5 = T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=9)
    with pytest.raises(ValueError, match="T5ForConditionalGeneration cannot be streamed"):
        enable_streambp(T5ForConditionalGeneration(t5))
    flash = make_model("llama")
    flash.config._attn_implementation = "flex_attention"
    with pytest.raises(ValueError, match="flex_attention"):
        enable_streambp(flash)


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


@pytest.mark.parametrize("window", [None, 4])
def test_layers_of_ones_own(window):
    generator = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    to_keys, to_values, mix = (make(6, 6).requires_grad_() for _ in range(3))
    hidden, padding = make(2, 13, 6).requires_grad_(), torch.ones(2, 13, dtype=torch.bool)
    padding[0, 10:] = False

    def kv(h, positions):
        return (h @ to_keys * (1 + positions[:, None] / 9))[:, None], (h @ to_values)[:, None]

    def block(h, keys, values, mask, positions):
        scores = (h[:, None] @ keys.transpose(-1, -2)).masked_fill(~mask.rows(), float("-inf"))
        return h + torch.tanh((scores.softmax(-1) @ values)[:, 0] @ mix)

    inputs = (hidden, to_keys, to_values, mix)
    upstream = make(2, 13, 6)
    found = []
    for chunk in (13, 4, 1):
        config = StreamBPConfig(layer_chunk_size=chunk)
        output = stream_block(kv, block, hidden, inputs[1:], padding_mask=padding, window=window, config=config)
        found.append((output.detach(), *torch.autograd.grad(output, inputs, upstream)))
    for other in found[1:]:
        assert all(torch.allclose(a, b, rtol=1e-11, atol=1e-12) for a, b in zip(found[0], other, strict=True))


def test_linear_toy():
    """Paper, appendix A: Y = X W1, Z = Y W2, L = sum Z; closed form."""
    x, w1, w2 = torch.randn(1, 12, 4), torch.randn(4, 5).requires_grad_(), torch.randn(5, 4).requires_grad_()
    output = stream_block(
        lambda h, _: (h[:, None], h[:, None]),
        lambda h, *_: h @ w1 @ w2,
        x,
        (w1, w2),
        config=StreamBPConfig(layer_chunk_size=5),
    )
    output.sum().backward()
    ones = torch.ones(12, 4)
    assert torch.allclose(w1.grad, x[0].t() @ (ones @ w2.t()), rtol=1e-4)
    assert torch.allclose(w2.grad, (x[0] @ w1).t() @ ones, rtol=1e-4)


def test_nothing_of_the_size_of_a_dense_mask_or_of_all_logits_exists():
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    model = make_model("mistral", sliding_window=9)
    inputs, labels = make_batch("right", batch=1, length=96)
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            sizes.extend(
                x.untyped_storage().nbytes() // x.element_size()
                for x in tree_leaves(found)
                if isinstance(x, torch.Tensor)
            )
            return found

    with enable_streambp(model, layer_chunk_size=8, head_chunk_size=8), Sizes():
        model(**inputs, labels=labels).loss.backward()
    assert max(sizes) < 96 * V, "neither length x length nor length x vocabulary"
