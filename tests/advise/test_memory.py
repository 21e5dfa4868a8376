"""The ledger's peak is the allocator's."""

from dataclasses import replace

import pytest

from thrifty._common.ledger import Resource
from thrifty.advise import device, optimizer
from thrifty.advise.account import MEMORY
from thrifty.advise.evidence import memory
from thrifty.advise.evidence.families import configuration, model
from thrifty.advise.job import Training
from thrifty.advise.model import read_decoder
from thrifty.advise.reach import deepest, longest, widest
from thrifty.advise.rehearsal import rehearse
from thrifty.advise.training import account


@pytest.mark.parametrize(
    ("family", "mode"),
    [("llama", "none"), ("llama", "checkpoint"), ("mistral", "checkpoint"), ("gemma2", "checkpoint"), ("gpt2", "none")],
)
def test_a_rehearsed_step_holds_what_the_allocator_says(family, mode):
    measured, predicted = memory.family(family, mode, 256)
    assert predicted == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("family", ["llama", "phi"])
def test_streaming_is_foretold_within_a_tenth(family):
    measured, predicted = memory.family(family, "streambp")
    assert predicted == pytest.approx(measured, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("state", memory.OPTIMIZERS)
def test_a_step_with_its_optimizer(state):
    measured, predicted = memory.whole_step(state)
    assert predicted == pytest.approx(measured, rel=0.1)


def test_layers_that_were_not_rehearsed_are_added():
    """Two layers are run; five must come out as if five had been."""
    config = configuration("llama")
    config.num_hidden_layers = 5
    for mode, length in (("none", 256), ("checkpoint", 256), ("checkpoint", 2048)):  # each full at another moment
        measured, predicted = memory.backward(model(config, "float32"), config, mode, length, "float32")
        assert predicted == pytest.approx(measured, rel=0.02), (mode, length)


def job(**changes):
    given = {"length": 256, "dtype": "float32", **changes}
    return Training(read_decoder(configuration("llama")), device("a100"), optimizer("adamw"), **given)


def test_the_parts_add_up_and_more_costs_more():
    plain = account(job())
    assert plain.memory == sum(plain.total(resource) for resource in MEMORY)
    assert plain.total(Resource.OPTIMIZER_STATE) == 2 * plain.total(Resource.WEIGHTS)
    for changes in ({"length": 512}, {"batch": 2}, {"checkpointing": False}, {"layers": 6}, {"objective": "dpo"}):
        assert account(job(**changes)).memory > plain.memory, changes
    for changes in ({"lora_rank": 4}, {"dtype": "bfloat16"}, {"gpus": 4}):
        assert account(job(**changes)).memory < plain.memory, changes
    assert account(job(gpus=4)).total(Resource.TRANSFER) > 0 == plain.total(Resource.TRANSFER)


def test_adapters_leave_the_weights_without_gradients():
    found = account(job(lora_rank=4))
    model = read_decoder(configuration("llama"))
    sides = sum((rows + columns) * count for (rows, columns), count in model.matrices.items())
    assert found.total(Resource.OPTIMIZER_STATE) == 2 * 4 * 4 * sides
    assert found.total(Resource.GRADIENTS) <= 4 * 4 * sides


def test_the_reach_is_the_last_that_fits():
    start = job()
    room = account(replace(start, length=700)).memory

    def fits(tried):
        return account(tried).memory <= room

    assert longest(start, fits) in (699, 700)
    assert fits(replace(start, batch=widest(start, fits)))
    assert not fits(replace(start, batch=widest(start, fits) + 1))
    assert deepest(start, fits) > start.parameters


def test_a_rehearsal_leaves_nothing_patched():
    from torch.nn import functional
    from transformers import masking_utils

    before = functional.scaled_dot_product_attention, masking_utils.find_packed_sequence_indices
    rehearse(configuration("llama"), 1, 32, dtype="float32")
    assert before == (functional.scaled_dot_product_attention, masking_utils.find_packed_sequence_indices)
