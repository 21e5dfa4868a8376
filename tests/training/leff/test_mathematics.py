"""Importance, probabilities, depths, averages: each against what can be worked out by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from leff_models import batches, make
from scipy import stats
from torch import nn

from thrifty.training.leff import (
    LayerMean,
    LayerView,
    LeffConfig,
    ServerOptimizer,
    aggregate_layers,
    block_importance,
    block_probabilities,
    coverage,
    effective_entropy,
    from_sums,
    layer_importance,
    padded_sums,
)
from thrifty.training.leff.context import lay_out
from thrifty.training.leff.distill import attention_divergence, distillation_loss
from thrifty.training.leff.sampling import block_layers, draw_start
from thrifty.training.leff.streams import stream

FOUR = torch.tensor([1.0, 2.0, 3.0, 4.0])


class Linear(nn.Module):
    """Layers of a loss that is linear in every one of their weights."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 1, bias=False) for _ in range(3))

    def forward(self, x):
        return sum((index + 1) * layer(x).sum() for index, layer in enumerate(self.layers))


def linear_loss(model, batch):
    return model(batch["x"])


def test_importance_is_what_zeroing_a_weight_changes_where_the_loss_is_linear():
    torch.manual_seed(0)
    model, batch = Linear(), {"x": torch.randn(5, 3)}
    found = layer_importance(model, [batch], linear_loss)
    for index, layer in enumerate(model.layers):
        want = 0.0
        for m in range(3):
            whole = float(linear_loss(model, batch))
            with torch.no_grad():
                kept = float(layer.weight[0, m])
                layer.weight[0, m] = 0
                want += (whole - float(linear_loss(model, batch))) ** 2
                layer.weight[0, m] = kept
        assert float(found[index]) == pytest.approx(want, rel=1e-5)


def test_importance_scales_with_the_square_of_the_loss_and_forgets_the_order_of_batches():
    model, some = make("bert"), batches("bert", 3)
    plain = layer_importance(model, some)
    tripled = layer_importance(model, some, lambda m, b: 3 * m(**b).loss)
    torch.testing.assert_close(tripled, 9 * plain)
    torch.testing.assert_close(layer_importance(model, some[::-1]), plain)
    one = [layer_importance(model, [batch]) for batch in some]
    torch.testing.assert_close(plain, sum(one) / 3)
    mean = layer_importance(model, some, estimator="mean_gradient")
    assert (mean < plain).all(), "the square of a mean is below the mean of squares"
    whole = [{key: torch.cat([b[key] for b in some]) for key in some[0]}]
    torch.testing.assert_close(mean, layer_importance(model, whole), rtol=1e-4, atol=1e-9)


def test_importance_leaves_the_model_as_it_was():
    model = make("llama").train()
    model.requires_grad_(False)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    layer_importance(model, batches("llama"))
    assert model.training
    assert not any(p.requires_grad or p.grad is not None for p in model.parameters())
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())


def test_shared_weights_count_once():
    model = make("bert", 3)
    model.bert.encoder.layer[2].intermediate = model.bert.encoder.layer[0].intermediate
    found = layer_importance(model, batches("bert"))
    other = make("bert", 3)
    other.bert.encoder.layer[2].intermediate.load_state_dict(model.bert.encoder.layer[0].intermediate.state_dict())
    assert found[2] < layer_importance(other, batches("bert"))[2]


def test_blocks_and_their_probabilities():
    assert block_importance(FOUR, 2).tolist() == [3, 5, 7]
    assert block_importance(FOUR, 2, edge="wrap").tolist() == [3, 5, 7, 5]
    literal = block_probabilities(FOUR, 2, "none", 1.0)
    np.testing.assert_allclose(literal, [0.015876, 0.117310, 0.866813], atol=1e-6)
    np.testing.assert_allclose(coverage(literal, 2, 4), [0.015876, 0.133187, 0.984124, 0.866813], atol=1e-6)
    even = block_probabilities(FOUR, 2, sampler="random")
    np.testing.assert_allclose(coverage(even, 2, 4), [1 / 3, 2 / 3, 2 / 3, 1 / 3])
    np.testing.assert_allclose(block_probabilities(FOUR, 2, sampler="proportional"), [3 / 15, 5 / 15, 7 / 15])
    wrapped = block_probabilities(FOUR, 2, sampler="random", edge="wrap")
    np.testing.assert_allclose(coverage(wrapped, 2, 4), [0.5] * 4)
    assert block_probabilities(FOUR, 4).tolist() == [1.0]


