"""Hugging Face's Trainer, Lightning and torchrun, really run; and CREST's trigger on losses that are quadratic."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from thrifty.data.coreset import (
    Coreset,
    CoresetCallback,
    CoresetLoader,
    Craig,
    GradMatch,
    InfoBatch,
    LightningCoreset,
    QuadraticTrigger,
    RandomSubset,
    RepresentativenessMonitor,
)


def tensors(n=80, classes=4):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % classes
    return torch.randn(n, 6, generator=generator) + labels[:, None] / 2, labels


class Classifier(nn.Module):
    """A model as Transformers has them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.classifier = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, pixels, labels=None):
        from transformers.modeling_outputs import SequenceClassifierOutput

        logits = self.classifier(self.body(pixels).relu())
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def trainer(folder, epochs=4, rows=None, **more):
    from transformers import Trainer, TrainingArguments

    if rows is None:
        rows = [{"pixels": x, "labels": int(y), "name": "left out"} for x, y in zip(*tensors(), strict=True)]
    args = TrainingArguments(
        str(folder), num_train_epochs=epochs, per_device_train_batch_size=5, learning_rate=0.02, report_to="none",
        use_cpu=True, disable_tqdm=True, logging_steps=1, seed=3, **more,
    )  # fmt: skip
    return Trainer(Classifier(), args, train_dataset=rows)


def monitor():
    return RepresentativenessMonitor(threshold=5.0, every=2)


def test_trainer_trains_on_the_coreset_with_its_weights(tmp_path):
    host = trainer(tmp_path, epochs=2, save_strategy="no")
    plain_loss = host.compute_loss
    callback = CoresetCallback(budget=20, selector=Craig(), monitor=monitor()).attach(host)
    seen = []
    inner = callback.coreset.weights_of
    callback.coreset.weights_of = lambda indices: seen.append(indices) or inner(indices)
    host.train()
    assert [len(part) for part in seen] == [5] * 8
    assert sorted(torch.cat(seen[:4]).tolist()) != sorted(torch.cat(seen[4:]).tolist())
    assert sorted(torch.cat(seen[4:]).tolist()) == sorted(callback.coreset.indices.tolist())
    logged = [row for row in host.state.log_history if "coreset/updated" in row]
    assert [row["coreset/updated"] for row in logged] == [1.0, 1.0]
    assert "coreset/snr" in logged[1]
    callback.remove()
    assert host.compute_loss == plain_loss
    assert len(host.get_train_dataloader()) == 16


def test_trainers_loss_is_the_weighted_one(tmp_path):
    host = trainer(tmp_path, save_strategy="no")
    callback = CoresetCallback(budget=20, selector=Craig()).attach(host)
    callback.coreset.begin_epoch(1)
    batch = next(iter(host.get_train_dataloader()))
    assert set(batch) == {"pixels", "labels", "coreset_index"}
    weights = callback.coreset.weights_of(batch["coreset_index"])
    each = functional.cross_entropy(host.model(batch["pixels"]).logits, batch["labels"], reduction="none")
    assert float(host.compute_loss(host.model, dict(batch))) == pytest.approx(float((weights * each).mean()))
    del batch["coreset_index"]
    assert float(host.compute_loss(host.model, dict(batch))) == pytest.approx(float(each.mean()))


@pytest.mark.parametrize("steps", [6, 8])
def test_trainer_resumes_with_the_same_subset(tmp_path, steps):
    whole = trainer(tmp_path / "whole", save_strategy="no")
    CoresetCallback(budget=20, monitor=monitor()).attach(whole)
    whole.train()

    first = trainer(tmp_path / "cut", save_steps=steps)
    CoresetCallback(budget=20, monitor=monitor()).attach(first)
    first.train()
    second = trainer(tmp_path / "cut", save_steps=steps)
    callback = CoresetCallback(budget=20, monitor=monitor()).attach(second)
    second.train(resume_from_checkpoint=str(tmp_path / "cut" / f"checkpoint-{steps}"))
    for mine, theirs in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert [row.epoch for row in callback.coreset.history] == [1, 2, 3, 4]


def test_trainer_takes_datasets(tmp_path):
    from datasets import Dataset

    x, y = tensors()
    rows = Dataset.from_dict({"pixels": x.tolist(), "labels": y.tolist(), "name": ["left out"] * 80})
    host = trainer(tmp_path, epochs=1, rows=rows, save_strategy="no")
    callback = CoresetCallback(budget=0.25, monitor=monitor()).attach(host)
    host.train()
    assert len(callback.coreset.indices) == 20


def test_what_trainer_cannot_do_is_refused(tmp_path):
    with pytest.raises(ValueError, match="epochs of one length"):
        CoresetCallback(selector=InfoBatch())
    with pytest.raises(ValueError, match="epochs of one length"):
        CoresetCallback(warm_epochs=2)
    with pytest.raises(ValueError, match="state is small"):
        CoresetCallback(monitor=RepresentativenessMonitor(trigger=QuadraticTrigger()))
    host = trainer(tmp_path)
    callback = CoresetCallback().attach(host)
    with pytest.raises(ValueError, match="not attached yet"):
        callback.attach(host)


