"""What the bench rests on: frontiers, leads, stacked networks."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from thrifty.solvers.ellice.evidence import CLAIMS, contenders, mlps  # noqa: E402
from thrifty.solvers.ellice.evidence import frontiers as f  # noqa: E402


def test_a_frontier_is_read_at_a_distance():
    frontier = [(2.0, 0.8, 0.4), (1.0, 0.5, 0.0), (3.0, 0.7, 0.6)]
    assert f.share_at(frontier, 0.9) is None
    assert f.share_at(frontier, 1.5) == pytest.approx(0.65)
    assert f.share_at(frontier, 2.5) == 0.8, "a farther point that is worse takes nothing away"
    assert f.share_at(frontier, 9.0) == 0.8
    assert f.share_at(frontier, 2.5, f.ALL) == pytest.approx(0.5)
    assert f.share_at([], 1.0) is None


def test_leads_are_means_over_runs_plus_one_sd():
    rival = [(1.0, 0.5, 0.0), (2.0, 0.9, 0.2)]
    runs = [{f.OURS: [(1.0, 0.5, 0.0), (1.5, height, 0.3)], "rival": rival} for height in (0.6, 0.7, 0.65)]
    least, where = f.least_lead(runs, [1])
    assert least == pytest.approx(-0.05 + 0.05)
    assert where == "rival: -0.050 ± 0.050"
    assert f.least_lead(runs, [1], f.ALL)[0] == pytest.approx(0.2)
    anywhere, _ = f.least_lead_anywhere(runs)  # at distance 2 ours stays where it was at 1.5
    assert anywhere == pytest.approx(-0.25 + 0.05)
    far = [{f.OURS: [(0.5, 0.1, 0.0)], "rival": rival}]
    assert f.least_lead(far, [0]) == (float("inf"), "no rival comes as near")


def test_who_has_no_answer_counts_as_rejected():
    rows = np.zeros((3, 2))
    answers = np.array([[3.0, 4.0], [np.nan, np.nan], [0.0, 1.0]])
    judged = f.point(answers, rows, lambda x: np.array([x[:, 0] >= 0, x[:, 0] > 0]))
    assert judged == pytest.approx((3.0, 0.5, 1 / 3))
    assert f.point(np.full((2, 2), np.nan), rows[:2], lambda x: x > 0) is None


def test_stacked_networks_are_what_single_ones_are(cancer):
    X, y, _ = cancer
    X = X[:, :6]
    stack = mlps.train(X, y, 3, 0, 1e-3)
    logits = stack.judge(X)
    assert (((logits > 0) == y).mean(axis=1) > 0.85).all()
    first, others = stack.split()
    with torch.no_grad():
        np.testing.assert_allclose(first(torch.as_tensor(X)).numpy()[:, 0], logits[0], atol=1e-12)
    np.testing.assert_allclose(others.judge(X), logits[1:], atol=1e-12)
    assert np.abs(logits[0] - logits[1]).max() > 0.1, "other seeds, other networks"
    np.testing.assert_array_equal(mlps.train(X, y, 3, 0, 1e-3).judge(X), logits)


def test_claims_name_what_is_measured():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert {claim.id for claim in CLAIMS} >= {
        "shorter-at-same-certificate", "stable-over-retrains", "true-rashomon-validity", "speed-vs-library",
        "network-over-retrains",
    }  # fmt: skip


@pytest.mark.net
@pytest.mark.slow
def test_rivals_of_rocelib_say_what_they_lack(cancer):
    X, _, model = cancer
    theta = np.append(model.coef_, model.intercept_)
    try:
        import gurobipy  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="needs what is not installed: 'gurobipy'"):
            contenders.rocelib("PROPLACE", theta, X[:1], X, 0.05)
