"""Training, resuming, forecasting, saving, several processes; and what the estimators refuse."""

from pathlib import Path

import numpy as np
import pytest
import torch
from toys import graph

from thrifty.models.se_htgnn import (
    SEHTGNN,
    Edges,
    HeteroTemporalData,
    LinkForecaster,
    NodeClassifier,
    NodeRegressor,
    Split,
    fitting,
    load_forecaster,
    temporal_split,
)
from thrifty.models.se_htgnn.metrics import classification_metrics, link_metrics, regression_metrics
from thrifty.models.se_htgnn.scaling import FeatureScaling, Scaling

SMALL = {"hidden_channels": 4, "window": 3, "epochs": 6, "validation": 4, "random_state": 0, "batch_size": 4}


def wave(snapshots=40):
    """Nodes of type a repeat, one step later, what their neighbour of type b showed: a graph is needed to know it."""
    g = torch.Generator().manual_seed(0)
    signal = torch.randn(snapshots, 3, generator=g)
    everyone = torch.arange(3).repeat(snapshots)
    when = torch.arange(snapshots).repeat_interleave(3)
    edges = {("b", "drives", "a"): Edges(torch.stack([everyone, everyone]), when)}
    y = torch.cat([torch.zeros(1, 3), signal[:-1]])
    return HeteroTemporalData(
        {"a": 3, "b": 3}, edges, {"a": torch.ones(snapshots, 3, 1), "b": signal[..., None]}, {"a": 100 + 10 * y}
    )


def test_it_learns_what_only_neighbours_tell():
    data = wave(80)
    model = NodeRegressor(
        "a", hidden_channels=8, window=2, epochs=150, lr=2e-2, validation=10, random_state=0, patience=150
    )
    model.fit(data, temporal_split(data, 2, 10, 20))
    scores = model.evaluate(data, range(60, 80))
    naive = float((data.y["a"][60:] - 100).abs().mean())
    assert scores["mae"] < 0.3 * naive
    assert model.predict(data).shape == (1, 3, 1)
    assert set(model.attention_weights(data)) == {(0, ("b", "drives", "a"))}


@pytest.mark.parametrize(
    "settings",
    [
        {"num_neighbors": [2]},
        {"log1p": True, "nonnegative": True},
        {"horizon": 3},
        {"num_layers": 2, "norm": "node", "heads": 2, "dropout": 0.1},
    ],
)
def test_every_way_of_fitting_forecasts_the_next_snapshot(settings, tmp_path):
    data = wave()
    model = NodeRegressor("a", **(SMALL | {"epochs": 2} | settings)).fit(data)
    assert model.predict(data).shape == (1, 3, settings.get("horizon", 1))
    assert np.isfinite(model.predict(data, [10, 11])).all()
    model.save_pretrained(tmp_path / "m")
    again = load_forecaster(tmp_path / "m")
    assert isinstance(again, NodeRegressor)
    assert np.allclose(again.predict(data), model.predict(data))
    assert again.evaluate(data, [20, 21]) == pytest.approx(model.evaluate(data, [20, 21]))


def test_the_same_seed_gives_the_same_forecast():
    data = wave()
    first, second = (NodeRegressor("a", **SMALL).fit(data).predict(data) for _ in range(2))
    assert np.array_equal(first, second)


def test_fitting_reads_no_snapshot_after_its_split():
    """What comes after validation is changed: weights stay as they were."""
    data = wave()
    split = Split(np.arange(3, 20), np.arange(20, 25), np.arange(25, 40))
    x = {name: v.clone() for name, v in data.x.items()}
    y = {"a": data.y["a"].clone()}
    x["b"][25:] = 50.0
    y["a"][25:] = -1e6
    other = HeteroTemporalData(data.num_nodes, data.edges, x, y)
    first, second = (NodeRegressor("a", **SMALL).fit(d, split) for d in (data, other))
    for a, b in zip(first.model_.parameters(), second.model_.parameters(), strict=True):
        assert torch.equal(a, b)


