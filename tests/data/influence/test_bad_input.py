"""What is wrong is named: the argument, what came, and what would do."""

import pytest
import torch
from influence_ground import llama, pool, stepped

from thrifty.data.influence import InfluenceDistillation, JVPEmbedding, tokenize_examples, warm_up
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.parameters import select_parameters

ROWS, TARGET = pool(12), pool(3, seed=5)
SETTINGS = {"num_landmarks": 6, "embedding": JVPEmbedding(num_blocks=1)}


@pytest.fixture(scope="module")
def model():
    return llama()


@pytest.mark.parametrize("k", [0, -1, 13])
def test_k(model, k):
    with pytest.raises(ValueError, match=rf"k: expected 1 to 12 \(the pool's size\), got {k}"):
        InfluenceDistillation(model, **SETTINGS).select(ROWS, TARGET, k)


def test_more_landmarks_than_examples_is_the_exact_method(model):
    with pytest.warns(UserWarning, match="num_landmarks: 4096 is more than the 12 examples"):
        found = InfluenceDistillation(model).score(ROWS, TARGET)
    assert found.report.how == "exact"


def test_empty_sets(model):
    with pytest.raises(ValueError, match="target: expected at least one example"):
        InfluenceDistillation(model, **SETTINGS).score(ROWS, [])
    with pytest.raises(ValueError, match="train: expected at least one example"):
        InfluenceDistillation(model, **SETTINGS).select([], TARGET, 1)


def test_all_labels_masked(model):
    masked = [{**row, "labels": [-100] * len(row["input_ids"])} for row in ROWS]
    with pytest.raises(ValueError, match="train: no example has a label token that counts"):
        InfluenceDistillation(model, **SETTINGS).score(masked, TARGET)
    with pytest.raises(ValueError, match="target: no example has a label token that counts"):
        InfluenceDistillation(model, **SETTINGS).score(ROWS, masked)


def test_another_tokenizer(model):
    with pytest.raises(
        ValueError, match="target: the example at index 1 has token id 64, the model's vocabulary ends at 63"
    ):
        InfluenceDistillation(model, **SETTINGS).score(ROWS, [TARGET[0], {"input_ids": [3, 64]}])


@pytest.mark.parametrize(
    ("ids", "says"),
    [([3, -1], "index 0 has token id -1"), ([3.5, 4], "expected whole numbers as input_ids at index 0")],
)
def test_ids_that_are_none(model, ids, says):
    with pytest.raises(ValueError, match=f"target: .*{says}"):
        InfluenceDistillation(model, **SETTINGS).score(ROWS, [{"input_ids": ids}])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"foo": 1}, "expected the field text"),
        ({"input_ids": []}, r"expected input_ids as a list of whole numbers, got \[\]"),
        ({"input_ids": [1.5, 2]}, r"expected input_ids as a list of whole numbers, got \[1.5, 2\]"),
        ({"input_ids": [[1, 2]]}, r"expected input_ids as a list of whole numbers, got \[\[1, 2\]\]"),
        ({"input_ids": [10**20, 3]}, "expected input_ids as a list of whole numbers"),
        ({"input_ids": [3, 4], "labels": "x"}, "expected labels as a list of whole numbers, got 'x'"),
        ({"input_ids": [3, 4], "labels": [3]}, "expected labels for each of 2 tokens, got 1"),
        ({"input_ids": [3, 4], "attention_mask": [1]}, "expected attention_mask for each of 2 tokens, got 1"),
    ],
)
def test_rows_that_are_none(row, says):
    class Tokenizer:
        eos_token_id = 2

    with pytest.raises(ValueError, match=f"row 1: {says}"):
        tokenize_examples([{"input_ids": [3]}, row], Tokenizer())


def test_gradients_that_are_not_finite_name_the_example():
    broken = llama()
    broken.model.embed_tokens.weight.data[9] = torch.inf
    rows = [{"input_ids": [3, 4, 5]}, {"input_ids": [3, 9, 5]}, {"input_ids": [6, 7]}]
    with pytest.raises(ValueError, match="train: the gradient of the example at index 1 is not finite"):
        InfluenceDistillation(broken, num_landmarks=3).score(rows, [{"input_ids": [4, 5, 6]}])


