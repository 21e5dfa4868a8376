"""Example gradients against plain autograd, and Hessian products against the Hessian."""

import pytest
import torch
from influence_ground import llama, pool, stepped
from torch.func import functional_call, hessian, jacrev
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    MixtralConfig,
    MixtralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

from thrifty.data.influence.coefficients import optimizer_coefficients
from thrifty.data.influence.config import InfluenceConfig
from thrifty.data.influence.curvature import TargetHessian
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.features import GradientFeatures, unit
from thrifty.data.influence.gradients import ExampleGradients, iterate_gradients
from thrifty.data.influence.losses import default_loss, is_causal
from thrifty.data.influence.parameters import select_parameters
from thrifty.data.influence.replica import view

SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}


def labelled(rows, classes=3):
    return [{**row, "labels": i % classes} for i, row in enumerate(rows)]


def images(count=6):
    g = torch.Generator().manual_seed(0)
    return [{"pixel_values": torch.randn(3, 16, 16, generator=g), "labels": i % 3} for i in range(count)]


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, eos_token_id=2, bos_token_id=1))


def bert():
    return BertForSequenceClassification(BertConfig(vocab_size=64, intermediate_size=48, num_labels=3, **SMALL))


def vit():
    return ViTForImageClassification(
        ViTConfig(image_size=16, patch_size=8, intermediate_size=48, num_labels=3, **SMALL)
    )


def mixtral():
    return MixtralForCausalLM(
        MixtralConfig(vocab_size=64, intermediate_size=48, num_local_experts=4, num_key_value_heads=2, **SMALL)
    )


def t5():
    return T5ForConditionalGeneration(
        T5Config(vocab_size=64, d_model=32, d_ff=48, d_kv=8, num_layers=2, num_heads=4, decoder_start_token_id=0)
    )


FAMILIES = {
    "llama": (llama, pool(6), True),
    "gpt2": (gpt2, pool(6), True),
    "bert": (bert, labelled(pool(6)), True),
    "vit": (vit, images(), True),
    "t5": (t5, [{**row, "labels": row["input_ids"][: 2 + i % 4]} for i, row in enumerate(pool(6))], True),
    "mixtral": (mixtral, pool(6), False),
}


