"""Masks of the user's own, and masks that see ahead."""

import pytest
import torch
from families import T, error, gradients, make_batch, reference

from thrifty.training.streambp import enable_streambp


def square(kind):
    """Return a mask [batch, 1, length, length] of a user's own."""
    mask = torch.ones(2, 1, T, T, dtype=torch.bool).tril()
    if kind == "window":
        mask &= torch.ones(T, T, dtype=torch.bool).triu(-6)
    if kind == "prefix":
        mask[..., :5] = True
    return mask


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("kind", ["causal", "window", "prefix"])
def test_masks_of_ones_own_are_cut_into_rows_if_they_are_causal(model, kind, additive):
    mask = square(kind)
    if additive:
        mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -1e9)
    inputs, labels = make_batch("none")
    inputs["attention_mask"] = mask
    _, wanted = reference(model, inputs, labels)
    with enable_streambp(model, layer_chunk_size=4):
        if kind == "prefix":
            with pytest.raises(ValueError, match="see later ones"):
                model(**inputs, labels=labels)
            return
        assert error(gradients(model, model(**inputs, labels=labels).loss), wanted) < 1e-10


@pytest.mark.parametrize("by_vmap", [False, True])
def test_spans_read_in_both_directions_are_refused(by_vmap):
    """Such as images among text, which a few tokens of text at enable time cannot show."""
    from transformers.masking_utils import causal_mask_function, or_masks

    from thrifty.training.streambp.masks import keep_rule

    spans = torch.zeros(2, T, dtype=torch.bool)
    options = {"batch_size": 2, "q_length": T, "kv_length": T, "allow_is_causal_skip": False, "use_vmap": by_vmap}
    sees = or_masks(causal_mask_function, lambda batch, head, query, key: spans[batch, query] & spans[batch, key])
    assert not keep_rule(mask_function=sees, **options).plain
    spans[1, 7:9] = True
    with pytest.raises(ValueError, match="see later ones"):
        keep_rule(mask_function=sees, **options)
