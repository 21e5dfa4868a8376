"""The metrics on maps whose answer is known."""

import math

import pytest
import torch

from thrifty.inference.token_reduction import metrics as m


def tokens_of(maps):
    return maps.flatten(2).transpose(1, 2)


def test_a_constant_map_has_no_energy_beyond_zero():
    x = tokens_of(torch.full((2, 3, 8, 8), 2.0))
    _, amplitude = m.relative_log_amplitude(x, (8, 8))
    expected = math.log(1e-6) - math.log(2 * 64 + 1e-6)
    assert amplitude[0] == 0
    torch.testing.assert_close(amplitude[1:], torch.full((4,), expected))
    assert (m.hf_ratio(x) < 1e-7).all()
    assert m.effective_rank(x).tolist() == pytest.approx([1, 1])
    assert m.token_cosine(x).tolist() == pytest.approx([1, 1])


def test_a_checkerboard_has_all_its_energy_at_the_highest_frequency():
    sign = (-1.0) ** (torch.arange(8)[:, None] + torch.arange(8))
    frequency, amplitude = m.relative_log_amplitude(tokens_of(sign.expand(1, 2, 8, 8)), (8, 8))
    assert frequency[-1] == 1
    assert amplitude.argmax() == 4
    assert amplitude[4] == pytest.approx(math.log(64) - math.log(1e-6), abs=1e-3)
    torch.testing.assert_close(amplitude[1:4], torch.zeros(3), atol=1e-5, rtol=0)
    assert m.hf_ratio(tokens_of(sign.expand(1, 2, 8, 8))).item() == pytest.approx(1)


def test_white_noise_is_flat():
    x = torch.randn(64, 16 * 12, 32, generator=torch.Generator().manual_seed(0))
    _, amplitude = m.relative_log_amplitude(x, (16, 12))
    # At 0 and at 1.0 π the transform of real noise is real, in between complex: the mean logarithms differ by 0.35.
    assert amplitude[-1].abs() < 0.05
    assert (amplitude[1:-1] - 0.35).abs().max() < 0.05
    assert m.effective_rank(x[:1, :16]).item() > 14


def test_a_grid_that_tokens_do_not_fill_is_refused():
    with pytest.raises(ValueError, match="a grid of 3 x 4 needs 12 tokens, got 11"):
        m.relative_log_amplitude(torch.zeros(1, 11, 2), (3, 4))


def test_cosines_are_those_of_loops():
    x = torch.randn(2, 5, 4)
    cosine = torch.nn.functional.cosine_similarity
    pairs = [[cosine(x[b, i], x[b, j], dim=0) for i in range(5) for j in range(5) if i != j] for b in range(2)]
    torch.testing.assert_close(m.token_cosine(x), torch.tensor(pairs).mean(1))
    torch.testing.assert_close(m.dc_similarity(x)[1, 2], cosine(x[1, 2], x[1].mean(0), dim=0))
    torch.testing.assert_close(m.class_dc_similarity(x)[0], cosine(x[0, 0], x[0, 1:].mean(0), dim=0))
    torch.testing.assert_close(m.layer_similarity(x, x), torch.ones(2))


def test_collapse_of_uniform_attention_is_total():
    x = torch.randn(1, 6, 3)
    assert m.collapse_ratio(x.mean(1, keepdim=True).expand_as(x), x).item() < 1e-6
    assert m.collapse_ratio(x * 2, x).item() == pytest.approx(2)
    assert m.hf_ratio(x * 0).item() == m.collapse_ratio(x * 0, x * 0).item() == 0
    torch.testing.assert_close(m.hf_ratio(x), torch.linalg.norm(x - x.mean(1))[None] / torch.linalg.norm(x))


def test_selections_overlap():
    a, b = torch.tensor([[0, 1, 2]]), torch.tensor([[1, 2, 5]])
    assert m.selection_iou(a, b, 9).tolist() == [0.5]
    assert m.selection_iou(a, a, 9).tolist() == [1.0]
    assert m.low_frequency_set(torch.tensor([[3.0, 0.0, 2.0, 1.0, 9.0, 8.0, 7.0, 6.0]])).tolist() == [[1, 3]]
    with pytest.raises(ValueError, match="share"):
        m.low_frequency_set(torch.zeros(1, 4), 0)
