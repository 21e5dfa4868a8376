"""The public face: results, constraints and bad input, DiCE's spellings, files."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from thrifty.solvers.ellice import Constraints, ElliCE, plot_changes, plot_price_of_robustness


def bad(credit, n=5):
    frame, _, model = credit
    return frame[model.predict(frame) == "bad"][:n]


def test_statuses_and_certificates(credit):
    frame, y, model = credit
    explainer = ElliCE(model, epsilon=0.003, target="good").fit(frame, y)
    result = explainer.explain(frame[:40])
    assert set(result.status) <= {"already_valid", "optimal"}
    assert {"already_valid", "optimal"} <= set(result.status)
    same = result.status == "already_valid"
    assert (result.distance[same] == 0).all()
    pd.testing.assert_frame_equal(result.counterfactuals[same], frame[:40][same], check_dtype=False)
    assert (result.worst_logit >= 0).all()
    assert (result.radius >= 0.003 - 1e-12).all()
    assert (result.nominal_logit >= result.worst_logit).all()
    assert (model.predict(result.counterfactuals) == "good").all()
    assert [bool(names) for names in result.changed] == list(~same)
    table = result.to_frame()
    assert {"income", "cf_status", "cf_radius", "cf_changed"} <= set(table.columns)
    report = json.loads(result.to_json())
    assert report["answers"][0]["status"] == result.status[0]
    moved = next(i for i in range(40) if not same[i])
    name = result.changed[moved][0]
    assert report["answers"][moved]["changes"][name][0] == frame[name].iloc[moved]
    sentence = result.sentences()[moved]
    assert name in sentence
    assert "every model within epsilon=0.003" in sentence


def test_both_ways_and_opposite(credit):
    frame, y, model = credit
    result = ElliCE(model, epsilon=0.002, target="opposite").fit(frame, y).explain(frame[:20])
    assert (model.predict(result.counterfactuals) != model.predict(frame[:20])).all()
    assert (np.where(result.target == "good", 1, -1) * result.worst_logit >= 0).all()


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), MaxAbsScaler(), RobustScaler(), "selection"])
def test_constraints_are_in_raw_units(cancer, scaler):
    X = np.random.default_rng(0).normal(5, 3, (300, 4))
    y = (X @ [1, -1, 0.5, 0] + np.random.default_rng(1).normal(size=300) > 2).astype(int)
    step = make_pipeline(StandardScaler(), SelectKBest(k=3)) if scaler == "selection" else scaler
    model = make_pipeline(step, LogisticRegression()).fit(X, y)
    limits = Constraints(
        permitted_range={0: (4.0, 6.0)}, one_way={1: "decrease"}, linear=([[0, 1.0, 1.0, 0]], [12.0]), immutable=["x3"]
    )
    result = ElliCE(model, epsilon=0.0005, constraints=limits).fit(X, y).explain(X[y == 0][:30])
    done = result.answered
    assert done.sum() >= 10
    answers, was = result.counterfactuals[done].to_numpy(float), X[y == 0][:30][done]
    assert ((answers[:, 0] >= 4 - 1e-7) & (answers[:, 0] <= 6 + 1e-7)).all()
    assert (answers[:, 1] <= was[:, 1] + 1e-9).all()
    assert (answers[:, 1] + answers[:, 2] <= 12 + 1e-6).all()
    assert (answers[:, 3] == was[:, 3]).all()
    assert (X[:, 2].min() - 1e-9 <= answers[:, 2]).all()


def test_a_person_outside_the_permitted_range_is_moved_into_it_or_reported(credit):
    frame, y, model = credit
    person = bad(credit, 1).assign(income=1000.0)
    into = Constraints(permitted_range={"income": (2500.0, 6000.0)})
    moved = ElliCE(model, epsilon=0.002, target="good", constraints=into).fit(frame, y).explain(person)
    assert moved.answered[0]
    assert 2500 - 1e-6 <= moved.counterfactuals["income"].iloc[0] <= 6000 + 1e-6
    against = Constraints(permitted_range={"income": (2500.0, 6000.0)}, one_way={"income": "decrease"})
    stuck = ElliCE(model, epsilon=0.002, target="good", constraints=against).fit(frame, y).explain(person)
    assert (stuck.status[0], "against its direction" in stuck.message[0]) == ("infeasible", True)
    held = Constraints(permitted_range={"income": (2500.0, 6000.0)}, immutable=["income"])
    frozen = ElliCE(model, epsilon=0.002, target="good", constraints=held).fit(frame, y).explain(person)
    assert (frozen.status[0], "may not change" in frozen.message[0]) == ("infeasible", True)


def test_permitted_levels(credit):
    frame, y, model = credit
    limits = Constraints(permitted_range={"housing": ["rent", "free"], "job": ["none", "some"]})
    result = ElliCE(model, epsilon=0.002, target="good", constraints=limits).fit(frame, y).explain(bad(credit, 12))
    answers = result.counterfactuals[result.answered]
    assert len(answers)
    assert answers["housing"].isin(["rent", "free"]).all()
    assert answers["job"].isin(["none", "some"]).all()


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"immutable": ["salary"]}, "immutable: expected one of the columns age.*got 'salary'"),
        ({"one_way": {"age": "up"}}, r"one_way\['age'\]: expected 'increase' or 'decrease', got 'up'"),
        ({"one_way": {"job": "increase"}}, "which is a category"),
        ({"permitted_range": {"age": (50, 20)}}, r"permitted_range\['age'\]: expected"),
        ({"permitted_range": {"job": ["boss"]}}, r"permitted_range\['job'\]: expected levels .*got \['boss'\]"),
        (
            {"allowed_values": {"age": [100]}, "permitted_range": {"age": (20, 30)}},
            r"allowed_values\['age'\]: expected one within the permitted range",
        ),
        ({"allowed_values": {"age": []}}, r"allowed_values\['age'\]: expected"),
        ({"integer": ["housing"]}, "which is a category"),
        ({"feature_weights": {"age": 0.0}}, r"feature_weights\['age'\]: expected .*got 0.0"),
        ({"linear": ([[1.0, 2.0]], [1.0])}, "linear: expected a finite A"),
        ({"features_to_vary": "some"}, "features_to_vary: expected .*got 'some'"),
    ],
)
def test_constraints_that_cannot_be(credit, limits, says):
    frame, y, model = credit
    with pytest.raises(ValueError, match=says):
        ElliCE(model, epsilon=0.002, target="good", constraints=Constraints(**limits)).fit(frame, y)


def test_one_hot_groups(cancer):
    rng = np.random.default_rng(0)
    level = rng.integers(0, 3, 300)
    X = np.column_stack([rng.normal(size=(300, 2)), np.eye(3)[level]])
    y = (X[:, 0] + (level == 2) + rng.normal(size=300) * 0.5 > 0.5).astype(int)
    model = LogisticRegression().fit(X, y)
    group = Constraints(one_hot_groups=[["x2", "x3", "x4"]])
    explainer = ElliCE(model, epsilon=0.001, constraints=group, distance="mixed").fit(X, y)
    result = explainer.explain(X[model.predict(X) == 0][:10])
    answers = result.counterfactuals.to_numpy(float)[:, 2:]
    assert result.answered.all()
    assert np.isin(answers, [0, 1]).all()
    assert (answers.sum(axis=1) == 1).all()
    broken = X[:1].copy()
    broken[0, 2:] = [1, 1, 0]
    with pytest.raises(ValueError, match=r"query, row 0: expected exactly one 1 in the one-hot group"):
        explainer.explain(broken)
    with pytest.raises(ValueError, match="expected columns that all may change, or none"):
        partly = Constraints(one_hot_groups=[["x2", "x3", "x4"]], immutable=["x2"])
        ElliCE(model, epsilon=0.001, constraints=partly).fit(X, y)
    with pytest.raises(ValueError, match="expected groups of two or more columns"):
        ElliCE(model, epsilon=0.001, constraints=Constraints(one_hot_groups=[["x2"]])).fit(X, y)


def test_bad_tables(credit):
    frame, y, model = credit
    explainer = ElliCE(model, epsilon=0.003, target="good").fit(frame, y)
    empty = explainer.explain(frame[:0])
    assert len(empty) == 0
    assert list(empty.to_frame().columns)[:5] == list(frame.columns)
    with pytest.raises(ValueError, match="X: expected the columns"):
        explainer.explain(frame.drop(columns="age"))
    with pytest.raises(ValueError, match="X: expected each column name once"):
        explainer.explain(frame[["age", *frame.columns]])
    with pytest.raises(ValueError, match=r"no missing values .*got some in \['income'\]"):
        explainer.explain(frame[:2].assign(income=[np.nan, 1.0]))
    with pytest.raises(ValueError, match="that the model has seen"):
        explainer.explain(frame[:1].assign(job="boss"))
    with pytest.raises(ValueError, match="expected finite numbers"):
        explainer.explain(frame[:1].assign(income=np.inf))
    with pytest.raises(NotFittedError):
        ElliCE(model).explain(frame[:1])
    one = explainer.explain(frame.iloc[0])
    assert len(one) == 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"method": "magic"}, "method: expected .*got 'magic'"),
        ({"distance": "l3"}, "distance: expected .*got 'l3'"),
        ({"distance": "sparse"}, "distance: expected another than 'sparse'"),
        ({"sparsity": 0}, "sparsity: expected .*got 0"),
        ({"threshold": 1.0}, "threshold: expected .*got 1.0"),
        ({"n_counterfactuals": 0}, "n_counterfactuals: expected .*got 0"),
        ({"bounds": "box"}, "bounds: expected .*got 'box'"),
        ({"solver": "other"}, "solver: expected .*got 'other'"),
        ({"preset": "other"}, "preset: expected .*got 'other'"),
        ({"target": "fine"}, "target: expected .*got 'fine'"),
        ({"method": "data", "sparsity": 2}, "sparsity: expected None with method"),
    ],
)
def test_bad_settings(credit, settings, says):
    frame, y, model = credit
    with pytest.raises(ValueError, match=says):
        ElliCE(model, **{"epsilon": 0.003, "target": "good", **settings}).fit(frame, y)


def test_unscaled_features_are_warned_about(cancer):
    X, y, _ = cancer
    X = X[:, :3] * [1.0, 1e5, 1.0]
    with pytest.warns(UserWarning, match="columns differ by a factor"):
        ElliCE(LogisticRegression(max_iter=5000).fit(X, y), epsilon=1e-4).fit(X, y)


def test_dice_spellings(credit):
    frame, y, model = credit
    explainer = ElliCE(model, epsilon=0.002, target="good").fit(frame, y)
    result = explainer.generate_counterfactuals(
        bad(credit, 3),
        total_CFs=2,
        desired_class="opposite",
        features_to_vary=["income", "debt", "job"],
        permitted_range={"income": [1000, 7000]},
    )
    assert (result.target == "good").all()
    assert all(set(names) <= {"income", "debt", "job"} for names in result.changed)
    assert result.rank.max() == 1


def test_constraints_as_json():
    limits = Constraints(
        immutable=["age"], permitted_range={"income": (1, 2)}, linear=([[1.0, 0.0]], [3.0]), allowed_values={"x": [1.0]}
    )
    again = Constraints.from_json(limits.to_json())
    assert again.to_json() == limits.to_json()
    with pytest.raises(ValueError, match="constraints: expected the keys .*got also"):
        Constraints.from_json('{"imutable": ["age"]}')
    with pytest.raises(ValueError, match="version 2"):
        Constraints.from_json('{"version": 2}')
    with pytest.raises(ValueError, match="constraints: expected JSON"):
        Constraints.from_json("age")


def test_saved_and_loaded(credit, tmp_path):
    frame, y, model = credit
    explainer = ElliCE(model, epsilon=0.003, target="good", constraints=Constraints(immutable=["age"])).fit(frame, y)
    expected = explainer.explain(bad(credit)).to_frame()
    path = explainer.save(tmp_path / "explainer.npz")
    for again in (ElliCE.load(path), ElliCE.load(path, model=model)):
        found = again.explain(bad(credit)).to_frame()
        pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-7)
    other = make_pipeline(*[step for _, step in model.steps[:-1]], LogisticRegression(C=0.01)).fit(frame, y)
    with pytest.raises(ValueError, match="model: expected the one that"):
        ElliCE.load(path, model=other)


def test_an_answer_the_deployed_model_rejects_is_never_handed_out(credit):
    """The last word is the deployed model's own forward."""
    from dataclasses import replace

    frame, y, model = credit
    explainer = ElliCE(model, epsilon=0.003, target="good").fit(frame, y)
    explainer.reading_ = replace(explainer.reading_, deployed_logit=lambda raw: np.full(len(raw), -1.0))
    result = explainer.explain(bad(credit, 2))
    assert set(result.status) == {"not_found"}
    assert result.counterfactuals.isna().all().all()


def test_pictures(credit, tmp_path):
    pytest.importorskip("matplotlib")
    frame, y, model = credit
    explainer = ElliCE(model, epsilon=0.003, target="good").fit(frame, y)
    ax = plot_price_of_robustness(explainer, bad(credit), [0.0, 0.001, 0.003, 10.0])
    line = ax.lines[0].get_ydata()
    assert len(line) == 3
    assert (np.diff(line) > 0).all()
    ax.figure.savefig(tmp_path / "price.png")
    result = explainer.explain(bad(credit))
    ax = plot_changes(result, 1)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(result.changed[1])
    ax.figure.savefig(tmp_path / "changes.png")