def test_an_optimizer_of_another_model_or_never_stepped(model):
    other = torch.optim.AdamW(llama(seed=1).parameters())
    with pytest.raises(
        ValueError, match=r"optimizer: it does not hold 3 of the 3 .*model\.layers\.0\.mlp\.down_proj\.weight"
    ):
        InfluenceDistillation(model, other)
    with pytest.raises(ValueError, match=r"no state for 3 .* Warm up first"):
        InfluenceDistillation(model, torch.optim.AdamW(model.parameters()))


def test_a_filter_that_matches_nothing(model):
    with pytest.raises(ValueError, match=r"params: expected a regular expression, got '\('"):
        InfluenceDistillation(model, params="(")
    with pytest.raises(ValueError, match=r"params: 'c_proj' matches none of the \d+ .* there are model\.embed_tokens"):
        InfluenceDistillation(model, params="c_proj")
    frozen = llama()
    frozen.requires_grad_(False)
    with pytest.raises(ValueError, match="requires_grad=True"):
        select_parameters(frozen)


def test_experts_without_a_gradient_score_zero(model):
    class Routed(torch.nn.Module):
        """An expert that only examples with a large first token reach."""

        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(64, 8)
            self.expert = torch.nn.Linear(8, 64)

        def forward(self, input_ids, attention_mask=None):
            hidden = self.embed(input_ids)
            gate = (input_ids[:, :1] > 30).float()[..., None]
            return gate * self.expert(hidden) + (1 - gate) * hidden @ self.embed.weight.T

    def loss(logits, batch):
        return torch.nn.functional.cross_entropy(
            logits[:, :-1].transpose(1, 2), batch["labels"][:, 1:], reduction="none", ignore_index=-100
        ).sum(1)

    rows = [{"input_ids": [first, 5, 6, 7]} for first in (3, 40, 50, 9)]
    rows = [{**row, "labels": row["input_ids"]} for row in rows]
    found = InfluenceDistillation(Routed(), params="expert", loss_fn=loss, num_landmarks=4).score(rows, rows[1:2] * 2)
    assert found.scores[0].tolist() == found.scores[3].tolist() == [0, 0]
    assert found.scores[2].min() > 0


def test_repeated_examples_and_equal_embeddings(model):
    rows = pool(4) * 3
    found = InfluenceDistillation(model, **SETTINGS).score(rows, TARGET)
    assert torch.isfinite(found.scores).all()
    same = JVPEmbedding(embed_fn=lambda model, batch: torch.ones(len(batch["input_ids"]), 3))
    with pytest.raises(ValueError, match="equal embeddings"):
        InfluenceDistillation(model, num_landmarks=6, embedding=same).score(ROWS, TARGET)


def test_the_target_inside_the_pool(model):
    with pytest.warns(UserWarning, match="2 target examples are in the pool"):
        InfluenceDistillation(model, **SETTINGS).score(ROWS, ROWS[:2])


def test_what_is_no_data_set(model):
    picker = InfluenceDistillation(model, **SETTINGS)
    with pytest.raises(TypeError, match="train: expected a datasets.Dataset.*got generator"):
        picker.score((row for row in ROWS), TARGET)
    with pytest.raises(ValueError, match="expected input_ids .* got text; tokenise first"):
        picker.score([{"text": "hello"}], TARGET)
    with pytest.raises(TypeError, match="expected dictionaries, got list at index 0"):
        picker.score([[1, 2, 3]], TARGET)
    with pytest.raises(ValueError, match="has no token"):
        picker.score([{"input_ids": torch.zeros(0, dtype=torch.long)}], TARGET)


def test_the_column_label_is_taken_for_labels():
    rows = Examples([{"input_ids": [3, 4], "label": 1}, {"input_ids": [3, 5], "label": -100}], causal=False)
    assert int(rows.row(0)["labels"]) == 1
    assert rows.valid.tolist() == [0]


