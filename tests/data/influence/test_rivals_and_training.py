"""Rivals by their definitions; warm-up, checkpoints of a Trainer, weighted training."""

import copy

import numpy as np
import pytest
import torch
from datasets import Dataset
from influence_ground import llama, pool, stepped
from transformers import Trainer, TrainingArguments

from thrifty._common.texts import read_rows
from thrifty.data.influence import (
    Checkpoint,
    InfluenceDistillation,
    WeightedLossMixin,
    length_matched_selection,
    less_selection,
    load_trainer_optimizer,
    mid_perplexity_selection,
    random_selection,
    rds_embeddings,
    rds_plus_selection,
    warm_up,
    weighted_dataset,
)
from thrifty.data.influence.results import SelectionResult
from thrifty.data.influence.rivals import example_losses
from thrifty.data.influence.texts import tokenize_examples

ROWS, TARGET = pool(20), pool(3, seed=5)


@pytest.fixture(scope="module")
def warm():
    model = llama()
    return model, stepped(model, ROWS)


def test_random_and_length_matched():
    assert len(set(random_selection(ROWS, 7).indices.tolist())) == 7
    assert random_selection(ROWS, 7, seed=1).indices.tolist() != random_selection(ROWS, 7).indices.tolist()
    lengths = [len(row["input_ids"]) for row in ROWS]
    longest = sorted(lengths)[-5:]
    chosen = length_matched_selection(ROWS, longest, 5)
    assert np.mean([lengths[i] for i in chosen.indices]) == pytest.approx(np.mean(longest), abs=1)
    with pytest.raises(ValueError, match="k: expected 1 to 20, got 21"):
        random_selection(ROWS, 21)


def test_rds_plus_is_its_definition(warm):
    model, _ = warm
    found = rds_embeddings(model, ROWS, batch_size=6)
    for i in (0, 11):
        ids = torch.tensor([ROWS[i]["input_ids"]])
        with torch.no_grad():
            hidden = model.model(ids).last_hidden_state[0]
        t = torch.arange(1, len(hidden) + 1).float()
        e = (t[:, None] * hidden).sum(0) / t.sum()
        assert torch.allclose(found[i], e / e.norm(), atol=1e-5)
    scores = found @ rds_embeddings(model, TARGET).T
    chosen = rds_plus_selection(model, ROWS, TARGET, 3).indices.tolist()
    assert chosen[0] == int(scores[:, 0].argmax())
    assert len(set(chosen)) == 3


def test_less_is_its_definition(warm):
    model, optimizer = warm
    picked = less_selection([Checkpoint(model, optimizer)], ROWS, TARGET, 4, params="down_proj")
    names = [name for name, _ in model.named_parameters() if "down_proj" in name]
    params = [dict(model.named_parameters())[name] for name in names]

    def gradient(row):
        ids = torch.tensor([row["input_ids"]])
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(model(input_ids=ids, labels=ids).loss, params)])

    state = [optimizer.state[p] for p in params]
    m = torch.cat([s["exp_avg"].reshape(-1) for s in state])
    v = torch.cat([s["exp_avg_sq"].reshape(-1) for s in state])

    def source(row):
        g = gradient(row)
        return (0.9 * m + 0.1 * g) / (0.999 * v + 0.001 * g**2 + 1e-8).sqrt()

    aims = torch.nn.functional.normalize(torch.stack([gradient(row) for row in TARGET]))
    scores = torch.nn.functional.normalize(torch.stack([source(row) for row in ROWS])) @ aims.T
    assert torch.allclose(torch.from_numpy(picked.scores), scores.mean(1)[picked.indices], atol=1e-5)
    assert set(picked.indices.tolist()) == set(scores.mean(1).topk(4).indices.tolist())
    assert picked.report["backward_passes"] == 24  # one of them checks the batched gradients
    tasks = less_selection([Checkpoint(model, optimizer)] * 2, ROWS, TARGET, 4, params="down_proj", groups=[0, 1, 2])
    assert torch.allclose(torch.from_numpy(tasks.scores), scores.max(1).values[tasks.indices], atol=1e-5)
    assert set(tasks.indices.tolist()) == set(scores.max(1).values.topk(4).indices.tolist())
    with pytest.raises(ValueError, match="checkpoints: expected at least one"):
        less_selection([], ROWS, TARGET, 4)
    with pytest.raises(TypeError, match="LESS needs Adam or AdamW, got SGD"):
        less_selection([Checkpoint(model, torch.optim.SGD(model.parameters(), lr=0.1))], ROWS, TARGET, 4)


