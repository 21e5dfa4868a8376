"""Rounds in one process: equal to what is known where it is known, whatever comes late, gets lost or is wrong."""

import json
import math

import numpy as np
import pytest
import torch
from leff_models import batches, clients, columns, make, same, state_of
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForSequenceClassification

from thrifty.training.leff import (
    History,
    LayerView,
    LeffClient,
    LeffConfig,
    LeffServer,
    Report,
    aggregate_layers,
    dirichlet_partition,
    simulate,
)
from thrifty.training.leff.local import train_locally
from thrifty.training.leff.rounds import Update

PLAIN = LeffConfig(compression="drop", sampler="random", lr=1e-2)


def fedavg(kind, model, participants, rounds, config):
    """Federated averaging, written out: every block and the extras, weighted by the sizes of data."""
    for round_ in range(1, rounds + 1):
        updates = []
        start = state_of(model)
        for client in participants:
            other = make(kind)
            other.load_state_dict(start)
            view = LayerView(other)
            other.train()
            other.requires_grad_(False)
            for module in view.embedding_modules():
                module.eval()
            trained = view.trained(range(view.num_layers))
            for t in trained.values():
                t.requires_grad_(True)
            train_locally(other, trained, client.data, config, round_=round_, client=client.name)
            updates.append(({n: t.detach() for n, t in trained.items()}, client.examples))
        model.load_state_dict(aggregate_layers(start, updates))


@pytest.mark.parametrize("kind", ["bert", "llama", "vit"])
def test_with_full_capacities_it_is_federated_averaging_to_the_last_bit(kind):
    model, reference = make(kind), make(kind)
    who = clients(kind, [6, 6, 6])
    config = LeffConfig(lr=1e-2)  # importance and distillation on: there is nothing for them to do
    simulate(model, who, batches(kind), 2, config)
    fedavg(kind, reference, who, 2, config)
    assert same(state_of(model), state_of(reference))
    assert not same(state_of(model), state_of(make(kind)))


def test_one_client_with_all_layers_is_central_training():
    model, reference = make("llama"), make("llama")
    [client] = clients("llama", [6])
    simulate(model, [client], rounds=3, config=PLAIN)
    for round_ in (1, 2, 3):
        view = LayerView(reference)
        reference.train()
        reference.requires_grad_(False)
        trained = view.trained(range(6))
        for t in trained.values():
            t.requires_grad_(True)
        train_locally(reference, trained, client.data, PLAIN, round_=round_, client="0")
    assert same(state_of(model), state_of(reference))


@pytest.mark.parametrize("kind", ["bert", "vit", "gpt2"])
def test_checkpoints_of_any_round_are_plain(kind, tmp_path):
    model = make(kind)
    simulate(model, clients(kind, [1, 2, 6]), batches(kind), 2, LeffConfig(lr=1e-2, distill_steps=3), out=tmp_path)
    auto = {"bert": AutoModelForSequenceClassification, "deberta": AutoModelForSequenceClassification,
            "vit": AutoModelForImageClassification}.get(kind, AutoModelForCausalLM)  # fmt: skip
    again = auto.from_pretrained(tmp_path / "round-00002" / "model")
    assert again.config.num_hidden_layers == 6
    assert same(state_of(again), state_of(model))
    earlier = auto.from_pretrained(tmp_path / "round-00001" / "model")
    assert not same(state_of(earlier), state_of(model))


def test_layers_that_nobody_trained_stay_and_others_are_weighted_means():
    model = make("bert")
    before = state_of(model)
    who = clients("bert", [1, 1])
    history = simulate(model, who, batches("bert"), 1, PLAIN)
    moved = {layer for record in history.rounds[0].averaged for layer in record.block}
    for name, tensor in state_of(model).items():
        layer = name.split("encoder.layer.")[-1].split(".")[0]
        if layer.isdigit() and int(layer) not in moved:
            assert torch.equal(tensor, before[name]), name
        if name.startswith("classifier") or (name.endswith("query.weight") and int(layer) in moved):
            assert not torch.equal(tensor, before[name]), name
    assert history.coverage() == [
        sum(layer in record.block for record in history.rounds[0].averaged) / 2 for layer in range(6)
    ]


