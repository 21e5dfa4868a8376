"""The split of attention, the score and the re-weighting: golden values, identities, and the fused form."""

import pytest
import torch

from thrifty.inference.token_reduction import attention as at
from thrifty.inference.token_reduction import metrics

H1 = torch.tensor([[0.5, 0.2, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1], [0.1, 0.3, 0.4, 0.2], [0.25, 0.25, 0.25, 0.25]])
H2 = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.3, 0.2, 0.4, 0.1], [0.2, 0.3, 0.1, 0.4]])


def qkv(batch=2, heads=3, tokens=11, dim=5, dtype=torch.float64, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, heads, tokens, dim, generator=rng, dtype=dtype) for _ in range(3)]


def test_the_score_is_the_mean_attention_received_less_one_over_n():
    score = at.high_frequency_score(torch.stack((H1, H2))[None])
    torch.testing.assert_close(score[0], torch.tensor([0.06875, 0.03125, -0.01875, -0.08125]))
    a = torch.randn(3, 4, 9, 9).softmax(-1)
    score = at.high_frequency_score(a)
    high = at.split_frequencies(a)[1]
    torch.testing.assert_close(score, high.sum(dim=(1, 2)) / (9 * 4), atol=1e-7, rtol=0)
    assert score.sum(dim=1).abs().max() < 1e-6


def test_the_split_adds_up_and_its_low_part_gives_the_mean():
    x = torch.arange(8.0).reshape(4, 2)
    low, high = at.split_frequencies(H1)
    torch.testing.assert_close(low @ x + high @ x, H1 @ x)
    torch.testing.assert_close(low @ x, x.mean(0).expand(4, 2))
    torch.testing.assert_close(high @ x, torch.tensor([[-1.2, -1.2], [-1.0, -1.0], [0.4, 0.4], [0.0, 0.0]]))


def test_the_reweighting_is_the_papers():
    out = at.reweighted(H1[None, None], torch.tensor([0.5]), torch.tensor([0.25]), dc=1)[0, 0]
    expected = [
        [0.625, 0.175, 0.175, 0.05],
        [0.475, 0.325, 0.175, 0.05],
        [0.025, 0.325, 0.475, 0.225],
        [0.25, 0.25, 0.25, 0.3125],
    ]
    torch.testing.assert_close(out, torch.tensor(expected))
    torch.testing.assert_close(out.sum(-1), 1 + 0.25 * H1[:, 3])  # the rows need not sum to 1, and are not scaled


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("dc", [0, 1, 4])
def test_reweighted_values_under_plain_attention_are_reweighted_attention(dtype, tolerance, dc):
    q, k, v = qkv(dtype=dtype, seed=dc)
    rng = torch.Generator().manual_seed(1)
    w1 = (torch.rand(3, generator=rng) * 1.5 - 0.5).to(dtype)
    beta = (torch.rand(3, generator=rng) * 3 - 1).to(dtype)
    w1[0] = -1.0  # where a quotient by 1 + w1 would be lost
    a = at.probabilities(q, k, 0.4)
    explicit = at.reweighted(a, w1, beta, dc) @ v
    fused = torch.nn.functional.scaled_dot_product_attention(q, k, at.reweight_values(v, w1, beta, dc), scale=0.4)
    assert (explicit - fused).abs().max() <= tolerance


def test_neutral_weights_leave_every_bit():
    _, _, v = qkv(dtype=torch.float32)
    zero = torch.zeros(3)
    assert torch.equal(at.reweight_values(v, zero, zero, dc=2), v)


@pytest.mark.parametrize("chunk", [1, 4, 11, 1024])
def test_chunks_of_queries_change_nothing(chunk):
    q, k, v = qkv()
    out, score = at.attend_and_score(q, k, v, 0.3, chunk=chunk)
    a = (q @ k.transpose(-2, -1) * 0.3).softmax(-1)
    torch.testing.assert_close(out, a @ v)
    torch.testing.assert_close(score, at.high_frequency_score(a))
    assert score.dtype == torch.float32
    assert not score.requires_grad


def test_scores_are_accumulated_in_float32_for_half_precision():
    q, k, v = (t.to(torch.bfloat16) for t in qkv(tokens=300))
    out, score = at.attend_and_score(q, k, v, 0.3)
    exact = at.attend_and_score(q.double(), k.double(), v.double(), 0.3)[1]
    assert out.dtype == torch.bfloat16
    assert score.dtype == torch.float32
    assert (score - exact).abs().max() < 2e-5
    q16, k16, v16 = (t.to(torch.float16) * 30 for t in qkv(tokens=300))
    assert torch.isfinite(at.attend_and_score(q16, k16, v16, 1.0)[1]).all()


def test_scores_without_an_attention_matrix():
    q, k, _ = qkv()
    torch.testing.assert_close(
        at.query_mean_score(q, k), torch.einsum("bhid,bhjd->bj", q, k).float() / 3, atol=1e-4, rtol=1e-4
    )
    a = at.probabilities(q, k, 0.3)
    torch.testing.assert_close(at.class_token_score(q, k, 0.3), a[:, :, 0].mean(1).float(), atol=1e-5, rtol=1e-5)
    x = torch.randn(2, 7, 4)
    x[0, 3] = x[0].mean(0) * 5  # the most like the mean, up to what it adds to the mean itself
    assert at.difference_score(x)[0].argmin() == 3


def test_gradients_of_the_weights_are_those_of_finite_differences():
    q, k, v = qkv(batch=1, heads=2, tokens=6, dim=3)
    w1 = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    beta = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)

    def out(w1, beta):
        return at.probabilities(q, k, 0.5) @ at.reweight_values(v, w1, beta, 2)

    assert torch.autograd.gradcheck(out, (w1, beta))


def test_contraction_holds_for_pruning_and_merging():
    """For M ≥ 0 with rows that sum to 1 and columns that sum to at most 1, the high-frequency part does not grow."""
    rng = torch.Generator().manual_seed(0)
    for _ in range(50):
        x = torch.randn(10, 6, generator=rng, dtype=torch.float64)
        pruning = torch.eye(10, dtype=torch.float64)[torch.randperm(10, generator=rng)[:4]]
        part = torch.randint(0, 4, (10,), generator=rng)
        part[:4] = torch.arange(4)
        merging = torch.nn.functional.one_hot(part, 4).T.double()
        merging = merging / merging.sum(1, keepdim=True)
        for m in (pruning, merging):
            assert (
                torch.linalg.norm(metrics.high_frequency(m @ x)) <= torch.linalg.norm(metrics.high_frequency(x)) + 1e-12
            )
