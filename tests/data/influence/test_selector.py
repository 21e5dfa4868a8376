"""The whole: exact where it must be, unpoisoned, resumable, refused when stale, the same on every path."""

import copy

import numpy as np
import pytest
import torch
from datasets import Dataset
from influence_ground import llama, pool, stepped
from torch.utils.data import DataLoader

from thrifty.data.influence import (
    InfluenceConfig,
    InfluenceDistillation,
    JVPEmbedding,
    SelectionResult,
    StaleStoreError,
    choose,
    sum_checkpoints,
)
from thrifty.data.influence import rows as rows_module
from thrifty.data.influence.coefficients import optimizer_coefficients
from thrifty.data.influence.curvature import TargetHessian
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.expansion import influence_matrix, influence_vector
from thrifty.data.influence.gradients import ExampleGradients, iterate_gradients
from thrifty.data.influence.losses import default_loss
from thrifty.data.influence.parameters import select_parameters
from thrifty.data.influence.weights import sparse_simplex_weights

TARGET = pool(4, seed=77)
SETTINGS = {"num_landmarks": 10, "embedding": JVPEmbedding(num_blocks=2)}


@pytest.fixture(scope="module")
def warm():
    model, rows = llama(), pool(24)
    return model, stepped(model, rows), rows


def raw(model, rows):
    params = select_parameters(model)
    gradients, out = ExampleGradients(model, params, default_loss(model)), {}
    for chosen, values in iterate_gradients(gradients, Examples(rows), range(len(rows)), 8):
        out |= dict(zip(chosen.tolist(), values, strict=True))
    return torch.stack([out[i] for i in range(len(rows))])


def test_exact_scores_are_cosines_of_scaled_gradients(warm):
    model, optimizer, rows = warm
    a = optimizer_coefficients(optimizer, select_parameters(model)).flat("a", select_parameters(model))
    source, aim = raw(model, rows) * a, raw(model, TARGET)
    truth = torch.nn.functional.normalize(source) @ torch.nn.functional.normalize(aim).T
    picker = InfluenceDistillation(model, optimizer, num_landmarks=24)
    found = picker.score(rows, TARGET)
    assert torch.allclose(found.scores, truth, atol=1e-5)
    assert found.report.how == "exact"
    assert found.backward_passes == 24 + 4 + 1  # one to check the batched gradients against plain autograd
    assert torch.allclose(picker.landmark_scores(rows, TARGET, [7, 3]), truth[[7, 3]], atol=1e-5)
    plain = InfluenceDistillation(model, num_landmarks=24).score(rows, TARGET).scores
    assert not torch.allclose(plain, truth, atol=1e-2)


def test_all_landmarks_without_damping_give_the_exact_scores(warm):
    model, optimizer, rows = warm
    exact = InfluenceDistillation(model, optimizer, num_landmarks=24).score(rows, TARGET).scores
    for chosen in (True, False):
        spread = InfluenceDistillation(
            model, optimizer, landmarks=range(24), damp=0.0, exact_landmarks=chosen, embedding=SETTINGS["embedding"]
        ).score(rows, TARGET)
        assert torch.allclose(spread.scores, exact, atol=1e-3)


def test_landmarks_are_exact_and_counted(warm):
    model, optimizer, rows = warm
    exact = InfluenceDistillation(model, optimizer, num_landmarks=24).score(rows, TARGET).scores
    for landmarks in ("random", "kmeans++"):
        picker = InfluenceDistillation(
            model, optimizer, landmarks=landmarks, num_check=3, exact_landmarks=True, **SETTINGS
        )
        found = picker.score(rows, TARGET)
        assert len(found.landmark_indices) == 13
        assert torch.allclose(found.scores[found.landmark_indices], exact[found.landmark_indices], atol=1e-5)
        assert found.backward_passes == 13 + 4 + 1
        assert found.report.how == "held out"
        assert found.report.examples == 3
    smoothed = InfluenceDistillation(model, optimizer, **SETTINGS).score(rows, TARGET)
    rest = smoothed.scores[smoothed.landmark_indices]
    assert not torch.allclose(rest, exact[smoothed.landmark_indices], atol=1e-5)
    assert smoothed.report.how == "leave-one-out"


