"""Trainers that really train: Hugging Face's with a streaming model, and TRL's three, beside the same without."""

import pytest
import torch
from datasets import Dataset
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from thrifty.training.streambp import StreamBPConfig, enable_streambp

TEXTS = [f"def f_{n}(x):\n    return x + {n}\n" for n in range(8)]
COMMON = {
    "max_steps": 3, "optim": "sgd", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2,
    "learning_rate": 0.5,
    "use_cpu": True, "report_to": "none", "logging_steps": 1, "save_strategy": "no", "bf16": False, "seed": 0,
    "disable_tqdm": True,
}  # fmt: skip


def make_model():
    config = LlamaConfig(
        vocab_size=384, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=2, max_position_embeddings=512,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


def losses_of(trainer):
    torch.manual_seed(0)  # GRPO samples
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def assert_trained_alike(ours, plain):
    """Compare the curves and the weights; the weights have moved."""
    got, wanted = losses_of(ours), losses_of(plain)
    assert len(got) == 3
    assert got == pytest.approx(wanted, abs=1e-4)
    start = make_model().state_dict()
    moved = 0.0
    for name, weight in ours.model.state_dict().items():
        assert torch.allclose(weight, plain.model.state_dict()[name], atol=1e-4), name
        moved = max(moved, (weight - start[name]).abs().max().item())
    assert moved > 1e-3


def test_hugging_face_trainer(tmp_path):
    tokenizer = ByT5Tokenizer()
    rows = [{"input_ids": ids, "labels": ids} for ids in (tokenizer(text)["input_ids"][:24] for text in TEXTS)]
    trainers = []
    for streams in (True, False):
        model = make_model()
        if streams:
            enable_streambp(model, layer_chunk_size=7)
        arguments = TrainingArguments(str(tmp_path), gradient_checkpointing=True, **COMMON)
        trainers.append(Trainer(model, arguments, train_dataset=Dataset.from_list(rows)))
    assert_trained_alike(*trainers)
    handle = trainers[0].model.__dict__["_streambp_handle"]
    assert handle.stats().backward_chunks == 2 * 4 * 3 * 2, "checkpointing, switched on by the trainer, is ours"


@pytest.mark.parametrize("head", ["streambp", "trl"])
def test_sft(tmp_path, head):
    from trl import SFTConfig, SFTTrainer

    from thrifty.training.streambp import StreamSFTTrainer

    data = Dataset.from_list([{"prompt": text[:9], "completion": text[9:]} for text in TEXTS])
    given = {"args": SFTConfig(str(tmp_path), max_length=24, **COMMON), "train_dataset": data}
    tokenizer = ByT5Tokenizer()
    ours = StreamSFTTrainer(
        make_model(), processing_class=tokenizer, streambp=StreamBPConfig(layer_chunk_size=7), head=head, **given
    )
    assert_trained_alike(ours, SFTTrainer(make_model(), processing_class=tokenizer, **given))
    assert ours.streambp.stats().backward_chunks > 2 * 3 * 2


def test_sft_of_experts_adds_the_router_loss(tmp_path):
    from transformers import MixtralConfig, MixtralForCausalLM
    from trl import SFTConfig, SFTTrainer

    from thrifty.training.streambp import StreamSFTTrainer

    data = Dataset.from_list([{"prompt": text[:9], "completion": text[9:]} for text in TEXTS])
    given = {"args": SFTConfig(str(tmp_path), max_length=24, **COMMON), "train_dataset": data}
    config = MixtralConfig(
        vocab_size=384, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, pad_token_id=0, eos_token_id=1, bos_token_id=2,
        output_router_logits=True, router_aux_loss_coef=0.5,
    )  # fmt: skip
    found = []
    for make, extra in ((StreamSFTTrainer, {"streambp": StreamBPConfig(layer_chunk_size=7)}), (SFTTrainer, {})):
        torch.manual_seed(0)
        trainer = make(MixtralForCausalLM(config), processing_class=ByT5Tokenizer(), **given, **extra)
        found.append(losses_of(trainer))
        inputs = next(iter(trainer.get_train_dataloader()))
        fused = trainer.model(**inputs, fused_lm_head=True)
        plain = -fused.log_probs.sum() / fused.label_mask.sum()
        assert fused.loss.item() == pytest.approx(plain.item() + 0.5 * fused.aux_loss.item())
    assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_dpo(tmp_path):
    from trl import DPOConfig, DPOTrainer

    from thrifty.training.streambp import StreamDPOTrainer

    rows = [{"prompt": text[:9], "chosen": text[9:], "rejected": text[:8:-1]} for text in TEXTS]
    given = {"args": DPOConfig(str(tmp_path), max_length=32, **COMMON), "train_dataset": Dataset.from_list(rows)}
    given |= {"processing_class": ByT5Tokenizer()}
    config = StreamBPConfig(layer_chunk_size=7)
    ours = StreamDPOTrainer(make_model(), ref_model=make_model(), streambp=config, **given)
    assert_trained_alike(ours, DPOTrainer(make_model(), ref_model=make_model(), **given))
    assert ours.streambp.stats().backward_chunks > 2 * 3 * 2


@pytest.mark.parametrize(
    "extra",
    [
        {"beta": 0.05},
        {"entropy_coef": 0.5},
        {"cast_lm_head_to_fp32": True, "bf16": True},
        {"importance_sampling_level": "sequence", "num_iterations": 2},
    ],
)
def test_grpo(tmp_path, extra):
    from trl import GRPOConfig, GRPOTrainer

    from thrifty.training.streambp import StreamGRPOTrainer

    def reward(completions, **_):
        return [float(sum(ord(c) % 7 for c in text)) for text in completions]

    arguments = GRPOConfig(
        str(tmp_path), num_generations=2, max_completion_length=12, temperature=0.9, **{**COMMON, **extra}
    )
    given = {"args": arguments, "train_dataset": Dataset.from_list([{"prompt": text[:9]} for text in TEXTS])}
    tokenizer = ByT5Tokenizer(padding_side="left")
    make_model().save_pretrained(tmp_path / "start")  # the reference model is loaded from where the policy came from
    trainers = [
        make(str(tmp_path / "start"), reward_funcs=reward, processing_class=tokenizer, **given, **more)
        for make, more in (
            (StreamGRPOTrainer, {"streambp": StreamBPConfig(layer_chunk_size=7)}),
            (GRPOTrainer, {}),
        )
    ]
    assert_trained_alike(*trainers)
    assert trainers[0].streambp.stats().backward_chunks > 2 * 3 * 2


def test_unknown_head():
    from thrifty.training.streambp import StreamSFTTrainer

    with pytest.raises(ValueError, match="head"):
        StreamSFTTrainer(make_model(), head="liger")


def test_a_head_of_trls_is_left_to_it_where_nobody_says_what_it_wants():
    """Its temperature, for instance, is known to our trainers only."""
    from trl.trainer.utils import add_fused_lm_head

    model = make_model().train()
    add_fused_lm_head(model, temperature=0.5)
    ids = torch.arange(24)[None]
    wanted = model(input_ids=ids, labels=ids, fused_lm_head=True)
    with enable_streambp(model, layer_chunk_size=7) as handle:
        got = model(input_ids=ids, labels=ids, fused_lm_head=True)
        got.loss.backward()
        assert handle.stats().backward_chunks == 2 * 4
    assert torch.allclose(got.log_probs, wanted.log_probs, atol=1e-6)