@pytest.mark.parametrize(
    ("sampler", "compression"),
    [("importance", "distill"), ("proportional", "drop"), ("random", "none"), ("round_robin", "distill")],
)
def test_every_sampler_and_every_context(sampler, compression):
    model = make("llama", 4)
    config = LeffConfig(sampler=sampler, compression=compression, lr=1e-2, distill_steps=4)
    history = simulate(
        model, clients("llama", [1, 2, 4]), batches("llama"), 2, config, evaluate=lambda m: {"bias": 1.0}
    )
    assert history.series("bias") == [1.0, 1.0]
    assert all(record.metrics["loss"] > 0 for r in history.rounds for record in r.averaged)
    assert (history.rounds[0].distill_steps > 0) == (compression == "distill")
    assert bool(history.rounds[0].importance) == (sampler in ("importance", "proportional"))


def test_same_seed_same_run_and_no_order_of_clients():
    config = LeffConfig(lr=1e-2, distill_steps=4, participation=0.7)
    made = []
    for order in (1, -1, 1):
        model = make("bert")
        seed = 1 if len(made) == 2 else 0
        simulate(model, clients("bert", [1, 2, 3, 6])[::order], batches("bert"), 2, config.with_overrides(seed=seed))
        made.append(state_of(model))
    assert same(made[0], made[1])
    assert not same(made[0], made[2])


def test_a_run_does_not_touch_global_random_numbers():
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    simulate(make("bert"), clients("bert", [1, 2]), batches("bert"), 1, LeffConfig(distill_steps=2))
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("settings", [
    pytest.param({}, marks=pytest.mark.slow),
    {"server_optimizer": "adam", "server_lr": 0.1, "sampler": "round_robin", "distill_every": 3},
])  # fmt: skip
def test_an_interrupted_run_goes_on_bit_by_bit(tmp_path, settings):
    config = LeffConfig(**{"lr": 1e-2, "distill_steps": 4, "participation": 0.7, **settings})
    faults = lambda round_, name: "late" if (round_, name) == (2, "1") else None  # noqa: E731
    straight, parts = make("bert"), make("bert")
    how = {"config": config, "faults": faults}
    history = simulate(straight, clients("bert", [1, 2, 3, 6]), batches("bert"), 4, **how)
    simulate(parts, clients("bert", [1, 2, 3, 6]), batches("bert"), 2, out=tmp_path, **how)
    (tmp_path / "round-00003").mkdir()  # its save was cut off
    other = make("bert", seed=9)
    again = simulate(other, clients("bert", [1, 2, 3, 6]), batches("bert"), 4, out=tmp_path, **how)
    assert same(state_of(other), state_of(straight))
    drop = lambda h: [{k: v for k, v in r.items() if k != "seconds"} for r in without_times(h)]  # noqa: E731
    assert drop(again) == drop(history)
    assert len(list(tmp_path.glob("round-*"))) == 2
    assert same(state_of(make("bert")), state_of(make("bert")))
    with pytest.raises(ValueError, match="folder: expected a run with the same settings, got other lr"):
        simulate(make("bert"), clients("bert", [1]), batches("bert"), 5, config.with_overrides(lr=1.0), out=tmp_path)
    with pytest.raises(ValueError, match="expected the tensors of this model"):
        simulate(make("bert", 3), clients("bert", [1]), batches("bert"), 5, config, out=tmp_path)


def without_times(history):
    found = json.loads(history.to_json())["rounds"]
    for r in found:
        for record in r["clients"].values():
            record["metrics"].pop("step_seconds", None)
    return found


