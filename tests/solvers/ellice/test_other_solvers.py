"""Gradients, rows of a table, networks, leaves of trees."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from thrifty.solvers.ellice import Constraints, ElliCE, LeafEmbedding, UnsupportedModelError
from thrifty.solvers.ellice.distances import distances

torch = pytest.importorskip("torch")


def test_danskin(net):
    """The gradient of √(x̃ᵀAx̃) through h, by autograd, is that of the worst model held fixed."""
    from thrifty.solvers.ellice.crowd import Crowd

    X, y, module = net
    explainer = ElliCE(module, epsilon=0.01).fit(X, y)
    problem = explainer._problem(1, explainer.region_)
    crowd = Crowd(problem, X[:5], None)
    rows = torch.tensor(X[:5], requires_grad=True)
    detached = torch.autograd.grad(crowd.slack(rows).sum(), rows)[0]
    features = crowd.tensor_features(rows)
    full = torch.cat([features, torch.ones_like(features[:, :1])], 1)
    spread = ((full @ crowd.inverse) * full).sum(1).sqrt()
    g = full @ crowd.theta - (2 * 0.01) ** 0.5 * spread
    np.testing.assert_allclose(detached, torch.autograd.grad(g.sum(), rows)[0], atol=1e-6)
    np.testing.assert_allclose((g - crowd.slack(rows)).detach(), 1e-6, atol=1e-9)  # the margin


def test_closest_comes_near_the_optimum_and_the_presets_do_not(cancer):
    X, y, model = cancer
    persons = X[y == 0][:6]
    best = ElliCE(model, epsilon=0.01).fit(X, y).explain(persons)
    for preset, at_most in (("closest", 1.005), ("library", 2.0), ("paper", 2.0)):
        result = ElliCE(model, epsilon=0.01, method="gradient", preset=preset).fit(X, y).explain(persons)
        assert set(result.status) == {"feasible"}
        assert (result.worst_logit >= 0).all()
        assert (result.distance >= best.distance - 1e-9).all()
        assert result.distance.mean() <= at_most * best.distance.mean()
        if preset != "closest":
            assert result.distance.mean() > 1.1 * best.distance.mean()


def test_network_float32_with_batch_norm_in_train_mode(net):
    X, y, module = net
    explainer = ElliCE(module, epsilon=0.002).fit(X, y)
    assert explainer.method_ == "gradient"
    persons = X[explainer.reading_.deployed_logit(X) < 0][:10]
    result = explainer.explain(persons)
    assert result.answered.sum() >= 8
    assert module.training, "the network is left as it was"
    answers = torch.tensor(result.counterfactuals[result.answered].to_numpy(float)).float()
    module.eval()
    with torch.no_grad():
        assert (module(answers) >= 0).all()
    module.train()
    assert (result.worst_logit[result.answered] >= 0).all()


@pytest.mark.parametrize("kind", ["sigmoid", "softmax", "log_softmax", "two logits", "residual"])
def test_heads(net, kind):
    X, y, module = net
    module = module.eval()
    body, last = module[:-1], module[-1]
    two = torch.nn.Linear(16, 2)
    with torch.no_grad():
        two.weight.copy_(torch.cat([-last.weight / 2, last.weight / 2]))
        two.bias.copy_(torch.cat([-last.bias / 2, last.bias / 2]))

    class Residual(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.body, self.mix = last, body, torch.nn.Linear(16, 16)
            torch.nn.init.zeros_(self.mix.weight)
            torch.nn.init.zeros_(self.mix.bias)

        def forward(self, x):
            h = self.body(x)
            return self.last(h + self.mix(h)).squeeze(-1)

    made = {
        "sigmoid": lambda: torch.nn.Sequential(body, last, torch.nn.Sigmoid()),
        "softmax": lambda: torch.nn.Sequential(body, two, torch.nn.Softmax(1)),
        "log_softmax": lambda: torch.nn.Sequential(body, two, torch.nn.LogSoftmax(1)),
        "two logits": lambda: torch.nn.Sequential(body, two),
        "residual": Residual,
    }[kind]()
    plain = ElliCE(module, epsilon=0.002).fit(X, y)
    other = ElliCE(made.eval(), epsilon=0.002).fit(X, y)
    np.testing.assert_allclose(other.rashomon_.robust_logit(X), plain.rashomon_.robust_logit(X), atol=1e-5)
    np.testing.assert_allclose(other.reading_.deployed_logit(X), plain.reading_.deployed_logit(X), rtol=1e-3, atol=1e-4)


def test_networks_that_cannot_be_read(net):
    X, y, module = net
    with pytest.raises(UnsupportedModelError, match="expected a linear layer at its end"):
        ElliCE(torch.nn.Sequential(torch.nn.Bilinear(1, 1, 1)).eval()).fit(X, y)
    with pytest.raises(UnsupportedModelError, match="expected the output of a linear layer"):
        ElliCE(torch.nn.Sequential(module, torch.nn.Tanh())).fit(X, y)
    with pytest.raises(UnsupportedModelError, match="expected the output of a linear layer"):
        ElliCE(torch.nn.Sequential(torch.nn.Linear(10, 3))).fit(X, y)
    with pytest.raises(UnsupportedModelError, match="head: expected a part of the model"):
        ElliCE(module, head="nothing").fit(X, y)
    with pytest.raises(ValueError, match="is a network, for which"):
        ElliCE(module, method="exact").fit(X, y)


def test_gradients_keep_to_every_constraint(net):
    X, y, module = net
    limits = Constraints(
        immutable=["x0"],
        one_way={"x1": "decrease"},
        allowed_values={"x2": list(np.linspace(-2, 2, 9))},
        permitted_range={"x3": (-1.0, 1.0)},
        linear=([[0, 0, 0, 0, 1, 1, 0, 0, 0, 0]], [1.0]),
    )
    explainer = ElliCE(module, epsilon=0.001, constraints=limits).fit(X, y)
    persons = X[explainer.reading_.deployed_logit(X) < 0][:12]
    result = explainer.explain(persons)
    done = result.answered
    assert done.sum() >= 4
    answers, was = result.counterfactuals[done].to_numpy(float), persons[done]
    assert (answers[:, 0] == was[:, 0]).all()
    assert (answers[:, 1] <= was[:, 1] + 1e-9).all()
    assert np.isin(answers[:, 2], np.linspace(-2, 2, 9)).all()
    assert (np.abs(answers[:, 3]) <= 1 + 1e-9).all()
    assert (answers[:, 4] + answers[:, 5] <= 1 + 1e-6).all()


def test_gradients_give_one_level_a_category(credit):
    frame, y, model = credit
    persons = frame[model.predict(frame) == "bad"][:8]
    exact = ElliCE(model, epsilon=0.003, target="good", distance="mixed").fit(frame, y).explain(persons)
    found = ElliCE(model, epsilon=0.003, target="good", distance="mixed", method="gradient", random_state=0)
    result = found.fit(frame, y).explain(persons)
    assert result.answered.all()
    assert result.counterfactuals["housing"].isin(["own", "rent", "free"]).all()
    assert (result.distance >= exact.distance - 1e-6).all()
    assert result.distance.mean() < 1.3 * exact.distance.mean()


def test_where_the_descent_finds_nothing_certified_rows_of_the_table_are_begun_from(net):
    """Far from the data a network of ReLUs may have no direction that helps; rows of the table are certified."""
    from thrifty.solvers.ellice.gradient import Descent, solve_gradient

    X, y, module = net
    explainer = ElliCE(module, epsilon=0.05, bounds=None).fit(X, y)
    persons = X[explainer.reading_.deployed_logit(X) < 0][:20]
    problem = explainer._problem(1, explainer.region_)
    alone = solve_gradient(problem, persons, Descent())
    result = explainer.explain(persons)
    assert result.answered.all()
    reached = np.array([answer.row is not None for answer in alone])
    assert not reached.all()
    far = [np.linalg.norm(answer.row - x) for answer, x in zip(alone, persons, strict=True) if answer.row is not None]
    assert (result.distance[reached] <= np.array(far) * (1 + 1e-3)).all()
    nearest = ElliCE(module, epsilon=0.05, bounds=None, method="data").fit(X, y).explain(persons)
    assert (result.distance <= nearest.distance + 1e-9).all()


def test_a_neural_additive_model_is_a_network_like_any_other(cancer):
    """A sum of one small network a column: its last layer is linear in their outputs."""
    X, y, _ = cancer
    X = X[:, :4]

    class Additive(torch.nn.Module):
        def __init__(self):
            super().__init__()
            shape = (torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
            self.parts = torch.nn.ModuleList(torch.nn.Sequential(*shape) for _ in range(4))
            self.last = torch.nn.Linear(8, 1)

        def forward(self, x):
            return self.last(torch.cat([part(x[:, j : j + 1]) for j, part in enumerate(self.parts)], 1))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Additive()
        adam = torch.optim.Adam(module.parameters(), 1e-2)
        inputs, labels = torch.as_tensor(X).float(), torch.as_tensor(y).float()
        for _ in range(200):
            adam.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(module(inputs)[:, 0], labels).backward()
            adam.step()
    explainer = ElliCE(module, epsilon=0.002, constraints=Constraints(immutable=["x1"])).fit(X, y)
    persons = X[explainer.reading_.deployed_logit(X) < 0][:8]
    result = explainer.explain(persons)
    assert result.answered.all()
    assert (result.worst_logit >= 0).all()
    assert (explainer.reading_.deployed_logit(result.counterfactuals.to_numpy(float)) >= 0).all()
    assert (result.counterfactuals["x1"] == persons[:, 1]).all()


def test_gradient_sparsity(net):
    X, y, module = net
    explainer = ElliCE(module, epsilon=0.001, sparsity="min", preset="library").fit(X, y)
    persons = X[explainer.reading_.deployed_logit(X) < 0][:4]
    few = explainer.explain(persons)
    many = ElliCE(module, epsilon=0.001, preset="library").fit(X, y).explain(persons)
    both = few.answered & many.answered
    assert both.any()
    assert np.mean([len(few.changed[i]) for i in np.flatnonzero(both)]) < 8


@pytest.mark.parametrize("distance", ["l2", "l1", "mixed", "sparse"])
@pytest.mark.parametrize("columns", [4, 30])
def test_data_mode_is_brute_force(cancer, distance, columns):
    X, y, _ = cancer
    X = X[:, :columns]
    model = LogisticRegression().fit(X, y)
    explainer = ElliCE(model, epsilon=0.002, method="data", distance=distance, n_counterfactuals=3).fit(X, y)
    persons = X[model.predict(X) == 0][:15]
    result = explainer.explain(persons)
    certified = X[explainer.rashomon_.robust_logit(X) >= 0]
    for i, person in enumerate(persons):
        far = np.sort(distances(certified, person, explainer.region_, distance))[:3]
        np.testing.assert_allclose(result.distance[result.query == i], far, rtol=1e-9, atol=1e-12)


def test_data_mode_keeps_to_constraints_and_says_when_nothing_fits(credit):
    frame, y, model = credit
    persons = frame[model.predict(frame) == "bad"][:20]
    limits = Constraints(immutable=["housing", "job"], one_way={"age": "increase"})
    result = (
        ElliCE(model, epsilon=0.003, target="good", method="data", constraints=limits).fit(frame, y).explain(persons)
    )
    done = result.answered
    assert done.any()
    for name in ("housing", "job"):
        assert (result.counterfactuals[done][name] == persons[done][name]).all()
    assert (result.counterfactuals[done]["age"].astype(float) >= persons[done]["age"]).all()
    stuck = Constraints(immutable=list(frame.columns))
    nobody = (
        ElliCE(model, epsilon=0.003, target="good", method="data", constraints=stuck).fit(frame, y).explain(persons)
    )
    assert set(nobody.status) == {"no_candidate"}
    assert nobody.counterfactuals.isna().all().all()


def test_mlp_classifier_and_pipeline(cancer):
    X, y, _ = cancer
    model = make_pipeline(StandardScaler(), MLPClassifier((12,), max_iter=300, random_state=0)).fit(X[:, :8], y)
    explainer = ElliCE(model, epsilon=0.0005).fit(X[:, :8], y)
    np.testing.assert_allclose(
        explainer.rashomon_.nominal_logit(X[:, :8]),
        explainer.reading_.deployed_logit(explainer.reading_.encoding.frame(X[:, :8])),
        atol=1e-6,
    )
    persons = X[model.predict(X[:, :8]) == 0][:3, :8]
    result = explainer.explain(persons)
    assert result.answered.any()
    assert (model.predict(result.counterfactuals[result.answered].to_numpy(float)) == 1).all()


def test_tree_ensembles_come_in_by_their_leaves(cancer):
    X, y, _ = cancer
    with pytest.raises(UnsupportedModelError, match="LeafEmbedding"):
        ElliCE(RandomForestClassifier(5, random_state=0).fit(X, y)).fit(X, y)
    trees = GradientBoostingClassifier(n_estimators=8, max_depth=2, random_state=0)
    model = make_pipeline(LeafEmbedding(trees), LogisticRegression()).fit(X, y)
    explainer = ElliCE(model, epsilon=0.001).fit(X, y)
    assert explainer.method_ == "data"
    result = explainer.explain(X[model.predict(X) == 0][:5])
    assert result.answered.all()
    assert (model.predict(result.counterfactuals.to_numpy(float)) == 1).all()
    with pytest.raises(ValueError, match="cannot be undone"):
        ElliCE(model, method="exact").fit(X, y)
    mixed = make_pipeline(PCA(5), LogisticRegression()).fit(X, y)
    assert ElliCE(mixed, epsilon=0.001).fit(X, y).method_ == "data"


def test_one_call_or_many_give_the_same(net):
    X, y, module = net
    explainer = ElliCE(module, epsilon=0.001).fit(X, y)
    persons = X[explainer.reading_.deployed_logit(X) < 0][:3]
    together = explainer.explain(persons)
    alone = [explainer.explain(person[None]) for person in persons]
    for i in range(3):
        assert alone[i].distance[0] == pytest.approx(together.distance[i], rel=1e-3, nan_ok=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_the_answers_are_certified_too(net):
    X, y, module = net
    result = ElliCE(module, epsilon=0.002, device="cuda").fit(X, y).explain(X[y == 0][:16])
    assert result.answered.any()
    assert (result.worst_logit[result.answered] >= 0).all()
