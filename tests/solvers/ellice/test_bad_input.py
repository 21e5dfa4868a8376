"""What is refused, and how: one line that names the argument, what came, and what would do."""

import json
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from thrifty.solvers.ellice import (
    Constraints,
    ElliCE,
    LeafEmbedding,
    RashomonEllipsoid,
    cone,
    evaluate_recourse,
    make_ensemble,
    plot_changes,
    tune_epsilon,
)
from thrifty.solvers.ellice.branching import Effort, branch_and_bound
from thrifty.solvers.ellice.supports import solve_sparse


@pytest.fixture(scope="module")
def table():
    """Four named columns, labels, and a pipeline."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(5, [1, 2, 3, 1], (300, 4)), columns=["a", "b", "c", "d"])
    y = (X["a"] - X["b"] + 0.5 * X["c"] + rng.normal(size=300) > 2.5).astype(int)
    return X, y, make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"epsilon": "0.1"}, "epsilon: expected a number of at least 0, .*got '0.1'"),
        ({"epsilon": None}, "epsilon: expected .*got None"),
        ({"epsilon": [0.1]}, r"epsilon: expected .*got \[0.1\]"),
        ({"epsilon": True}, "epsilon: expected .*got True"),
        ({"l2": "2"}, "l2: expected a number of at least 0 .*got '2'"),
        ({"threshold": "2"}, "threshold: expected a probability .*got '2'"),
        ({"threshold": [0.5]}, r"threshold: expected .*got \[0.5\]"),
        ({"n_counterfactuals": None}, "n_counterfactuals: expected a whole number of at least 1, got None"),
        ({"n_counterfactuals": float("nan")}, "n_counterfactuals: expected .*got nan"),
        ({"sparsity": [2]}, r"sparsity: expected None, 'min', .*got \[2\]"),
        ({"sparsity": float("nan")}, "sparsity: expected .*got nan"),
        ({"max_combinations": 0}, "max_combinations: expected .*got 0"),
        ({"max_combinations": "a"}, "max_combinations: expected .*got 'a'"),
        ({"n_restarts": 0}, "n_restarts: expected .*got 0"),
        ({"random_state": "a"}, "random_state: expected .*got 'a'"),
        ({"random_state": -1}, "random_state: expected .*got -1"),
        ({"method": ["exact"]}, r"method: expected .*got \['exact'\]"),
        ({"target": np.array([1, 0])}, "target: expected .*got array"),
    ],
)
def test_settings_of_the_wrong_type(table, settings, says):
    X, y, model = table
    with pytest.raises(ValueError, match=says) as error:
        ElliCE(model, **{"epsilon": 0.003, **settings}).fit(X, y)
    assert "\n" not in str(error.value)


def test_constraints_of_another_type(table):
    X, y, model = table
    explainer = ElliCE(model, epsilon=0.003).fit(X, y)
    for wrong in ({"immutable": ["a"]}, "a"):
        with pytest.raises(TypeError, match=r"expected Constraints\(immutable="):
            explainer.explain(X[:1], constraints=wrong)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"immutable": "ab"}, "immutable: expected a list of features, got 'ab'"),
        ({"immutable": None}, "immutable: expected .*got None"),
        ({"immutable": [1.5]}, "immutable: expected one of the columns .*got 1.5"),
        ({"immutable": [None]}, "immutable: expected one of the columns .*got None"),
        ({"features_to_vary": None}, "features_to_vary: expected .*got None"),
        ({"integer": "a"}, "integer: expected .*got 'a'"),
        ({"one_way": ["a"]}, r"one_way: expected a mapping from features.*got \['a'\]"),
        ({"permitted_range": {"a": 5}}, r"permitted_range\['a'\]: expected \(lowest, highest\).*got 5"),
        ({"permitted_range": {"a": ("1", "2")}}, r"permitted_range\['a'\]: expected"),
        ({"permitted_range": {"a": (None, 5)}}, r"permitted_range\['a'\]: expected"),
        ({"allowed_values": {"a": 5}}, r"allowed_values\['a'\]: expected a list .*got 5"),
        ({"allowed_values": {"a": ["x"]}}, r"allowed_values\['a'\]: expected"),
        ({"feature_weights": {"a": "x"}}, r"feature_weights\['a'\]: expected a positive number, got 'x'"),
        ({"linear": 5}, r"linear: expected \(A, b\).*got 5"),
        ({"linear": ([["x"]], [1])}, "linear: expected"),
    ],
)
def test_constraints_of_the_wrong_type(table, limits, says):
    X, y, model = table
    with pytest.raises(ValueError, match=says):
        ElliCE(model, epsilon=0.003, constraints=Constraints(**limits)).fit(X, y)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda X, y: (X.rename(columns={"a": "z"}), y), r"X: expected the columns \['a'\] too"),
        (lambda X, y: (X.to_numpy()[:, :3], y), "X: expected the 4 columns .*got 3"),
        (lambda X, y: (X.to_numpy() + 1j, y), "X: expected real numbers"),
        (lambda X, y: (scipy.sparse.csr_array(X.to_numpy()), y), r"X: expected dense rows \(X.toarray\(\)\)"),
        (lambda X, y: (X[:0], y[:0]), "X: expected the rows .*got none"),
        (lambda X, y: (X, np.ones(len(X), int)), r"y: expected two classes, got \[1\]"),
        (lambda X, y: (X, y.map({0: "a", 1: None})), "y: expected no missing labels"),
        (lambda X, y: (X, np.array([0, "a"] * (len(X) // 2), dtype=object)), "y: expected all numbers, or all text"),
    ],
)
def test_training_tables(table, change, says):
    X, y, model = table
    with pytest.raises(ValueError, match=says) as error:
        ElliCE(model, epsilon=0.003).fit(*change(X, y))
    assert "\n" not in str(error.value)


def test_tables_that_only_look_different_are_read(table):
    """Columns are taken by name, as scikit-learn's column transformers do; arrays by place."""
    X, y, model = table
    persons = X[model.predict(X) == 0][:4]
    expected = ElliCE(model, epsilon=0.003).fit(X, y).explain(persons).counterfactuals
    for other in (
        X[["d", "c", "b", "a"]],
        X.assign(note="x"),
        X.to_numpy(),
        X.to_numpy().tolist(),
        X.astype("Float64"),
    ):
        explainer = ElliCE(model, epsilon=0.003).fit(other, y)
        for query in (persons, persons.assign(note="x"), persons.to_numpy(), persons.to_dict("records")):
            found = explainer.explain(query).counterfactuals
            np.testing.assert_allclose(found[list("abcd")].to_numpy(float), expected.to_numpy(float), rtol=1e-9)