def test_classes_are_learnt_and_kept(tmp_path):
    data = wave()
    y = torch.where(data.y["a"] > 100, 7.0, 3.0)
    y[5, 1] = float("nan")
    some = HeteroTemporalData(data.num_nodes, data.edges, data.x, {"a": y})
    model = NodeClassifier("a", **(SMALL | {"epochs": 30, "lr": 2e-2})).fit(some)
    assert set(model.predict(some, range(3, 40)).ravel().tolist()) <= {3, 7}
    assert model.predict_proba(some).sum(-1) == pytest.approx(np.ones((1, 3, 1)))
    assert model.evaluate(some, range(3, 36))["macro_f1"] > 0.6
    model.save_pretrained(tmp_path / "m")
    assert np.array_equal(NodeClassifier.from_pretrained(tmp_path / "m").predict(some), model.predict(some))
    with pytest.raises(ValueError, match="expected a NodeRegressor in .*, got a NodeClassifier"):
        NodeRegressor.from_pretrained(tmp_path / "m")
    one = HeteroTemporalData(data.num_nodes, data.edges, data.x, {"a": torch.ones_like(y)})
    with pytest.raises(ValueError, match="expected at least two classes"):
        NodeClassifier("a", **SMALL).fit(one)


BOUGHT = ("user", "buys", "item")


def blocks(snapshots=12):
    """Users of one half buy items of one half, every day."""
    rng = np.random.default_rng(0)
    source = rng.integers(0, 20, 60 * snapshots)
    target = np.where(source < 10, rng.integers(0, 8, len(source)), rng.integers(8, 16, len(source)))
    edges = {
        ("user", "buys", "item"): Edges(
            torch.from_numpy(np.stack([source, target])), torch.arange(snapshots).repeat_interleave(60)
        )
    }
    return HeteroTemporalData({"user": 20, "item": 16}, edges).with_reverse()


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_links_are_told_from_pairs_that_are_none(decoder, tmp_path):
    data = blocks()
    model = LinkForecaster(
        ("user", "buys", "item"),
        hidden_channels=16,
        window=3,
        epochs=40,
        lr=3e-2,
        validation=2,
        decoder=decoder,
        random_state=0,
    )
    model.fit(data, temporal_split(data, 3, 2, 2))
    assert model.evaluate(data, [10, 11])["auc"] > 0.75
    pairs = torch.tensor([[0, 0], [0, 15]])
    inside, across = model.predict(data, pairs)
    assert inside > across
    model.save_pretrained(tmp_path / "m")
    assert np.allclose(load_forecaster(tmp_path / "m").predict(data, pairs), [inside, across])


def test_links_of_a_sample():
    data = blocks()
    model = LinkForecaster(
        ("user", "buys", "item"), hidden_channels=4, window=3, epochs=1, validation=2, num_neighbors=[3], random_state=0
    )
    assert model.fit(data).predict(data, torch.tensor([[0], [1]])).shape == (1,)


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    data, place = wave(), tmp_path / "run.pt"
    whole = NodeRegressor("a", **SMALL).fit(data)

    def stop(epoch, epochs, loss, score):
        if epoch == 3:
            raise KeyboardInterrupt

    cut = NodeRegressor("a", **SMALL)
    with pytest.raises(KeyboardInterrupt):
        cut.fit(data, checkpoint=place, progress=stop)
    assert place.exists()
    told = []
    cut.fit(data, checkpoint=place, progress=lambda epoch, *_: told.append(epoch))
    assert told == [4, 5, 6]
    assert cut.history_.losses == pytest.approx(whole.history_.losses)
    assert np.allclose(cut.predict(data), whole.predict(data))
    assert np.allclose(NodeRegressor("a", **SMALL).fit(data, checkpoint=place).predict(data), whole.predict(data))
    longer = NodeRegressor("a", **(SMALL | {"epochs": 8})).fit(data, checkpoint=place)
    assert len(longer.history_.losses) == 8


