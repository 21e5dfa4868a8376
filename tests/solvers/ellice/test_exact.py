"""The exact solver against an independent one, and against the theorems."""

import numpy as np
import pytest

from thrifty.solvers.ellice import Constraints, ElliCE
from thrifty.solvers.ellice.cone import ConeProblem, by_bisection, by_interior_point, largest_radius
from thrifty.solvers.ellice.geometry import Ellipsoid
from thrifty.solvers.ellice.projection import Projector


def problem(seed, d=6, boxed=True):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d + 1, d + 1))
    ellipsoid = Ellipsoid(rng.normal(size=d + 1), np.linalg.cholesky(root @ root.T / d + 0.3 * np.eye(d + 1)), 0.02)
    origin = rng.normal(size=d) - 2 * np.sign(ellipsoid.theta[:-1])
    width = rng.uniform(1.5, 5, d) if boxed else np.full(d, np.inf)
    return ellipsoid, ConeProblem(
        origin, origin - width, origin + width, ellipsoid.theta, ellipsoid.shape(), rng.uniform(0.5, 2, d), np.zeros(d),
        np.empty((0, d)), np.empty(0),
    )  # fmt: skip


def by_cvxpy(p):
    cp = pytest.importorskip("cvxpy")
    x = cp.Variable(len(p.origin))
    moved = x - p.origin
    cost = cp.sum(cp.multiply(p.weights, cp.abs(moved) if p.absolute else cp.square(moved)))
    limits = [cp.SOC(p.slope[:-1] @ x + p.slope[-1], p.shape[:, :-1] @ x + p.shape[:, -1])]
    if np.isfinite(p.lower).all():
        limits += [x >= p.lower, x <= p.upper]
    if len(p.b):
        limits.append(p.A @ x <= p.b)
    made = cp.Problem(cp.Minimize(cost), limits)
    made.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return x.value


def test_boxes_against_cvxpy():
    solved = 0
    for seed in range(50):
        _, p = problem(seed)
        expected, found = by_cvxpy(p), by_interior_point(p)
        assert (expected is None) == (found is None), seed
        if found is not None:
            solved += 1
            assert p.value(found) ** 0.5 == pytest.approx(p.value(expected) ** 0.5, abs=1e-6)
            assert p.slack(found) >= -1e-8
    assert solved >= 25


def test_boxed_answers_satisfy_the_kkt_conditions():
    """x is where the distance's pull is a multiple of g1's slope, but for columns at a bound that it pushes against."""
    seen = 0
    for seed in range(50):
        _, p = problem(seed)
        x = by_interior_point(p)
        if x is None or p.slack(p.origin) >= 0:
            continue
        inner = p.shape @ np.append(x, 1)
        slope = (p.slope - p.shape.T @ inner / np.linalg.norm(inner))[:-1]
        pull = p.weights * (x - p.origin)
        low, high = x - p.lower < 1e-6, p.upper - x < 1e-6
        free = ~(low | high)
        if not free.any():
            continue
        seen += 1
        mu = pull[free] @ slope[free] / (slope[free] @ slope[free])
        rest = pull - mu * slope
        assert mu > 0
        assert np.abs(rest[free]).max() < 1e-5 * (1 + np.abs(pull).max())
        assert (rest[low] >= -1e-5).all()
        assert (rest[high] <= 1e-5).all()
        assert abs(p.slack(x)) < 1e-6
    assert seen >= 20


@pytest.mark.parametrize("absolute", [False, True])
def test_without_clarabel_the_answer_is_the_same(absolute):
    from dataclasses import replace

    for seed in range(6):
        p = replace(problem(seed)[1], absolute=absolute)
        first, second = by_interior_point(p), by_bisection(p)
        assert (first is None) == (second is None)
        if first is not None:
            assert p.value(second) == pytest.approx(p.value(first), rel=1e-5)
            assert p.slack(second) >= -1e-9