def lightning_run(folder, epochs, resume=None):
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))

        def training_step(self, batch, _):
            (x, y), weights = batch
            return (weights * functional.cross_entropy(self.net(x), y, reduction="none")).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    module = Module()
    loader = CoresetLoader(TensorDataset(*tensors()), module.net, monitor=monitor(), budget=20, batch_size=6)
    host = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[LightningCoreset(loader), pl.callbacks.ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)],
    )  # fmt: skip
    host.fit(module, loader, ckpt_path=resume)
    return module, loader, host


def test_lightning_trains_logs_and_resumes(tmp_path):
    whole, loader, host = lightning_run(tmp_path / "whole", 5)
    assert [row.epoch for row in loader.history] == [1, 2, 3, 4, 5]
    assert [row.updated for row in loader.history] == [True, True, False, True, False]
    assert "coreset/updated" in host.logged_metrics
    again, continued, _ = lightning_run(tmp_path / "cut", 5, resume=str(tmp_path / "whole" / "epoch=2.ckpt"))
    assert [row.epoch for row in continued.history] == [1, 2, 3, 4, 5]
    for mine, theirs in zip(again.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.dist
def test_all_processes_have_the_same_coreset(torchrun):
    torchrun(Path(__file__).with_name("coreset_ranks.py"), processes=2)


@pytest.mark.slow
@pytest.mark.dist
def test_three_processes_have_the_same_coreset(torchrun):
    torchrun(Path(__file__).with_name("coreset_ranks.py"), processes=3)


class Squares(nn.Module):
    """A loss that is quadratic in its parameters, with a diagonal Hessian: Σ aᵢ (θᵢ − x)²."""

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([1.0, -2.0]))

    def forward(self, x):
        return torch.tensor([1.0, 3.0]) * (self.theta - x)


def squares(trigger):
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, torch.zeros(40))
    return Coreset(
        Squares(), data, RandomSubset(), RepresentativenessMonitor(trigger=trigger, every=1), budget=10,
        loss=lambda logits, _: logits.square().sum(1), grad="full",
    )  # fmt: skip


def test_the_quadratic_model_is_exact_on_quadratic_losses():
    trigger = QuadraticTrigger(samples=40, threshold=0.01)
    coreset = squares(trigger)
    coreset.begin_epoch(1)
    x = torch.stack([coreset.dataset[i][0] for i in range(40)])
    with torch.no_grad():
        coreset.model.theta += torch.tensor([0.7, -1.3])
    true = coreset.model(x).square().sum(1).mean()
    assert trigger.predicted(coreset) == pytest.approx(float(true), rel=1e-5)
    assert [coreset.begin_epoch(epoch) for epoch in (2, 3)] == [False, False]


def test_the_quadratic_model_notices_where_it_fails():
    trigger = QuadraticTrigger(samples=40, threshold=0.1)
    coreset = squares(trigger)
    coreset.begin_epoch(1)
    trigger._square = [square * 4 for square in trigger._square]  # as if the curvature had been twice as large
    with torch.no_grad():
        coreset.model.theta += 5.0
    assert coreset.begin_epoch(2)
    assert trigger.predicted(coreset) == pytest.approx(trigger._loss)


def test_flatter_losses_are_looked_at_more_rarely():
    trigger = QuadraticTrigger(samples=40, decay=0.0)
    coreset = squares(trigger)
    coreset.begin_epoch(1)
    assert trigger._interval() == 1
    trigger._square = [square / 16 for square in trigger._square]
    assert trigger._interval() == 4


def test_the_quadratic_model_travels():
    trigger, again = QuadraticTrigger(samples=40), QuadraticTrigger(samples=40)
    one, two = squares(trigger), squares(again)
    one.begin_epoch(1)
    two.load_state_dict(one.state_dict())
    with torch.no_grad():
        one.model.theta += 1.0
        two.model.theta += 1.0
    assert again.predicted(two) == trigger.predicted(one)
    assert one.begin_epoch(2) == two.begin_epoch(2)
    with pytest.raises(ValueError, match="a selection before the first check"):
        RepresentativenessMonitor(trigger=QuadraticTrigger(), every=1).decide(1, 0.5)


def test_gradmatch_goes_with_several_labels():
    x, y = tensors()
    several = functional.one_hot(y, 4).float()
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    loader = CoresetLoader(
        TensorDataset(x, several), model, GradMatch("global"), budget=16, batch_size=8, loss=nn.BCEWithLogitsLoss()
    )
    (batch, targets), weights = next(iter(loader))
    assert batch.shape == (8, 6)
    assert targets.shape == (8, 4)
    assert weights.mean() == pytest.approx(1.0)
