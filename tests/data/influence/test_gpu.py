"""The same scores and the same choice on an accelerator as on the CPU."""

import copy

import pytest
import torch
from influence_ground import llama, pool, stepped

from thrifty.data.influence import InfluenceDistillation, JVPEmbedding

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("landmarks", [10, 24])
def test_an_accelerator_chooses_what_the_cpu_chooses(order, landmarks):
    model, rows = llama(), pool(24)
    optimizer = stepped(model, rows)
    moved = copy.deepcopy(model).cuda()
    there = torch.optim.AdamW(moved.parameters(), lr=1e-3)
    there.load_state_dict(optimizer.state_dict())
    settings = {"num_landmarks": landmarks, "embedding": JVPEmbedding(num_blocks=2), "order": order}
    aggregate = "mean" if order == 2 else "round_robin"
    ours = InfluenceDistillation(moved, there, **settings).select(rows, pool(4, seed=77), 5, aggregate=aggregate)
    theirs = InfluenceDistillation(model, optimizer, **settings).select(rows, pool(4, seed=77), 5, aggregate=aggregate)
    assert set(ours.indices.tolist()) == set(theirs.indices.tolist())
    torch.testing.assert_close(torch.as_tensor(ours.scores), torch.as_tensor(theirs.scores), rtol=1e-3, atol=1e-4)
