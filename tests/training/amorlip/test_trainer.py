"""``AmorLIPTrainer`` where a run is not all whole batches: last ones, accumulated ones, resumed and repeated ones."""

import logging
import math

import pytest
import torch
from amorlip_models import arguments, clip_model, clip_rows

from thrifty.training.amorlip import AmorLIPConfig, AmorLIPLoss, AmorLIPTrainer, NeuCLIPLoss, caption_ids
from thrifty.training.amorlip.amortizer import PartitionAmortizer

FAST = AmorLIPConfig(ema_decay=0.5, amor_every=2)


def trainer(folder, rows=16, *, model=None, config=FAST, **more):
    own = {name: more.pop(name) for name in ("loss", "skip_repeats", "eval_dataset") if name in more}
    args = arguments(folder, **({"per_device_train_batch_size": 4, "max_steps": 4} | more))
    return AmorLIPTrainer(
        model or clip_model(), args, config=None if "loss" in own else config, train_dataset=clip_rows(rows), **own
    )


def test_a_pair_that_is_left_alone_is_left_out(tmp_path, caplog):
    """Nine pairs in fours, to train on; five, to evaluate."""
    made = trainer(tmp_path, 9, max_steps=6, eval_dataset=clip_rows(5), per_device_eval_batch_size=4)
    made.train()
    assert made.loss.amortizer.steps == 4  # of six, two were of a pair alone
    assert caplog.text.count("a batch of one pair has no negatives and is left out") == 1
    by_four = trainer(tmp_path, model=made.model, loss=made.loss, eval_dataset=clip_rows(4))
    assert made.evaluate()["eval_loss"] == pytest.approx(by_four.evaluate()["eval_loss"])


def test_more_is_evaluated_at_once_than_there_is_to_train_on(tmp_path):
    made = trainer(tmp_path, 4, eval_dataset=clip_rows(16), per_device_eval_batch_size=16)
    made.train()
    assert math.isfinite(made.evaluate()["eval_loss"])


def test_accumulated_batches_are_one_step(tmp_path, monkeypatch):
    """Ten batches in fours: two steps of four and one of two in each epoch."""
    fitted = []
    fit = PartitionAmortizer.fit
    monkeypatch.setattr(PartitionAmortizer, "fit", lambda self, *a: (fitted.append(self.steps), fit(self, *a)))
    made = trainer(tmp_path, 20, per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=6)
    made.train()
    assert made.state.global_step == made.loss.amortizer.steps == 6
    assert fitted == [0, 2, 4]
    assert made.loss.amortizer.epoch == 1
    assert made.loss.steps_per_epoch == 3


@pytest.mark.parametrize(("more", "epochs"), [({"max_steps": 9}, 3), ({"max_steps": -1, "num_train_epochs": 2}, 2)])
def test_the_default_loss_lasts_as_long_as_the_run(tmp_path, more, epochs):
    assert trainer(tmp_path, config=None, **more).loss.config.epochs == epochs


def test_the_loss_hears_how_long_an_epoch_is(tmp_path, caplog):
    trainer(tmp_path, config=AmorLIPConfig(epochs=4), max_steps=2).train()
    assert (
        "ema_decay: at 0.999 the averaged networks are still 100% their random start after an epoch of 4" in caplog.text
    )


def test_pairs_with_equal_captions_are_no_negatives(tmp_path):
    seen = []

    class Seeing(AmorLIPLoss):
        def forward(self, *given, **more):
            seen.append(more["caption_ids"])
            return super().forward(*given, **more)

    rows = clip_rows(8)
    for row in rows[:4]:
        row["input_ids"] = torch.tensor([26, 1, 27])
    made = trainer(tmp_path, loss=Seeing(8, FAST), skip_repeats=True, max_steps=1, per_device_train_batch_size=8)
    made.train_dataset = rows
    made.train()
    assert sorted(seen[0].unique(return_counts=True)[1].tolist()) == [1, 1, 1, 1, 4]
    assert seen[0].unique().equal(caption_ids(torch.stack([row["input_ids"] for row in rows])).unique())
    with pytest.raises(ValueError, match="skip_repeats: expected it with AmorLIPLoss, got NeuCLIPLoss"):
        trainer(tmp_path, loss=NeuCLIPLoss(8, prototypes=4), skip_repeats=True)


def test_a_checkpoint_of_another_loss_is_refused(tmp_path, caplog):
    trainer(tmp_path, save_strategy="steps", save_steps=2, max_steps=2).train()
    checkpoint = str(tmp_path / "checkpoint-2")
    with pytest.raises(ValueError, match="loss: .*checkpoint-2 is of AmorLIPLoss, got NeuCLIPLoss"):
        trainer(tmp_path, loss=NeuCLIPLoss(8, prototypes=4)).train(resume_from_checkpoint=checkpoint)
    with pytest.raises(ValueError, match="hidden_factor: the state is of a loss with 0.5, got 1.0"):
        trainer(tmp_path, config=AmorLIPConfig(hidden_factor=1.0)).train(resume_from_checkpoint=checkpoint)
    trainer(tmp_path, config=AmorLIPConfig(objective="gkl")).train(resume_from_checkpoint=checkpoint)
    assert "objective ('l2_log', now 'gkl')" in caplog.text


def test_a_large_scale_stays_where_a_checkpoint_has_it(tmp_path):
    """SigLIP's scales are beyond CLIP's bound; a frozen one is nobody's to bound."""
    made = trainer(tmp_path, model=clip_model(logit_scale_init_value=math.log(118)), max_steps=2, learning_rate=1e-9)
    made.train()
    assert made.model.logit_scale.exp().item() == pytest.approx(118, rel=1e-4)
    model = clip_model(logit_scale_init_value=math.log(0.5))
    model.logit_scale.requires_grad_(False)
    trainer(tmp_path, model=model, max_steps=2).train()
    assert model.logit_scale.exp().item() == pytest.approx(0.5)


def test_bfloat16_under_the_trainer_raises_no_false_alarm(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        trainer(tmp_path, 64, bf16=True, per_device_train_batch_size=32, max_steps=2).train()
    assert "unit length" not in caplog.text