def test_selections_are_repeatable_and_depend_on_the_seed(warm):
    model, optimizer, rows = warm
    one, same, other = (
        InfluenceDistillation(model, optimizer, seed=seed, **SETTINGS).select(rows, TARGET, 6) for seed in (0, 0, 1)
    )
    assert one.indices.tolist() == same.indices.tolist()
    assert len(set(one.indices.tolist())) == 6
    assert one.weights.mean() == pytest.approx(1)
    assert one.weights.min() > 0
    assert one.indices.tolist() != other.indices.tolist()


def test_any_container_and_batch_size(warm):
    model, optimizer, rows = warm
    data = Dataset.from_list(rows)
    picker = InfluenceDistillation(model, optimizer, **SETTINGS)
    chosen = picker.select(data, Dataset.from_list(TARGET), 5)
    assert data.select(chosen.indices)[0]["input_ids"] == rows[chosen.indices[0]]["input_ids"]
    loader = DataLoader(rows, batch_size=2)
    small = InfluenceDistillation(model, optimizer, batch_size=3, **SETTINGS)
    assert small.select(loader, TARGET, 5).indices.tolist() == chosen.indices.tolist()
    embeddings = picker.embed(rows)
    assert picker.select(rows, TARGET, 5, embeddings=embeddings).indices.tolist() == chosen.indices.tolist()
    with pytest.raises(ValueError, match=r"embeddings: expected one row a pool example \(24\)"):
        picker.select(rows, TARGET, 5, embeddings=embeddings[:3])


def test_mean_groups_and_repetitions(warm):
    model, optimizer, rows = warm
    picker = InfluenceDistillation(model, optimizer, num_landmarks=24)
    scores = picker.score(rows, TARGET).scores
    mean = picker.select(rows, TARGET, 5, aggregate="mean")
    assert mean.indices.tolist() == scores.mean(1).argsort(descending=True)[:5].tolist()
    w, _ = sparse_simplex_weights(scores.mean(1), 5)
    assert mean.weights == pytest.approx((w[mean.indices] * 5 / 24).numpy(), rel=1e-4)
    grouped = picker.select(rows, TARGET, 2, groups=["a", "b", "b", "b"])
    assert set(grouped.indices.tolist()) <= {
        int(scores[:, 0].argmax()),
        *scores[:, 1:].mean(1).topk(2).indices.tolist(),
    }
    twice = rows + rows
    picker = InfluenceDistillation(model, optimizer, num_landmarks=99)
    with pytest.warns(UserWarning, match="more than the 48"):
        distinct = picker.select(twice, TARGET, 24, deduplicate=True)
    assert sorted(i % 24 for i in distinct.indices) == list(range(24))
    assert distinct.report["repeated"] == 24


def test_second_order_is_the_expansion(warm):
    model, optimizer, rows = warm
    params = select_parameters(model)
    step = optimizer_coefficients(optimizer, params)
    a, b = step.flat("a", params), step.flat("b", params)
    hessian = TargetHessian(model, params, default_loss(model), Examples(TARGET))
    G, g = raw(model, rows), raw(model, TARGET).mean(0)
    p = influence_vector(G, g, a=a, curved_b=hessian(b[None])[0], lr=step.lr)
    Q = influence_matrix(G, hessian, a=a)
    picker = InfluenceDistillation(model, optimizer, num_landmarks=24, order=2)
    found = picker.score(rows, TARGET)
    assert torch.allclose(found.scores[:, 0], p, rtol=1e-3, atol=1e-4 * float(p.abs().max()))
    core = found.quadratic.core if found.quadratic.spread is None else found.quadratic.times(torch.eye(24).double())
    assert torch.allclose(core.float(), step.lr * Q, atol=1e-3 * step.lr * float(Q.abs().max()))
    chosen = picker.select(rows, TARGET, 6, aggregate="mean")
    truth = sparse_simplex_weights(p, 6, Q, step.lr)
    assert set(chosen.indices.tolist()) == set(truth.indices.tolist())
    assert chosen.report["order"] == 2
    assert len(chosen.report["curvature"]) == 2