def test_lost_and_late_replies():
    who = clients("bert", [1, 1, 6])
    faults = {(1, "0"): "lost", (1, "1"): "late", (2, "0"): "lost", (2, "1"): "lost", (2, "2"): "lost"}
    model = make("bert")
    seen = []
    history = simulate(
        model, who, batches("bert"), 3, PLAIN, faults=lambda r, c: faults.get((r, c)),
        progress=lambda _: seen.append(state_of(model)),
    )  # fmt: skip
    first, second, third = history.rounds
    assert {name: record.status for name, record in first.clients.items()} == {
        "0": "lost",
        "1": "lost",
        "2": "averaged",
    }
    assert second.refused == ["1: stale: a reply to round 1 in round 2"]
    assert second.failed
    assert second.up == 0
    assert same(seen[0], seen[1]), "nobody replied: the model is as it was"
    assert not third.failed
    assert not same(seen[1], seen[2])
    alone = make("bert")
    simulate(alone, [who[2]], batches("bert"), 1, PLAIN)
    assert same(seen[0], state_of(alone)), "the mean is over those who replied"


def test_capacities_change_and_clients_without_data_are_not_asked():
    who = [
        LeffClient("a", columns("bert"), capacity=lambda round_: round_),
        LeffClient("b", {name: t[:0] for name, t in columns("bert").items()}, capacity=6),
    ]
    history = simulate(make("bert"), who, batches("bert"), 3, PLAIN)
    assert [len(r.clients["a"].block) for r in history.rounds] == [1, 2, 3]
    assert all("b" not in r.clients for r in history.rounds)


def test_clients_measure_importance():
    config = LeffConfig(importance="clients", compression="drop", lr=1e-2)
    model = make("bert")
    history = simulate(model, clients("bert", [1, 6, 6]), rounds=1, config=config)
    from thrifty.training.leff import layer_importance

    fresh, [_, b, c] = make("bert"), clients("bert", [1, 6, 6])
    b, c = ((layer_importance(fresh, [x.data]), x.examples) for x in (b, c))
    assert history.rounds[0].importance == pytest.approx(
        ((b[0] * b[1] + c[0] * c[1]) / (b[1] + c[1])).tolist(), rel=1e-4
    )
    with pytest.raises(ValueError, match="importance: expected a client that can hold the whole model"):
        simulate(model, clients("bert", [1, 2]), rounds=1, config=config)


def server(**settings):
    made = LeffServer(make("bert"), PLAIN.with_overrides(**settings))
    [order] = made.plan([Report("a", 4, 2)])
    client = made.client_model(order)
    state = {name: t.detach() + 1 for name, t in client.trained().items()}
    return made, order, state


def test_replies_that_are_wrong_are_refused_counted_and_change_nothing():
    made, order, state = server()
    before = state_of(made.model)
    first = next(iter(state))
    for wrong, says in (
        (Update("a", 1, {**state, first: state[first] * math.nan}, 4), "is not finite"),
        (Update("a", 1, {**state, first: state[first][:1]}, 4), "has the shape"),
        (Update("a", 1, {n: t for n, t in state.items() if n != first}, 4), f"lacks {first}"),
        (Update("a", 1, {**state, "bert.embeddings.word_embeddings.weight": state[first]}, 4), "not given to train"),
        (Update("a", 1, state, 0), "it says that it has 0 examples, and reported 4"),
        (Update("a", 1, state, 10**9), "it says that it has 1000000000 examples, and reported 4"),
        (Update("a", 0, state, 4), "stale"),
        (Update("b", 1, state, 4), "nobody asked it"),
    ):
        made.plan([Report("a", 4, 2)])
        made._orders["a"] = order
        assert says in made.receive(wrong)
        record = made.finish()
        made.history.rounds.clear()
        assert record.failed
        assert record.refused or record.clients["a"].status.startswith("refused")
    assert same(before, state_of(made.model))


