"""Training, resuming, forecasting, saving, several processes; and what the estimators refuse."""

from pathlib import Path

import numpy as np
import pytest
import torch
from toys import graph

from thrifty.models.se_htgnn import (
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
from thrifty.models.se_htgnn.scaling import Scaling

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
    assert not place.exists()
    assert cut.history_.losses == pytest.approx(whole.history_.losses)
    assert np.allclose(cut.predict(data), whole.predict(data))
    with pytest.raises(KeyboardInterrupt):
        NodeRegressor("a", **SMALL).fit(data, checkpoint=place, progress=stop)
    with pytest.raises(ValueError, match=r"lr: the run in .* has 0.005, got 0.1"):
        NodeRegressor("a", **(SMALL | {"lr": 0.1})).fit(data, checkpoint=place)
    with pytest.raises(ValueError, match="is of another model or of other data"):
        NodeRegressor("a", **SMALL).fit(wave(41), checkpoint=place)
    place.write_bytes(b"no")
    with pytest.raises(ValueError, match="is damaged"):
        NodeRegressor("a", **SMALL).fit(data, checkpoint=place)


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


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_share_the_windows(torchrun, tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from thrifty._common.runs import join\n"
        "device = join('cpu')\n"
        "import torch\n"
        "from test_estimators import SMALL, wave\n"
        "from thrifty.models.se_htgnn import NodeRegressor\n"
        "model = NodeRegressor('a', **SMALL).fit(wave())\n"
        "total = sum(float(p.detach().double().sum()) for p in model.model_.parameters())\n"
        "print('TOTAL', round(total, 6), flush=True)\n"
        "torch.distributed.destroy_process_group()\n"
    )
    out = torchrun(script, Path(__file__).parent)
    totals = [line.split()[1] for line in out.splitlines() if line.startswith("TOTAL")]
    assert len(totals) == 2
    assert totals[0] == totals[1]
    alone = NodeRegressor("a", **SMALL).fit(wave())
    total = sum(float(p.detach().double().sum()) for p in alone.model_.parameters())
    assert float(totals[0]) == pytest.approx(total, abs=0.3)
