"""Training loops that users have, unchanged: Hugging Face's Trainer, accelerate and Lightning, on tiny models."""

import pytest
import torch
from sumo_ground import matrix
from torch import nn

from thrifty.training.sumo import SUMO, sumo_param_groups

pytestmark = pytest.mark.slow


def llama():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config)


def texts(count=64):
    ids = torch.arange(16).repeat(count, 1) + torch.arange(count)[:, None] % 40
    return [{"input_ids": row, "labels": row} for row in ids]


@pytest.mark.parametrize("how", ["optimizers", "optimizer_cls_and_kwargs"])
def test_trainer(how, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = llama()
    groups = sumo_param_groups(model, rank=4)
    assert len(groups[0]["params"]) == 14
    given = {
        "optimizers": {"optimizers": (SUMO(groups, lr=0.01), None)},
        "optimizer_cls_and_kwargs": {"optimizer_cls_and_kwargs": (SUMO, {"params": groups, "lr": 0.01})},
    }[how]

    def trainer_of(steps, **more):
        arguments = transformers.TrainingArguments(
            str(tmp_path),
            max_steps=steps,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            logging_steps=1,
            save_steps=10,
            report_to=[],
            use_cpu=True,
            learning_rate=0.01,
        )
        return transformers.Trainer(model=model, args=arguments, train_dataset=texts(), **more)

    trainer = trainer_of(20, **given)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.7 * losses[0]
    assert (tmp_path / "checkpoint-10" / "optimizer.pt").exists()
    torch.load(tmp_path / "checkpoint-10" / "optimizer.pt", weights_only=True)
    if how == "optimizers":  # the Trainer resumes from its own checkpoint
        again = trainer_of(20, optimizers=(SUMO(sumo_param_groups(model, rank=4), lr=0.01), None))
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
        assert again.state.global_step == 20


def test_accelerate(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 24))
    optimizer = SUMO(sumo_param_groups(model, rank=8), lr=0.02)
    X = matrix(torch.Generator().manual_seed(0), 64, 24)
    loader = torch.utils.data.DataLoader(X, batch_size=16)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    for _ in range(30):
        for x in loader:
            with accelerator.accumulate(model):
                loss = (model(x) - x).pow(2).mean()
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    accelerator.save_state(str(tmp_path))
    accelerator.load_state(str(tmp_path))


def test_lightning(tmp_path):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 24))
            self.losses = []

        def training_step(self, x, _):
            loss = (self.net(x) - x).pow(2).mean()
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return SUMO(sumo_param_groups(self, rank=8), lr=0.02)

    X = matrix(torch.Generator().manual_seed(0), 64, 24)
    module = Module()
    options = {
        "accelerator": "cpu",
        "default_root_dir": tmp_path,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "gradient_clip_val": 1.0,
    }
    loader = torch.utils.data.DataLoader(X, batch_size=16)
    trainer = lightning.Trainer(max_epochs=20, **options)
    trainer.fit(module, loader)
    assert module.losses[-1] < 0.7 * module.losses[0]
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = Module()
    lightning.Trainer(max_epochs=22, **options).fit(again, loader, ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    assert len(again.losses) == 8