def test_projection_is_optimal():
    """Without bounds: the cone solver's distance, and the KKT conditions."""
    for seed in range(30):
        ellipsoid, p = problem(seed, d=8, boxed=False)
        projector = Projector.build(ellipsoid, 1, p.weights, np.zeros(8, bool))
        rows, feasible = projector.project(p.origin[None], 1, 0.0, 0.0)
        expected = by_interior_point(p)
        assert feasible[0] == (expected is not None)
        if expected is None:
            continue
        x = rows[0]
        assert p.value(x) ** 0.5 == pytest.approx(p.value(expected) ** 0.5, abs=1e-7)
        if p.slack(p.origin) >= 0:
            continue
        full = np.append(x, 1)
        inner = p.shape @ full
        gradient = (p.slope - p.shape.T @ inner / np.linalg.norm(inner))[:-1]
        pull = p.weights * (x - p.origin)
        mu = pull @ gradient / (gradient @ gradient)
        assert mu > 0
        assert np.abs(pull - mu * gradient).max() < 1e-6
        assert abs(p.slack(x)) < 1e-10


def test_projection_with_frozen_columns_agrees_with_fixed_bounds():
    from dataclasses import replace

    ellipsoid, p = problem(4, d=8, boxed=False)
    frozen = np.zeros(8, bool)
    frozen[[1, 5]] = True
    found, feasible = Projector.build(ellipsoid, 1, p.weights, frozen).project(p.origin[None], 1, 0.0, 0.0)
    fixed = replace(p, lower=np.where(frozen, p.origin, -np.inf), upper=np.where(frozen, p.origin, np.inf))
    expected = by_interior_point(fixed)
    assert feasible[0]
    np.testing.assert_allclose(found[0], expected, atol=1e-4)
    assert p.value(found[0]) == pytest.approx(p.value(expected), abs=1e-7)
    np.testing.assert_array_equal(found[0][frozen], p.origin[frozen])


def test_linear_limits_against_cvxpy():
    from dataclasses import replace

    for seed in (0, 2, 3, 7):
        _, p = problem(seed)
        A = np.random.default_rng(seed).normal(size=(2, 6))
        p = replace(p, A=A, b=A @ p.origin + 0.3)
        expected, found = by_cvxpy(p), by_interior_point(p)
        assert (expected is None) == (found is None)
        if found is not None:
            assert p.value(found) ** 0.5 == pytest.approx(p.value(expected) ** 0.5, abs=1e-6)


def test_largest_radius_is_where_feasibility_ends():
    for seed in range(5):
        ellipsoid, p = problem(seed)
        most = largest_radius(p, ellipsoid.whitening)
        if most < 1e-6:
            continue
        for factor, possible in ((0.999, True), (1.001, False)):
            from dataclasses import replace

            moved = replace(p, shape=ellipsoid.with_epsilon(most * factor).shape())
            assert (by_interior_point(moved) is not None) == possible


@pytest.mark.parametrize("bounds", [None, "data"])
def test_stability(cancer, bounds):
    """The answer is a projection onto a convex set: no farther apart than the persons (Theorem 3)."""
    X, y, model = cancer
    explainer = ElliCE(model, epsilon=0.01, bounds=None).fit(X, y)
    if bounds:
        limits = {f"x{j}": (X[:, j].min(), X[:, j].max()) for j in range(30)}
        explainer = ElliCE(model, epsilon=0.01, constraints=Constraints(permitted_range=limits)).fit(X, y)
    rng = np.random.default_rng(0)
    first = X[y == 0][:10]
    second = np.clip(first + rng.normal(size=first.shape) * 0.5, X.min(axis=0), X.max(axis=0))
    a, b = (explainer.explain(rows).counterfactuals.to_numpy(float) for rows in (first, second))
    assert (np.linalg.norm(a - b, axis=1) <= np.linalg.norm(first - second, axis=1) + 1e-7).all()


def test_price_of_robustness_never_falls(cancer):
    X, y, model = cancer
    explainer = ElliCE(model, epsilon=0.0, bounds=None).fit(X, y)
    persons = X[y == 0][:8]
    far = np.array(
        [explainer.with_epsilon(e).explain(persons).distance for e in (0, 1e-8, 1e-4, 0.001, 0.005, 0.02, 0.05)]
    )
    assert (np.diff(far, axis=0) >= -1e-9).all()
    nominal = -model.decision_function(persons) / np.linalg.norm(model.coef_)
    np.testing.assert_allclose(far[0], nominal, atol=1e-5)


