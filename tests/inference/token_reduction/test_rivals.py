"""ToMe, EViT and pooling against their papers' definitions, written with loops."""

import pytest
import torch

from thrifty.inference.token_reduction.config import EViTConfig, PoolConfig, ToMeConfig
from thrifty.inference.token_reduction.partition import begin, ownership
from thrifty.inference.token_reduction.restore import restore_tokens
from thrifty.inference.token_reduction.rivals.evit import EViTReducer
from thrifty.inference.token_reduction.rivals.pool import PoolReducer, pooled_grid
from thrifty.inference.token_reduction.rivals.tome import ToMeReducer


def scene(reducer, grid=(4, 5), prefix=1, batch=3):
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(batch, prefix + grid[0] * grid[1], 6, generator=rng, dtype=torch.float64)
    return x, reducer.begin(begin(batch, grid, prefix, "cpu"), track=True), rng


@pytest.mark.parametrize("grid", [(4, 5), (3, 5)])  # an odd number of tokens too
def test_merging_is_bipartite_soft_matching(grid):
    reducer = ToMeReducer(ToMeConfig(layers=(1, 2), keep=0.7), trace=False, debug=False)
    x, tokens, rng = scene(reducer, grid)
    for stage in range(2):
        key = torch.randn(3, x.shape[1], 4, generator=rng, dtype=torch.float64)
        before, size, owner = x, tokens.size, tokens.owner
        r = reducer.merged(stage, tokens)
        x, tokens = reducer.reduce(x, tokens, key, stage, None)
        for i in range(3):
            live = [[j] for j in range(before.shape[1] - 1)]
            unit = torch.nn.functional.normalize(key[i, 1:].float(), dim=-1)
            a, b = list(range(0, len(live), 2)), list(range(1, len(live), 2))
            best = {j: max(b, key=lambda k, j=j, u=unit: (float(u[j] @ u[k]), -k)) for j in a}
            ranked = sorted(a, key=lambda j, u=unit, t=best: (-float(u[j] @ u[t[j]]), j))
            groups = {j: [j] for j in b}
            for j in ranked[:r]:
                groups[best[j]].append(j)
            members = [[j] for j in sorted(ranked[r:])] + [groups[j] for j in b]
            for slot, group in enumerate(members):
                weights = size[i, group].double()
                expected = (before[i, 1:][group] * weights[:, None]).sum(0) / weights.sum()
                torch.testing.assert_close(x[i, 1 + slot], expected)
                assert tokens.size[i, slot] == weights.sum()
                for place in range(owner.shape[1]):
                    if int(owner[i, place]) in group:
                        assert tokens.owner[i, place] == slot
    assert (tokens.size.sum(1) == grid[0] * grid[1]).all()


def test_at_most_half_merges_at_once():
    reducer = ToMeReducer(ToMeConfig(layers=(1,), r=100), trace=False, debug=False)
    x, tokens, _ = scene(reducer)
    x, tokens = reducer.reduce(x, tokens, x, 0, None)
    assert x.shape[1] == 1 + 10


def test_reorganising_keeps_what_the_class_token_attends_to_and_fuses_the_rest():
    reducer = EViTReducer(EViTConfig(layers=(1, 2), keep=0.6), trace=False, debug=False)
    x, tokens, rng = scene(reducer)
    for stage in range(2):
        score = torch.rand(3, x.shape[1], generator=rng)
        before, size = x, tokens.size
        count = -(-(x.shape[1] - 1) * 6 // 10)
        x, tokens = reducer.reduce(x, tokens, score, stage, None)
        for i in range(3):
            order = score[i, 1:].argsort(descending=True)
            kept, low = sorted(order[:count].tolist()), sorted(order[count:].tolist())
            torch.testing.assert_close(x[i, 1 : 1 + count], before[i, 1:][kept])
            weight = score[i, 1:][low].double()
            torch.testing.assert_close(
                x[i, -1], (before[i, 1:][low] * (weight / weight.sum())[:, None]).sum(0), rtol=1e-6, atol=1e-6
            )
            assert tokens.size[i, -1] == size[i, low].sum()
    assert (tokens.size.sum(1) == 20).all()
    assert int(ownership(tokens).max()) == x.shape[1] - 2
    gone = EViTReducer(EViTConfig(layers=(1, 2), keep=0.6, fuse=False), trace=False, debug=False)
    x, tokens, _ = scene(gone)
    x, tokens = gone.reduce(x, tokens, torch.rand(3, 21), 0, None)
    assert x.shape[1] == 1 + 12
    assert ((tokens.owner == -1).sum(1) == 8).all()
    dense = restore_tokens(x, tokens)
    torch.testing.assert_close(dense[0][tokens.owner[0] < 0][0], x[0, 1:].mean(0))
    lost = tokens.owner < 0
    x, tokens = gone.reduce(x, tokens, torch.rand(3, 13), 1, None)
    assert ((tokens.owner == -1).sum(1) == 20 - 8).all()
    assert (tokens.owner[lost] == -1).all()  # what is gone stays so, whatever its neighbours become


def test_pooling_averages_a_coarser_grid():
    assert pooled_grid((14, 14), 0.25) == (7, 7)
    assert pooled_grid((14, 14), 0.7) == (12, 12)
    reducer = PoolReducer(PoolConfig(layers=(1,), keep=0.25), trace=False, debug=False)
    x, tokens, _ = scene(reducer, (4, 6))
    out, known = reducer.reduce(x, tokens, None, 0, None)
    maps = x[:, 1:].reshape(3, 2, 2, 3, 2, 6)
    torch.testing.assert_close(out[:, 1:], maps.mean(dim=(2, 4)).reshape(3, 6, 6))
    assert (known.size == 4).all()
    assert known.owner[0].reshape(4, 6).tolist() == [[0, 0, 1, 1, 2, 2]] * 2 + [[3, 3, 4, 4, 5, 5]] * 2