def test_checkpoints_add_up_by_their_rates(warm):
    model, optimizer, rows = warm
    later = llama(seed=1)
    again = stepped(later, rows, lr=3e-3)
    for order in (1, 2):
        found = [
            InfluenceDistillation(m, o, num_landmarks=24, order=order).score(rows, TARGET)
            for m, o in ((model, optimizer), (later, again))
        ]
        both = sum_checkpoints(found)
        assert torch.allclose(both.scores, 0.25 * found[0].scores + 0.75 * found[1].scores, rtol=1e-5, atol=1e-6)
        assert len(choose(both, 5, aggregate="mean").indices) == 5
    w = torch.rand(24, generator=torch.Generator().manual_seed(0)).double()
    truth = 0.25 * found[0].quadratic.times(w) + 0.75 * found[1].quadratic.times(w)
    assert torch.allclose(both.quadratic.times(w), truth, rtol=1e-6)
    with pytest.raises(ValueError, match="same pool, targets and order"):
        sum_checkpoints([found[0], InfluenceDistillation(model, num_landmarks=24).score(rows, TARGET)])
    with pytest.raises(ValueError, match="at least one checkpoint"):
        sum_checkpoints([])


@pytest.mark.parametrize("settings", [{"hessian": "ggn"}, {"mask_numel": 900, "grad_dim": 400}])
def test_second_order_on_landmarks(warm, settings):
    model, optimizer, rows = warm
    picker = InfluenceDistillation(model, optimizer, order=2, **SETTINGS, **settings)
    chosen = picker.select(rows, TARGET, 6, aggregate="mean")
    assert len(set(chosen.indices.tolist())) == 6
    if "hessian" in settings:
        assert chosen.report["curvature"][0] >= -1e-6 * chosen.report["curvature"][1]
    with pytest.raises(ValueError, match='aggregate: at order=2 .* "mean"'):
        picker.select(rows, TARGET, 6)


def test_an_example_without_labels_poisons_nothing(warm):
    model, optimizer, rows = warm
    masked = [dict(row) for row in rows]
    for i in (2, 5, 11):
        masked[i]["labels"] = [-100] * len(rows[i]["input_ids"])
    masked[13] = {"input_ids": [7]}  # one token predicts nothing
    for landmarks in (10, 20):
        picker = InfluenceDistillation(model, optimizer, num_landmarks=landmarks)
        found = picker.score(masked, TARGET)
        assert found.excluded.tolist() == [2, 5, 11, 13]
        assert torch.isneginf(found.scores[found.excluded]).all()
        assert torch.isfinite(found.scores[np.setdiff1d(np.arange(24), found.excluded)]).all()
        assert not set(found.landmark_indices) & {2, 5, 11, 13}
    chosen = picker.select(masked, TARGET, 20)
    assert not set(chosen.indices.tolist()) & {2, 5, 11, 13}
    assert chosen.report["excluded"] == 4
    with pytest.raises(ValueError, match="k: expected 1 to 20, got 21: of 24 examples 4 have no label token"):
        picker.select(masked, TARGET, 21)
    partly = [{"input_ids": [3, 4], "labels": [-100, -100]}, *TARGET]
    assert len(picker.select(rows, partly, 3, groups=["none", "a", "a", "b", "b"]).indices) == 3
    with pytest.raises(ValueError, match=r"groups: expected one id a target \(5\), got 2"):
        picker.select(rows, partly, 3, groups=["a", "b"])
    assert picker.score(rows, partly).scores.shape == (24, 4)