def test_swapped_labels_give_the_same_answers(cancer):
    from sklearn.linear_model import LogisticRegression

    X, y, _ = cancer
    settings = {"C": 1 / (1e-3 * len(X)), "tol": 1e-10, "max_iter": 10_000}
    there = ElliCE(LogisticRegression(**settings).fit(X, y), target=1).fit(X, y).explain(X[:10])
    back = ElliCE(LogisticRegression(**settings).fit(X, 1 - y), target=0).fit(X, 1 - y).explain(X[:10])
    np.testing.assert_allclose(there.counterfactuals.to_numpy(float), back.counterfactuals.to_numpy(float), atol=1e-5)
    assert (back.worst_logit <= 0).all()


def test_a_threshold_is_kept(cancer):
    X, y, model = cancer
    result = ElliCE(model, threshold=0.9, bounds=None).fit(X, y).explain(X[y == 0][:5])
    assert result.worst_logit == pytest.approx(np.log(9), abs=2e-6)
    lower = ElliCE(model, threshold=0.9, target=0, bounds=None).fit(X, y).explain(X[y == 1][:5])
    assert (lower.worst_logit <= np.log(9)).all()


def test_categories_are_branched_on_exactly(credit):
    """Against brute force: every pair of levels, the numbers solved for each."""
    frame, y, model = credit
    persons = frame[model.predict(frame) == "bad"][:6]
    for distance in ("l2", "mixed", "l1"):
        explainer = ElliCE(model, epsilon=0.005, target="good", distance=distance).fit(frame, y)
        result = explainer.explain(persons)
        assert set(result.status) == {"optimal"}
        for i in range(len(persons)):
            best = np.inf
            for housing in ("own", "rent", "free"):
                for job in ("none", "some", "good"):
                    person = persons.iloc[[i]].assign(housing=housing, job=job)
                    fixed = Constraints(immutable=["housing", "job"])
                    moved = explainer.explain(person, constraints=fixed)
                    if moved.answered[0]:
                        encoding, region = explainer.reading_.encoding, explainer.region_
                        from thrifty.solvers.ellice.distances import distances

                        rows = encoding.encode(encoding.frame(moved.counterfactuals.infer_objects()))
                        far = distances(rows, encoding.encode(persons.iloc[[i]])[0], region, distance)[0]
                        best = min(best, far)
            assert result.distance[i] == pytest.approx(best, abs=1e-5)


@pytest.mark.slow
def test_whole_numbers_and_allowed_values_are_exact(credit):
    frame, y, model = credit
    persons = frame[model.predict(frame) == "bad"][:5]
    limits = Constraints(
        integer=["age"], allowed_values={"debt": [0, 100, 250, 500, 1000, 2000]}, immutable=["housing", "job"]
    )
    result = ElliCE(model, epsilon=0.003, target="good", constraints=limits).fit(frame, y).explain(persons)
    assert result.answered.all()
    answers = result.counterfactuals
    assert (answers["age"] == answers["age"].round()).all()
    assert answers["debt"].isin([0, 100, 250, 500, 1000, 2000]).all()
    assert (answers["housing"] == persons["housing"]).all()
    explainer = ElliCE(model, epsilon=0.003, target="good", constraints=limits).fit(frame, y)
    encoding = explainer.reading_.encoding
    for i in range(len(persons)):  # brute force over debts; ages by a line search over whole numbers
        best = np.inf
        for debt in (0, 100, 250, 500, 1000, 2000):
            for age in range(int(frame["age"].min()), int(frame["age"].max()) + 1):
                person = persons.iloc[[i]].assign(debt=float(debt), age=age)
                start = encoding.encode(persons.iloc[[i]])[0]
                row = encoding.encode(person)
                theta = explainer.reading_.theta
                income = encoding.positions[1][0]
                # the least income for which g1 holds, by bisection up to the largest in the table
                low, high = row[0, income], explainer.training_[:, income].max()
                problem_ = explainer._problem(1, explainer.region_)

                def fine(value, row=row, income=income, problem_=problem_):
                    moved = row.copy()
                    moved[0, income] = value
                    return problem_.slack(moved)[0] >= 0

                if theta[income] <= 0 or not fine(high):
                    continue
                if not fine(low):
                    for _ in range(40):
                        middle = 0.5 * (low + high)
                        low, high = (low, middle) if fine(middle) else (middle, high)
                    row[0, income] = high
                best = min(best, float(np.linalg.norm(row[0] - start)))
        assert result.distance[i] == pytest.approx(best, abs=1e-4)