def test_a_wholly_padded_row_is_left_out():
    rows = [{"input_ids": [3, 4, 5], "attention_mask": [0, 0, 0]}, {"input_ids": [3, 4, 5]}]
    assert Examples(rows).valid.tolist() == [1]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"num_landmarks": 0}, "num_landmarks: expected a whole number of at least 1, got 0"),
        ({"grad_dim": 0}, "grad_dim"),
        ({"projection": "fourier"}, "projection: expected one of 'srht', 'rademacher', None, got 'fourier'"),
        ({"kernel": "poly"}, "kernel"),
        ({"order": 3}, "order"),
        ({"landmarks": "grid"}, "landmarks"),
        ({"damp": -1.0}, "damp"),
        ({"damp": float("nan")}, "damp"),
        ({"bandwidth": float("nan")}, "bandwidth"),
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"num_check": -1}, "num_check"),
        ({"num_check": 3, "order": 2}, "num_check: at order=2 .* expected 0, got 3"),
        ({"mask_numel": 0}, "mask_numel"),
    ],
)
def test_settings(model, settings, match):
    with pytest.raises(ValueError, match=match):
        InfluenceDistillation(model, **settings)


def test_embeddings_that_are_not_finite_name_the_example(model):
    picker = InfluenceDistillation(model, **SETTINGS)
    embeddings = picker.embed(ROWS)
    embeddings[7, 0] = torch.nan
    with pytest.raises(ValueError, match="train: the embedding of the example at index 7 is not finite"):
        picker.score(ROWS, TARGET, embeddings=embeddings)


def test_a_mask_with_a_hole_is_refused():
    with pytest.raises(ValueError, match="the attention_mask at index 0 has a hole"):
        Examples([{"input_ids": [3, 4, 5], "attention_mask": [1, 0, 1]}])


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([{"input_ids": [3, 4], "labels": []}], r"expected numbers as labels at index 0, got \[\]"),
        ([{"input_ids": [3, 4, 5], "labels": [3, 4]}], "has 3 tokens and 2 labels"),
        ([{"input_ids": [3, 4], "labels": [3, 999]}], "has label 999, the model's vocabulary ends at 63"),
    ],
)
def test_labels_that_do_not_fit(model, rows, match):
    with pytest.raises(ValueError, match=match):
        InfluenceDistillation(model, **SETTINGS).score(rows, TARGET)


def test_fields_that_some_lack():
    rows = Examples([{"input_ids": [3, 4], "token_type_ids": [0, 0]}, {"input_ids": [3, 4, 5]}])
    with pytest.raises(ValueError, match="some lack token_type_ids"):
        next(iter(rows.batches([0, 1], 2)))


def test_k_is_checked_before_the_work(model):
    rows = [{**row, "labels": [-100] * len(row["input_ids"])} if i < 2 else row for i, row in enumerate(ROWS)]
    picker = InfluenceDistillation(model, progress=lambda *told: pytest.fail("work began"), **SETTINGS)
    with pytest.raises(ValueError, match="k: expected 1 to 10, got 11: of 12 examples 2 have no label token"):
        picker.select(rows, TARGET, 11)
    with pytest.raises(TypeError, match="float"):
        picker.select(rows, TARGET, 2.5)


def test_warming_up_checks_token_ids(model):
    with pytest.raises(ValueError, match="the model's vocabulary ends at 63"):
        warm_up(model, [{"input_ids": [3, 99]}], steps=1)


def test_a_batch_beyond_the_pool_is_the_pool(model):
    """No list as long as the batch is made, which for a slip of the hand would take for ever."""
    one, other = (warm_up(model, ROWS, steps=1, batch_size=size).model for size in (len(ROWS), 10**12))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_aggregate(model):
    with pytest.raises(ValueError, match="aggregate"):
        InfluenceDistillation(model, **SETTINGS).select(ROWS, TARGET, 2, aggregate="max")


def test_the_library_prints_nothing(model, capsys):
    optimizer = stepped(llama(), ROWS)
    assert optimizer is not None
    InfluenceDistillation(model, **SETTINGS).select(ROWS, TARGET, 2)
    assert capsys.readouterr() == ("", "")
