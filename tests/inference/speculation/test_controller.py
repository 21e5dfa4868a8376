"""The controller follows acceptance and load, deterministically, and probes where it has stopped."""

import numpy as np
import pytest

from thrifty.inference.speculation import Acceptance, GammaController, SpeculationModel, recommend_schedule

MODEL = SpeculationModel(64, 8, 75.0, 1.02, 2.0, 0.05, 0.3, 0.1, 1.0, 0.01, 0.05, 0.001, measured_batches=(1, 256))


def rounds(controller, batch, alpha, count, rng, **times):
    chosen = []
    for _ in range(count):
        gamma = controller.gamma(batch)
        drafted = np.cumprod(rng.random((batch, gamma)) < alpha, axis=1).sum(1) if gamma else np.zeros(batch, int)
        controller.observe(batch, gamma, np.bincount(drafted, minlength=gamma + 1).tolist(), **times)
        chosen.append(gamma)
    return chosen


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
def test_it_settles_on_the_recommended_length(alpha):
    controller = GammaController(MODEL, max_gamma=7, correct=False)
    chosen = rounds(controller, 16, alpha, 400, np.random.default_rng(0))
    acceptance = Acceptance.from_rate(alpha)
    best = recommend_schedule(MODEL, acceptance, max_batch=16, max_gamma=7).gamma(16)
    settled = max(set(chosen[200:]), key=chosen[200:].count)
    gain = MODEL.speedup(16, settled, acceptance) / MODEL.speedup(16, best, acceptance)
    assert gain > 0.97
    assert controller.acceptance().curve(1)[0] == pytest.approx(alpha, abs=0.08)


def test_the_same_observations_give_the_same_choices():
    first = rounds(GammaController(MODEL), 8, 0.7, 100, np.random.default_rng(3))
    assert first == rounds(GammaController(MODEL), 8, 0.7, 100, np.random.default_rng(3))


def test_nothing_accepted_switches_off_and_probes_become_rarer():
    controller = GammaController(MODEL, max_gamma=4, probe=(4, 16))
    chosen = rounds(controller, 16, 0.0, 200, np.random.default_rng(0))
    assert set(chosen[40:]) == {0, 1}
    probes = np.flatnonzero(chosen)
    gaps = np.diff(probes[probes > 40])
    assert gaps.max() == 17
    assert gaps[-1] >= gaps[0]


def test_a_probe_finds_that_acceptance_is_back():
    controller = GammaController(MODEL, max_gamma=4, probe=(4, 16), forget=0.9)
    rng = np.random.default_rng(0)
    rounds(controller, 16, 0.0, 60, rng)
    assert rounds(controller, 16, 1.0, 200, rng)[-1] >= 3


def test_load_changes_the_length_at_once():
    controller = GammaController(MODEL, max_gamma=7, correct=False)
    rng = np.random.default_rng(0)
    rounds(controller, 16, 0.7, 100, rng)
    assert controller.gamma(256) < controller.gamma(16)


def test_measured_times_correct_the_model():
    """Drafting that takes ten times as long as the model has it makes drafts short."""
    trusting, correcting = GammaController(MODEL, correct=False), GammaController(MODEL)
    slow = {"draft_ms": 40.0, "verify_ms": float(MODEL.target_time(16, 5))}
    fast = rounds(trusting, 16, 0.7, 80, np.random.default_rng(0), **slow)
    wary = rounds(correcting, 16, 0.7, 80, np.random.default_rng(0), **slow)
    assert wary[-1] < fast[-1]


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_a_model_that_is_known_up_to_a_factor_does_as_well(scale):
    """Plain rounds show the target's time alone: they must not shift what drafts are taken to cost."""
    controller, rng = GammaController(MODEL.scaled(scale), max_gamma=5), np.random.default_rng(0)

    def serve(alpha, count):
        chosen = []
        for _ in range(count):
            gamma = controller.gamma(16)
            times = {"verify_ms": float(MODEL.target_time(16, MODEL.width(gamma)))}
            times |= {"draft_ms": gamma * float(MODEL.draft_time(16))}
            chosen += rounds(controller, 16, alpha, 1, rng, **times)
        return chosen

    assert 0 in serve(0.05, 200)
    assert serve(0.95, 200)[-1] >= 3


def test_bad_arguments():
    with pytest.raises(ValueError, match="max_gamma"):
        GammaController(MODEL, max_gamma=0)
    with pytest.raises(ValueError, match="5 counts"):
        GammaController(MODEL).observe(4, 4, [1, 2])
