"""Priors, encoders, odd graphs, saving, and bad settings."""

import numpy as np
import pytest
import torch
from toys import R1, R2, R3, graph, model

from thrifty.models.se_htgnn import (
    SEHTGNN,
    Edges,
    HeteroTemporalData,
    SEHTGNNConfig,
    TypePrior,
    TypePrompt,
    build_type_embeddings,
)
from thrifty.models.se_htgnn.config import PRESETS

COVID = (
    ["state", "county"],
    [("state", "near", "state"), ("county", "in", "state"), ("county", "near", "county"), ("state", "has", "county")],
)


def llama_like():
    """Two vectors with the norms and the cosine of the published ones."""
    cosine = 0.96895
    return {"state": torch.tensor([84.03, 0.0]), "county": 84.56 * torch.tensor([cosine, (1 - cosine**2) ** 0.5])}


def test_the_released_prior_on_the_published_vectors():
    prior = TypePrior(COVID, llama_like(), "similarity")()
    found = [float(prior[t]) for t in COVID[1]]
    assert found == pytest.approx([0.50632, 0.49368, 0.50946, 0.49054], abs=3e-5)  # norms have four digits


@pytest.mark.parametrize("mode", ["projected", "similarity", "uniform", "zero", "random"])
def test_priors_lie_between_0_and_1(mode):
    torch.manual_seed(0)
    vectors = {"state": torch.tensor([1.0, -2.0, 0.5]), "county": torch.tensor([-1.0, 2.0, 0.1])}  # negative similarity
    prior = TypePrior(COVID, vectors, mode, dim=8)()
    assert all(0 <= v.item() <= 1 for v in prior.values())
    if mode not in ("zero",):
        assert (prior[COVID[1][0]] + prior[COVID[1][1]]).item() == pytest.approx(1.0)


def test_a_projected_prior_learns_and_starts_from_one_projection():
    torch.manual_seed(0)
    prior = TypePrior(COVID, {"state": torch.randn(12), "county": torch.randn(12)}, "projected", dim=4)
    assert torch.equal(prior.query, prior.key)
    assert torch.allclose(prior.query.T @ prior.query, torch.eye(4), atol=1e-5)
    prior()[COVID[1][0]].backward()
    assert all(p.grad is not None for p in (prior.query, prior.key, prior.temperature))
    assert not any(p.requires_grad for p in TypePrior(COVID, mode="uniform").parameters())


def test_bad_priors_are_refused():
    with pytest.raises(ValueError, match="got none for county"):
        TypePrior(COVID, {"state": torch.ones(3)})
    with pytest.raises(ValueError, match="expected vectors of one width"):
        TypePrior(COVID, {"state": torch.ones(3), "county": torch.ones(4)})
    with pytest.raises(ValueError, match="this prior needs a vector for every node type"):
        TypePrior(COVID)
    with pytest.raises(ValueError, match="prior of .*: expected a number in"):
        TypePrior(COVID, mode=dict.fromkeys(COVID[1], 2.0))
    with pytest.raises(ValueError, match="expected a number for every edge type, got none for"):
        TypePrior(COVID, mode={COVID[1][0]: 0.5})
    with pytest.raises(ValueError, match="prior: expected one of"):
        TypePrior(COVID, mode="best")


def test_prompts_and_encoders(tmp_path):
    prompts = TypePrompt(COVID, "an epidemic", {"state": "a state of the union."}).build()
    assert prompts["state"].startswith("state: a state of the union.")
    assert "county in it" in prompts["state"]
    asked = []

    def encoder(texts):
        asked.append(texts)
        return np.ones((2, 3))

    found = build_type_embeddings(prompts, encoder)
    assert asked == [list(prompts.values())]
    assert found["county"].shape == (3,)
    assert build_type_embeddings(prompts, found)["state"].tolist() == [1, 1, 1]
    for odd in (torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(2, 3, requires_grad=True)):
        held = build_type_embeddings(prompts, lambda texts, odd=odd: odd)
        assert held["state"].dtype == torch.float32
        assert not held["state"].requires_grad
    with pytest.raises(ValueError, match="got none for county"):
        build_type_embeddings(prompts, {"state": torch.ones(2)})
    with pytest.raises(ValueError, match="expected 2 vectors, got 1"):
        build_type_embeddings(prompts, lambda texts: [[1.0]])
    with pytest.raises(ValueError, match="expected finite vectors of one width"):
        build_type_embeddings(prompts, lambda texts: [[1.0], [float("nan")]])
    with pytest.raises(ValueError, match="prompts: expected a text"):
        build_type_embeddings({}, encoder)
    with pytest.raises(OSError, match="offline there are 'minilm', 'smollm2'"):
        build_type_embeddings(prompts, str(tmp_path / "nothing"))