def test_rescaled_probabilities_have_no_units_and_the_literal_ones_do():
    for normalization in ("mean", "std"):
        found = [block_probabilities(FOUR * scale, 1, normalization) for scale in (1e-4, 1, 1e4)]
        torch.testing.assert_close(found[0], found[1])
        torch.testing.assert_close(found[1], found[2])
    assert effective_entropy(block_probabilities(FOUR * 1e-4, 1, "none", 1.0)) > 0.9999
    assert effective_entropy(block_probabilities(FOUR * 1e4, 1, "none", 1.0)) == 0
    assert 0.3 < effective_entropy(block_probabilities(FOUR, 1)) < 0.9


def test_the_literal_softmax_is_uniform_on_a_small_model(caplog):
    from thrifty.training.leff.sampling import warn_if_uniform

    scores = torch.tensor([0.0063, 0.0073, 0.0086, 0.0083, 0.0082, 0.0086])  # measured on MiniLM
    literal = block_probabilities(scores, 1, "none", 1.0)
    np.testing.assert_allclose(literal, [0.1664, 0.1666, 0.1668, 0.1667, 0.1667, 0.1668], atol=6e-5)
    assert warn_if_uniform(literal)
    assert "uniform" in caplog.text
    assert not warn_if_uniform(block_probabilities(scores, 1))


def test_draws_follow_the_probabilities():
    chances = block_probabilities(FOUR, 2, "mean")
    rng = stream(0, "blocks", 1, "a")
    drawn = np.bincount([draw_start(chances, rng) for _ in range(10_000)], minlength=3)
    assert stats.chisquare(drawn, 10_000 * chances.numpy()).pvalue > 1e-3
    layers = np.zeros(4)
    for start, count in enumerate(drawn):
        layers[list(block_layers(start, 2, 4))] += count / 10_000
    np.testing.assert_allclose(layers, coverage(chances, 2, 4), atol=0.02)


def test_streams_are_found_by_purpose_round_and_client():
    draws = {key: stream(3, *key).integers(2**60) for key in itertools.product(("blocks", "order"), (1, 2), ("a", "b"))}
    assert len(set(draws.values())) == len(draws)
    assert all(stream(3, *key).integers(2**60) == value for key, value in draws.items())
    chances = torch.full((3,), 1 / 3)
    starts = [[draw_start(chances, None, sampler="round_robin", round_=r, place=p) for p in range(3)] for r in (1, 2)]
    assert starts == [[0, 1, 2], [1, 2, 0]]


def depths(rate, segments, length=3, layers=12):
    config = LeffConfig(compression_rate=rate, segments=segments)
    return [
        sum(s.depth for s in lay_out(range(k, k + length), layers, config).segments) for k in range(layers - length + 1)
    ]


def test_depth_of_stand_ins():
    assert depths(0.5, "separate") == [5] * 10
    assert depths(0.2, "joint") == [2] * 10
    assert depths(0.2, "separate") == [2 if k in (1, 5, 6, 10) else 3 for k in range(1, 11)]
    assert depths(0.8, "separate")[0] == depths(0.8, "joint")[0] == 8
    assert depths(0.2, "joint", 1, 16) == [3] * 16, "0.2 times 15 is 3"
    assert depths(0.55, "joint", 1, 21) == [11] * 21, "0.55 times 20 is 11, though not in floating point"
    assert depths(1.0, "separate") == [9] * 10


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 16), st.data(), st.sampled_from([0.2, 0.5, 0.8, 1.0]), st.sampled_from(["separate", "joint"]))
def test_a_layout_has_its_block_whole_and_its_context_in_order(layers, data, rate, segments):
    length = data.draw(st.integers(1, layers))
    start = data.draw(st.integers(0, layers - 1))
    block = block_layers(start, length, layers)
    layout = lay_out(block, layers, LeffConfig(compression_rate=rate, segments=segments))
    assert len(block) == length
    assert list(layout.trained_places.values()) == list(block)
    assert list(layout.sources) == sorted(set(layout.sources))
    outside = layers - length
    if segments == "joint":
        assert sum(s.depth for s in layout.segments) == math.ceil(outside * rate - 1e-9)
    if rate == 1:
        assert layout.sources == tuple(range(layers))


