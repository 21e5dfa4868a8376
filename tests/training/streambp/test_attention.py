"""A chunk's attention against dense attention, in float64."""

import pytest
import torch
from transformers.masking_utils import sliding_window_causal_mask_function

from thrifty.training.streambp.attention import attention
from thrifty.training.streambp.masks import ChunkMask, MaskRule, keep_rule

B, T, D = 2, 13, 4


def dense(query, key, value, mask, scale):
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = (query @ key.transpose(-1, -2) * scale).masked_fill(~mask, float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0) @ value


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("kind", ["plain", "window", "padded", "own mask"])
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(("start", "stop"), [(0, 5), (5, 9), (12, 13), (0, 13)])
def test_chunk_equals_dense(kv_heads, kind, joined, start, stop):
    generator = torch.Generator().manual_seed(0)
    make = lambda heads: torch.randn(B, heads, T, D, generator=generator, dtype=torch.float64)  # noqa: E731
    query, key, value = make(4), make(kv_heads), make(kv_heads)
    causal = torch.ones(T, T, dtype=torch.bool).tril().expand(B, 1, T, T)
    padding = torch.ones(B, T, dtype=torch.bool)
    padding[0, 9:] = False
    padding[1, :3] = False  # on the left: its first rows see nothing
    rule, mask = {
        "plain": (MaskRule(B, T), causal),
        "window": (
            MaskRule(B, T, sliding_window_causal_mask_function(3), plain=False),
            causal & torch.ones(T, T, dtype=torch.bool).triu(-2),
        ),
        "padded": (MaskRule(B, T, padding=padding, plain=False), causal & padding[:, None, None, :]),
        "own mask": (causal & padding[:, None, None, :], causal & padding[:, None, None, :]),
    }[kind]
    leaves = [query[:, :, start:stop], key[:, :, :stop], value[:, :, :stop]]
    q, k, v = (x.clone().requires_grad_() for x in leaves)
    prefix = (k[:, :, :start], v[:, :, :start]) if joined and start else None
    own = slice(start, stop) if prefix else slice(0, stop)
    got = attention(q, k[:, :, own], v[:, :, own], ChunkMask(rule, start, stop, prefix), 0.0, 0.4)
    wanted = dense(q, k, v, mask[:, :, start:stop, :stop], 0.4)
    assert (got - wanted).abs().max() < 1e-12
    upstream = torch.randn(got.shape, generator=generator, dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad(got, (q, k, v), upstream), torch.autograd.grad(wanted, (q, k, v), upstream), strict=True
    ):
        assert (a - b).abs().max() < 1e-12


def test_a_rule_is_plain_only_if_it_is_causal_alone():
    ones = torch.ones(B, T, dtype=torch.bool)
    assert keep_rule(B, T, T).plain
    assert keep_rule(B, T, T, attention_mask=ones).plain
    assert keep_rule(B, T, T, local_size=T).plain
    assert not keep_rule(B, T, T, local_size=T - 1).plain
    assert not keep_rule(B, T, T, allow_is_causal_skip=False).plain
    ones[0, -1] = False
    assert not keep_rule(B, T, T, attention_mask=ones).plain


def test_keys_before_the_sequence_are_refused():
    with pytest.raises(ValueError, match="past_key_values"):
        keep_rule(B, T, T + 4)


def test_a_mask_of_another_size_is_refused():
    with pytest.raises(ValueError, match="attention_mask"):
        ChunkMask(torch.ones(B, 1, 4, 4, dtype=torch.bool), 3, 6).rows()
