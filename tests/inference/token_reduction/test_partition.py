"""One reduction against loops, conservation of what tokens stand for, ties, and gradients."""

import itertools

import pytest
import torch

from thrifty.inference.token_reduction.config import tokens_kept
from thrifty.inference.token_reduction.partition import (
    begin,
    cell_of,
    coarser,
    highest,
    ownership,
    reduce_by_score,
    refuse_nonfinite,
)


def scene(batch=3, grid=(3, 4), prefix=1, width=5, seed=0, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, prefix + grid[0] * grid[1], width, generator=rng, dtype=dtype)
    score = torch.randn(batch, grid[0] * grid[1], generator=rng)
    return x, begin(batch, grid, prefix, "cpu"), score


def by_loops(x, score, grid, prefix, keep, window):
    """The definition, written with loops for one image."""
    rows, columns = grid
    order = sorted(range(rows * columns), key=lambda k: (-float(score[k]), k))
    kept, low = sorted(order[:keep]), sorted(order[keep:])
    cells = {j: [] for j in range(window * window)}
    for place in low:
        row, column = divmod(place, columns)
        cells[int(row * window / rows) * window + int(column * window / columns)].append(place)
    means, sizes = [], []
    for members in cells.values():
        chosen = members or low
        means.append(sum(x[prefix + p] for p in chosen) / len(chosen))
        sizes.append(len(members))
    return kept, torch.stack([*x[:prefix], *(x[prefix + p] for p in kept), *means]), sizes


@pytest.mark.parametrize("prefix", [0, 1, 2, 5])
@pytest.mark.parametrize(("grid", "window", "keep"), [((3, 4), 2, 7), ((4, 3), 2, 3), ((5, 7), 4, 20), ((6, 6), 1, 1)])
def test_a_reduction_is_what_loops_give(prefix, grid, window, keep):
    x, tokens, score = scene(grid=grid, prefix=prefix)
    out, known, (kept, _) = reduce_by_score(x, tokens, score, keep, window)
    for i in range(len(x)):
        expected_kept, expected, sizes = by_loops(x[i], score[i], grid, prefix, keep, window)
        assert kept[i].tolist() == expected_kept == known.position[i].tolist()
        torch.testing.assert_close(out[i], expected)
        assert known.size[i, keep:].tolist() == sizes
    assert known.live == keep
    assert known.summaries == window * window


@pytest.mark.parametrize("windows", [(2, 1, 1), (4, 2, 1), (2, 2, 2)])
def test_what_tokens_stand_for_is_conserved_over_stages(windows):
    x, tokens, _ = scene(grid=(6, 8), prefix=2)
    everything = x[:, 2:].sum(1)
    rng = torch.Generator().manual_seed(3)
    for window, keep in zip(windows, (30, 16, 5), strict=True):
        score = torch.randn(3, tokens.live, generator=rng)
        x, tokens, _ = reduce_by_score(x, tokens, score, keep, window)
        assert (tokens.size.sum(1) == 48).all()
        torch.testing.assert_close((x[:, 2:] * tokens.size.unsqueeze(-1)).sum(1), everything)
        assert (x.shape[1], tokens.size.shape[1]) == (2 + keep + window**2, keep + window**2)


def test_uniform_updates_take_each_token_once():
    x, tokens, score = scene(grid=(2, 4), prefix=0)
    x, tokens, _ = reduce_by_score(x, tokens, score, 5, 2)
    low = torch.tensor([0, 1]).expand(3, 2)
    score = torch.zeros(3, 5).scatter(1, low, -1.0)
    for update in ("weighted", "uniform"):
        out, _, _ = reduce_by_score(x, tokens, score, 3, 1, update=update)
        size = torch.cat((torch.ones(3, 2), tokens.size[:, 5:] if update == "weighted" else torch.ones(3, 4)), 1)
        members = torch.cat((x[:, :2], x[:, 5:]), 1)
        torch.testing.assert_close(out[:, 3], (members * size.unsqueeze(-1)).sum(1) / size.sum(1, keepdim=True))


def test_an_empty_cell_holds_the_mean_of_all_low_tokens_and_stands_for_none():
    x, tokens, _ = scene(batch=1, grid=(4, 4), prefix=0)
    score = torch.ones(1, 16)
    score[0, :2] = -1  # both in cell 0
    out, known, _ = reduce_by_score(x, tokens, score, 14, 2)
    assert known.size[0, 14:].tolist() == [2, 0, 0, 0]
    for cell in range(4):
        torch.testing.assert_close(out[0, 14 + cell], x[0, :2].mean(0))