def test_a_store_serves_again_resumes_and_refuses(warm, tmp_path, monkeypatch):
    model, optimizer, rows = warm
    monkeypatch.setattr("thrifty.data.influence.stores.PIECE", 4)
    told = []
    fresh = InfluenceDistillation(model, optimizer, **SETTINGS).select(rows, TARGET, 5)

    def picker(**others):
        settings = SETTINGS | others
        return InfluenceDistillation(
            model, optimizer, store=tmp_path / "store", progress=lambda *x: told.append(x), **settings
        )

    calls = []
    real = ExampleGradients.__call__
    monkeypatch.setattr(ExampleGradients, "__call__", lambda self, batch: calls.append(1) or real(self, batch))

    class Killed(Exception):
        pass

    def die(self, batch):
        if len(calls) == 2:
            raise Killed
        return calls.append(1) or real(self, batch)

    monkeypatch.setattr(ExampleGradients, "__call__", die)
    with pytest.raises(Killed):
        picker().select(rows, TARGET, 5)
    assert len(list((tmp_path / "store" / "embeddings").glob("rows-*"))) == 6
    monkeypatch.setattr(ExampleGradients, "__call__", lambda self, batch: calls.append(1) or real(self, batch))
    before = len(calls)
    assert picker().select(rows, TARGET, 5).indices.tolist() == fresh.indices.tolist()
    assert 0 < len(calls) - before < 4
    again = picker().select(rows, TARGET, 5)
    assert again.indices.tolist() == fresh.indices.tolist()
    assert again.report["backward_passes"] == 0
    assert {what for *_, what in told} == {"embeddings", "landmarks", "target"}

    with pytest.raises(StaleStoreError, match=r"embeddings holds rows .* another data"):
        picker().select([*rows[:-1], {"input_ids": [5, 6, 7]}], TARGET, 5)
    with pytest.raises(StaleStoreError, match="another settings"):
        picker(embedding=JVPEmbedding(num_blocks=1)).select(rows, TARGET, 5)
    more = picker(num_landmarks=11).select(rows, TARGET, 5)
    assert more.report["backward_passes"] == 12  # embeddings and targets are those that were kept
    assert (
        more.indices.tolist()
        == InfluenceDistillation(model, optimizer, **SETTINGS | {"num_landmarks": 11})
        .select(rows, TARGET, 5)
        .indices.tolist()
    )
    before = model.lm_head.weight.detach().clone()
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1
    try:
        with pytest.raises(StaleStoreError, match="another model"):
            picker().select(rows, TARGET, 5)
    finally:
        with torch.no_grad():
            model.lm_head.weight.copy_(before)
    for damaged in (tmp_path / "store").glob("landmarks-*/rows-*"):
        damaged.write_bytes(b"not safetensors")
    with pytest.raises(ValueError, match="is damaged"):
        picker().select(rows, TARGET, 5)


def test_one_store_serves_many_targets_and_sees_that_the_model_moved(warm, tmp_path):
    model, optimizer, rows = copy.deepcopy(warm[0]), None, warm[2]
    picker = InfluenceDistillation(model, optimizer, store=tmp_path, **SETTINGS)
    picker.select(rows, TARGET, 5)
    other = pool(6, seed=78)
    found = picker.select(rows, other, 5)
    assert found.report["backward_passes"] == 6  # of the new target alone
    assert found.indices.tolist() == InfluenceDistillation(model, **SETTINGS).select(rows, other, 5).indices.tolist()
    second = InfluenceDistillation(model, order=2, store=tmp_path / "second", **SETTINGS)
    for aim in (TARGET, other):
        kept = second.select(rows, aim, 5, aggregate="mean").indices.tolist()
        assert kept == second.select(rows, aim, 5, aggregate="mean").indices.tolist()
        fresh = InfluenceDistillation(model, order=2, **SETTINGS).select(rows, aim, 5, aggregate="mean")
        assert kept == fresh.indices.tolist()
    with torch.no_grad():
        model.lm_head.weight.mul_(1.1)
    with pytest.raises(StaleStoreError, match="another model"):
        picker.select(rows, TARGET, 5)


