"""Gradients that are never written out, and the signals that come of them: against autograd and golden values."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from thrifty.data.coreset import (
    DenseGradients,
    GradientScorer,
    LastLayerGradients,
    gradient_discrepancy,
    gradient_snr,
    relative_error_bound,
)
from thrifty.data.coreset.scoring import per_sample

THREE = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)


def network(classes=3, seed=0, **head):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, classes, **head))


def samples(n=11, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 5, generator=generator), torch.arange(n) % classes


def by_hand(model, x, y, loss, parameters):
    """Per-sample gradients by autograd, one at a time."""
    model.eval()
    rows = []
    for one, target in zip(x, y, strict=True):
        value = loss(model(one[None]), target[None]).mean()
        rows.append(torch.cat([part.flatten() for part in torch.autograd.grad(value, parameters)]))
    return torch.stack(rows)


LOSSES = {
    "cross-entropy": (None, functional.cross_entropy),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.2), nn.CrossEntropyLoss(label_smoothing=0.2)),
    "several labels": (nn.BCEWithLogitsLoss(), nn.BCEWithLogitsLoss()),
    "regression": (nn.MSELoss(), nn.MSELoss()),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_last_layer_gradients_are_those_of_autograd(name, bias):
    model, (x, y) = network(bias=bias), samples()
    if name in ("several labels", "regression"):
        y = torch.rand(len(x), 3, generator=torch.Generator().manual_seed(1))
    given, torchs = LOSSES[name]
    model.train()
    found = GradientScorer(model, given)([(x[:6], y[:6]), (x[6:], y[6:])])
    assert model.training
    assert model[1].training
    assert int(model[1].num_batches_tracked) == 0, "scoring must not touch the running statistics"
    rows = by_hand(model, x, y, torchs, list(model[-1].parameters()))
    dense = torch.stack([found.combine(one) for one in torch.eye(len(x))])
    weight, *rest = rows.split([21, 3] if bias else [21], 1)
    parts = [weight.view(-1, 3, 7), *(part[..., None] for part in rest)]
    torch.testing.assert_close(dense, torch.cat(parts, 2).flatten(1), rtol=1e-5, atol=1e-6)
    assert (found.labels is None) == (name in ("several labels", "regression"))


def test_products_need_no_written_gradients():
    model, (x, y) = network(), samples()
    found = GradientScorer(model)([(x, y)])
    dense = DenseGradients(torch.stack([found.combine(one) for one in torch.eye(len(x))]), y)
    at = torch.tensor([3, 0, 7])
    vector, weights = torch.randn(24), torch.rand(11)
    groups = [torch.tensor([0, 1]), torch.tensor([5, 9])]
    for mine, theirs in (
        (found.gram(at), dense.gram(at)),
        (found.square_norms(), dense.square_norms()),
        (found.correlate(vector), dense.correlate(vector)),
        (found.combine(weights), dense.combine(weights)),
        (found.take(at).square_norms(), dense.take(at).square_norms()),
        (found.means(groups).values, dense.means(groups).values),
        (found.double().gram(at).float(), dense.gram(at)),
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    own = dense.values.view(11, 3, 8)[torch.arange(11), y]
    torch.testing.assert_close(found.own_rows().values, own, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("grad", ["full", r"params:^4\."])
def test_written_gradients_are_those_of_autograd(grad):
    model, (x, y) = network(), samples()
    found = GradientScorer(model, grad=grad, chunk=4)([(x, y)])
    chosen = [p for name, p in model.named_parameters() if grad == "full" or name.startswith("4.")]
    torch.testing.assert_close(
        found.values, by_hand(model, x, y, functional.cross_entropy, chosen), rtol=1e-4, atol=1e-6
    )


def test_logits_alone_are_the_errors():
    model, (x, y) = network(), samples()
    found = GradientScorer(model, grad="logits")([(x, y)])
    assert found.inputs is None
    model.eval()
    expected = model(x).softmax(1) - functional.one_hot(y)
    torch.testing.assert_close(found.combine(torch.eye(11)[4]), expected[4].detach())


def test_a_step_of_the_last_layer_gives_the_gradients_after_it():
    model, (x, y) = network(), samples()
    scorer = GradientScorer(model)
    before = scorer([(x, y)])
    step = torch.randn(24, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        model[-1].weight += step.view(3, 8)[:, :7]
        model[-1].bias += step.view(3, 8)[:, 7]
    torch.testing.assert_close(before.after_step(step).errors, scorer([(x, y)]).errors, rtol=1e-4, atol=1e-6)


class Batches(nn.Module):
    """A model as Transformers has them: keywords in, an object with logits out."""

    def __init__(self):
        super().__init__()
        self.body, self.classifier = nn.Linear(5, 7), nn.Linear(7, 3)

    def forward(self, pixels, labels=None):
        assert labels is None
        return type("Output", (), {"logits": self.classifier(self.body(pixels).relu())})()


def test_mappings_and_outputs_with_logits_are_understood():
    x, y = samples()
    found = GradientScorer(Batches())([{"pixels": x, "labels": y}])
    assert found.inputs.shape == (11, 7)
    dense = GradientScorer(Batches(), grad="full")([{"pixels": x, "labels": y}])
    assert dense.values.shape == (11, 5 * 7 + 7 + 7 * 3 + 3)


def test_golden_ratios():
    golden = {"spectral": 1.067482, "trace": 1.040833, "norms": 2.928476}
    for kind, expected in golden.items():
        assert gradient_snr(THREE, kind) == pytest.approx(expected, abs=1e-6)
    assert gradient_snr(THREE, "spectral", unbiased=False) == pytest.approx(1.307394, abs=1e-6)


@pytest.mark.parametrize("kind", ["spectral", "trace", "norms"])
def test_ratios_do_not_change_with_what_should_not_matter(kind):
    rows = torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.4
    base = gradient_snr(rows, kind)
    turn = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))).Q
    assert gradient_snr(rows @ turn, kind) == pytest.approx(base, rel=1e-10)
    assert gradient_snr(7 * rows, kind) == pytest.approx(base, rel=1e-10)
    assert gradient_snr(rows.flip(0), kind) == pytest.approx(base, rel=1e-10)
    twice = torch.cat([rows, rows])
    assert gradient_snr(twice, kind, unbiased=False) == pytest.approx(gradient_snr(rows, kind, unbiased=False))
    weights = torch.full((40,), 2.5, dtype=torch.float64)
    assert gradient_snr(rows, kind, weights) == pytest.approx(base, rel=1e-10)


def test_weights_count_as_repeats():
    rows, repeats = torch.randn(9, 4, dtype=torch.float64), torch.tensor([1, 2, 1, 3, 1, 1, 2, 1, 1])
    for kind in ("spectral", "trace", "norms"):
        assert gradient_snr(rows, kind, repeats.double(), unbiased=False) == pytest.approx(
            gradient_snr(rows.repeat_interleave(repeats, 0), kind, unbiased=False)
        )


def test_same_gradients_and_none():
    assert gradient_snr(torch.ones(5, 3)) == math.inf
    assert gradient_snr(torch.zeros(5, 3)) == 0.0
    with pytest.raises(ValueError, match="at least two, for a covariance, got 1"):
        gradient_snr(torch.ones(1, 3))


def test_power_iteration_is_the_exact_eigenvalue(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    errors, inputs = torch.randn(300, 5, generator=generator), torch.randn(300, 9, generator=generator).relu()
    gradients = LastLayerGradients(errors * torch.arange(1, 6), inputs)
    exact = gradient_snr(gradients)
    monkeypatch.setattr("thrifty.data.coreset.signal.EXACT", 10)
    assert gradient_snr(gradients) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(("delta", "expected"), [(1, 0.6674), (0.3, 0.4602), (0.1, 0.1943), (0, 0.0)])
def test_regression_on_a_line_has_the_ratio_in_closed_form(delta, expected):
    rng = np.random.default_rng(0)
    x, noise = rng.normal(0, math.sqrt(2), 400_000), rng.normal(0, 0.7, 400_000)
    gradients = (delta * x - noise) * x
    assert gradient_snr(torch.from_numpy(gradients[:, None]), "trace") == pytest.approx(expected, abs=0.004)
    closed = abs(delta) * math.sqrt(2) / math.sqrt(delta**2 * 2 * 2 + 0.49)
    assert closed == pytest.approx(expected, abs=1e-4)


def test_the_theorem_holds_in_simulations():
    generator = torch.Generator().manual_seed(0)
    d, m, delta, kept = 5, 200, 0.05, 0
    for _ in range(200):
        mean = torch.randn(d, generator=generator, dtype=torch.float64)
        rows = mean + torch.randn(m, d, generator=generator, dtype=torch.float64) * torch.linspace(0.5, 3, d)
        error = float((rows.mean(0) - mean).norm() / rows.mean(0).norm())
        kept += error <= relative_error_bound(gradient_snr(rows), d, m, delta)
    assert kept >= 200 * (1 - delta)


def test_discrepancy_is_one_minus_the_cosine():
    assert gradient_discrepancy(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0])) == pytest.approx(0, abs=1e-6)
    assert gradient_discrepancy(torch.tensor([1.0, 0.0]), torch.tensor([-2.0, 0.0])) == 2.0
    assert math.isnan(gradient_discrepancy(torch.zeros(2), torch.ones(2)))


class Two(nn.Module):
    """Two heads, whose logits are added."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x):
        return self.one(x) + self.two(x)


