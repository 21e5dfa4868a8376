"""Jacobian-vector products: two modes, padding, batches, linearity, poolings, other models."""

import numpy as np
import pytest
import torch
from influence_ground import llama, pool
from test_gradients_and_curvature import FAMILIES, gpt2

from thrifty.data.influence import InfluenceDistillation, JVPEmbedding
from thrifty.data.influence.embeddings import Embedder, position_weights, tangents
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.losses import is_causal
from thrifty.data.influence.parameters import backbone
from thrifty.data.influence.replica import truncated


def embed(model, rows, batch_size=8, **settings):
    embedder, examples, out = Embedder(model, JVPEmbedding(**settings)), Examples(rows, causal=is_causal(model)), None
    for chosen, batch in examples.batches(np.arange(len(rows)), batch_size):
        found = embedder(batch)
        out = torch.zeros(len(rows), found.shape[1], dtype=found.dtype) if out is None else out
        out[torch.from_numpy(chosen)] = found
    return out


def central(model, rows, step, **settings):
    """A central difference of pooled states, written out."""
    config = JVPEmbedding(**settings)
    network = truncated(backbone(model), config.num_blocks, eager=True)
    drawn = tangents(network, config, 0)
    out = []
    for row in rows:
        ids = torch.tensor([row["input_ids"]])
        weights = torch.arange(1, ids.shape[1] + 1).to(next(network.parameters()).dtype)
        weights = (
            weights / weights.sum() if config.pooling == "weighted_mean" else (weights == len(weights)).to(weights)
        )
        parts = []
        for v in range(config.num_tangents):
            moved = []
            for sign in (1, -1):
                values = {n: p.detach() for n, p in network.named_parameters()}
                values |= {n: values[n] + sign * step * t[v] for n, t in drawn.items()}
                with torch.no_grad():
                    hidden = torch.func.functional_call(network, values, (ids,)).last_hidden_state[0]
                moved.append(weights @ hidden)
            parts.append((moved[0] - moved[1]) / (2 * step))
        out.append(torch.cat(parts))
    return torch.stack(out)


