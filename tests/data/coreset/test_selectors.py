"""Selectors: matching pursuit by golden values and brute force, and the others against slow ones written plainly."""

import itertools
import logging
import math

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from thrifty.data.coreset import (
    Craig,
    Crest,
    DenseGradients,
    Glister,
    GradMatch,
    InfoBatch,
    LastLayerGradients,
    RandomSubset,
    Subset,
    class_quotas,
    matching_pursuit,
)
from thrifty.data.coreset.quotas import size_of
from thrifty.data.coreset.rivals import resolved_pursuit
from thrifty.data.coreset.scoring import cross_entropy
from thrifty.data.coreset.selectors import craig

ROWS = DenseGradients(torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
TARGET = torch.tensor([3.0, 2.0])


def last_layer(n=60, classes=3, h=4, seed=0):
    """Gradients of a last layer with random inputs and logits."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    logits, inputs = torch.randn(n, classes, generator=generator), torch.randn(n, h, generator=generator)
    errors = logits.softmax(1) - torch.nn.functional.one_hot(labels, classes)
    return LastLayerGradients(errors, inputs, True, labels, logits, labels, cross_entropy)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("lam", "k", "indices", "weights", "residual"),
    [
        (0.0, 1, [0], [1.5], 2.0),
        (0.0, 2, [0, 1], [1.5, 2.0], 0.0),
        (0.5, 1, [0], [4 / 3], math.hypot(1 / 3, 2)),
        (0.5, 2, [0, 2], [0.6897, 1.4483], 0.5780),
    ],
)
def test_golden_pursuit(lam, k, indices, weights, residual):
    found = matching_pursuit(ROWS, TARGET, k, lam=lam)
    assert found.indices.tolist() == indices
    assert found.weights.tolist() == pytest.approx(weights, abs=1e-4)
    assert found.residual == pytest.approx(residual, abs=1e-4)


@pytest.mark.parametrize("kept", [10**9, 0])
@pytest.mark.parametrize("lam", [0.0, 0.5, 5.0])
def test_pursuit_is_the_plain_loop(lam, kept, monkeypatch):
    monkeypatch.setattr("thrifty.data.coreset.pursuit.KEPT", kept)
    dropped = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(30, 8)) + 0.3
        b = A.sum(0) + rng.normal(size=8)
        active, gamma, residual = resolved_pursuit(A, b, 8, lam)
        found = matching_pursuit(DenseGradients(torch.from_numpy(A)), torch.from_numpy(b), 8, lam)
        assert found.indices.tolist() == active
        np.testing.assert_allclose(found.weights, gamma, rtol=1e-7, atol=1e-9)
        assert found.residual == pytest.approx(residual, rel=1e-6, abs=1e-7 * np.linalg.norm(b))
        dropped += len(active) < 8
    assert lam or dropped, "some of the draws have to drop an atom, else the test does not reach that"


def test_pursuit_comes_near_the_best_subset():
    ratios = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(10, 30))  # in fewer dimensions greedy picks are worse: 1.23 on average with 10
        b = rng.random(10) @ A
        best = min(nnls(A[list(S)].T, b)[1] for S in itertools.combinations(range(10), 3))
        found = matching_pursuit(DenseGradients(torch.from_numpy(A)), torch.from_numpy(b), 3, lam=0.0)
        ratios.append(found.residual / best)
    assert min(ratios) >= 1 - 1e-9
    assert np.mean(ratios) <= 1.05


def test_all_atoms_without_ridge_leave_nothing():
    rng = np.random.default_rng(0)
    A = rng.random((6, 9))
    found = matching_pursuit(DenseGradients(torch.from_numpy(A)), torch.from_numpy(A.sum(0)), 6, lam=0.0, eps=0.0)
    assert sorted(found.indices.tolist()) == list(range(6))
    np.testing.assert_allclose(found.weights, 1, rtol=1e-8)
    assert found.residual < 1e-10


def test_residuals_fall_as_atoms_are_added():
    gradients = last_layer(80)
    target = gradients.combine(torch.ones(80))
    lengths = [matching_pursuit(gradients, target, k, lam=0.0, nonneg=False).residual for k in range(1, 12)]
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(lengths))


def test_collinear_atoms_get_a_ridge_and_a_remark(caplog):
    rows = DenseGradients(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double())
    with caplog.at_level(logging.WARNING):
        found = matching_pursuit(rows, torch.tensor([1.0, 0.0]).double(), 3, lam=0.0, eps=0.0)
    assert found.residual < 1e-4
    if found.collinear:
        assert "collinear" in caplog.text


def test_nothing_that_helps_leaves_the_rest_to_chance():
    rows = DenseGradients(-torch.ones(8, 2), torch.zeros(8, dtype=torch.int64))
    found = matching_pursuit(rows, torch.ones(2), 3)
    assert len(found.indices) == 0
    assert found.residual == pytest.approx(math.sqrt(2))
    towards = DenseGradients(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64))
    subset = GradMatch().select(rows, 3, validation=towards, generator=generator())
    assert subset.filled == 3
    assert subset.weights.tolist() == [1, 1, 1]
    again = GradMatch().select(rows, 3, validation=towards, generator=generator())
    assert again.indices.tolist() == subset.indices.tolist()


@pytest.mark.parametrize("selection", ["per_class", "per_class_per_gradient"])
def test_by_class_is_each_class_alone(selection):
    gradients = last_layer(90)
    subset = GradMatch(selection).select(gradients, 30, generator=generator())
    source = gradients if selection == "per_class" else gradients.own_rows()
    at = 0
    for label, quota in class_quotas(gradients.labels, 30).items():
        positions = (gradients.labels == label).nonzero()[:, 0]
        atoms = source.take(positions)
        alone = matching_pursuit(atoms, atoms.combine(torch.ones(len(positions))), quota)
        part = subset.indices[at : at + quota]
        assert part[: len(alone.indices)].tolist() == positions[alone.indices].tolist()
        torch.testing.assert_close(subset.weights[at : at + len(alone.indices)], alone.weights.float())
        assert gradients.labels[part].tolist() == [label] * quota
        at += quota


def test_batches_share_a_weight_and_keep_to_the_budget():
    gradients = last_layer(100)
    subset = GradMatch("per_batch", batch_size=8).select(gradients, 30, generator=generator())
    assert len(subset) == 30
    firsts = subset.weights[: 30 - subset.filled].view(-1, 8)
    assert (firsts == firsts[:, :1]).all()
    chosen = gradients.take(subset.indices[: 30 - subset.filled])
    reached = chosen.combine(subset.weights[: 30 - subset.filled])
    error = (gradients.combine(torch.ones(100)) - reached).norm()
    assert float(error) == pytest.approx(subset.residual, rel=1e-4)


def test_global_residual_is_what_it_says():
    gradients = last_layer(60)
    subset = GradMatch("global").select(gradients, 6, generator=generator())
    error = gradients.combine(torch.ones(60)) - gradients.take(subset.indices).combine(subset.weights)
    assert float(error.norm()) == pytest.approx(subset.residual, rel=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
def test_craig_is_the_plain_greedy_algorithm(sparse, monkeypatch):
    gradients = last_layer(50, seed=3)
    if sparse:
        monkeypatch.setattr(craig, "HELD", 500)
        monkeypatch.setattr(craig, "NEIGHBOURS", 50)
    subset = Craig(per_class=False).select(gradients, 7)
    dense = torch.stack([gradients.combine(one) for one in torch.eye(50)]).double()
    distances = torch.cdist(dense, dense).square()
    similarity = distances.max() - distances
    chosen = []
    for _ in range(7):
        gains = [-1.0 if j in chosen else similarity[:, [*chosen, j]].max(1).values.sum().item() for j in range(50)]
        chosen.append(int(np.argmax(gains)))
    assert subset.indices.tolist() == chosen
    nearest = distances[:, chosen].argmin(1)
    assert subset.weights.tolist() == nearest.bincount(minlength=7).tolist()
    assert subset.weights.sum() == 50


def test_craig_by_class_keeps_the_classes():
    gradients = last_layer(60)
    subset = Craig().select(gradients, 12)
    quotas = class_quotas(gradients.labels, 12)
    assert dict(enumerate(gradients.labels[subset.indices].bincount().tolist())) == quotas
    for label in quotas:
        of_class = gradients.labels[subset.indices] == label
        assert subset.weights[of_class].sum() == (gradients.labels == label).sum()


def test_glister_is_the_plain_greedy_algorithm():
    gradients, held = last_layer(40), last_layer(30, seed=9)
    subset = Glister(lr=0.5, rounds=6, candidates=False).select(gradients, 6, validation=held)
    dense = torch.stack([gradients.combine(one) for one in torch.eye(40)])
    extended = torch.cat([held.inputs, torch.ones(30, 1)], 1)
    logits, chosen = held.logits.clone(), []
    for _ in range(6):
        errors = logits.softmax(1) - torch.nn.functional.one_hot(held.labels, 3)
        direction = (errors.T @ extended / 30).flatten()
        gains = dense @ direction
        gains[chosen] = -math.inf
        chosen.append(int(gains.argmax()))
        logits = logits - 0.5 * extended @ dense[chosen[-1]].view(3, -1).T
    assert subset.indices.tolist() == chosen


def test_glister_draws_candidates_by_its_generator():
    gradients = last_layer(400)
    one, two, other = (Glister().select(gradients, 40, generator=generator(seed)) for seed in (0, 0, 1))
    assert one.indices.tolist() == two.indices.tolist() != other.indices.tolist()


def test_crest_stands_for_random_parts():
    gradients = last_layer(300)
    subset = Crest(batch_size=10, part=0.1).select(gradients, 45, generator=generator())
    assert len(subset) == 45
    assert subset.weights.sum() == 5 * 30
    assert subset.filled == 0


def test_crest_leaves_out_what_is_learnt():
    gradients = last_layer(200)
    learnt = torch.arange(200) < 150
    logits = torch.where(learnt[:, None], 20.0 * torch.nn.functional.one_hot(gradients.labels, 3), gradients.logits)
    sure = LastLayerGradients(
        gradients.errors, gradients.inputs, True, gradients.labels, logits, gradients.labels, cross_entropy
    )
    crest = Crest(batch_size=10, part=0.2, drop_below=0.1, looks=2)
    first = crest.select(sure, 30, generator=generator())
    assert (first.indices < 150).any()
    again = Crest(batch_size=10, part=0.2, drop_below=0.1, looks=2)
    again.load_state_dict(crest.state_dict())
    for one in (crest, again):
        assert (one.select(sure, 30, generator=generator()).indices >= 150).all()


def test_infobatch_keeps_the_gradient_unbiased():
    losses = torch.rand(200, generator=generator())
    totals = torch.zeros(200)
    for seed in range(2000):
        subset = InfoBatch(0.5).of_losses(losses, generator(seed))
        totals[subset.indices] += subset.weights
    assert (totals[losses >= losses.mean()] == 2000).all()
    assert totals.sub(2000).abs().max() < 5 * math.sqrt(2000)
    unknown = torch.tensor([math.nan, 0.1, 0.2, 3.0])
    assert 0 in InfoBatch(0.9).of_losses(unknown, generator()).indices
    with_gradients = InfoBatch().select(last_layer(80), 8, generator=generator())
    assert 20 < len(with_gradients) < 80


def test_random_subsets_follow_their_seed_and_classes():
    gradients = last_layer(100)
    one, two, other = (RandomSubset().select(gradients, 20, generator=generator(seed)) for seed in (0, 0, 1))
    assert one.indices.tolist() == two.indices.tolist() != other.indices.tolist()
    by_class = RandomSubset(stratified=True).select(gradients, 20, generator=generator())
    found = gradients.labels[by_class.indices].bincount().tolist()
    assert dict(enumerate(found)) == class_quotas(gradients.labels, 20)


def test_quotas_are_shares_and_never_nothing():
    labels = torch.tensor([0] * 97 + [1] * 2 + [2])
    for k in (3, 4, 10, 50, 99, 100):
        quotas = class_quotas(labels, k)
        assert sum(quotas.values()) == k
        assert all(1 <= quotas[c] <= int((labels == c).sum()) for c in quotas)
    assert class_quotas(torch.arange(40) % 4, 8) == {0: 2, 1: 2, 2: 2, 3: 2}
    with pytest.raises(ValueError, match="each of the classes 0, 1, 2, .* got 2"):
        class_quotas(labels, 2)


def test_budgets_are_shares_or_numbers():
    assert [size_of(b, 50) for b in (0.1, 0.101, 7, 50)] == [5, 6, 7, 50]
    assert size_of(0.1, 30) == 3
    for bad in (0, 1.5, -0.1, True, "half", math.nan, 0.0, 1.0):
        with pytest.raises(ValueError, match="budget: expected"):
            size_of(bad, 50)
    with pytest.raises(ValueError, match="at most the 50 samples"):
        size_of(51, 50)


def test_subsets_and_selectors_refuse_what_will_not_do():
    gradients = last_layer(20)
    for selector in (GradMatch(), Craig(), Glister(), Crest(), RandomSubset()):
        with pytest.raises(ValueError, match="k: expected"):
            selector.select(gradients, 21)
        with pytest.raises(ValueError, match="k: expected"):
            selector.select(gradients, 0)
    unlabelled = DenseGradients(torch.ones(5, 2))
    with pytest.raises(ValueError, match="expected classes"):
        GradMatch().select(unlabelled, 2)
    with pytest.raises(ValueError, match="last layer"):
        GradMatch("per_class_per_gradient").select(unlabelled, 2)
    for selector in (Glister(), Crest(), InfoBatch()):
        with pytest.raises(TypeError, match="last layer"):
            selector.select(unlabelled, 2)
    with pytest.raises(ValueError, match="selection: expected one of"):
        GradMatch("classwise")
    with pytest.raises(ValueError, match="one twice"):
        Subset(torch.tensor([1, 1]), torch.ones(2))
    with pytest.raises(ValueError, match="finite weights"):
        Subset(torch.tensor([1, 2]), torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="as many positions as weights"):
        Subset(torch.tensor([1, 2]), torch.ones(1))
