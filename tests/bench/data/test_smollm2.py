import pytest

from thrifty.bench import carried
from thrifty.bench.data import smollm2

pytestmark = [pytest.mark.net, pytest.mark.slow]


def test_it_is_a_language_model_that_knows_something():
    torch = pytest.importorskip("torch")
    carried.archive(smollm2.NAME, offline=False)
    model, tokenizer = smollm2.load()
    assert 134e6 < sum(p.numel() for p in model.parameters()) < 135e6
    tokens = tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        best = model(**tokens).logits[0, -1].argmax()
    assert tokenizer.decode(best).strip() == "Paris"