def test_the_middle_of_the_perplexities(warm):
    model, _ = warm
    losses = example_losses(model, ROWS)
    ids = torch.tensor([ROWS[3]["input_ids"]])
    assert losses[3] == pytest.approx(float(model(input_ids=ids, labels=ids).loss), abs=1e-5)
    chosen = mid_perplexity_selection(model, ROWS, 4).indices
    assert sorted(chosen) == sorted(np.argsort(losses)[8:12])


def test_warming_up_copies_and_leaves_the_global_generator():
    model = llama()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(3)
    state = torch.get_rng_state()
    start = warm_up(model, ROWS, steps=3, lr=1e-3, batch_size=4)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.equal(before[name]) for name, p in model.state_dict().items())
    assert not start.model.lm_head.weight.equal(model.lm_head.weight)
    assert len(start.losses) == 3
    again = warm_up(model, ROWS, steps=3, lr=1e-3, batch_size=4)
    assert again.losses == start.losses
    InfluenceDistillation(start.model, start.optimizer, num_landmarks=20).select(ROWS, TARGET, 3)
    momentum = warm_up(model, ROWS, steps=2, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    InfluenceDistillation(momentum.model, momentum.optimizer, num_landmarks=20).select(ROWS, TARGET, 3)
    with pytest.raises(ValueError, match="steps"):
        warm_up(model, ROWS, steps=0)


class WeightedTrainer(WeightedLossMixin, Trainer):
    pass


class Padder:
    """Pads tokens and labels, and keeps the other columns."""

    def __call__(self, rows):
        longest = max(len(row["input_ids"]) for row in rows)
        fill = {"input_ids": 0, "labels": -100, "attention_mask": 0}
        out = {}
        for name in rows[0]:
            values = [row[name] for row in rows]
            if name in fill:
                values = [[*value, *[fill[name]] * (longest - len(value))] for value in values]
            out[name] = torch.tensor(values)
        return out


def train(model, data, folder, **options):
    settings = {"num_train_epochs": 1, "per_device_train_batch_size": 5, "learning_rate": 1e-3, "report_to": []}
    settings |= {"save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "max_grad_norm": 1e9, "seed": 1}
    trainer = WeightedTrainer(
        model=model,
        args=TrainingArguments(output_dir=str(folder), **settings | options),
        train_dataset=data,
        data_collator=Padder(),
    )
    trainer.train()
    return trainer


def full(rows):
    return [
        {"input_ids": row["input_ids"], "labels": row["input_ids"], "attention_mask": [1] * len(row["input_ids"])}
        for row in rows
    ]


def test_a_trainer_trains_on_the_selection_and_its_checkpoint_warms_the_next(tmp_path):
    model = llama()
    data = Dataset.from_list(full(ROWS))
    train(model, data, tmp_path, save_strategy="steps", save_steps=3, max_steps=3, weight_decay=0.1)
    optimizer = load_trainer_optimizer(tmp_path / "checkpoint-3", model)
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.0, 0.1}
    assert all(float(s["step"]) == 3 for s in optimizer.state.values())
    picker = InfluenceDistillation(model, optimizer, num_landmarks=10)
    result = picker.select(data, Dataset.from_list(full(TARGET)), 10)
    chosen = weighted_dataset(data, result)
    assert chosen["example_weight"][:] == pytest.approx(result.weights.tolist())
    fresh = llama()
    trainer = train(fresh, chosen, tmp_path / "tuned", logging_steps=1)
    assert np.isfinite([log["loss"] for log in trainer.state.log_history if "loss" in log]).all()
    other = llama(layers=2)
    with pytest.raises(ValueError, match="it belongs to another model"):
        load_trainer_optimizer(tmp_path / "checkpoint-3", other)
    with pytest.raises(ValueError, match="it belongs to another model"):
        load_trainer_optimizer(tmp_path / "checkpoint-3", llama(hidden=16))
    with pytest.raises(ValueError, match="is no SGD's: it lacks"):
        load_trainer_optimizer(tmp_path / "checkpoint-3", model, lambda groups: torch.optim.SGD(groups, lr=0.1))
    (tmp_path / "optimizer.pt").write_bytes(b"x")
    with pytest.raises(ValueError, match="checkpoint: expected tensors and plain values as torch.save writes them"):
        load_trainer_optimizer(tmp_path / "optimizer.pt", model)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_weights_multiply_losses(tmp_path, accumulate):
    """One SGD step of the Trainer is the step on the weighted mean of the examples' losses."""
    model = llama()
    data = Dataset.from_list(full(ROWS[:10]))
    weights = np.linspace(0.2, 1.8, 10).astype(np.float32)
    chosen = weighted_dataset(data, SelectionResult(np.arange(10), weights, np.zeros(10)))
    batch = Padder()(full(ROWS[:10]))
    twin = copy.deepcopy(model)
    logits = twin(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    tokens = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), batch["labels"][:, 1:], reduction="none")
    counts = (batch["labels"][:, 1:] != -100).sum(1)
    (torch.from_numpy(weights) * tokens.sum(1) / counts).mean().backward()
    train(
        model, chosen, tmp_path, per_device_train_batch_size=10 // accumulate, gradient_accumulation_steps=accumulate,
        optim="sgd", learning_rate=0.5, lr_scheduler_type="constant",
    )  # fmt: skip
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        if q.grad is not None:
            assert torch.allclose(p, q - 0.5 * q.grad, atol=1e-5)