def test_queries(table):
    X, y, model = table
    explainer = ElliCE(model, epsilon=0.003).fit(X, y)
    with pytest.raises(ValueError, match=r"'a': expected numbers, got datetime64"):
        explainer.explain(X[:1].assign(a=pd.to_datetime(["2020-01-01"])))
    with pytest.raises(ValueError, match="complex"):
        explainer.explain(X[:1].to_numpy() + 1j)
    with pytest.raises(ValueError, match=r"no missing values .*got some in \['b'\]"):
        explainer.explain(np.ma.array(X[:1].to_numpy(), mask=[[0, 1, 0, 0]]))
    assert len(explainer.explain([])) == 0


def test_limits_that_contradict_each_other_are_called_that(table):
    X, y, model = table
    apart = Constraints(linear=([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]], [0.0, -5.0]))
    result = ElliCE(model, epsilon=0.003, constraints=apart).fit(X, y).explain(X[model.predict(X) == 0][:2])
    assert set(result.status) == {"infeasible"}
    assert "contradict each other" in result.message[0]
    assert result.counterfactuals.isna().all().all()


def test_a_solver_without_a_conclusion_costs_one_person_not_the_table(table):
    """A value far beyond all others makes the cone programme unsolvable in float64; the other persons are answered."""
    X, y, model = table
    limits = Constraints(immutable=["d"], permitted_range={"a": (0.0, 6.0)})
    persons = X[model.predict(X) == 0][:3].copy()
    persons.iloc[1, 1] = 1e300
    result = ElliCE(model, epsilon=0.003, constraints=limits).fit(X, y).explain(persons)
    assert result.status[1] == "not_found"
    assert "cone solver" in result.message[1]
    assert result.answered[[0, 2]].all()
    assert result.counterfactuals.iloc[1].isna().all()


@pytest.mark.parametrize("failures", [1, 3, 9])
def test_the_cone_solver_is_asked_again_more_gently(monkeypatch, failures):
    """On real tables it ends with NumericalError now and then; other tolerances and scalings then find the optimum."""
    clarabel = pytest.importorskip("clarabel")
    tried = []

    class Moody:
        DefaultSettings, NonnegativeConeT = clarabel.DefaultSettings, clarabel.NonnegativeConeT
        SecondOrderConeT = clarabel.SecondOrderConeT

        class DefaultSolver:
            def __init__(self, *words):
                self.words = words
                tried.append((words[-1].tol_feas, words[-1].equilibrate_enable))

            def solve(self):
                if len(tried) <= failures:
                    return SimpleNamespace(status="NumericalError", r_prim=1e-3, r_dual=0.0, x=[9.0, 9.0])
                return clarabel.DefaultSolver(*self.words).solve()

    monkeypatch.setattr(cone, "require", lambda *_, **__: Moody)
    problem = cone.ConeProblem(
        np.zeros(2), np.full(2, -9.0), np.full(2, 9.0), np.array([1.0, 0.5, -1.0]), 0.1 * np.eye(3), np.ones(2),
        np.zeros(2), np.empty((0, 2)), np.empty(0),
    )  # fmt: skip
    if failures >= len(cone.TRIES):
        with pytest.raises(cone.InconclusiveError, match="NumericalError"):
            cone.by_interior_point(problem)
    else:
        np.testing.assert_allclose(cone.by_interior_point(problem), cone.by_bisection(problem), atol=1e-6)
        assert len(set(tried)) == failures + 1