def test_heads_that_cannot_be_found_are_asked_for():
    batch = samples()
    with pytest.raises(ValueError, match='head: expected one Linear .* give head=, or choose grad="full"'):
        GradientScorer(Two())([batch])
    normed = nn.Sequential(nn.Linear(5, 7), nn.utils.parametrizations.weight_norm(nn.Linear(7, 3)))
    with pytest.raises(ValueError, match="reparametrised"):
        GradientScorer(normed)([batch])
    with pytest.raises(ValueError, match="head: expected the name of a module, got 'fc'"):
        GradientScorer(network(), head="fc")
    assert GradientScorer(network(), head="4")([batch]).inputs.shape == (11, 7)


def test_bad_gradients_and_batches_are_named():
    x, y = samples()
    x[4] = math.nan
    with pytest.raises(ValueError, match="finite numbers, got others for sample 4"):
        GradientScorer(network())([(x, y)])
    with pytest.raises(TypeError, match="'labels', got the keys"):
        GradientScorer(network())([{"pixels": x}])
    with pytest.raises(ValueError, match="at least one sample"):
        GradientScorer(network())([])
    with pytest.raises(ValueError, match=r"grad: expected one of .* got 'head'"):
        GradientScorer(network(), grad="head")
    with pytest.raises(ValueError, match="pattern that matches"):
        GradientScorer(network(), grad="params:nowhere")
    with pytest.raises(ValueError, match="labels: expected 3 classes"):
        DenseGradients(THREE, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="weights: expected 3"):
        gradient_snr(THREE, weights=torch.zeros(3))
    assert per_sample(functional.mse_loss) is functional.mse_loss