def test_a_mean_that_overflows_is_not_taken():
    made, _, state = server()
    before = state_of(made.model)
    first = next(iter(state))
    huge = {**state, first: torch.full_like(state[first], 1e38)}
    assert made.receive(Update("a", 1, huge, 4)) is None
    record = made.finish()
    assert record.refused == [f"{first}: its mean is not finite"]
    assert torch.equal(state_of(made.model)[first], before[first])


def test_a_second_reply_counts_once():
    made, _, state = server()
    assert made.receive(Update("a", 1, state, 4)) is None
    assert "second reply" in made.receive(Update("a", 1, {n: t * 100 for n, t in state.items()}, 4))
    record = made.finish()
    assert record.clients["a"].status == "averaged"
    after = state_of(made.model)
    assert all(torch.equal(after[name], t) for name, t in state.items())


def test_embeddings_travel_once():
    made = LeffServer(make("bert"), PLAIN)

    def sent():
        [order] = made.plan([Report("a", 4, 6)])
        made.sending(order, made.client_model(order))
        return made.finish().down

    first, second = sent(), sent()
    assert first - second == 4 * sum(p.numel() for p in made.view.embeddings().values())
    made.forget_embeddings("a")
    assert sent() == first


def test_clipping_and_noise():
    data = columns("bert")
    made = {}
    for clip, noise in ((None, 0.0), (0.1, 0.0), (0.1, 0.5), (1e9, 0.0)):
        config = PLAIN.with_overrides(clip_norm=clip, noise_multiplier=noise)
        one = LeffServer(make("bert"), config)
        [order] = one.plan([Report("a", 8, 2)])
        client = one.client_model(order)
        before = {n: t.detach().clone() for n, t in client.trained().items()}
        state = LeffClient("a", data, 2).train(client, 1, config).state
        made[clip, noise] = torch.cat([(state[n] - before[n]).flatten() for n in sorted(state)])
    assert float(made[0.1, 0].norm()) == pytest.approx(0.1, rel=1e-4)
    torch.testing.assert_close(made[1e9, 0], made[None, 0], atol=1e-6, rtol=1e-4)
    noise = made[0.1, 0.5] - made[0.1, 0]
    assert float(noise.std()) == pytest.approx(0.05, rel=0.05)


def test_the_proximal_term_holds_a_client_back():
    made = {}
    for mu in (0.0, 10.0):
        model = make("llama")
        before = state_of(model)
        simulate(model, clients("llama", [6]), rounds=1,
                 config=PLAIN.with_overrides(proximal=mu, local_epochs=8, optimizer="sgd", lr=0.05))  # fmt: skip
        made[mu] = math.sqrt(sum(float((t - before[n]).square().sum()) for n, t in state_of(model).items()))
    assert made[10.0] < 0.8 * made[0.0]


def test_the_ledger_is_kept_in_a_file(tmp_path):
    history = simulate(make("bert"), clients("bert", [1, 6]), batches("bert"), 2, LeffConfig(distill_steps=2))
    history.save(tmp_path / "history.json")
    again = History.load(tmp_path / "history.json")
    assert again.to_json() == history.to_json()
    assert again.by_client()["0"][0][1].block == history.rounds[0].clients["0"].block
    record = history.rounds[0].clients["0"]
    assert record.up < record.down
    assert record.metrics["peak_bytes"] < history.rounds[0].clients["1"].metrics["peak_bytes"]
    assert history.rounds[0].simulated_seconds > 0
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="history: expected schema"):
        History.load(tmp_path / "other.json")


