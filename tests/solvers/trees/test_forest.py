"""Forests: each tree on the rows that it was fitted on."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.multioutput import MultiOutputClassifier

from thrifty.solvers.trees.forest import improve_forest

X, Y = load_wine(return_X_y=True)
NAMES = np.array(["barolo", "grignolino", "barbera"])[Y]
SHALLOW = {"n_estimators": 6, "max_depth": 2, "random_state": 0}


@pytest.fixture
def forest():
    return RandomForestClassifier(**SHALLOW | {"n_estimators": 30}, oob_score=True).fit(X, NAMES)


def test_each_tree_improves_on_its_own_sample(forest):
    before = copy.deepcopy(forest)
    better, reports = improve_forest(forest, X, NAMES, k=1)
    assert sum(report.n_errors_before for report in reports) > sum(report.n_errors for report in reports)
    for tree, report, rows in zip(better.estimators_, reports, forest.estimators_samples_, strict=True):
        codes = np.searchsorted(forest.classes_, NAMES)
        assert (tree.predict(X[rows]) != codes[rows]).sum() == report.n_errors
        assert len(report.operations) <= 1
        assert report.is_reasonable, "a tree is reasonable on the sample that it was grown on"
    np.testing.assert_array_equal(forest.predict_proba(X), before.predict_proba(X))
    np.testing.assert_array_equal(
        better.predict_proba(X), np.mean([tree.predict_proba(X) for tree in better.estimators_], axis=0)
    )
    assert not hasattr(better, "oob_score_")
    assert hasattr(forest, "oob_score_")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(better)).predict(X), better.predict(X))


def test_threads_do_not_change_the_result(forest):
    one, _ = improve_forest(forest, X, NAMES)
    two, _ = improve_forest(forest, X, NAMES, n_jobs=2)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_all_rows(forest):
    better, reports = improve_forest(forest, X, NAMES, sample="all", mode="hillclimb", operation="adjust")
    codes = np.searchsorted(forest.classes_, NAMES)
    for tree, report in zip(better.estimators_, reports, strict=True):
        assert (tree.predict(X) != codes).sum() == report.n_errors


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
@pytest.mark.parametrize("bootstrap", [True, False])
@pytest.mark.parametrize("class_weight", [None, "balanced", "balanced_subsample", {"barolo": 2.0}])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_weights_of_every_fit_are_found_again(kind, bootstrap, class_weight, weighted):
    weight = np.random.default_rng(0).integers(1, 4, size=len(Y)).astype(float) if weighted else None
    model = kind(3, max_depth=2, random_state=1, bootstrap=bootstrap, class_weight=class_weight)
    model.fit(X, NAMES, sample_weight=weight)
    better, reports = improve_forest(model, X, NAMES, k=0, sample_weight=weight)
    np.testing.assert_allclose(better.predict_proba(X), model.predict_proba(X))
    assert [report.n_errors for report in reports] == pytest.approx([report.n_errors_before for report in reports])


def test_small_trees_take_the_cuts_that_they_have(forest, recwarn):
    _, reports = improve_forest(forest, X, NAMES, k=np.int64(1), features=[0, 6, 9])
    assert len(reports) == 30
    stump = RandomForestClassifier(2, max_depth=1, random_state=0).fit(X, NAMES)
    improve_forest(stump, X, NAMES, k=5)
    assert not recwarn.list


def test_frames_and_missing_values():
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    frame.iloc[::7, 1] = np.nan
    model = RandomForestClassifier(**SHALLOW).fit(frame, NAMES)
    better, reports = improve_forest(model, frame, NAMES)
    assert sum(r.n_errors for r in reports) <= sum(r.n_errors_before for r in reports)
    assert better.predict(frame).shape == NAMES.shape
    with pytest.raises(ValueError, match="feature names"):
        improve_forest(model, frame.rename(columns={"a": "z"}), NAMES)


def test_what_does_not_fit_is_refused(forest):
    with pytest.raises(TypeError, match="forest: expected .*got a RandomForestRegressor"):
        improve_forest(RandomForestRegressor(2).fit(X, Y), X, Y)
    with pytest.raises(NotFittedError):
        improve_forest(RandomForestClassifier(), X, Y)
    with pytest.raises(ValueError, match="forest: expected one output .*got 2"):
        improve_forest(RandomForestClassifier(2).fit(X, np.column_stack([Y, Y])), X, Y)
    with pytest.raises(ValueError, match="X: expected the 178 rows .*got 177"):
        improve_forest(forest, X[1:], NAMES[1:])
    with pytest.raises(ValueError, match="expected those that the forest was fitted on"):
        improve_forest(forest, X, np.random.default_rng(0).permutation(NAMES))
    with pytest.raises(ValueError, match=r"y: expected .*got also \['merlot'\]"):
        improve_forest(forest, X, np.where(Y == 0, "merlot", NAMES))
    with pytest.raises(ValueError, match="X has 3 features"):
        improve_forest(forest, X[:, :3], NAMES)
    with pytest.raises(ValueError, match="sample: expected .*got 'half'"):
        improve_forest(forest, X, NAMES, sample="half")
    with pytest.raises(ValueError, match="k: expected .*got -1"):
        improve_forest(forest, X, NAMES, k=-1)
    with pytest.raises(TypeError, match="MultiOutputClassifier"):
        improve_forest(MultiOutputClassifier(RandomForestClassifier()), X, NAMES)