def test_large_score_matrices_live_in_a_file(warm, tmp_path, monkeypatch):
    model, optimizer, rows = warm
    monkeypatch.setattr(rows_module, "IN_MEMORY", 100)
    kept = InfluenceDistillation(model, optimizer, store=tmp_path, **SETTINGS).select(rows, TARGET, 5)
    (file,) = tmp_path.glob("scores-*.f32")
    assert file.stat().st_size == 24 * 4 * 4
    plain = InfluenceDistillation(model, optimizer, **SETTINGS).select(rows, TARGET, 5)
    assert kept.indices.tolist() == plain.indices.tolist()
    picker = InfluenceDistillation(model, optimizer, store=tmp_path, **SETTINGS)
    first = picker.score(rows, TARGET)
    before = first.scores.clone()
    InfluenceDistillation(model, optimizer, store=tmp_path, damp=9.0, **SETTINGS).score(rows, TARGET)
    assert torch.equal(first.scores, before)  # a later result has a file of its own


def test_half_precision_stores_and_models(warm, tmp_path):
    model, optimizer, rows = warm
    picker = InfluenceDistillation(model, optimizer, store=tmp_path, store_dtype=torch.bfloat16, **SETTINGS)
    assert torch.isfinite(picker.score(rows, TARGET).scores).all()
    half = llama().to(torch.bfloat16)
    found = InfluenceDistillation(half, num_landmarks=24).score(rows, TARGET)
    assert found.scores.dtype == torch.float32
    full = InfluenceDistillation(llama(), num_landmarks=24).score(rows, TARGET)
    assert np.corrcoef(found.scores.ravel(), full.scores.ravel())[0, 1] > 0.98
    assert torch.isfinite(InfluenceDistillation(half, **SETTINGS).score(rows, TARGET).scores).all()


def test_results_and_settings_are_saved_and_read(warm, tmp_path):
    model, optimizer, rows = warm
    picker = InfluenceDistillation(model, optimizer, **SETTINGS)
    result = picker.select(rows, TARGET, 5)
    again = SelectionResult.load(result.save(tmp_path / "r"))
    assert again.indices.tolist() == result.indices.tolist()
    assert again.weights.tolist() == result.weights.tolist()
    assert again.report == result.report
    with pytest.raises(FileExistsError):
        result.save(tmp_path / "r")
    (tmp_path / "r" / "selection.json").write_text("{}")
    with pytest.raises(ValueError, match="expected schema 'thrifty.influence.selection' version 1, got None"):
        SelectionResult.load(tmp_path / "r")
    config = InfluenceConfig.from_json(picker.config.to_json())
    assert config == picker.config
    assert InfluenceDistillation.from_config(model, optimizer, config).config == config
    with pytest.raises(ValueError, match="got also 'colour'"):
        InfluenceConfig.from_json('{"schema": "thrifty.influence", "version": 1, "colour": 2}')


def test_a_loss_of_the_user_s(warm):
    model, optimizer, rows = warm

    def last_token(outputs, batch):
        last = batch["attention_mask"].sum(1) - 1
        return -outputs.logits[torch.arange(len(last)), last].log_softmax(-1)[:, 5]

    found = InfluenceDistillation(model, optimizer, loss_fn=last_token, num_landmarks=24).score(rows, TARGET)
    usual = InfluenceDistillation(model, optimizer, num_landmarks=24).score(rows, TARGET)
    assert torch.isfinite(found.scores).all()
    assert not torch.allclose(found.scores, usual.scores, atol=1e-2)
    with pytest.raises(ValueError, match="loss_fn: expected one loss an example"):
        InfluenceDistillation(model, loss_fn=lambda o, b: o.logits.mean(), num_landmarks=24).score(rows, TARGET)
