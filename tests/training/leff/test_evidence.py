"""What the evidence adds to the method: runs side by side, and a classifier that averages tokens."""

import time
from contextlib import contextmanager
from multiprocessing import TimeoutError as TooLate

import pytest
import torch
from transformers import BertConfig

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.training.leff import LayerView
from thrifty.training.leff.evidence import CLAIMS, accuracy, encoder, pool
from thrifty.training.leff.evidence.contenders import CENTRAL, FEDAVG, HEAD, OURS, VARIANTS, settings


@pytest.mark.slow
def test_pieces_are_made_in_other_processes_and_the_last_one_is_not_waited_for():
    pieces = [(2.0, 3), (0.0, 1), (1.0, 5)]
    with pool.ahead(pow, pieces) as run:
        assert [run(*piece) for piece in pieces] == [8.0, 0.0, 1.0]
        with pytest.raises(ValueError, match="not in"):
            run(7.0, 7)
    began = time.monotonic()
    with pool.ahead(time.sleep, [(60,), (61,)], began + 0.5) as run, pytest.raises(TooLate):
        run(60)
    assert time.monotonic() - began < 30


def test_padding_does_not_count_in_the_mean():
    small = BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, num_labels=2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = encoder.SentenceClassifier(small).eval()
    ids = torch.tensor([[3, 4, 5, 0], [3, 4, 5, 9]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0]])
    short = model(ids[:1, :3], mask[:1, :3], labels=torch.tensor([1]))
    padded = model(ids, mask, labels=torch.tensor([1, 1]))
    torch.testing.assert_close(padded.logits, short.logits.expand(2, 2))
    torch.testing.assert_close(padded.loss, short.loss)
    assert LayerView(model).path == "bert.encoder.layer"
    assert set(LayerView(model).extras()) == {"classifier.weight", "classifier.bias"}


def test_every_arm_has_settings_and_none_is_named_twice():
    arms = [*accuracy.MAIN[accuracy.EVEN], *accuracy.BESIDE, *accuracy.ABLATIONS, *accuracy.LAST]
    assert len(set(arms)) == len(arms)
    assert {OURS, FEDAVG, HEAD, CENTRAL, *VARIANTS} <= set(arms)
    made = {name: settings(name, 0, 3) for name in arms}
    assert made[HEAD].extras_lr == made[HEAD].lr
    assert len({config.extras_lr for name, config in made.items() if name != HEAD}) == 1
    assert all(config.max_steps == 3 for config in made.values())


@pytest.mark.parametrize(("ours", "status"), [(74.0, "holds"), (70.0, "cheaper but worse")])
def test_costs_hold_where_accuracy_does_and_late_arms_are_rows(monkeypatch, ours, status):
    asked = []

    @contextmanager
    def instead(compute, pieces, deadline):
        def run(workload, name, seed, data):
            assert (workload, name, seed, data) in pieces
            asked.append((workload, name))
            score = {FEDAVG: 75.0, OURS: ours, HEAD: 70.0}.get(name, 72.0) + seed
            if workload == "lm":
                return {"before": 4.0, "loss": 100 / score, "up": 1, "memory": 1}
            return {"accuracy": score, "loss": 0.5, "up": [1], "down": [2], "memory": 3, "coverage": [0.2] * 6}

        yield run

    monkeypatch.setattr(accuracy.pool, "ahead", instead)
    ctx = Context(CLAIMS, mode="full", deadline=time.monotonic() + accuracy.AN_ARM / 2)
    evidence = ctx.evidence("made up")
    accuracy.show(ctx, evidence, {"client-memory": Measurement.of(0.2, "ratio")})
    told = evidence.to_json()
    found = {finding["id"]: finding for finding in told["claims"]}
    assert found["client-memory"]["status"] == status
    assert found["accuracy"]["measured"] == pytest.approx(ours - 75)
    assert found["accuracy-over-head"]["measured"] == pytest.approx(ours - 70)
    assert "95 % interval" in found["accuracy-skewed-fedlora"]["reason"]
    assert found["language-model"]["status"] == ("holds" if ours == 74 else "falls short")
    assert ("1.0", "FedRA") in asked
    assert not set(accuracy.LAST) & {name for _, name in asked}, "the budget was used up"
    late = [row for row in told["rows"] if row["error"] == "the budget was used up"]
    assert len(late) == len(accuracy.LAST) + len(accuracy.ABLATIONS)