def test_what_was_not_settled_is_not_called_proven(table, monkeypatch):
    X, y, model = table
    explainer = ElliCE(model, epsilon=0.003, constraints=Constraints(integer=["c"])).fit(X, y)
    problem = explainer._problem(1, explainer.region_)
    person = explainer.reading_.encoding.encode(X[model.predict(X) == 0][:1])[0]

    def gives_up(*_):
        raise cone.InconclusiveError("no conclusion")

    monkeypatch.setattr("thrifty.solvers.ellice.branching.nearest", gives_up)
    answer = branch_and_bound(problem, person, Effort())
    assert (answer.row, answer.status, answer.message) == (None, "not_found", "no conclusion")
    assert solve_sparse(problem, person, 2, Effort()).status in ("not_found", "feasible")


def test_a_centre_that_is_no_optimum_is_warned_about(table):
    """Around a model of another loss or penalty the ellipsoid does not hold the near-optimal models."""
    X, y, _ = table
    Z = StandardScaler().fit_transform(X)
    with pytest.warns(UserWarning, match=r"above the minimum, which is more than epsilon=0.003; give the l2"):
        ElliCE(RidgeClassifier().fit(Z, y), epsilon=0.003).fit(Z, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ElliCE(LogisticRegression(C=1 / (1e-3 * len(Z))).fit(Z, y), epsilon=0.003).fit(Z, y)
        ElliCE(RidgeClassifier().fit(Z, y), epsilon=0.003, center="refit").fit(Z, y)


def test_models(table):
    X, y, model = table
    search = GridSearchCV(model, {"logisticregression__C": [1.0]}).fit(X, y)
    persons = X[model.predict(X) == 0][:3]
    one, other = (ElliCE(made, epsilon=0.003).fit(X, y).explain(persons) for made in (model, search))
    np.testing.assert_allclose(one.distance, other.distance)
    broken = LogisticRegression().fit(X, y)
    broken.coef_[0, 0] = np.nan
    with pytest.raises(ValueError, match="model: expected finite coefficients"):
        ElliCE(broken).fit(X, y)


def test_networks_that_do_not_fit(net):
    X, y, module = net
    with pytest.raises(ValueError, match="X: expected the columns that model takes, got 4"):
        ElliCE(module).fit(X[:, :4], y)
    with pytest.raises(ValueError, match="device: expected one that is there, got 'abacus'"):
        ElliCE(module, device="abacus").fit(X, y)


def test_settings_of_ensembles_tuning_and_pictures(table):
    X, y, model = table
    for wrong, says in (
        ({"epsilon_target": "a"}, "epsilon_target: expected .*got 'a'"),
        ({"n_models": 0}, "n_models: expected .*got 0"),
        ({"l2": float("nan")}, "l2: expected .*got nan"),
        ({"random_state": "a"}, "random_state: expected .*got 'a'"),
    ):
        with pytest.raises(ValueError, match=says):
            make_ensemble("bootstrap", model, X, y, **wrong)
    wrongs = {"folds": 1, "random_state": "a", "n_models": 0, "n_queries": 0, "steps": -1, "robustness": "a"}
    for name, value in wrongs.items():
        with pytest.raises(ValueError, match=f"{name}: expected .*got {value!r}"):
            tune_epsilon(model, X, y, **{name: value})
    with pytest.raises(ValueError, match="folds: expected at most .*the rarer label, got 999"):
        tune_epsilon(model, X, y, folds=999)
    with pytest.raises(ValueError, match=r"y: expected one label for each of 300 rows, got shape \(4,\)"):
        tune_epsilon(model, X, y[:4])
    result = ElliCE(model, epsilon=0.003).fit(X, y).explain(X[:2])
    with pytest.raises(ValueError, match="entry: expected 0 to 1, .*got 99"):
        plot_changes(result, 99)


def test_what_is_scored_must_be_answers_models_and_an_explainer(table):
    X, y, model = table
    explainer = ElliCE(model, epsilon=0.003).fit(X, y)
    right = (explainer.explain(X[:2]), make_ensemble("bootstrap", model, X, y, n_models=2), explainer)
    for at, says in enumerate(
        ("result: expected a Recourse", "ensemble: expected an? Ensemble", "explainer: expected")
    ):
        with pytest.raises(TypeError, match=f"{says}.*got a NoneType"):
            evaluate_recourse(*(None if at == i else part for i, part in enumerate(right)))
    with pytest.raises(TypeError, match="estimator: expected trees .*got a Pipeline"):
        LeafEmbedding(model).fit(X, y)


def test_tables_with_further_columns_can_be_retrained_on(table):
    X, y, model = table
    X = X.assign(note="x")
    explainer = ElliCE(model, epsilon=0.003).fit(X, y)
    result = explainer.explain(X[model.predict(X[list("abcd")]) == 0][:3])
    assert evaluate_recourse(result, make_ensemble("bootstrap", model, X, y, n_models=3), explainer).coverage == 1


def test_files(table, tmp_path, monkeypatch):
    X, y, model = table
    explainer = ElliCE(model, epsilon=0.003, target=np.int64(1), random_state=np.int64(0)).fit(X, y)
    path = explainer.save(tmp_path / "e.npz")
    assert ElliCE.load(path).explain(X[:3]).statuses == explainer.explain(X[:3]).statuses
    (tmp_path / "half.npz").write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match="half.npz: expected a file that was saved here"):
        ElliCE.load(tmp_path / "half.npz")
    before = path.read_bytes()

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr("thrifty._common.files.os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        explainer.save(path, force=True)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["e.npz", "half.npz"]


def change(facts, arrays, name, value):
    """Put something else into what a file holds; ``None`` takes it out."""
    for held in (facts, arrays):
        if name in held and value is None:
            del held[name]
        elif name in held:
            held[name] = value


@pytest.mark.parametrize("value", [None, 3, {"zz": 1}, np.ones((7, 3)), np.array("a")], ids=str)
def test_explainers_that_were_tampered_with(table, tmp_path, value):
    """Each part in turn is gone or another's: the file is refused by its name, before anything is explained."""
    X, y, model = table
    path = ElliCE(model, epsilon=0.003).fit(X, y).save(tmp_path / "e.npz")
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    facts = json.loads(str(arrays.pop("facts")))
    for name in (*arrays, *facts):
        if isinstance(value, np.ndarray) == (name in facts) or (name, value) == ("epsilon", 3) or name == "objective":
            continue
        said, held = dict(facts), dict(arrays)
        change(said, held, name, value)
        np.savez(tmp_path / "other.npz", facts=np.array(json.dumps(said)), **held)
        with pytest.raises(ValueError, match=r"other\.npz: expected|expected .* got") as error:
            ElliCE.load(tmp_path / "other.npz")
        assert "\n" not in str(error.value), name


def test_files_that_are_damaged_or_anothers(table, tmp_path):
    X, y, model = table
    good = ElliCE(model, epsilon=0.003).fit(X, y).save(tmp_path / "e.npz").read_bytes()
    np.save(tmp_path / "array.npy", np.ones(3))
    bad = {
        "flipped": good[:400] + b"XXXX" + good[404:],
        "pickle": pickle.dumps({"a": 1}),
        "empty": b"",
        "array": (tmp_path / "array.npy").read_bytes(),
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        for kind in (ElliCE, RashomonEllipsoid):
            with pytest.raises(ValueError, match=f"{name}: expected a file that was saved here"):
                kind.load(tmp_path / name)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for name in ("deep.json", "pickle"):
        with pytest.raises(ValueError, match=f"{name}: expected JSON"):
            Constraints.from_json(tmp_path / name)


def test_sentences_claim_no_more_than_is_proven(table):
    X, y, model = table
    persons = X[model.predict(X) == 0][:1]
    near = ElliCE(model, epsilon=0.003, method="data").fit(X, y).explain(persons)
    assert "nearest among the known rows" in near.sentences()[0]
    several = ElliCE(model, epsilon=0.003, n_counterfactuals=2).fit(X, y).explain(persons)
    first, second = several.sentences()
    assert "the nearest such change" in first
    assert "the nearest" not in second
    assert "an alternative" in second
    assert repr(several) == "RecourseResult(2 optimal; epsilon=0.003; to_frame(), to_json(), sentences())"


def test_unscaled_columns_are_warned_about_in_every_method(table):
    """Steps that cannot be undone leave distances in raw units."""
    X, y, _ = table
    X = X.assign(b=1e5 * X["b"])
    model = make_pipeline(StandardScaler(), PCA(3), LogisticRegression()).fit(X, y)
    with pytest.warns(UserWarning, match="columns differ by a factor of"):
        ElliCE(model, epsilon=1e-5).fit(X, y)
