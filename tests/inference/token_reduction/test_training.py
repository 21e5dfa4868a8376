"""Training under a reduction: gradients, checkpointing, autocast, teachers, Trainer, and two processes."""

import copy
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from vit_hosts import first, hf, make

from thrifty.inference.token_reduction import (
    Distiller,
    FreqReduceConfig,
    Recipe,
    distillation_loss,
    distilling_trainer,
    finetune,
    load_reduced,
    named,
    reduce_tokens,
    reduction_of,
)
from thrifty.inference.token_reduction.distill import logits_of

HALF = FreqReduceConfig(layers=(2, 4, 5), keep=0.5, dc_pos_embed="learned")


@pytest.mark.parametrize("name", ["timm", "timm-dinov3", "hf-vit", "hf-dinov3", "open_clip"])
def test_every_parameter_has_a_gradient_and_checkpointing_changes_none(name, images):
    """Two passes before the backward one: a recomputed block must see the tokens of its own pass."""
    grads = []
    for mode in ("plain", "block", "host"):
        model = make(name).train()
        switch = "gradient_checkpointing_enable" if name.startswith("hf") else "set_grad_checkpointing"
        if mode == "host":  # on before the reduction came
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                getattr(model, switch)()
        reduction = reduce_tokens(model, HALF)
        if mode == "block":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                getattr(model, switch)()
        (first(model(images)).pow(2).sum() + first(model(images.flip(0) * 2)).pow(2).sum()).backward()
        grads.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        assert {n for n, g in grads[-1].items() if ".freq_" in n and g.abs().max() > 0} == {
            n for n in grads[-1] if ".freq_" in n
        }
        reduction.remove()
        if name.startswith("timm"):
            assert model.grad_checkpointing == (mode != "plain")
    for other in grads[1:]:
        for key, grad in grads[0].items():
            torch.testing.assert_close(other[key], grad)


@pytest.mark.parametrize("name", ["timm", "hf-dinov2", "open_clip"])
def test_half_precision_and_autocast(name, images):
    model = make(name)
    reduce_tokens(model, HALF)
    with torch.no_grad():
        full = first(model(images))
        with torch.autocast("cpu", torch.bfloat16):
            mixed = first(model(images))
        assert (mixed - full).abs().max() < 0.1 * full.abs().max()
        half = copy.deepcopy(model).to(torch.bfloat16)
        assert first(half(images.bfloat16())).dtype == torch.bfloat16


def test_stochastic_depth_and_dropout_work_in_training(images):
    model = make("timm-layer-scale").train()
    reduce_tokens(model, HALF)
    outs = [model(images) for _ in range(2)]
    assert not torch.equal(*outs)
    attn = hf("vit", attention_probs_dropout_prob=0.3).train()
    reduce_tokens(attn, HALF)
    assert not torch.equal(first(attn(images)), first(attn(images)))


def test_the_loss_is_cross_entropy_plus_a_divergence():
    student, teacher, y = torch.randn(4, 5), torch.randn(4, 5, requires_grad=True), torch.tensor([0, 1, 2, 3])
    p, q = (teacher / 2).softmax(-1), (student / 2).softmax(-1)
    kl = 4 * (p * (p / q).log()).sum(-1).mean()
    loss = distillation_loss(student, teacher, y, weight=0.3, temperature=2.0)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(student, y) + 0.3 * kl)
    assert not loss.requires_grad  # none for the teacher
    for bad, message in (({"weight": -1}, "weight"), ({"temperature": 0}, "temperature")):
        with pytest.raises(ValueError, match=message):
            distillation_loss(student, teacher, **bad)
    with pytest.raises(TypeError, match="expected logits"):
        logits_of({"loss": 1})


def test_teachers(images):
    model = make("timm")
    plain = model(images)
    with pytest.raises(ValueError, match="student: no token reduction"):
        Distiller(model)
    reduce_tokens(model, HALF)
    with pytest.raises(ValueError, match="teacher: expected"):
        Distiller(model, teacher="student")
    original, ema = Distiller(model), Distiller(model, teacher="ema", decay=0.5)
    assert torch.equal(original.teacher(images), plain)
    assert reduction_of(original.teacher) is None
    with torch.no_grad():
        model.head.weight.add_(1.0)
    for distiller, moved in ((original, 0.0), (ema, 0.5)):
        before = distiller.teacher.head.weight.clone()
        distiller.update()
        torch.testing.assert_close(distiller.teacher.head.weight, before + moved)
    assert original.loss(images).item() > 0


def batches_of(images, labels):
    return lambda epoch, training: iter([(images, labels), (images.flip(-1), labels)])