def test_branching_that_is_cut_short_never_claims_to_be_optimal(credit):
    frame, y, model = credit
    persons = frame[model.predict(frame) == "bad"][:5]
    limits = Constraints(integer=["age", "income"])
    explainer = ElliCE(model, epsilon=0.005, target="good", max_combinations=2, constraints=limits).fit(frame, y)
    result = explainer.explain(persons)
    assert set(result.status) <= {"feasible", "not_found"}
    assert "feasible" in result.status


def test_what_cannot_be_is_infeasible_and_says_by_how_much(credit):
    frame, y, model = credit
    persons = frame[model.predict(frame) == "bad"][:3]
    for feature, says in (("debt", "the largest epsilon for which one is"), ("age", "nor at epsilon=0")):
        limits = Constraints(features_to_vary=[feature])
        result = ElliCE(model, epsilon=0.005, target="good", constraints=limits).fit(frame, y).explain(persons)
        at = result.status == "infeasible"
        assert any(says in message for message in np.array(result.message)[at]), result.message
    assert result.counterfactuals.isna().all().all()
    assert np.isnan(result.distance).all()


def test_few_changes(credit, cancer):
    frame, y, model = credit
    persons = frame[model.predict(frame) == "bad"][:6]
    explainer = ElliCE(model, epsilon=0.003, target="good").fit(frame, y)
    fewest = ElliCE(model, epsilon=0.003, target="good", sparsity="min").fit(frame, y).explain(persons)
    for i in range(len(persons)):  # brute force over all sets of features
        import itertools

        for k in range(1, 6):
            far = []
            for some in itertools.combinations(frame.columns, k):
                tried = explainer.explain(persons.iloc[[i]], constraints=Constraints(features_to_vary=list(some)))
                if tried.answered[0]:
                    far.append(tried.distance[0])
            if far:
                break
        assert len(fewest.changed[i]) == k
        assert fewest.distance[i] == pytest.approx(min(far), abs=1e-6)
    X, labels, wide = cancer
    few = ElliCE(wide, epsilon=0.001, sparsity=4, bounds=None).fit(X, labels).explain(X[labels == 0][:4])
    assert all(len(names) <= 4 for names in few.changed)
    assert (few.worst_logit >= 0).all()


def test_several_answers_change_different_features(credit):
    frame, y, model = credit
    persons = frame[model.predict(frame) == "bad"][:3]
    result = ElliCE(model, epsilon=0.003, target="good", n_counterfactuals=3).fit(frame, y).explain(persons)
    for person in range(3):
        mine = np.flatnonzero(result.query == person)
        assert len(mine) >= 2
        assert len({result.changed[i] for i in mine}) == len(mine)
        assert (np.diff(result.distance[mine]) >= -1e-9).all()


def test_refit_centre_also_asks_the_deployed_model(cancer):
    from sklearn.linear_model import LogisticRegression

    X, y, _ = cancer
    weak = LogisticRegression(C=0.002).fit(X, y)
    result = ElliCE(weak, epsilon=1e-4, center="refit").fit(X, y).explain(X[weak.predict(X) == 0][:10])
    assert (weak.decision_function(result.counterfactuals.to_numpy(float)) >= 0).all()
    assert (result.worst_logit >= 0).all()


def test_the_true_set_is_kept_to_when_asked(cancer):
    """The ellipsoid is not always the more cautious; with certify='rashomon' the exact check never fails."""
    from thrifty.solvers.ellice import make_ensemble

    X, y, model = cancer
    persons = X[y == 0][:12]
    plain = ElliCE(model, epsilon=0.01, bounds=None).fit(X, y).explain(persons)
    strict = ElliCE(model, epsilon=0.01, bounds=None, certify="rashomon").fit(X, y).explain(persons)
    true = make_ensemble("rashomon", model, X, y, 0.01)
    assert (true.logits(plain.counterfactuals, 1) < 0).any()
    assert (true.logits(strict.counterfactuals, 1) >= 0).all()
    assert (strict.distance >= plain.distance - 1e-9).all()
    assert (strict.distance <= 1.3 * plain.distance).all()
    assert (strict.worst_logit >= 0).all()
    with pytest.raises(ValueError, match="certify: expected 'ellipsoid', got 'rashomon', which needs"):
        ElliCE(model, certify="rashomon", sparsity=2).fit(X, y)