def test_a_model_from_a_folder_is_read_and_its_vectors_are_kept(tmp_path):
    """A real BERT of two layers, drawn at random: the mean of its last hidden states, once; then from the cache."""
    transformers = pytest.importorskip("transformers")
    words = tmp_path / "vocab.txt"
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "state", "county"]))
    folder = tmp_path / "bert"
    config = transformers.BertConfig(
        vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    net = transformers.BertModel(config).eval()
    net.save_pretrained(folder)
    tokenizer = transformers.BertTokenizer(str(words))
    tokenizer.save_pretrained(folder)
    prompts = {"state": "a state", "county": "a county"}
    found = build_type_embeddings(prompts, str(folder), cache=tmp_path / "kept")
    with torch.no_grad():
        expected = net(**tokenizer("a state", return_tensors="pt")).last_hidden_state[0].mean(0)
    assert torch.allclose(found["state"], expected, atol=1e-5)
    for path in folder.iterdir():
        path.unlink()
    again = build_type_embeddings(prompts, str(folder), cache=tmp_path / "kept")
    assert torch.equal(again["county"], found["county"])
    with pytest.raises(OSError, match="is not here and cannot be fetched"):
        build_type_embeddings({"state": "another"}, str(folder), cache=tmp_path / "kept")


def empty(data):
    none = Edges(torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.long))
    return HeteroTemporalData(data.num_nodes, dict.fromkeys(data.edges, none), data.x, data.y)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("aggr", ["mean", "gcn", "gat", "none"])
def test_graphs_without_edges_do_not_crash(layers, aggr):
    data = empty(graph())
    net = model(data, num_layers=layers, aggr=aggr)
    out = net(data.windows([4, 5], 3))
    assert all(torch.isfinite(v).all() for v in out.values())
    out["a"].sum().backward()


def test_types_that_nothing_leads_to_pass_through():
    data = graph()
    edges = {("b", "in", "a"): data.edges["b", "in", "a"]}
    lone = HeteroTemporalData(data.num_nodes, edges, data.x)
    net = model(lone, num_layers=2)
    z = net.encode(lone.windows([4], 3), "b")["b"][0, :, 0]
    h = net.projections[1](data.x["b"].double())[1:4]
    expected = torch.einsum("tnd,t->nd", h, net.temporal.weight[0]) + net.temporal.bias[0]
    assert torch.allclose(z, expected)
    assert net(lone.windows([4], 3))["a"].shape == (1, 5, 1, 1)


def test_a_type_may_be_absent_from_a_whole_window_or_have_no_node():
    data = graph()
    net = model(data)
    alone = {("a", "near", "a"): data.edges["a", "near", "a"]}
    bare = HeteroTemporalData({"a": 5}, alone, {"a": data.x["a"]})
    none = HeteroTemporalData({"a": 5, "b": 0}, alone, {"a": data.x["a"], "b": torch.empty(8, 0, 2)})
    for norm in (None, "node", "graph"):
        net = model(data, norm=norm)
        for some in (bare, none):
            out = net(some.windows([4, 5], 3))
            assert out["b"].shape == (2, 0, 1, 1)
            assert torch.isfinite(out["a"]).all()
        assert torch.allclose(net(bare.windows([4], 3))["a"], net(none.windows([4], 3))["a"])


def test_relations_of_one_name_are_kept_apart():
    metadata = (["a_x", "b__y"], [("a_x", "to_it", "a_x"), ("b__y", "to_it", "a_x"), ("a_x", "to_it", "b__y")])
    edges = {t: Edges(torch.tensor([[0], [1]]), torch.tensor([0])) for t in metadata[1]}
    x = {"a_x": torch.randn(2, 3, 2), "b__y": torch.randn(2, 2, 1)}
    data = HeteroTemporalData({"a_x": 3, "b__y": 2}, edges, x)
    net = SEHTGNN(
        metadata,
        data.num_features(),
        4,
        num_layers=1,
        window=2,
        prior=dict(zip(metadata[1], (0.9, 0.1, 1.0), strict=True)),
    )
    found = net.attention(data.windows([2], 2))
    assert set(found) == {(0, t) for t in metadata[1]}
    assert not torch.allclose(found[0, metadata[1][0]], found[0, metadata[1][1]])