def reference(model, params, examples):
    """One example, one backward pass."""
    loss_fn, rows = default_loss(model), []
    for i in range(len(examples)):
        batch = examples.collate([examples.row(i)])
        inputs = batch if model.config.is_encoder_decoder else {k: v for k, v in batch.items() if k != "labels"}
        loss = loss_fn(model(**inputs), batch).sum()
        found = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
        rows.append(
            torch.cat(
                [
                    (torch.zeros_like(p) if g is None else g).reshape(-1)
                    for g, p in zip(found, params.values(), strict=True)
                ]
            )
        )
    return torch.stack(rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_autograd_s(family):
    make, rows, batched = FAMILIES[family]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().eval()
    examples = Examples(rows, causal=is_causal(model))
    params = select_parameters(model)
    gradients = ExampleGradients(model, params, default_loss(model))
    found = torch.zeros(len(rows), sum(p.numel() for p in params.values()))
    for chosen, values in iterate_gradients(gradients, examples, range(len(rows)), 4):
        found[torch.from_numpy(chosen)] = values
    truth = reference(model, params, examples)
    assert truth.norm() > 0
    assert (found - truth).norm() / truth.norm() < 1e-4
    assert gradients.batched == batched
    assert gradients.passes <= len(rows) + 1


def test_any_parameters_tied_ones_included():
    model = llama(tie_word_embeddings=True)
    examples = Examples(pool(4))
    for params, batched in (
        (None, False),
        ("all", False),
        (r"q_proj|v_proj", True),
        (r"norm", False),
        (lambda n: "layers.1" in n, False),
    ):
        chosen = select_parameters(model, params)
        gradients = ExampleGradients(model, chosen, default_loss(model))
        found = torch.zeros(4, sum(p.numel() for p in chosen.values()))
        for indices, values in iterate_gradients(gradients, examples, range(4), 4):
            found[torch.from_numpy(indices)] = values
        assert torch.allclose(found, reference(model, chosen, examples), atol=1e-5)
        assert gradients.batched == batched
    assert sum("embed" in name or "lm_head" in name for name in select_parameters(model, None)) == 1


@pytest.mark.parametrize("make", [gpt2, bert])
def test_biases_are_batched_too(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().eval()
    rows = pool(4) if is_causal(model) else labelled(pool(4))
    examples, chosen = Examples(rows, causal=is_causal(model)), select_parameters(model, r"(c_attn|query)\.bias")
    assert chosen
    gradients = ExampleGradients(model, chosen, default_loss(model))
    found = torch.zeros(4, sum(p.numel() for p in chosen.values()))
    for indices, values in iterate_gradients(gradients, examples, range(4), 4):
        found[torch.from_numpy(indices)] = values
    assert torch.allclose(found, reference(model, chosen, examples), atol=1e-5)
    assert gradients.batched


def test_a_weight_used_beside_its_layer_is_noticed():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4, bias=False)

        def forward(self, x):
            return self.linear(x) @ self.linear.weight

    model = Twice()
    gradients = ExampleGradients(model, dict(model.named_parameters()), lambda out, batch: out.square().mean(1))
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    found = gradients({"x": x})
    assert not gradients.batched
    for i in range(3):
        (g,) = torch.autograd.grad(model(x[i]).square().mean(), [model.linear.weight])
        assert torch.allclose(found[i], g.reshape(-1), atol=1e-6)


def test_adapters_count_alone_once_they_are_there():
    peft = pytest.importorskip("peft")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = peft.get_peft_model(llama(), peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"]))
    params = select_parameters(model)
    assert params
    assert all("lora_" in name for name in params)
    stepped(model, pool(3))
    gradients = ExampleGradients(model, params, default_loss(model))
    examples = Examples(pool(5))
    found = torch.cat([rows for _, rows in iterate_gradients(gradients, examples, range(5), 5)])
    order = next(iter(examples.batches(range(5), 5)))[0]
    model.eval()
    assert torch.allclose(found, reference(model.get_base_model(), params, examples)[order], atol=1e-5)
    assert gradients.batched


def test_the_model_is_left_as_it_was():
    model = llama().train()
    model.model.layers[0].requires_grad_(False)
    before = {name: (p.clone(), p.requires_grad) for name, p in model.named_parameters()}
    hooks = sum(len(m._forward_hooks) for m in model.modules())
    gradients = ExampleGradients(model, select_parameters(model, "q_proj"), default_loss(model))
    list(iterate_gradients(gradients, Examples(pool(4)), range(4), 2))
    assert model.training
    assert sum(len(m._forward_hooks) for m in model.modules()) == hooks
    assert all(p.equal(before[n][0]) and p.requires_grad == before[n][1] for n, p in model.named_parameters())
    assert all(p.grad is None for p in model.parameters())


def test_views_share_memory_and_follow_their_model():
    model = llama()
    twin = view(model)
    model.model.norm.weight.data.fill_(3.0)
    assert float(twin.model.norm.weight[0]) == 3.0
    assert twin.config._attn_implementation == "eager"
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("kind", ["exact", "ggn"])
def test_hessian_products(kind):
    model = llama(layers=1, hidden=8).double()
    params = select_parameters(model, "q_proj")
    examples = Examples(pool(5))
    loss_fn = default_loss(model)
    product = TargetHessian(
        model, params, lambda out, batch: _double(loss_fn, out, batch), examples, kind=kind, batch_size=2
    )
    rows = torch.randn(3, 64, generator=torch.Generator().manual_seed(0)).double()
    found = product(rows)
    twin = view(model)
    name = next(iter(params))

    def loss(weight):
        total = 0.0
        for _, batch in examples.batches(range(5), 5):
            inputs = {field: batch[field] for field in ("input_ids", "attention_mask")}
            out = functional_call(twin, {name: weight.reshape(8, 8)}, kwargs=inputs)
            total = total + _double(loss_fn, out, batch).mean()
        return total

    H = hessian(loss)(params[name].detach().reshape(-1))
    if kind == "exact":
        assert torch.allclose(found, rows @ H, atol=1e-8)
        assert torch.linalg.eigvalsh(H)[0] < 0
    else:
        G = product(torch.eye(64).double())
        assert torch.allclose(G, _gauss_newton(twin, name, params[name], loss_fn, examples), atol=1e-8)
        assert torch.allclose(G, G.T, atol=1e-9)
        assert torch.linalg.eigvalsh(G)[0] > -1e-9
        assert torch.allclose(found, rows @ G, atol=1e-9)


def _gauss_newton(twin, name, weight, loss_fn, examples):
    """Jᵀ H J, with the Jacobian of the logits and the Hessian of the loss in them written out."""
    (_, batch) = next(iter(examples.batches(range(5), 5)))
    inputs = {field: batch[field] for field in ("input_ids", "attention_mask")}

    def logits(flat):
        return functional_call(twin, {name: flat.reshape(8, 8)}, kwargs=inputs).logits

    flat = weight.detach().reshape(-1)
    J, z = jacrev(logits)(flat).reshape(-1, 64), logits(flat).detach()
    total = torch.zeros(64, 64).double()
    labels = batch["labels"][:, 1:]
    counts, probabilities, J = (labels != -100).sum(1), z.softmax(-1), J.reshape(*z.shape, 64)
    for b, t in (labels != -100).nonzero().tolist():  # of softmax cross-entropy: diag(q) − qqᵀ, a token at a time
        q = probabilities[b, t]
        total += J[b, t].T @ (torch.diag(q) - torch.outer(q, q)) @ J[b, t] / counts[b] / 5
    return total


def _double(loss_fn, out, batch):
    logits, labels = out.logits[:, :-1].transpose(1, 2), batch["labels"][:, 1:]
    tokens = torch.nn.functional.cross_entropy(logits, labels, reduction="none", ignore_index=-100)
    return tokens.sum(1) / (labels != -100).sum(1)


def test_features_scale_the_source_alone_and_normalise_before_projecting():
    model, rows = llama(), pool(4)
    optimizer = stepped(model, rows)
    params = select_parameters(model)
    coefficients = optimizer_coefficients(optimizer, params)
    features = GradientFeatures.of(params, coefficients, InfluenceConfig(grad_dim=10**9))
    raw = torch.randn(2, sum(p.numel() for p in params.values()), generator=torch.Generator().manual_seed(0))
    a = torch.cat([coefficients.a[name].reshape(-1) for name in params])
    assert torch.allclose(features.source(raw), unit(raw * a), atol=1e-6)
    assert torch.allclose(features.target(raw), unit(raw), atol=1e-6)
    masked = GradientFeatures.of(params, coefficients, InfluenceConfig(mask_numel=500, grad_dim=10**9))
    assert masked.target(raw).shape == (2, 500)
    small = GradientFeatures.of(params, coefficients, InfluenceConfig(grad_dim=256))
    assert small.source(raw).shape == (2, 256)
    assert torch.allclose(small.source(raw), small.projection(unit(raw * a)), atol=1e-6)
    assert torch.allclose(small.target(raw), small.projection(unit(raw)), atol=1e-6)
    assert not unit(torch.zeros(2, 3)).any()