OTHER_RUNS = {
    "lr": {"lr": 0.1},
    "log1p": {"log1p": True},
    "validation": {"validation": 5},
    "num_neighbors": {"num_neighbors": [3]},
    "random_state": {"random_state": 1},
}


@pytest.mark.parametrize("name", OTHER_RUNS)
def test_a_checkpoint_goes_on_with_the_same_settings_only(name, tmp_path):
    data, place = wave(), tmp_path / "run.pt"
    NodeRegressor("a", **(SMALL | {"epochs": 1})).fit(data, checkpoint=place)
    with pytest.raises(ValueError, match=f"{name}: the run in .* has .*, got "):
        NodeRegressor("a", **(SMALL | OTHER_RUNS[name])).fit(data, checkpoint=place)


def test_a_checkpoint_goes_on_with_the_same_data_and_split_only(tmp_path):
    data, place = wave(), tmp_path / "run.pt"
    NodeRegressor("a", **(SMALL | {"epochs": 1})).fit(data, checkpoint=place)
    triple = ("b", "drives", "a")
    held = data.edges[triple]
    shifted = HeteroTemporalData(data.num_nodes, {triple: Edges(held.index, held.snapshot.flip(0))}, data.x, data.y)
    weighted = Edges(held.index, held.snapshot, torch.full((120,), 2.0))
    for other in (shifted, HeteroTemporalData(data.num_nodes, {triple: weighted}, data.x, data.y)):
        with pytest.raises(ValueError, match="data: the run in"):
            NodeRegressor("a", **SMALL).fit(other, checkpoint=place)
    with pytest.raises(ValueError, match="split: the run in .* has 33 to train from 3 to 35"):
        NodeRegressor("a", **SMALL).fit(data, temporal_split(data, 3, 4, 10), checkpoint=place)
    whole = place.read_bytes()
    torch.save({"something": 1}, tmp_path / "else.pt")
    for content in (b"no", whole[: len(whole) // 2], (tmp_path / "else.pt").read_bytes()):
        place.write_bytes(content)
        with pytest.raises(ValueError, match="run.pt is damaged, or none"):
            NodeRegressor("a", **SMALL).fit(data, checkpoint=place)


def test_a_sampled_run_goes_on_from_its_checkpoint(tmp_path):
    data, place = wave(), tmp_path / "run.pt"
    settings = SMALL | {"num_neighbors": [2], "dropout": 0.2}
    whole = NodeRegressor("a", **settings).fit(data)

    def stop(epoch, *_):
        if epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        NodeRegressor("a", **settings).fit(data, checkpoint=place, progress=stop)
    again = NodeRegressor("a", **settings).fit(data, checkpoint=place)
    assert again.history_.losses == whole.history_.losses
    assert np.array_equal(again.predict(data), whole.predict(data))


def test_features_are_in_any_unit():
    data = wave()
    found = []
    for unit in (1, 1e6):
        x = {"a": data.x["a"], "b": data.x["b"] * unit + 3 * unit}
        other = HeteroTemporalData(data.num_nodes, data.edges, x, data.y)
        found.append(NodeRegressor("a", **SMALL).fit(other).predict(other))
    assert np.allclose(*found, atol=1e-3)
    scaling = FeatureScaling.of(other, 20)
    scaled = scaling(other).x["b"][:20].reshape(-1)
    assert float(scaled.mean()) == pytest.approx(0, abs=1e-4)
    assert float(scaled.std(correction=0)) == pytest.approx(1, abs=1e-4)
    x = {
        "a": torch.ones(3, 2, 1),
        "b": torch.tensor([[[5.0], [0]], [[7], [0]], [[9], [0]]]),
    }  # the second never is there
    absent = HeteroTemporalData({"a": 2, "b": 2}, {}, x)
    out = FeatureScaling.of(absent, 2)(absent)
    assert out.x["b"][:, :, 0].tolist() == [[-1, 0], [1, 0], [3, 0]]
    assert torch.equal(out.present["b"], absent.present["b"])


def test_graphs_that_were_made_otherwise_are_refused():
    data = wave()
    model = NodeRegressor("a", **(SMALL | {"epochs": 1})).fit(data)
    other = {("b", "pushes", "a"): data.edges["b", "drives", "a"]}
    with pytest.raises(ValueError, match="fitted to the edge types .* got .*pushes"):
        model.predict(HeteroTemporalData(data.num_nodes, other, data.x, data.y))
    wide = data.x | {"b": torch.ones(40, 3, 2)}
    with pytest.raises(ValueError, match="fitted to 1 features of 'b', got 2"):
        model.predict(HeteroTemporalData(data.num_nodes, data.edges, wide, data.y))
    with pytest.warns(UserWarning, match="no edges of .*drives"):
        model.predict(HeteroTemporalData(data.num_nodes, {}, data.x, data.y))
    with pytest.raises(ValueError, match="targets: expected at least one snapshot"):
        model.predict(data, [])


def test_nodes_known_by_their_place_keep_it():
    data = blocks()
    named = HeteroTemporalData(data.num_nodes, data.edges, ids={"user": list("abcdefghijklmnopqrst")})
    model = LinkForecaster(BOUGHT, hidden_channels=4, window=3, epochs=1, validation=2, random_state=0).fit(named)
    other = HeteroTemporalData(data.num_nodes, data.edges, ids={"user": list("bacdefghijklmnopqrst")})
    with pytest.raises(ValueError, match="knows nodes of 'user' by their order"):
        model.predict(other, torch.tensor([[0], [0]]))
    more = HeteroTemporalData({"user": 21, "item": 16}, data.edges, ids={"user": list("abcdefghijklmnopqrstu")})
    assert model.predict(more, torch.tensor([[20], [0]])).shape == (1,)
    for pairs in (torch.ones(3, 2), torch.tensor([[-1], [0]]), torch.tensor([[0], [99]])):
        with pytest.raises(ValueError, match="pairs: expected"):
            model.predict(named, pairs)
    with pytest.raises(ValueError, match="target: expected an edge type among"):
        LinkForecaster(list(BOUGHT), **SMALL).fit(data)


def test_a_model_knows_what_its_fit_was_decided_by(tmp_path):
    data = wave()
    model = NodeRegressor("a", **(SMALL | {"epochs": 1})).fit(data, temporal_split(data, 3, 4, 6))
    model.save_pretrained(tmp_path / "m")
    again = load_forecaster(tmp_path / "m", device="cpu")
    assert again.graph_.seen(data, range(30, 40)) == 4
    assert again.graph_.seen(data, range(34, 40)) == 0


def test_labels_that_are_missing_are_told_by_the_part_that_lacks_them():
    data = wave()
    y = data.y["a"].clone()
    y[-4:] = float("nan")
    with pytest.raises(ValueError, match=r"validation: expected labels of 'a' in its snapshots \(36 to 39\), got none"):
        NodeRegressor("a", **SMALL).fit(HeteroTemporalData(data.num_nodes, data.edges, data.x, {"a": y}))


def test_classes_of_the_whole_horizon_are_known_and_whole():
    data = wave()
    y = torch.where(data.y["a"] > 100, 2.0, 0.0)
    y[35] = 1.0  # the last step of the last training horizon
    split = Split(np.arange(3, 35), np.arange(36, 39), np.arange(0))
    some = HeteroTemporalData(data.num_nodes, data.edges, data.x, {"a": y.long()})
    model = NodeClassifier("a", **(SMALL | {"epochs": 1, "horizon": 2})).fit(some, split)
    assert model.classes_.tolist() == [0, 1, 2]
    halves = HeteroTemporalData(data.num_nodes, data.edges, data.x, {"a": y / 4})
    with pytest.raises(ValueError, match="y: expected classes as whole numbers, got 0."):
        NodeClassifier("a", **SMALL).fit(halves)


def test_settings_may_be_numbers_of_numpy(tmp_path):
    settings = SMALL | {"window": np.int64(3), "lr": np.float32(0.005), "hidden_channels": np.int64(4)}
    model = NodeRegressor("a", **settings).fit(wave())
    model.save_pretrained(tmp_path / "m")
    assert load_forecaster(tmp_path / "m").window == 3


def test_a_save_that_was_cut_off_is_no_model(tmp_path, monkeypatch):
    data = wave()
    model = NodeRegressor("a", **(SMALL | {"epochs": 1})).fit(data)

    def full(self, folder, **more):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SEHTGNN, "save_pretrained", full)
        with pytest.raises(OSError, match="No space"):
            model.save_pretrained(tmp_path / "m")
    with pytest.raises(OSError, match="config.json"):
        load_forecaster(tmp_path / "m")
    model.save_pretrained(tmp_path / "m")  # it may be written again
    assert np.array_equal(load_forecaster(tmp_path / "m").predict(data), model.predict(data))


def test_attention_is_that_of_the_forecasts():
    data = graph()
    model = NodeRegressor(
        "a", hidden_channels=4, num_layers=1, window=3, epochs=3, validation=2, num_neighbors=[1], random_state=0
    ).fit(data)
    running = torch.softmax(model.model_.convs[0].running_0, 1)[:, 0].numpy()
    assert np.allclose(model.attention_weights(data)[0, ("a", "near", "a")][0], running)
    with pytest.raises(ValueError, match=r"num_neighbors: expected 2 numbers, one a layer, got \[3\]"):
        NodeRegressor("a", num_layers=2, window=3, num_neighbors=[3], validation=2).fit(data)


def test_links_of_a_sample_are_read_from_a_sample(monkeypatch):
    data = blocks()
    model = LinkForecaster(
        ("user", "buys", "item"), hidden_channels=4, window=3, epochs=1, validation=2, num_neighbors=[3], random_state=0
    ).fit(data)
    sizes = []
    encode = SEHTGNN.encode

    def spy(self, batch, *more):
        sizes.append((batch.sampled, len(batch.seeds)))
        return encode(self, batch, *more)

    monkeypatch.setattr(SEHTGNN, "encode", spy)
    assert model.predict(data, torch.tensor([[0, 3], [1, 2]])).shape == (2,)
    assert sizes == [(True, 20), (True, 16)]


def test_it_stops_early_and_keeps_the_best():
    data = wave()
    model = NodeRegressor("a", **(SMALL | {"epochs": 60, "patience": 2, "lr": 0.3})).fit(data)
    history = model.history_
    assert len(history.scores) < 60
    assert history.best_score == min(history.scores)
    assert model.evaluate(data, range(36, 40))["mae"] == pytest.approx(history.best_score)


def test_a_loss_that_is_not_finite_is_told():
    data = wave()
    model = NodeRegressor("a", **(SMALL | {"lr": 1e30}))
    with pytest.raises(RuntimeError, match="lower lr, or scale the targets"):
        model.fit(data)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "c"}, "target: expected a node type with y, among a, got 'c'"),
        ({"epochs": 0}, "epochs: expected"),
        ({"window": 60}, "leave none to train on"),
        ({"lr": -1.0}, "lr: expected a number above 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        NodeRegressor(**({"target": "a"} | SMALL | settings)).fit(wave())
    with pytest.raises(ValueError, match="target: expected an edge type among"):
        LinkForecaster(("a", "to", "b"), **SMALL).fit(wave())
    with pytest.raises(ValueError, match="links are forecast one step ahead"):
        LinkForecaster(("b", "drives", "a"), **(SMALL | {"horizon": 2})).fit(wave())


def test_steps_are_runs_of_neighbours_and_every_window_is_in_one():
    found = fitting.steps(np.arange(7, 40), 8, np.random.default_rng(0))
    assert sorted(np.concatenate(found).tolist()) == list(range(7, 40))
    assert all(len(part) <= 8 and (np.diff(part) == 1).all() for part in found)


def test_metrics():
    observed = np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, np.nan]])
    found = regression_metrics(np.array([[2.0, 0.0], [3.0, 8.0], [1.0, 1.0]]), observed)
    assert found == pytest.approx(
        {"mae": (1 + 1.5) / 2, "rmse": (1 + np.sqrt(4.5)) / 2, "rmse_pooled": np.sqrt(10 / 3)}
    )
    assert classification_metrics(np.array([0, 1, 1]), np.array([0, 1, 0]))["macro_f1"] == pytest.approx(2 / 3)
    assert link_metrics(np.array([3.0, 2.0, 1.0]), np.array([1, 0, 1]))["auc"] == 0.5
    with pytest.warns(UserWarning, match="only one kind of pair"):
        assert np.isnan(link_metrics(np.ones(3), np.ones(3))["auc"])
    with pytest.raises(ValueError, match="expected at least one number"):
        regression_metrics(np.ones((1, 1)), np.full((1, 1), np.nan))


