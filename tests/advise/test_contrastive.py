"""Two towers: what a step of contrastive training takes, and that the adviser names the loss that is for it."""

import json

import pytest

from thrifty._common.ledger import Resource
from thrifty.advise import advise_contrastive
from thrifty.advise.contrastive import is_two_towers, read_towers

torch = pytest.importorskip("torch")
pytest.importorskip("open_clip")

OPEN_CLIP = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 16, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16},
    "text_cfg": {"context_length": 8, "vocab_size": 512, "width": 32, "heads": 2, "layers": 2},
}
HIDDEN = {"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
TRANSFORMERS = {
    "model_type": "clip",
    "projection_dim": 16,
    "text_config": {**HIDDEN, "vocab_size": 512, "max_position_embeddings": 8},
    "vision_config": {**HIDDEN, "image_size": 16, "patch_size": 8},
}
SIGLIP = {**TRANSFORMERS, "model_type": "siglip"}


@pytest.fixture(params=[OPEN_CLIP, {"model_cfg": OPEN_CLIP}, TRANSFORMERS, SIGLIP])
def written(request, tmp_path):
    name = "open_clip_config.json" if "model_cfg" in request.param else "config.json"
    path = tmp_path / name
    path.write_text(json.dumps(request.param))
    return tmp_path if "model_cfg" in request.param else path


def test_both_libraries_towers_are_told_and_counted(written):
    assert is_two_towers(written)
    advice = advise_contrastive(written, batch=64, dtype="fp32", optimizer="adamw")
    now, weights = advice.account, advice.account.total(Resource.WEIGHTS)
    assert weights == 4 * sum(p.numel() for p in read_towers(written, "float32").model.parameters())
    assert now.total(Resource.OPTIMIZER_STATE) == 2 * weights
    assert now.fits
    assert [offer.method for offer in advice.offers if offer.applies] == ["amorlip"]


def test_bytes_and_flops_are_those_of_a_real_step():
    from open_clip.model import CLIP
    from torch.nn import functional
    from torch.utils.flop_counter import FlopCounterMode

    from thrifty.bench.memory import allocated_peak

    config = {**OPEN_CLIP, "vision_cfg": {**OPEN_CLIP["vision_cfg"], "width": 64, "layers": 4}}
    model, batch = CLIP(**config), 512
    images, texts = torch.randn(batch, 3, 16, 16), torch.randint(1, 512, (batch, 8))

    def step():
        u, v, scale = model(images, texts)
        logits = scale * u @ v.T, scale * v @ u.T
        sum(functional.cross_entropy(each, torch.arange(batch)) for each in logits).backward()
        model.zero_grad()

    step()
    with FlopCounterMode(display=False) as counter:
        step()
    advice = advise_contrastive(_written_to(config), batch=batch, dtype="fp32")
    assert advice.account.total(Resource.FLOPS) == pytest.approx(counter.get_total_flops(), rel=0.02)
    beyond = (
        advice.account.memory - advice.account.total(Resource.WEIGHTS) - advice.account.total(Resource.OPTIMIZER_STATE)
    )
    assert beyond == pytest.approx(allocated_peak(step), rel=0.1)


def _written_to(config):
    from pathlib import Path

    path = Path("towers.json").absolute()
    path.write_text(json.dumps(config))
    return path


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_what_the_loss_saves_is_never_more_than_it_takes_at_the_peak():
    small = advise_contrastive(_written_to(OPEN_CLIP), batch=64)
    large = advise_contrastive(_written_to(OPEN_CLIP), batch=16_384)
    for advice in (small, large):
        (offer,) = [offer for offer in advice.offers if offer.applies]
        loss = sum(part.amount for part in advice.account.parts if part.name == "loss")
        assert 0 <= -offer.delta.total(Resource.ACTIVATIONS) <= loss
    assert offer.memory < large.account.memory
    shared = advise_contrastive(_written_to(OPEN_CLIP), batch=2048, gpus=8)
    alone = advise_contrastive(_written_to(OPEN_CLIP), batch=2048)
    losses = [next(p.amount for p in x.account.parts if p.name == "loss") for x in (shared, alone)]
    assert losses[0] == 8 * losses[1] == 4 * 4 * 2048 * 8 * 2048
    assert "communication" in shared.account.seconds


def test_the_command_names_the_loss(written, thrifty):
    ran = thrifty("advise", "train", "--model", written, "--batch", 2048, "--json")
    assert ran.code == 0, ran.err
    offer = next(offer for offer in json.loads(ran.out)["offers"] if offer["method"] == "amorlip")
    assert offer["applies"]
    assert "AmorLIPLoss(" in offer["code"]
    assert "amorlip" in thrifty("advise", "train", "--model", written, "--batch", 2048).out


def test_a_name_of_open_clips_will_do(thrifty):
    assert is_two_towers("ViT-S-32-alt")
    assert not is_two_towers("qwen3-30b-a3b")
    assert not is_two_towers("no-such-model")


def test_what_will_not_do(tmp_path, thrifty):
    path = _written_to(OPEN_CLIP)
    for words, message in (
        (["--lora", "r=8"], "model: expected a language model with --lora"),
        (["--batch", 1], "batch: expected a number of pairs of at least 2, got 1"),
        (["--batch", 8, "--gpu", "abacus"], "abacus"),
    ):
        ran = thrifty("advise", "train", "--model", path, *words)
        assert ran.code == 2
        assert message in ran.err
    broken = _written_to({**OPEN_CLIP, "text_cfg": {"depth": 3}})
    with pytest.raises(ValueError, match="cannot be built as a CLIP model of open_clip"):
        advise_contrastive(broken)
    with pytest.raises(ValueError, match="expected a CLIP configuration"):
        advise_contrastive(tmp_path / "nowhere")
