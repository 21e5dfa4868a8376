"""Rivals: each against what defines it, on small real models."""

import numpy as np
import pytest
import torch
from leff_models import batches, clients, make, same, state_of

from thrifty.training.leff import LayerView, LeffClient, LeffConfig, aggregate_layers
from thrifty.training.leff.rivals import (
    Averaging,
    Centralised,
    FedLoRA,
    FedRA,
    FlexLoRA,
    FLoRA,
    HetLoRA,
    Leff,
    LocalOnly,
    SLoRA,
    federate,
)
from thrifty.training.leff.rivals.adapters import SCALE, adapt, factors, load, merged
from thrifty.training.leff.rivals.averaging import names_of
from thrifty.training.leff.rivals.lora import allocation, stacked
from thrifty.training.leff.streams import torch_stream

CONFIG = LeffConfig(lr=1e-2, distill_steps=3)
KINDS = ("bert", "llama", "gpt2", "vit")


def nothing(model):
    return {"depth": LayerView(model).num_layers}


def logits(model, kind):
    with torch.no_grad():
        return model.eval()(**batches(kind)[0]).logits


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_full_capacities_make_leff_and_federated_averaging_one(kind):
    made = []
    for method in (lambda m: Leff(m, CONFIG, batches(kind)), lambda m: Averaging(m, CONFIG)):
        model = make(kind)
        federate(method(model), clients(kind, [6, 6]), 2, nothing)
        made.append(state_of(model))
    assert same(*made)


@pytest.mark.parametrize("make_method", [
    lambda m, k: Averaging(m, CONFIG), lambda m, k: Averaging(m, CONFIG.with_overrides(proximal=0.1)),
    lambda m, k: Averaging(m, CONFIG, "biases"), lambda m, k: Averaging(m, CONFIG, "head"),
    lambda m, k: FedLoRA(m, CONFIG, 4), lambda m, k: SLoRA(m, CONFIG, 4, 1), lambda m, k: HetLoRA(m, CONFIG, 4),
    lambda m, k: FlexLoRA(m, CONFIG, 4), lambda m, k: FLoRA(m, CONFIG, 4), lambda m, k: FedRA(m, CONFIG, 4),
    lambda m, k: LocalOnly(m, CONFIG), lambda m, k: Leff(m, CONFIG, batches(k)),
], ids=["FedAvg", "FedProx", "BitFit", "head", "FedLoRA", "SLoRA", "HetLoRA", "FlexLoRA", "FLoRA", "FedRA", "local",
        "LEFF"])  # fmt: skip
def test_every_method_learns_and_keeps_embeddings(make_method):
    kind = "gpt2"
    model = make(kind, 3)
    before = {name: p.detach().clone() for name, p in LayerView(model).embeddings().items()}
    method = make_method(model, kind)
    trace = federate(method, clients(kind, [1, 2, 3]), 2, nothing)
    assert trace.scores[-1]["depth"] == pytest.approx(3)
    plain = logits(make(kind, 3), kind)
    assert any((logits(found, kind) - plain).abs().max() > 1e-4 for found, _ in method.models())
    assert all(torch.equal(p, before[name]) for name, p in LayerView(model).embeddings().items())
    if not isinstance(method, LocalOnly):
        assert trace.up[0] > 0
        assert trace.down[1] < trace.down[0], "what does not change travels once"


@pytest.mark.parametrize("kind", [Averaging, LocalOnly, FedLoRA, SLoRA, HetLoRA, FlexLoRA, FLoRA, FedRA, Leff])
def test_layers_may_be_named(kind):
    how = {"proxy": batches("bert")} if kind is Leff else {}
    method = kind(make("bert"), CONFIG, layers="bert.encoder.layer", **how)
    assert (method.server if kind is Leff else method).view.path == "bert.encoder.layer"
    with pytest.raises(ValueError, match="layers: expected the path of a ModuleList"):
        kind(make("bert"), CONFIG, layers="bert.blocks", **how)


def test_a_model_without_biases_has_no_bitfit():
    with pytest.raises(ValueError, match="not applicable"):
        Averaging(make("llama", 3), CONFIG, "biases")


def test_trained_names():
    view = LayerView(make("bert"))
    assert all(n.endswith("bias") or n in view.extras() for n in names_of(view, "biases"))
    assert names_of(view, "head") == set(view.extras())
    assert len(names_of(view, "all")) + len(view.embeddings()) == len(dict(view.model.named_parameters()))


def test_adapters_of_zero_change_nothing_and_merging_is_exact():
    for kind in KINDS:
        model = make(kind)
        view = LayerView(model)
        adapted = adapt(view, range(6), 3, torch_stream(0, "adapters"))
        torch.testing.assert_close(logits(adapted.model, kind), logits(model, kind))
        values = {n: (a, torch.randn_like(b) * 0.1) for n, (a, b) in adapted.values().items()}
        load(adapted, values)
        assert (logits(adapted.model, kind) - logits(model, kind)).abs().max() > 1e-3
        torch.testing.assert_close(
            logits(merged(view, values), kind), logits(adapted.model, kind), atol=1e-4, rtol=1e-4
        )
        assert same(state_of(model), state_of(make(kind)))


def test_lora_counts():
    from transformers import AutoModelForCausalLM, GPT2Config

    model = AutoModelForCausalLM.from_config(GPT2Config(vocab_size=8, n_positions=8))
    adapted = adapt(LayerView(model), range(12), 8, torch_stream(0, "adapters"))
    without_c_fc = {n: p for n, p in adapted.adapters.items() if not n.endswith("c_fc")}
    assert sum(a.numel() + b.numel() for a, b in without_c_fc.values()) == 811_008