def test_partitions_are_those_of_flower():
    cells = [i % 4 for i in range(400)]
    parts = dirichlet_partition(cells, 8, 0.05, seed=3)
    assert sorted(row for part in parts for row in part) == list(range(400))
    assert parts == dirichlet_partition(cells, 8, 0.05, seed=3)
    share = lambda alpha: np.mean([  # noqa: E731
        max(np.bincount([cells[r] for r in part], minlength=4)) / len(part)
        for part in dirichlet_partition(cells, 8, alpha, seed=3)
    ])  # fmt: skip
    assert share(0.05) > 0.6 > 0.35 > share(50)
    with pytest.raises(ValueError, match="cells: expected at least one example for each of 9 clients, got 3"):
        dirichlet_partition([0, 1, 2], 9, 1.0)
    with pytest.raises(ValueError, match="at_least: expected what 200 draws can give"):
        dirichlet_partition([0] * 10, 8, 0.05, at_least=2)


class Quadratic(nn.Module):
    """One number a layer: the loss is the mean over clients of half the squared distance to each client's optimum."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(layers))
        with torch.no_grad():
            for layer in self.layers:
                layer.weight.fill_(3.0)

    def theta(self):
        return torch.cat([layer.weight.flatten() for layer in self.layers])


CURVATURE = torch.tensor([1.0, 0.5, 0.25, 0.75])


def quadratic_loss(model, batch):
    return 0.5 * (CURVATURE * (model.theta() - batch["optimum"].mean(0)).square()).sum()


def squared_gradient(model, optimum):
    return float((CURVATURE * (model.theta().detach() - optimum)).square().sum())


def quadratic_run(sampler, rounds, lr, optima, noise=0.0, steps=2):
    data = []
    for index, optimum in enumerate(optima):
        generator = torch.Generator().manual_seed(index)
        rows = optimum + noise * torch.randn(64, 4, generator=generator)
        data.append(rows - rows.mean(0) + optimum)
    who = [LeffClient(str(i), {"optimum": rows}, 1 + i % 2, loss_fn=quadratic_loss) for i, rows in enumerate(data)]
    config = LeffConfig(
        compression="none", sampler=sampler, lr=lr, optimizer="sgd", weight_decay=0.0, batch_size=4, max_steps=steps
    )
    model, seen = Quadratic(4), []
    target = torch.stack(list(optima)).mean(0)
    proxy = [{"optimum": target[None]}]
    simulate(model, who, proxy, rounds, config, loss_fn=quadratic_loss,
             progress=lambda _: seen.append(squared_gradient(model, target)))  # fmt: skip
    return seen


@pytest.mark.parametrize("sampler", ["importance", "proportional", "random", "round_robin"])
def test_a_convex_federation_finds_its_optimum_with_every_sampler(sampler):
    optima = [torch.tensor([1.0, -1.0, 0.5, 2.0])] * 4
    seen = quadratic_run(sampler, 40, 0.8, optima)
    assert seen[-1] < 1e-3 * seen[0]


def test_the_rate_is_at_least_one_over_the_root_of_rounds_down_to_a_floor():
    optima = [torch.tensor([1.0, -1.0, 0.5, 2.0])] * 4
    horizons = [4, 16, 64]
    runs = [  # the step size is O(1 / sqrt(T)), as in the theorem
        quadratic_run("random", rounds, 0.5 / math.sqrt(rounds), optima, noise=0.5) for rounds in horizons
    ]
    slope = np.polyfit(np.log(horizons), np.log([min(seen) for seen in runs]), 1)[0]
    assert slope <= -0.5, slope
    bound = [math.sqrt(rounds) * np.mean(seen) for rounds, seen in zip(horizons, runs, strict=True)]
    assert max(bound) < 1.2 * bound[0], "the mean over rounds is O(1 / sqrt(T))"
    spread = [
        optima[0] + torch.tensor(shift) for shift in ([2.0, 0, 0, 0], [-2.0, 0, 0, 0], [0, 2.0, 0, 0], [0, -2.0, 0, 0])
    ]
    apart = quadratic_run("random", 50, 0.8, spread)
    alike = quadratic_run("random", 50, 0.8, optima)
    assert min(apart[30:]) > 0
    assert np.mean(apart[30:]) > 100 * np.mean(alike[30:]), "clients that differ leave a floor"