def test_finetuning_lowers_the_loss_and_goes_on_where_it_stopped(tmp_path, images):
    labels = torch.tensor([0, 1, 2])

    def fresh():
        model = make("timm")
        reduce_tokens(model, HALF)
        return model

    recipe = Recipe(epochs=2, lr=1e-3, ema=0.5)
    losses = []
    model = fresh()
    whole = finetune(
        model, batches_of(images, labels), 2, recipe, out=tmp_path / "a", progress=lambda *s: losses.append(s)
    )
    assert [step for step, _, _ in losses] == [1, 2, 3, 4]
    assert losses[-1][2] < losses[0][2]
    assert whole["accuracy"] >= whole["accuracy_before"]

    class Interrupted(Exception):
        pass

    def stop(step, steps, loss):
        if step == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        finetune(fresh(), batches_of(images, labels), 2, recipe, out=tmp_path / "b", progress=stop)
    again, seen = fresh(), []
    resumed = finetune(
        again, batches_of(images, labels), 2, recipe, out=tmp_path / "b", progress=lambda *s: seen.append(s)
    )
    assert [step for step, _, _ in seen] == [3, 4]
    assert resumed["loss"] == pytest.approx(whole["loss"], rel=1e-4)
    for change, word in (({"recipe": Recipe(epochs=3)}, "recipe"), ({"about": {"seed": 1}}, "about")):
        with pytest.raises(ValueError, match=f"out: the run in .* has other settings .*{word}"):
            finetune(fresh(), batches_of(images, labels), 2, **({"recipe": recipe} | change), out=tmp_path / "b")
    finished = finetune(fresh(), batches_of(images, labels), 2, recipe, out=tmp_path / "b")  # nothing is left to do
    assert finished["loss"] == pytest.approx(resumed["loss"])
    loaded = load_reduced(make("timm", seed=3), tmp_path / "a")
    with torch.no_grad():
        torch.testing.assert_close(loaded(images), model(images))


def test_what_is_trained_can_be_less(images):
    model = make("timm")
    reduce_tokens(model, HALF)
    before = {n: p.clone() for n, p in model.named_parameters()}
    finetune(
        model, batches_of(images, torch.tensor([0, 1, 2])), 2, Recipe(epochs=1, parameters="added", ema=0, lr=1e-2)
    )
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert moved
    assert all(".freq_" in n for n in moved)
    bare = make("timm")
    reduce_tokens(bare, named("tome", (2, 4), 0.6))
    with pytest.raises(ValueError, match="parameters: 'added' leaves nothing to train"):
        finetune(bare, batches_of(images, torch.tensor([0, 1, 2])), 2, Recipe(epochs=1, parameters="added"))
    with pytest.raises(ValueError, match="model: no token reduction"):
        finetune(make("timm"), batches_of(images, torch.tensor([0, 1, 2])), 2)
    for fields in ({"epochs": 0}, {"lr": 0}, {"ema": 1.0}, {"parameters": "head"}, {"precision": "fp8"}):
        with pytest.raises(ValueError, match=next(iter(fields))):
            Recipe(**fields)


@pytest.mark.slow
def test_trainer_distils(tmp_path, images):
    transformers = pytest.importorskip("transformers")
    model = make("hf-vit")
    reduce_tokens(model, HALF)
    rows = [{"pixel_values": images[i % 3], "labels": i % 3} for i in range(8)]
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=3, per_device_train_batch_size=4, report_to="none", use_cpu=True, disable_tqdm=True,
        save_strategy="no", logging_steps=1,
    )  # fmt: skip
    trainer = distilling_trainer()(model, arguments, distiller=Distiller(model), train_dataset=rows)
    trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    inputs = {"pixel_values": images, "labels": torch.tensor([0, 1, 2])}
    plain = torch.nn.functional.cross_entropy(first(model(images)), inputs["labels"])
    assert trainer.compute_loss(model, dict(inputs)) > plain
    assert len(logged) == 3


@pytest.mark.slow
@pytest.mark.parametrize("teacher", ["original", "ema"])
def test_the_trainer_goes_on_with_the_added_weights_and_the_teacher(images, tmp_path, teacher):
    transformers = pytest.importorskip("transformers")
    rows = [{"pixel_values": image, "labels": label % 7} for label, image in enumerate(images)] * 2

    def trained(steps, resume=None):
        model = make("hf-vit")
        reduce_tokens(model, HALF)
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=steps, per_device_train_batch_size=2, report_to="none", use_cpu=True,
            disable_tqdm=True, save_steps=2, learning_rate=1e-2, lr_scheduler_type="constant",
        )  # fmt: skip
        distiller = Distiller(model, teacher=teacher, decay=0.5)
        distilling_trainer()(model, arguments, distiller=distiller, train_dataset=rows).train(resume)
        return {**model.state_dict(), **{f"teacher.{k}": v for k, v in distiller.teacher.state_dict().items()}}

    whole = trained(4)
    trained(2)
    again = trained(4, str(tmp_path / "checkpoint-2"))
    for name, weight in whole.items():
        torch.testing.assert_close(again[name], weight, rtol=1e-4, atol=1e-5)


WORKER = """
import sys, torch
sys.path.insert(0, {folder!r})
from vit_hosts import make
from thrifty.inference.token_reduction import FreqReduceConfig, Recipe, finetune, reduce_tokens
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = make("timm")
reduce_tokens(model, FreqReduceConfig(layers=(2, 4, 5), keep=0.5, dc_pos_embed="learned"))
x = torch.randn(4, 3, 40, 40, generator=torch.Generator().manual_seed(0))
y = torch.tensor([0, 1, 2, 3])
share = slice(2 * rank, 2 * rank + 2)
finetune(model, lambda epoch, training: iter([(x[share], y[share])]), 1, Recipe(epochs=2, ema=0, lr=1e-3))
total = torch.stack([p.detach().double().sum() for p in model.parameters()]).sum()
both = [torch.zeros_like(total) for _ in range(2)]
torch.distributed.all_gather(both, total)
print("same" if both[0] == both[1] else f"differ {{both}}")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_train_one_model(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(folder=str(Path(__file__).parent)))
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        "29533",
        str(script),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("same") == 2


@pytest.mark.gpu
def test_a_gpu_computes_what_the_cpu_does(images):
    model = make("timm")
    reduce_tokens(model, HALF)
    with torch.no_grad():
        expected = model(images)
        torch.testing.assert_close(model.cuda()(images.cuda()).cpu(), expected, atol=1e-3, rtol=1e-3)
