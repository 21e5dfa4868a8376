"""A store's key tells models and functions apart by what they compute, and is the same in every process."""

import functools

import pytest
import torch
from influence_ground import llama, pool

from thrifty.data.influence import InfluenceDistillation, JVPEmbedding, StaleStoreError
from thrifty.data.influence.identity import function_digest, model_digest

ROWS, TARGET = pool(12), pool(3, seed=5)
SETTINGS = {"num_landmarks": 6, "embedding": JVPEmbedding(num_blocks=1)}


def scaled(by):
    def loss(outputs, batch):
        return by * outputs.logits[:, -1].log_softmax(-1)[:, 5]

    return loss


def test_functions_are_told_apart_by_code_and_by_what_they_captured():
    def both(a, b):
        return function_digest(a, "loss_fn") == function_digest(b, "loss_fn")

    assert both(scaled(2), scaled(2))
    assert not both(scaled(1), scaled(2))
    assert both(scaled(torch.ones(3)), scaled(torch.ones(3)))
    assert not both(scaled(torch.ones(3)), scaled(torch.zeros(3)))
    assert not both(lambda o, b: o.logits + 1, lambda o, b: o.logits + 2)
    assert both(functools.partial(scaled, 1), functools.partial(scaled, 1))
    assert not both(functools.partial(scaled, 1), functools.partial(scaled, 2))
    with pytest.raises(ValueError, match="loss_fn holds object, which cannot be told from another"):
        function_digest(scaled(object()), "loss_fn")
    named = scaled(object())
    named.store_key = "mine, first version"
    assert function_digest(named, "loss_fn")


def test_a_store_refuses_another_loss_and_another_embedding(tmp_path):
    model = llama()
    InfluenceDistillation(model, loss_fn=scaled(1), store=tmp_path / "a", **SETTINGS).select(ROWS, TARGET, 3)
    with pytest.raises(StaleStoreError, match="another settings"):
        InfluenceDistillation(model, loss_fn=scaled(2), store=tmp_path / "a", **SETTINGS).select(ROWS, TARGET, 3)

    def picker(by):
        def lengths(model, batch):
            return by * batch["attention_mask"].sum(1, keepdim=True).float()

        embedding = JVPEmbedding(embed_fn=lengths)
        return InfluenceDistillation(model, num_landmarks=6, embedding=embedding, store=tmp_path / "b")

    assert torch.equal(picker(1).embed(ROWS), picker(1).embed(ROWS))
    with pytest.raises(StaleStoreError, match="another settings"):
        picker(100).embed(ROWS)


def test_buffers_and_configuration_count():
    first = model_digest(llama())
    assert first == model_digest(llama())
    moved = llama()
    moved.model.rotary_emb.inv_freq.mul_(2)
    assert model_digest(moved) != first
    renamed, other = llama(), llama()
    renamed.config._name_or_path = "elsewhere"
    other.config.rms_norm_eps = 0.5
    assert model_digest(renamed) == first
    assert model_digest(other) != first


def test_a_damaged_manifest_is_named(tmp_path):
    picker = InfluenceDistillation(llama(), store=tmp_path, **SETTINGS)
    picker.embed(ROWS)
    for text in ("", "[]"):
        (tmp_path / "embeddings" / "manifest.json").write_text(text)
        with pytest.raises(ValueError, match=r"manifest\.json is damaged"):
            picker.embed(ROWS)