def test_weights_are_put_beside_the_chosen_rows_of_a_list_or_a_data_set():
    result = SelectionResult(np.array([3, 1]), np.array([1.5, 0.5], dtype=np.float32), np.zeros(2))
    for dataset in (ROWS, Dataset.from_list(ROWS)):
        chosen = weighted_dataset(dataset, result)
        assert chosen["input_ids"][:] == [ROWS[3]["input_ids"], ROWS[1]["input_ids"]]
        assert chosen["example_weight"][:] == [1.5, 0.5]
    with pytest.raises(ValueError, match="the selection has index 3, the data set 2 rows"):
        weighted_dataset(ROWS[:2], result)


def test_a_collator_that_drops_the_weights_is_refused(tmp_path):
    class Dropper(Padder):
        def __call__(self, rows):
            return super().__call__([{k: v for k, v in row.items() if k != "example_weight"} for row in rows])

    chosen = weighted_dataset(full(ROWS), SelectionResult(np.arange(10), np.ones(10), np.zeros(10)))
    trainer = WeightedTrainer(
        model=llama(), train_dataset=chosen, data_collator=Dropper(),
        args=TrainingArguments(output_dir=str(tmp_path), report_to=[], save_strategy="no", use_cpu=True),
    )  # fmt: skip
    with pytest.raises(ValueError, match="data_collator: it dropped the column example_weight"):
        trainer.train()


def test_without_weights_the_trainer_is_the_host_s(tmp_path):
    data = Dataset.from_list(full(ROWS))
    ours = train(llama(), data, tmp_path / "a").model
    host = Trainer(
        model=llama(), train_dataset=data, data_collator=Padder(),
        args=TrainingArguments(
            output_dir=str(tmp_path / "b"), num_train_epochs=1, per_device_train_batch_size=5, learning_rate=1e-3,
            report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, max_grad_norm=1e9, seed=1,
        ),
    )  # fmt: skip
    host.train()
    assert all(torch.equal(p, q) for p, q in zip(ours.parameters(), host.model.parameters(), strict=True))


class Words:
    """A tokenizer of words, with a chat template."""

    eos_token_id = 2

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": ([1] if add_special_tokens else []) + [3 + len(word) for word in text.split()]}

    def apply_chat_template(self, messages, tokenize, add_generation_prompt=False):
        ids = [
            t for m in messages for t in [50 if m["role"] == "user" else 51, *self(m["content"], False)["input_ids"], 2]
        ]
        return ids + ([51] if add_generation_prompt else [])


def test_rows_of_json_become_labelled_tokens(tmp_path):
    rows = [
        {"text": "a bb"},
        {"prompt": "a", "completion": "ccc dd"},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bb"}]},
        {"input_ids": [5, 6], "labels": [-100, 6]},
    ]
    found = tokenize_examples(rows, Words())
    assert found[0] == {"input_ids": [1, 4, 5, 2], "labels": [1, 4, 5, 2]}
    assert found[1] == {"input_ids": [1, 4, 6, 5, 2], "labels": [-100, -100, 6, 5, 2]}
    assert found[2] == {"input_ids": [50, 4, 2, 51, 5, 2], "labels": [-100, -100, -100, -100, 5, 2]}
    assert found[3] == rows[3]
    table = tokenize_examples(Dataset.from_list([{"text": "a bb", "domain": "letters"}]), Words())
    assert table[0] == {"text": "a bb", "domain": "letters", **found[0]}
    assert tokenize_examples(rows[:1], Words(), max_length=2)[0]["input_ids"] == [1, 4]
    with pytest.raises(ValueError, match="row 0: expected the field text.* got body"):
        tokenize_examples([{"body": "x"}], Words())
    for text, match in (
        ("", "at least one line"),
        ("[1]\n", "line 1: expected a JSON object, got list"),
        ("{\n", "line 1"),
    ):
        (tmp_path / "rows.jsonl").write_text(text)
        with pytest.raises(ValueError, match=match):
            read_rows(tmp_path / "rows.jsonl")
