"""What the evidence itself rests on: the search for the largest size, the user's own text, and steps that compare."""

import json

import pytest
import torch

from thrifty.training.streambp.evidence import CLAIMS
from thrifty.training.streambp.evidence.batches import make_batch, read_text
from thrifty.training.streambp.evidence.contenders import (
    CHECKPOINT,
    E2,
    LAYERS_ONLY,
    MST,
    NATIVE,
    NONE,
    OURS,
    SAME_HEAD,
    TILED,
    TRL,
    gradient_error,
    gradients,
    make_model,
)  # fmt: skip
from thrifty.training.streambp.evidence.reach import largest


@pytest.mark.parametrize("curve", [0.0, 2e-6])
def test_largest_size_is_verified_below_and_above(curve):
    runs = {}

    def peak(n):
        runs[n] = 20 + 0.004 * n + curve * n * n
        return runs[n]

    found = largest(peak, 500, 96.0)
    assert runs[found] <= 96 < min(mib for n, mib in runs.items() if n > found)
    assert any(found < n <= 1.045 * found + 1 for n in runs)
    assert len(runs) < 10


def test_small_sizes_are_found_too():
    assert largest(lambda n: 19 + 23.0 * n, 1, 96.0) == 3


@pytest.mark.parametrize("peak", [lambda n: 41.0, lambda n: 41.0 + 1e-9 * n, lambda n: 5.0])
def test_a_peak_that_does_not_grow_ends_the_search(peak):
    with pytest.raises(RuntimeError, match="no size found"):
        largest(peak, 4, 96.0)


def test_text_of_the_users_own(tmp_path):
    (tmp_path / "a.txt").write_text("long enough. " * 200)
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps({"text": "word " * 300}) for _ in range(2)))
    assert bytes(read_text(tmp_path / "a.txt")[:11].tolist()) == b"long enough"
    assert len(read_text(tmp_path / "b.jsonl")) == 3001
    (tmp_path / "a.txt").write_text("short")
    with pytest.raises(ValueError, match="--data: expected at least 1024 bytes"):
        read_text(tmp_path / "a.txt")


def test_every_contender_has_the_same_gradients():
    model = make_model({**E2, "hidden_size": 32, "intermediate_size": 48}, seed=0)
    batch = make_batch(read_text(None), 256, 96, padded=True)
    wanted = gradients(NONE, model, batch)
    for name in (CHECKPOINT, SAME_HEAD, NATIVE, TRL, MST, TILED, OURS, LAYERS_ONLY):
        got = gradients(name, model, batch, chunk=25)
        assert gradient_error(got, wanted) < 1e-5, name
        assert type(model).forward.__get__(model) == model.forward, f"{name} leaves the model as it was"


def test_claims_keep_the_targets_that_were_set():
    targets = {claim.id: claim.target and claim.target.value for claim in CLAIMS}
    assert targets["peak-vs-checkpointing-padded"] == 0.40
    assert targets["peak-vs-checkpointing-unpadded"] == 0.55
    assert (targets["head-peak"], targets["max-length"], targets["max-length-vs-trl"]) == (1.15, 3.0, 1.6)
    assert (targets["time-padded"], targets["time-unpadded"]) == (1.05, 1.25)


def test_batches_repeat_a_short_text():
    batch = make_batch(torch.arange(10, dtype=torch.uint8), 16384, 16, batch=2)
    assert batch.ids.shape == (2, 16)
    assert batch.ids.max() < 16384
