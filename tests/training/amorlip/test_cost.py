import pytest

from thrifty._common.ledger import Resource, Task, Workload
from thrifty.training.amorlip.cost import predict
from thrifty.training.amorlip.networks import PartitionMLP

CLIP = {"embedding": 512, "batch": 4096, "steps": 10}


def test_memory_and_flops_of_the_loss():
    delta = predict(Workload(Task.IMAGE_TRAINING, CLIP))
    assert delta.applies
    assert -300 < delta.total(Resource.ACTIVATIONS) / 2**20 < -200
    weights = 2 * sum(p.numel() for p in PartitionMLP(512, 0.5).parameters())
    assert delta.total(Resource.OPTIMIZER_STATE) == 5 * 4 * weights
    assert delta.total(Resource.FLOPS) < 0
    small = predict(Workload(Task.IMAGE_TRAINING, {"embedding": 512, "batch": 64}))
    assert small.total(Resource.ACTIVATIONS) == 0  # nothing to win
    assert small.total(Resource.FLOPS) > 0


def test_the_savings_agree_with_the_allocator():
    """The predicted change against what ClipLoss and ours allocate."""
    torch = pytest.importorskip("torch")
    open_clip = pytest.importorskip("open_clip")
    from thrifty.bench.memory import allocated_peak
    from thrifty.training.amorlip import AmorLIPLoss

    u, v = (torch.nn.functional.normalize(torch.randn(1536, 64), dim=1).requires_grad_() for _ in range(2))
    s = torch.tensor(14.3)
    loss = AmorLIPLoss(64, steps_per_epoch=10**6, ema_decay=0.9)
    loss(u, v, s)
    peaks = [allocated_peak(lambda call=call: call(u, v, s).backward()) for call in (loss, open_clip.ClipLoss())]
    measured = peaks[0] - peaks[1]
    predicted = predict(Workload(Task.IMAGE_TRAINING, {"embedding": 64, "batch": 1536})).total(Resource.ACTIVATIONS)
    assert predicted == pytest.approx(measured, rel=0.25)


def test_what_it_is_not_for():
    for task, facts in (
        (Task.IMAGE_TRAINING, {"batch": 64}),
        (Task.LM_PRETRAINING, CLIP),
        (Task.IMAGE_INFERENCE, CLIP),
    ):
        assert not predict(Workload(task, facts)).applies
    with pytest.raises(ValueError, match="'batch' is needed"):
        predict(Workload(Task.IMAGE_TRAINING, {"embedding": 512}))
