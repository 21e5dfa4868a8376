"""The loop: when it checks, when it chooses, what a loader yields, and that it goes on exactly where it stopped."""

import csv
import json
import logging
import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from thrifty.data.coreset import (
    Coreset,
    CoresetLoader,
    Craig,
    Crest,
    Glister,
    GradMatch,
    History,
    InfoBatch,
    RandomSubset,
    RepresentativenessMonitor,
)


def data(n=120, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    return TensorDataset(torch.randn(n, 6, generator=generator) + labels[:, None] / 2, labels)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def train(loader, model, epochs, optimizer=None, stop_after=None):
    """Train for some epochs, or up to a batch of the last; return the optimizer and the losses."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for epoch in range(epochs):
        for at, ((x, y), weights) in enumerate(loader):
            each = functional.cross_entropy(model(x), y, reduction="none")
            loader.observe(each)
            optimizer.zero_grad()
            (weights * each).mean().backward()
            optimizer.step()
            losses.append(float((weights * each).mean()))
            if stop_after is not None and (epoch, at + 1) == stop_after:
                return optimizer, losses
    return optimizer, losses


class Scripted(Coreset):
    """A coreset whose ratios are given, and that remembers with which parameters they were asked for."""

    def script(self, ratios):
        self.ratios, self.asked = list(ratios), []
        return self

    def ratio(self, gradients):
        if self._choosing:
            return 1.0
        self.asked.append((self.epoch, next(self.model.parameters()).flatten()[0].item()))
        return self.ratios.pop(0)

    _choosing = False

    def _choose(self, row):
        self._choosing = True
        super()._choose(row)
        self._choosing = False


def updates_with(ratios, epochs=10, **monitor):
    model = network()
    coreset = Scripted(model, data(), monitor=RepresentativenessMonitor(**monitor), budget=12).script(ratios)
    for epoch in range(1, epochs + 1):
        with torch.no_grad():
            next(model.parameters()).fill_(epoch - 1)  # what the epoch before has left
        coreset.begin_epoch(epoch)
    return coreset


def test_checks_come_every_few_epochs_before_the_epoch():
    coreset = updates_with([0.5, 0.2, 0.4], threshold=0.3, every=3)
    assert coreset.asked == [(3, 2.0), (6, 5.0), (9, 8.0)], "with the parameters of the epoch before"
    assert [row.epoch for row in coreset.history if row.checked] == [3, 6, 9]
    assert [row.epoch for row in coreset.history if row.updated] == [1, 6]


def test_higher_thresholds_update_more_below_and_less_after_a_drop():
    ratios = [0.95, 0.8, 0.65, 0.5, 0.35, 0.2, 0.6, 0.4, 0.3, 0.1]
    for trigger, more in (("below", True), ("relative_drop", False)):
        counts = [
            updates_with(ratios, trigger=trigger, threshold=tau, every=1).history.updates
            for tau in (0.15, 0.3, 0.45, 0.7)
        ]
        assert counts == sorted(counts, reverse=not more)
        assert counts[0] != counts[-1]


def monitor_run(ratios, **settings):
    monitor = RepresentativenessMonitor(every=1, **settings)
    monitor.selected(1.0)
    return [monitor.decide(epoch, ratio) for epoch, ratio in enumerate(ratios, start=1)]


def test_triggers_by_their_definitions():
    assert monitor_run([0.4, 0.3, 0.29], threshold=0.3) == [False, False, True]
    assert monitor_run([0.9, 0.71, 0.69], threshold=0.3, trigger="relative_drop") == [False, False, True]
    assert monitor_run([3, 2, 5, 1, 2.4], threshold=0.3, trigger="percentile", window=3) == [
        False, False, False, True, False,
    ]  # fmt: skip
    assert monitor_run([9, 9], trigger="interval") == [True, True]
    assert monitor_run([0, 0], trigger="never") == [False, False]
    assert monitor_run([0.1, 0.1], trigger=lambda check: check.epoch == 2 and check.reference == 1.0) == [False, True]
    assert not RepresentativenessMonitor(trigger="never").due(3)


def test_guards_hold_updates_back():
    low = [0.1] * 6
    assert monitor_run(low, cooldown=2) == [True, False, False, True, False, False]
    assert monitor_run(low, min_gap=4) == [True, False, False, False, True, False]
    assert monitor_run(low, max_updates=2) == [True, True, False, False, False, False]


@pytest.mark.parametrize(("ratio", "words"), [(0.9, "never fired"), (0.1, "always fired")])
def test_a_threshold_that_says_nothing_is_reported_once(ratio, words, caplog):
    with caplog.at_level(logging.WARNING):
        monitor_run([ratio] * 25)
    assert caplog.text.count(words) == 1
    assert "quantiles" in caplog.text


def test_thresholds_are_calibrated_to_a_number_of_updates():
    ratios = [0.5, 0.2, 0.4, 0.1, 0.9]
    for updates in range(6):
        tuned = RepresentativenessMonitor().calibrate(ratios, updates)
        assert sum(ratio < tuned.threshold for ratio in ratios) == updates
    with pytest.raises(ValueError, match='expected "below"'):
        RepresentativenessMonitor(trigger="interval").calibrate(ratios, 1)


def test_the_whole_set_with_weights_one_trains_as_a_plain_loader_does():
    one, two = network(), network()
    every = data(60)
    loader = CoresetLoader(every, one, budget=60, batch_size=8, seed=5)
    _, losses = train(loader, one, 3)
    optimizer = torch.optim.SGD(two.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(3):
        order = torch.randperm(60, generator=torch.Generator().manual_seed((5 << 20) + epoch))
        for x, y in DataLoader(every, batch_size=8, sampler=order.tolist()):
            loss = functional.cross_entropy(two(x), y, reduction="none").mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert losses.pop(0) == float(loss)
    for mine, theirs in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(mine, theirs)


SELECTORS = [GradMatch(), GradMatch("per_batch", batch_size=6), Craig(), Glister(), Crest(batch_size=6, part=0.2),
             RandomSubset(), InfoBatch()]  # fmt: skip


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda selector: type(selector).__name__)
@pytest.mark.parametrize("trigger", ["below", "interval"])
def test_any_selector_goes_with_any_trigger(selector, trigger):
    model = network()
    monitor = RepresentativenessMonitor(trigger=trigger, every=2, threshold=10.0)
    loader = CoresetLoader(data(), model, selector, monitor, budget=0.2, batch_size=10)
    train(loader, model, 5)
    assert [row.updated for row in loader.history] == [True, True, False, True, False]
    assert all(row.samples == (24 if not isinstance(selector, InfoBatch) else row.samples) for row in loader.history)


@pytest.mark.parametrize("selector", [GradMatch(), InfoBatch()], ids=["gradmatch", "infobatch"])
@pytest.mark.parametrize("stop", [(4, 2), (4, 3), (2, 1)])
def test_a_run_goes_on_exactly_where_it_stopped(selector, stop):
    def begin():
        model = network()
        return model, CoresetLoader(
            data(), model, selector, RepresentativenessMonitor(threshold=2.0, every=2), budget=0.25, batch_size=10
        )

    model, loader = begin()
    _, whole = train(loader, model, 8)

    first, before = begin()
    optimizer, losses = train(before, first, 8, stop_after=stop)
    state = json.loads(json.dumps(before.state_dict()))
    weights = {name: part.clone() for name, part in first.state_dict().items()}
    second, after = begin()
    second.load_state_dict(weights)
    continued = torch.optim.SGD(second.parameters(), lr=0.1, momentum=0.9)
    continued.load_state_dict(optimizer.state_dict())
    after.load_state_dict(state)
    _, rest = train(after, second, 8 - stop[0] - (stop[1] == len(before)), continued)
    assert losses + rest == whole
    for mine, theirs in zip(second.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert [row.updated for row in after.history] == [row.updated for row in loader.history]


def test_workers_see_every_new_subset():
    batches = {}
    for workers in (0, 2):
        model = network()
        loader = CoresetLoader(
            data(), model, RandomSubset(), RepresentativenessMonitor(trigger="interval", every=1), budget=0.2,
            batch_size=7, num_workers=workers, persistent_workers=workers > 0,
        )  # fmt: skip
        batches[workers] = [[x.tolist() for (x, _), _ in loader] for _ in range(3)]
    assert batches[0] == batches[2]
    assert batches[0][0] != batches[0][1]


def test_lengths_and_epochs_are_a_data_loaders():
    loader = CoresetLoader(data(), network(), budget=25, batch_size=10)
    assert len(loader) == 3
    assert [len(y) for (_, y), _ in loader] == [10, 10, 5]
    assert len(CoresetLoader(data(), network(), budget=25, batch_size=10, drop_last=True)) == 2
    orders = []
    for epoch in (4, 4, 5):
        loader.set_epoch(epoch)
        orders.append([y.tolist() for (_, y), _ in loader])
    assert [row.epoch for row in loader.history] == [1, 5, 6]
    assert orders[0] == orders[1]
    for _ in loader:
        break
    next(iter(loader))
    assert [row.epoch for row in loader.history] == [1, 5, 6, 7, 8], "a pass that was broken off is an epoch"


def test_weights_are_normalised_as_asked():
    model = network()
    for normalize in ("batch", "coreset", None):
        coreset = Coreset(model, data(), Craig(), budget=24, normalize=normalize)
        coreset.begin_epoch(1)
        batch = coreset.indices[:7]
        raw = coreset.subset.weights[:7]
        expected = {"batch": raw / raw.mean(), "coreset": raw / coreset.subset.weights.mean(), None: raw}[normalize]
        torch.testing.assert_close(coreset.weights_of(batch), expected)
    with pytest.raises(ValueError, match="positions of the subset"):
        others = torch.tensor([i for i in range(120) if i not in coreset.indices.tolist()])
        coreset.weights_of(others[:2])
    clipped = Coreset(model, data(), Craig(), budget=24, max_weight=1.5)
    clipped.begin_epoch(1)
    assert clipped.subset.weights.max() <= 1.5 * coreset.subset.weights.mean() + 1e-6


def test_first_and_last_epochs_may_be_on_all_data():
    model = network()
    loader = CoresetLoader(data(), model, budget=12, batch_size=40, warm_epochs=2, full_from=5)
    train(loader, model, 6)
    assert [row.samples for row in loader.history] == [120, 120, 12, 12, 120, 120]


def test_scores_are_of_the_plain_view_and_leave_the_model_alone():
    class Augmented(TensorDataset):
        def __getitem__(self, index):
            raise AssertionError("augmented samples must not be scored")

    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 4)).train()
    before = {name: part.clone() for name, part in model.state_dict().items()}
    random = torch.get_rng_state()
    coreset = Coreset(model, Augmented(*data().tensors), scoring_dataset=data(), budget=12)
    coreset.begin_epoch(1)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(random, torch.get_rng_state())


def test_discrepancy_is_that_of_written_gradients():
    model = network()
    coreset = Coreset(model, data(), budget=24, watch_discrepancy=True, grad="full")
    coreset.begin_epoch(1)
    rows = coreset.gradients().values
    full, part = rows.sum(0), coreset.subset.weights @ rows[coreset.subset.indices]
    assert coreset.history[0].discrepancy == pytest.approx(
        1 - float(functional.cosine_similarity(full, part, 0)), abs=1e-6
    )


def test_histories_travel(tmp_path):
    model = network()
    loader = CoresetLoader(data(), model, budget=0.2, batch_size=10)
    train(loader, model, 4)
    loader.history.save(tmp_path / "history.json")
    loader.history.save(tmp_path / "history.csv")
    again = History.from_json((tmp_path / "history.json").read_text())
    assert repr(again) == repr(loader.history)
    rows = list(csv.DictReader((tmp_path / "history.csv").open()))
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3, 4]
    assert math.isfinite(float(rows[2]["snr"]))
    assert 0 < loader.history.overhead < 1
    with pytest.raises(FileExistsError):
        loader.history.save(tmp_path / "history.csv")
    with pytest.raises(ValueError, match=r"\.csv or \.json"):
        loader.history.save(tmp_path / "history.txt")
    with pytest.raises(ValueError, match="expected rows"):
        History.from_json('{"schema": "thrifty.coreset.history", "version": 1, "epochs": [{"epoch": 1}]}')


class Stream(IterableDataset):
    def __iter__(self):
        yield from ()


def test_bad_arguments_are_named():
    model = network()
    for words, arguments in {
        "budget: expected": {"budget": 0},
        "initial: expected one of": {"initial": "first"},
        "normalize: expected one of": {"normalize": "sum"},
        "scoring_dataset: expected the same 120": {"scoring_dataset": data(8)},
        "max_weight: expected": {"max_weight": 0.5},
        "seed: expected": {"seed": -1},
        "warm_epochs: expected": {"warm_epochs": -1},
        "scoring_batch_size: expected": {"scoring_batch_size": 0},
    }.items():
        with pytest.raises(ValueError, match=words):
            Coreset(model, data(), **arguments)
    with pytest.raises(TypeError, match="dataset: expected one with len"):
        Coreset(model, Stream())
    with pytest.raises(ValueError, match="each of the classes"):
        Coreset(model, data(), budget=3).begin_epoch(1)
    with pytest.raises(ValueError, match="epoch: expected"):
        Coreset(model, data()).begin_epoch(0)
    with pytest.raises(ValueError, match="state: expected that of 120"):
        Coreset(model, data()).load_state_dict(Coreset(model, data(40)).state_dict())
    for words, arguments in {
        "kind: expected one of": {"kind": "norm"},
        "trigger: expected one of": {"trigger": "above"},
        "threshold: expected": {"threshold": -1},
        "a quantile": {"threshold": 1.5, "trigger": "percentile"},
        "every: expected": {"every": 0},
        "cooldown: expected": {"cooldown": -1},
    }.items():
        with pytest.raises(ValueError, match=words):
            RepresentativenessMonitor(**arguments)