@pytest.mark.parametrize("pooling", ["weighted_mean", "last"])
@pytest.mark.parametrize("moved", [False, True])
def test_forward_mode_is_the_central_difference(pooling, moved):
    settings = {"num_blocks": 2, "pooling": pooling, "perturb_embeddings": moved}
    rows = pool(5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = gpt2().eval().double()  # nothing in it is computed in float32, unlike in a Llama
    exact, difference = embed(model, rows, **settings), central(model, rows, 1e-5, **settings)
    assert (exact - difference).norm() / difference.norm() < 1e-6
    exact, difference = embed(llama(), rows, **settings), central(llama().double(), rows, 1e-4, **settings)
    assert (exact - difference).norm() / difference.norm() < 1e-2


def test_finite_differences_agree_and_keep_fused_attention():
    model, rows = llama(), pool(6)
    exact = embed(model, rows, num_blocks=2)
    rough = embed(model, rows, num_blocks=2, mode="finite_difference")
    assert (exact - rough).norm() / exact.norm() < 0.05
    embedder = Embedder(model, JVPEmbedding(mode="finite_difference"))
    assert embedder._network.config._attn_implementation == "sdpa"


def test_padding_and_batches_do_not_matter():
    model, rows = llama(), pool(9)
    alone = embed(model, rows, batch_size=1, num_blocks=2)
    assert torch.allclose(embed(model, rows, batch_size=9, num_blocks=2), alone, rtol=1e-3, atol=1e-4)
    padded = [
        {"input_ids": row["input_ids"] + [7] * 5, "attention_mask": [1] * len(row["input_ids"]) + [0] * 5}
        for row in rows
    ]
    left = [
        {"input_ids": [7] * 3 + row["input_ids"], "attention_mask": [0] * 3 + [1] * len(row["input_ids"])}
        for row in rows
    ]
    assert torch.allclose(embed(model, padded, num_blocks=2), alone, rtol=1e-3, atol=1e-4)
    assert torch.allclose(embed(model, left, num_blocks=2), alone, rtol=1e-3, atol=1e-4)


def test_linear_in_the_tangent():
    model, rows = llama(), pool(4)
    embedder = Embedder(model, JVPEmbedding(num_blocks=2, num_tangents=3))
    embedder._tangents = {n: torch.stack([t[0], t[1], 2 * t[0] - t[1]]) for n, t in embedder._tangents.items()}
    batch = Examples(rows).collate([Examples(rows).row(i) for i in range(4)])
    first, second, mixed = embedder(batch).chunk(3, dim=1)
    assert torch.allclose(mixed, 2 * first - second, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("make", [llama, gpt2])
def test_embeddings_are_nudged_only_where_asked(make):
    network = truncated(backbone(make()), 2, eager=True)
    every = {name for name, _ in network.named_parameters()}
    tables = {name for name in every if name in {"embed_tokens.weight", "wte.weight", "wpe.weight"}}
    assert tables
    assert set(tangents(network, JVPEmbedding(), 0)) == every - tables
    assert set(tangents(network, JVPEmbedding(perturb_embeddings=True), 0)) == every


def test_long_embeddings_are_projected_and_seeds_count():
    model, rows = llama(), pool(4)
    assert embed(model, rows, num_tangents=4).shape == (4, 128)
    assert embed(model, rows, num_tangents=4, dim=20).shape == (4, 20)
    batch = Examples(rows).collate([Examples(rows).row(0)])
    one, other = (Embedder(model, JVPEmbedding(), seed)(batch) for seed in (0, 1))
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", ["forward_ad", "finite_difference"])
def test_families(family, mode):
    make, rows, _ = FAMILIES[family]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().eval()
    found = embed(model, rows, num_blocks=1, mode=mode)
    assert found.shape == (6, 64)
    assert torch.isfinite(found).all()
    assert torch.pdist(found).min() > 0


def test_a_function_of_the_user_s():
    model, rows = llama(), pool(6)

    def lengths(model, batch):
        return batch["attention_mask"].sum(1, keepdim=True).float().repeat(1, 3)

    picker = InfluenceDistillation(model, num_landmarks=4, embedding=JVPEmbedding(embed_fn=lengths))
    assert picker.embed(rows)[:, 0].tolist() == [len(row["input_ids"]) for row in rows]


def test_the_last_position_is_the_last_attended_and_ends_the_sequence():
    batch = {"attention_mask": torch.tensor([[1, 1, 1, 0], [0, 1, 1, 0]])}
    assert position_weights(batch, "last").tolist() == [[0, 0, 1, 0], [0, 0, 1, 0]]
    assert position_weights(batch, "weighted_mean")[0].tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6, 0])
    model, rows = llama(), pool(3)
    ended = [{"input_ids": [*row["input_ids"], 2]} for row in rows]
    settings = {"num_blocks": 2, "pooling": "last"}
    picker = InfluenceDistillation(model, embedding=JVPEmbedding(**settings))
    assert torch.allclose(picker.embed(rows), embed(model, ended, **settings), rtol=1e-3, atol=1e-4)


def test_global_randomness_is_not_touched():
    model, rows = llama(), pool(4)
    before = torch.get_rng_state()
    embed(model, rows)
    InfluenceDistillation(model, num_landmarks=2).select(rows, pool(2, seed=9), 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_more_blocks_than_there_are_is_said():
    with pytest.warns(UserWarning, match="num_blocks = 9 is more than the model's 3"):
        embed(llama(), pool(2), num_blocks=9)


def test_bad_settings():
    with pytest.raises(ValueError, match="num_blocks: expected a whole number of at least 1, got 0"):
        JVPEmbedding(num_blocks=0)
    with pytest.raises(ValueError, match="pooling"):
        JVPEmbedding(pooling="mean")
    with pytest.raises(ValueError, match=r"blocks: 'model.h' is no ModuleList.*layers"):
        Embedder(llama(), JVPEmbedding(blocks="model.h"))