def test_only_what_is_wanted_is_computed():
    data = graph()
    net = model(data, num_layers=1)
    net(data.windows([4], 3), "b")
    assert {t for _, t in net.attention_weights} == {("a", "rev_in", "b")}
    with pytest.raises(ValueError, match="target_type: expected one of a, b, got 'c'"):
        net(data.windows([4], 3), "c")


@pytest.mark.parametrize("prior", [None, "vectors", "given"])
def test_a_saved_model_forecasts_as_before(tmp_path, prior):
    data = graph()
    more = {}
    if prior == "vectors":
        more = {"type_embeddings": {"a": torch.randn(6), "b": torch.randn(6)}}
    if prior == "given":
        more = {"prior": dict.fromkeys(data.edges, 0.25)}
    net = model(data, dtype=torch.float32, **more)
    net.save_pretrained(tmp_path / "m")
    again = SEHTGNN.from_pretrained(tmp_path / "m")
    batch = data.windows([5, 6], 3)
    assert torch.equal(again(batch)["a"], net(batch)["a"])
    with pytest.raises(FileExistsError):
        net.save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "config.json").write_text(
        net.config.to_json().replace('"hidden_channels": 4', '"hidden_channels": 8')
    )
    with pytest.raises(ValueError, match="do not fit"):
        SEHTGNN.from_pretrained(tmp_path / "m")


def test_a_lazy_model_is_saved_with_the_widths_that_it_saw(tmp_path):
    data = graph()
    net = SEHTGNN(data.metadata(), hidden_channels=4, num_layers=1, window=3)
    net(data.windows([4], 3))
    net.save_pretrained(tmp_path / "m")
    assert SEHTGNN.from_pretrained(tmp_path / "m").config.in_channels == {"a": 3, "b": 2}


def test_types_without_features_get_a_table():
    data = graph()
    bare = HeteroTemporalData(data.num_nodes, data.edges, {"a": data.x["a"]}, times=range(8))
    net = SEHTGNN(data.metadata(), {"a": 3}, 4, window=3, num_nodes={"b": 4})
    net(bare.windows([4], 3))["a"].sum().backward()
    assert net.tables[0].grad is not None
    more = HeteroTemporalData({"a": 5, "b": 6}, data.edges, {"a": data.x["a"]}, times=range(8))
    assert torch.equal(net._project(more.windows([4], 3), "b")[0, 5], net.tables[0].mean(0))  # who is new
    with pytest.raises(ValueError, match="x of 'b': expected features, got none; give num_nodes"):
        SEHTGNN(data.metadata(), {"a": 3}, 4, window=3)(bare.windows([4], 3))
    with pytest.raises(ValueError, match="num_nodes: the model has 9 nodes of 'b', got 4"):
        SEHTGNN(data.metadata(), {"a": 3}, 4, window=3, num_nodes={"b": 9})(bare.windows([4], 3))
    with pytest.raises(ValueError, match="x of 'a': expected 5 features, got 3"):
        SEHTGNN(data.metadata(), {"a": 5, "b": 2}, 4, window=3)(data.windows([4], 3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_channels": 6, "heads": 4}, r"heads: expected a divisor of hidden_channels \(6\), got 4"),
        ({"attention": "best"}, "attention: expected one of"),
        ({"aggr": "max"}, "aggr: expected one of"),
        ({"norm": "batch"}, "norm: expected one of"),
        ({"num_layers": 0}, "num_layers: expected"),
        ({"dropout": 1.0}, "dropout: expected a share"),
        ({"degree": "none"}, "degree: expected one of"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SEHTGNN((["a", "b"], [R1, R2, R3]), 2, **settings)
    with pytest.raises(ValueError, match="names the node type 'c'"):
        SEHTGNN((["a"], [("c", "to", "a")]), 2)


def test_settings_are_json_and_presets_are_settings():
    config = SEHTGNNConfig(("a",), (("a", "to", "a"),), {"a": 2}, heads=2, norm="node")
    assert SEHTGNNConfig.from_json(config.to_json()) == config
    with pytest.raises(ValueError, match="got also"):
        SEHTGNNConfig.from_json(config.to_json().replace('"heads"', '"hands"'))
    for settings in PRESETS.values():
        SEHTGNN((["a"], [("a", "to", "a")]), 2, **settings)


def test_dropout_is_for_training_only():
    data = graph()
    net = model(data, dropout=0.5)
    batch = data.windows([4], 3)
    assert torch.equal(net(batch)["a"], net(batch)["a"])
    net.train()
    assert not torch.equal(net(batch)["a"], net(batch)["a"])