def test_targets_are_scaled_and_brought_back():
    y = torch.tensor([[0.0, 10.0], [100_000.0, float("nan")]])
    for log in (False, True):
        scaling = Scaling.of(y, log)
        assert scaling.invert(scaling(y).numpy())[1, 0] == pytest.approx(100_000, rel=1e-5)
    with pytest.raises(ValueError, match="log1p: expected targets of at least 0"):
        Scaling.of(-y, True)
    with pytest.raises(ValueError, match="at least one observed value"):
        Scaling.of(torch.full((2, 2), float("nan")))


def test_a_sampled_batch_keeps_running_means():
    data = graph()
    model = NodeRegressor(
        "a", hidden_channels=4, num_layers=1, window=3, epochs=1, validation=2, num_neighbors=[2], random_state=0
    ).fit(data)
    running = model.model_.convs[0].running_0
    assert running.shape == (3, 2, 1)
    assert running.abs().sum() > 0


DISTRIBUTED = SMALL | {"epochs": 2, "batch_size": 3}  # 33 windows: shares of 2 and 1, and a step of one


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_are_as_one(torchrun, tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from thrifty._common.runs import join\n"
        "device = join('cpu')\n"
        "import torch\n"
        "from test_estimators import DISTRIBUTED, patchy\n"
        "from thrifty.models.se_htgnn import NodeRegressor\n"
        "model = NodeRegressor('a', **DISTRIBUTED).fit(patchy())\n"
        "total = sum(float(p.detach().double().abs().sum()) for p in model.model_.parameters())\n"
        "sys.stdout.write(' '.join(map(str, ['TOTAL', total, *model.history_.losses])) + ' \\n')\n"
        "torch.distributed.destroy_process_group()\n"
    )
    out = torchrun(script, Path(__file__).parent)
    found = [[float(x) for x in part.split()[:3]] for part in out.split("TOTAL")[1:]]
    assert len(found) == 2
    alone = NodeRegressor("a", **DISTRIBUTED).fit(patchy())
    total = sum(float(p.detach().double().abs().sum()) for p in alone.model_.parameters())
    for numbers in found:
        assert numbers == pytest.approx([total, *alone.history_.losses], abs=1e-4)


def patchy():
    """As ``wave``, with labels that are missing unevenly."""
    data = wave()
    y = data.y["a"].clone()
    y[torch.rand(y.shape, generator=torch.Generator().manual_seed(1)) < 0.4] = float("nan")
    return HeteroTemporalData(data.num_nodes, data.edges, data.x, {"a": y})