def test_equal_scores_keep_the_lower_index():
    kept, low = highest(torch.zeros(2, 300), 200)
    assert kept.tolist() == [list(range(200))] * 2
    assert low[0].tolist() == list(range(200, 300))


def test_an_images_choice_does_not_depend_on_its_batch():
    x, tokens, score = scene(batch=4, grid=(5, 5))
    together, _, _ = reduce_by_score(x, tokens, score, 9, 2)
    for i in range(4):
        alone, _, _ = reduce_by_score(x[i : i + 1], begin(1, (5, 5), 1, "cpu"), score[i : i + 1], 9, 2)
        torch.testing.assert_close(alone[0], together[i])


def test_cells_nest():
    for grid, (fine, coarse) in itertools.product([(3, 4), (7, 5), (16, 16)], [(2, 1), (4, 2), (4, 1), (6, 3), (2, 2)]):
        place = torch.arange(grid[0] * grid[1])[None]
        nested = coarser(fine, coarse, "cpu")[cell_of(place, grid, fine)]
        assert (nested == cell_of(place, grid, coarse)).all()


def test_owners_follow_from_positions_and_cells():
    x, tokens, score = scene(grid=(4, 4), prefix=1)
    out, known, _ = reduce_by_score(x, tokens, score, 6, 2)
    owner = ownership(known)
    for i in range(3):
        for place in range(16):
            held = known.position[i].tolist()
            expected = held.index(place) if place in held else 6 + int(cell_of(torch.tensor([place]), (4, 4), 2))
            assert owner[i, place] == expected
    assert out.shape[1] == 1 + 6 + 4
    _, pruned, _ = reduce_by_score(x, tokens, score, 6, 0)
    assert (ownership(pruned) == -1).sum(1).tolist() == [10] * 3


def test_a_gradient_reaches_dropped_tokens_through_their_mean():
    x, tokens, score = scene(batch=1, grid=(2, 3), prefix=1)
    x.requires_grad_()
    out, known, (_, low) = reduce_by_score(x, tokens, score, 2, 1)
    out[0, -1].sum().backward()
    assert known.size[0, -1] == 4
    torch.testing.assert_close(x.grad[0, 1 + low[0]], torch.full((4, 5), 0.25, dtype=torch.float64))
    assert x.grad.sum() == pytest.approx(5.0)


def test_means_and_their_embedding_have_the_gradients_of_finite_differences():
    x, tokens, score = scene(batch=2, grid=(3, 3), prefix=1, width=2)
    embedding = torch.zeros(4, 2, dtype=torch.float64, requires_grad=True)
    x.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, e: reduce_by_score(x, tokens, score, 4, 2, dc_embedding=e)[0], (x, embedding)
    )


def test_means_of_half_precision_are_summed_in_float32():
    x, tokens, score = scene(grid=(40, 40), prefix=0, dtype=torch.float32)
    x = x * 100 + 3000
    out, _, (_, low) = reduce_by_score(x.half(), tokens, score, 70, 1)
    exact = x.half().double().gather(1, low.unsqueeze(-1).expand(-1, -1, 5)).mean(1)
    assert torch.isfinite(out).all()
    error = (out[:, -1].double() - exact) / exact
    assert error.abs().max() < 5e-4
    assert error.mean().abs() < 1.2e-4  # 1/1530 in float16 would be off by 2.3e-4, for every channel alike


def test_equal_scores_of_a_constant_image_give_numbers():
    x = torch.ones(2, 17, 4)
    out, _, (kept, _) = reduce_by_score(x, begin(2, (4, 4), 1, "cpu"), torch.zeros(2, 16), 5, 2)
    assert torch.equal(out, torch.ones(2, 10, 4))
    assert kept[0].tolist() == [0, 1, 2, 3, 4]


def test_scores_that_are_no_numbers_are_refused():
    score = torch.zeros(2, 5)
    score[1, 3] = float("nan")
    with pytest.raises(ValueError, match="1 of 10 scores at layer 7 are not finite"):
        refuse_nonfinite(score, 7)
    refuse_nonfinite(torch.zeros(3), 1)


def test_shares_round_as_published():
    assert [tokens_kept(0.7, n) for n in (196, 138, 97)] == [138, 97, 68]
    assert [tokens_kept(0.7, n, "floor") for n in (196, 137, 95)] == [137, 95, 66]
    assert tokens_kept(0.55, 100) == 55  # 0.55 · 100 is 55.00000000000001 in floating point
    assert tokens_kept(0.29, 100, "floor") == 29  # and 0.29 · 100 is 28.999999999999996
    assert tokens_kept(0.01, 3, "floor") == 1
