"""α, σ, acceptance length and the engines' rate are four things."""

import numpy as np
import pytest

from thrifty.inference.speculation.acceptance import Acceptance, estimate_alpha, sigma_of_alpha


def test_sigma_of_alpha():
    assert float(sigma_of_alpha(0.8, 2)) == pytest.approx(0.813333, abs=1e-6)
    assert float(sigma_of_alpha(0.8, 4)) == pytest.approx(0.67232)
    assert sigma_of_alpha([0.0, 1.0], 3).tolist() == [0.25, 1.0]
    quotient = (1 - 0.7**5) / (0.3 * 5)
    assert float(sigma_of_alpha(0.7, 4)) == pytest.approx(quotient)
    assert float(sigma_of_alpha(1 - 1e-12, 4)) == pytest.approx(1.0)


def test_alpha_of_sigma():
    assert Acceptance.from_sigma(0.90, 4).alpha == pytest.approx(0.9473, abs=1e-4)
    assert Acceptance.from_sigma(0.58, 4).alpha == pytest.approx(0.7236, abs=1e-4)
    assert Acceptance.from_sigma(1.0, 4).alpha == 1
    assert Acceptance.from_sigma(0.2, 4).alpha == 0


def test_every_way_in_gives_the_same_tokens_a_round():
    alpha, gamma = 0.75, 3
    expected = 1 + alpha + alpha**2 + alpha**3
    survival = [alpha, alpha**2, alpha**3]
    accepted = expected - 1
    ways = [
        Acceptance.from_rate(alpha),
        Acceptance.from_sigma(expected / 4, gamma),
        Acceptance.from_length(expected, gamma),
        Acceptance.from_engine_rate(accepted / 3, gamma),
        Acceptance.from_survival(survival),
        Acceptance.from_counts(1000, 3000, 1000 * accepted),
        Acceptance.from_counts(1000, 3000, 1000 * accepted, [1000 * p for p in survival]),
    ]
    for way in ways:
        assert way.expected_tokens([0, 1, 3]) == pytest.approx([1, 1 + alpha, expected], abs=1e-9)
        assert way.expected_tokens(6) == pytest.approx(sum(alpha**i for i in range(7)), abs=1e-8)
        assert way.alpha == pytest.approx(alpha, abs=1e-9)
        assert way.sigma(gamma) == pytest.approx(expected / 4)


def test_beyond_what_is_known_the_last_conditional_goes_on():
    draft = Acceptance.from_survival([0.9, 0.6, 0.3])
    assert draft.expected_tokens(5) == pytest.approx(1 + 0.9 + 0.6 + 0.3 + 0.15 + 0.075)
    assert draft.curve(2).tolist() == [0.9, 0.6]
    assert Acceptance.from_survival([0.0, 0.0]).expected_tokens(4) == pytest.approx(1)


def test_the_maximum_likelihood_alpha_is_not_the_engines_rate():
    rng = np.random.default_rng(0)
    runs = rng.random((40_000, 4)) < 0.8
    accepted = np.cumprod(runs, axis=1).sum(1)
    assert estimate_alpha(accepted, 4) == pytest.approx(0.80, abs=0.005)
    assert accepted.sum() / (4 * len(accepted)) == pytest.approx(0.588, abs=0.01)
    survival = [(accepted >= i).mean() for i in range(1, 5)]
    assert Acceptance.from_survival(survival).alpha == pytest.approx(estimate_alpha(accepted, 4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Acceptance.from_rate(1.2), "alpha"),
        (lambda: Acceptance.from_rate(float("nan")), "alpha"),
        (lambda: Acceptance.from_sigma(0.1, 4), "sigma"),
        (lambda: Acceptance.from_sigma(0.9, 0), "gamma"),
        (lambda: Acceptance.from_length(6, 4), "length"),
        (lambda: Acceptance.from_engine_rate(58.8, 4), "per cent"),
        (lambda: Acceptance.from_counts(0, 0, 0), "no data"),
        (lambda: Acceptance.from_counts(10, 40, 50), "accepted"),
        (lambda: Acceptance.from_survival([0.5, 0.7]), "cannot rise"),
        (lambda: Acceptance.from_survival([]), "survival"),
        (lambda: Acceptance((), 1.7), r"\[0, 1\]"),
        (lambda: Acceptance.from_rate(0.5).expected_tokens(2.5), "whole"),
        (lambda: Acceptance.from_rate(0.5).expected_tokens(-1), "gamma"),
        (lambda: estimate_alpha([5], 4), "accepted"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