def run_round(method, who):
    method.begin(who, 1)
    return [method.local(client, 1) for client in who]


def test_flora_and_flexlora_hold_the_mean_of_products_exactly_and_fedlora_does_not():
    who = clients("llama", [1, 2, 6])
    for kind in (FLoRA, FlexLoRA):
        method = kind(make("llama"), CONFIG, 4)
        before = {n: w.clone() for n, w in state_of(method.view.model).items()}
        sent = run_round(method, who)
        total = sum(one.weight for one in sent)
        want = {
            name: sum(one.weight / total * one.payload[0][name][1] @ one.payload[0][name][0] for one in sent)
            for name in method.adapters
        }
        for name, (a, b) in stacked(sent, method.adapters).items():
            torch.testing.assert_close(b @ a, want[name], atol=1e-6, rtol=1e-5)
        method.merge(sent, 1)
        [(model, _)] = method.models()
        for name, change in want.items():
            torch.testing.assert_close(
                state_of(model)[f"{name}.weight"], before[f"{name}.weight"] + SCALE * change, atol=1e-6, rtol=1e-5
            )
        assert len({one.payload[0][next(iter(want))][0].shape[0] for one in sent}) > 1, "ranks differ"
    method = FedLoRA(make("llama"), CONFIG.with_overrides(local_epochs=3), 4)
    sent = run_round(method, who)
    method.merge(sent, 1)
    name = next(iter(method.adapters))
    a, b = method.adapters[name]
    shares = np.array([one.weight for one in sent]) / sum(one.weight for one in sent)
    product = sum(w * one.payload[0][name][1] @ one.payload[0][name][0] for w, one in zip(shares, sent, strict=True))
    assert (b @ a - product).abs().max() > 1e-7, "the mean of products is not the product of means"


def test_factors_are_the_best_of_their_rank():
    torch.manual_seed(0)
    a, b = torch.randn(6, 9), torch.randn(7, 6)
    fa, fb = factors(a, b, 6)
    torch.testing.assert_close(fb @ fa, b @ a, atol=1e-5, rtol=1e-5)
    fa, fb = factors(a, b, 2)
    u, s, v = torch.linalg.svd(b @ a)
    torch.testing.assert_close(fb @ fa, (u[:, :2] * s[:2]) @ v[:2], atol=1e-4, rtol=1e-4)


def test_hetlora_pads_and_weighs_by_norm():
    method = HetLoRA(make("llama"), CONFIG, 6)
    who = clients("llama", [1, 6])
    sent = run_round(method, who)
    name = next(iter(method.adapters))
    assert [one.payload[0][name][0].shape[0] for one in sent] == [1, 6]
    norms = [sum(float((b @ a).square().sum()) for a, b in one.payload[0].values()) ** 0.5 for one in sent]
    method.merge(sent, 1)
    w = norms[0] / sum(norms)
    small, large = (one.payload[0][name][0] for one in sent)
    want = (1 - w) * large
    want[0] += w * small[0]
    torch.testing.assert_close(method.adapters[name][0], want, atol=1e-6, rtol=1e-4)


def test_slora_starts_adapters_with_what_the_sparse_stage_changed():
    model = make("llama")
    method = SLoRA(model, CONFIG, 16, sparse_rounds=1, density=0.1)
    before = state_of(model)
    sent = run_round(method, clients("llama", [6, 6]))
    name = next(iter(method._origin))
    moved = sent[0].payload[1][f"{name}.weight"] != before[f"{name}.weight"]
    assert 0 < moved.float().mean() < 0.2
    mean = aggregate_layers(before, [(one.payload[1], one.weight) for one in sent])
    method.merge(sent, 1)
    assert torch.equal(model.get_submodule(name).weight, before[f"{name}.weight"])
    a, b = method.adapters[name]
    torch.testing.assert_close(SCALE * b @ a, mean[f"{name}.weight"] - before[f"{name}.weight"], atol=1e-6, rtol=1e-4)


def test_fedra_covers_every_layer_and_averages_over_holders():
    rng = np.random.default_rng(0)
    for _ in range(50):
        sizes = {"a": 1, "b": 2, "c": 1, "d": 2}
        held = allocation(sizes, 6, rng)
        assert {name: len(own) for name, own in held.items()} == sizes
        assert set().union(*held.values()) == set(range(6))
    short = allocation({"a": 1, "b": 2}, 6, rng)
    assert sum(map(len, short.values())) == 3
    method = FedRA(make("llama"), CONFIG, 4)
    method.begin(clients("llama", [1, 2]), 1)
    first = {n: b.clone() for n, (_, b) in method.adapters.items()}
    sent = [method.local(client, 1) for client in clients("llama", [1, 2])]
    method.merge(sent, 1)
    held = set().union(*method.kept.values())
    for name, (_, b) in method.adapters.items():
        assert torch.equal(b, first[name]) == (int(name.split(".")[2]) not in held)


def test_local_only_keeps_clients_apart_and_central_training_has_all_data():
    who = clients("bert", [6, 6])
    method = LocalOnly(make("bert"), CONFIG)
    trace = federate(method, who, 2, nothing)
    assert trace.up == [0, 0]
    a, b = (state_of(model) for model, _ in method.models())
    assert not same(a, b)
    pooled = {name: torch.cat([c.data[name] for c in who]) for name in who[0].data}
    central = Centralised(make("bert"), CONFIG)
    federate(central, [LeffClient("all", pooled, capacity=6)], 1, nothing)
    assert not same(state_of(central.view.model), state_of(make("bert")))
