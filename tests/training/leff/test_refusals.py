"""What does not go is said, with what would do."""

import pytest
import torch
from leff_models import batches, clients, columns, make
from torch import nn
from transformers import AlbertConfig, AlbertModel, AutoModelForSeq2SeqLM, T5Config

from thrifty.training.leff import (
    LayerView,
    LeffClient,
    LeffConfig,
    LeffServer,
    Report,
    aggregate_layers,
    block_importance,
    block_probabilities,
    capacity_for_deadline,
    compress_context,
    gradient_gap,
    layer_importance,
    simulate,
)
from thrifty.training.leff.client_model import Shape

PLAIN = LeffConfig(compression="drop", sampler="random")


@pytest.mark.parametrize(("capacity", "says"), [
    (0, "capacity: expected a whole number of layers of at least 1, got 0"),
    (7, "capacity: expected at most 6, the number of layers, got 7"),
    (1.5, "capacity: expected a whole number of layers of at least 1, got 1.5"),
    (True, "capacity: expected a whole number of layers of at least 1, got True"),
])  # fmt: skip
def test_capacities(capacity, says):
    with pytest.raises(ValueError, match=says):
        simulate(make("bert"), [LeffClient("a", columns("bert"), capacity)], rounds=1, config=PLAIN)
    with pytest.raises(ValueError, match=says):
        compress_context(make("bert"), 0, capacity, config=PLAIN)


def test_a_client_that_says_nothing_of_its_capacity():
    with pytest.raises(ValueError, match="capacity: expected layers, or bytes as memory, of client 'a', got neither"):
        LeffClient("a", columns("bert"))
    with pytest.raises(ValueError, match="capacity: expected layers, or bytes"):
        Report("a", 1)
    with pytest.raises(ValueError, match="client: expected a name"):
        Report("", 1, 1)
    with pytest.raises(ValueError, match="examples: expected the number of examples where data is a function"):
        LeffClient("a", lambda generator: [], 1)
    with pytest.raises(ValueError, match=r"budget: expected at least \d+ bytes, which one layer needs, got 10"):
        simulate(make("bert"), [LeffClient("a", columns("bert"), memory=10)], rounds=1, config=PLAIN)


def test_a_client_that_says_bytes():
    history = simulate(make("bert"), [LeffClient("a", columns("bert"), memory=1e9)], rounds=1, config=PLAIN)
    assert len(history.rounds[0].clients["a"].block) == 6


def test_layers_that_are_not_found():
    with pytest.raises(
        ValueError, match=r"layers: expected the path of a ModuleList, one of bert.encoder.layer \(6\); got 'x'"
    ):
        LayerView(make("bert"), "x")
    two = nn.Module()
    two.a, two.b = (nn.ModuleList([nn.Linear(1, 1)]) for _ in range(2))
    with pytest.raises(ValueError, match=r"candidates: a \(1\), b \(1\); got None"):
        LayerView(two)
    assert LayerView(two, "b").num_layers == 1
    once = nn.Linear(1, 1)
    two.a = nn.ModuleList([once, once])
    with pytest.raises(ValueError, match="layers: expected layers of their own, got one module several times in 'a'"):
        LayerView(two, "a")
    t5 = AutoModelForSeq2SeqLM.from_config(
        T5Config(vocab_size=8, d_model=8, d_kv=4, d_ff=8, num_layers=2, num_heads=2, decoder_start_token_id=0)
    )
    with pytest.raises(ValueError, match="model: expected one stack of layers, got an encoder and a decoder"):
        LayerView(t5)
    shared = AlbertModel(AlbertConfig(vocab_size=8, embedding_size=8, hidden_size=8, num_attention_heads=2,
                                      intermediate_size=8, num_hidden_layers=4))  # fmt: skip
    with pytest.raises(ValueError, match="layers: expected the path of the layers' ModuleList"):
        LayerView(shared)


def test_no_proxy_set():
    with pytest.raises(ValueError, match="proxy: expected batches with compression='distill', got none"):
        LeffServer(make("bert"), LeffConfig(sampler="random"))
    with pytest.raises(ValueError, match="proxy: expected labelled batches with sampler='importance', got none"):
        LeffServer(make("bert"), LeffConfig(compression="drop"))
    with pytest.raises(ValueError, match="proxy: expected batches to distil on"):
        compress_context(make("bert"), 0, 1)
    unlabelled = [{k: v for k, v in b.items() if k != "labels"} for b in batches("bert")]
    with pytest.raises(ValueError, match="batch: expected 'labels' for the model's own loss"):
        simulate(make("bert"), clients("bert", [1]), unlabelled, 1, LeffConfig())
    assert simulate(make("bert"), clients("bert", [1]), unlabelled, 1, LeffConfig(sampler="random", distill_steps=1))