def test_averages_by_hand():
    ten = {str(i): torch.full((2,), 10.0) for i in range(1, 5)}
    a = {"1": torch.full((2,), 2.0), "2": torch.full((2,), 4.0)}
    b = {"2": torch.full((2,), 8.0), "3": torch.full((2,), 6.0)}
    found = aggregate_layers(ten, [(a, 1), (b, 3)])
    assert [float(found[str(i)][0]) for i in range(1, 5)] == [2, 7, 6, 10]
    assert found.keys() == ten.keys()
    sums, weights = (
        {n: x[n] + y[n] for n in x}
        for x, y in zip(padded_sums(a, 1, {n: t.shape for n, t in ten.items()}),
                        padded_sums(b, 3, {n: t.shape for n, t in ten.items()}), strict=True)
    )  # fmt: skip
    masked = from_sums(ten, sums, weights)
    assert all(torch.equal(found[n], masked[n]) for n in ten)


def test_half_precision_is_summed_in_single():
    mean = LayerMean()
    for _ in range(4096):
        mean.add({"a": torch.tensor([1.0], dtype=torch.float16)}, 1.0)
    assert mean.result()["a"].item() == 1.0, "a sum in float16 would stop at 2048"
    current = {"a": torch.zeros(1, dtype=torch.float16)}
    assert aggregate_layers(current, [({"a": torch.ones(1, dtype=torch.float16)}, 2)])["a"].dtype == torch.float16


def test_updates_stream_through_one_accumulator():
    live = []

    def updates():
        for value in range(50):
            state = {"a": torch.full((10,), float(value))}
            live.append(state)
            yield state, 1.0
            live.pop()
            assert not live

    assert aggregate_layers({"a": torch.zeros(10)}, updates())["a"][0] == 24.5


def test_server_optimizers():
    current, mean = {"a": torch.tensor([1.0]), "b": torch.tensor([1.0])}, {"a": torch.tensor([2.0])}
    assert ServerOptimizer().step(current, mean)["a"] == 2.0
    assert ServerOptimizer("none", 0.5).step(current, mean)["a"] == 1.5
    momentum = ServerOptimizer("momentum")
    momentum.step(current, mean)
    assert momentum.step(current, mean)["a"] == pytest.approx(1 + 1.9)
    adam = ServerOptimizer("adam", 0.1)
    first = adam.step(current, mean)
    assert first["a"] == pytest.approx(1 + 0.1 * 0.1 / (0.1 + 1e-3))
    other = ServerOptimizer("adam", 0.1)
    other.load_state_dict(adam.state_dict())
    assert torch.equal(adam.step(current, mean)["a"], other.step(current, mean)["a"])
    assert "b" not in first


def test_divergence_of_attention_maps():
    torch.manual_seed(0)
    a, b = (torch.softmax(torch.randn(2, 3, 4, 4), -1) for _ in range(2))
    assert float(attention_divergence(a, a)) == pytest.approx(0, abs=1e-7)
    assert float(attention_divergence(a, b)) > 0
    want = np.mean(stats.entropy(a.numpy(), b.numpy(), axis=-1))
    assert float(attention_divergence(a, b)) == pytest.approx(want, rel=1e-5)
    causal = torch.softmax(torch.randn(1, 1, 4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), -math.inf), -1)
    assert float(attention_divergence(causal, causal)) == pytest.approx(0, abs=1e-7), (
        "zeros on both sides count nothing"
    )
    valid = torch.tensor([[True, True, False, False], [True, True, True, True]])
    noisy = b.clone()
    noisy[0, :, 2:] = 0.25
    assert torch.equal(attention_divergence(a, b, valid), attention_divergence(a, noisy, valid))
    h = torch.randn(2, 4, 5)
    other = h.clone()
    other[0, 2:] += 100
    assert float(distillation_loss((h, other), [], 0.0, valid)) == 0
    assert float(distillation_loss((h, other), [], 0.0)) > 0
    assert float(distillation_loss((h, h + 2), [(a, b)], 0.25)) == pytest.approx(0.75 * 4 + 0.25 * want, rel=1e-5)


def test_names_around_the_layers():
    view = LayerView(make("neox"))
    assert list(view.embeddings()) == ["gpt_neox.embed_in.weight"]
    assert set(view.extras()) == {
        "gpt_neox.final_layer_norm.weight",
        "gpt_neox.final_layer_norm.bias",
        "lm_head.weight",
    }
    assert set(view.extras("norm_only")) == {"gpt_neox.final_layer_norm.weight", "gpt_neox.final_layer_norm.bias"}
    tied = LayerView(make("gpt2"))
    assert "lm_head.weight" not in tied.extras(), "a tied head stays frozen with the embeddings"
    assert list(LayerView(make("deberta")).embeddings())[-1] == "deberta.encoder.rel_embeddings.weight"
    assert len(view.block(2, 3)) == 3
    with pytest.raises(ValueError, match="expected a block within layers 0 to 5, got 4 and 3"):
        view.block(4, 3)