class NoMaps(nn.Module):
    """Layers whose attention cannot be seen."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(5))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def test_layers_without_attention_maps():
    proxy = [{"x": torch.randn(3, 2, 4)}]
    with pytest.raises(ValueError, match="alpha: expected 0 for a model whose layers give no attention maps"):
        compress_context(NoMaps(), 0, 1, 0.5, proxy)
    made = compress_context(NoMaps(), 0, 1, 0.5, proxy, config=LeffConfig(alpha=0.0, distill_steps=2))
    assert made.layout.sources == (0, 2, 4)


def test_a_proxy_set_of_another_tokenizer():
    foreign = [{"input_ids": torch.full((2, 4), 999), "labels": torch.tensor([0, 1])}]
    with pytest.raises(ValueError, match="proxy: expected token ids below 50, the model's vocabulary, got 999"):
        LeffServer(make("bert"), LeffConfig(), foreign)


def test_gradient_checkpointing_that_a_model_has_not():
    with pytest.raises(ValueError, match="gradient_checkpointing: expected a model that supports it, got NoMaps"):
        compress_context(NoMaps(), 0, 1, config=LeffConfig(compression="drop", gradient_checkpointing=True))


def test_names_that_stand_twice_and_faults_that_there_are_not():
    who = [LeffClient("a", columns("bert"), 1), LeffClient("a", columns("bert"), 1)]
    with pytest.raises(ValueError, match=r"clients: expected different names, got \['a', 'a'\]"):
        simulate(make("bert"), who, rounds=1, config=PLAIN)
    with pytest.raises(ValueError, match="reports: expected one a client, got several of"):
        LeffServer(make("bert"), PLAIN).plan([Report("a", 1, 1), Report("a", 1, 1)])
    with pytest.raises(ValueError, match="faults: expected one of None, 'lost', 'late', got 'slow'"):
        simulate(make("bert"), who[:1], rounds=1, config=PLAIN, faults=lambda *_: "slow")


def test_rounds_in_their_order(tmp_path):
    server = LeffServer(make("bert"), PLAIN)
    with pytest.raises(RuntimeError, match=r"server: expected a round that plan\(\) began"):
        server.finish()
    server.plan([Report("a", 1, 1)])
    with pytest.raises(RuntimeError, match="save: expected a finished round, got round 1 under way"):
        server.save(tmp_path)
    with pytest.raises(FileNotFoundError):
        server.load(tmp_path / "none")


def test_numbers_that_will_not_do():
    with pytest.raises(ValueError, match="updates: expected floating-point tensors of the model, got 'b'"):
        aggregate_layers({"a": torch.ones(1)}, [({"b": torch.ones(1)}, 1)])
    with pytest.raises(ValueError, match="updates: expected floating-point"):
        aggregate_layers({"a": torch.ones(1)}, [({"a": torch.ones(2)}, 1)])
    with pytest.raises(ValueError, match="weight: expected a positive number of examples, got 0"):
        aggregate_layers({"a": torch.ones(1)}, [({"a": torch.ones(1)}, 0)])
    with pytest.raises(ValueError, match="length: expected at most 2, the number of layers, got 3"):
        block_importance(torch.ones(2), 3)
    with pytest.raises(ValueError, match="importance: expected finite numbers"):
        block_probabilities(torch.tensor([1.0, float("nan")]), 1)
    with pytest.raises(ValueError, match="batches: expected at least one batch"):
        layer_importance(make("bert"), [])
    with pytest.raises(ValueError, match="batches: expected finite losses, got nan in batch 0"):
        layer_importance(make("bert"), batches("bert"), lambda m, b: m(**b).loss * float("nan"))
    with pytest.raises(ValueError, match="batches: expected at least one batch"):
        gradient_gap(make("bert"), compress_context(make("bert"), 0, 1, 1.0), [])
    with pytest.raises(ValueError, match=r"deadline: expected at least 5 s, which one layer needs, got 1"):
        capacity_for_deadline(1.0, 10, 1.0, 6)


def test_a_shape_that_is_no_model():
    shape = Shape.of(compress_context(make("bert"), 0, 1, config=PLAIN), make("bert"), PLAIN)
    with pytest.raises(ValueError, match="kind: expected a model class of transformers, got 'Trainer'"):
        Shape.from_json(shape.to_json().replace("BertForSequenceClassification", "Trainer")).build({})
    with pytest.raises(ValueError, match="state: expected the tensors of the client's model"):
        shape.build({"x": torch.ones(1)})


def test_all_clients_without_data():
    empty = {name: t[:0] for name, t in columns("bert").items()}
    history = simulate(make("bert"), [LeffClient("a", empty, 1)], rounds=1, config=PLAIN)
    assert history.rounds[0].failed
