"""Adapters: on layers, on the head, over quantised weights."""

import pytest
import torch
from families import V, error, gradients, make_batch, reference

from thrifty.training.streambp import enable_streambp


@pytest.mark.parametrize("targets", [["q_proj", "v_proj", "c_fc"], ["q_proj", "lm_head"]])
def test_adapters(model, targets):
    from peft import LoraConfig, get_peft_model

    peft = get_peft_model(model, LoraConfig(r=2, target_modules=targets, lora_dropout=0.0)).double()
    with torch.no_grad():
        for name, parameter in peft.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4)) / 9)
    peft.train()
    inputs, labels = make_batch("right")
    _, wanted = reference(peft, inputs, labels)
    with enable_streambp(peft, layer_chunk_size=6, head_chunk_size=4):
        got = gradients(peft, peft(**inputs, labels=labels).loss)
    assert all("lora" in name for name in got)
    assert error(got, wanted) < 1e-10


class Counted(torch.nn.Linear):
    """A head with a ``forward`` of its own, as quantised ones have."""

    def forward(self, h):
        return 2 * super().forward(h)


def test_a_head_that_is_more_than_its_weight_is_called(model):
    model.lm_head = Counted(24, V, bias=False).double()
    inputs, labels = make_batch("right")
    _, wanted = reference(model, inputs, labels)
    with enable_streambp(model, layer_chunk_size=6, head_chunk_size=3):
        assert error(gradients(model, model(**inputs, labels=labels).loss), wanted) < 1e-10
        with pytest.raises(ValueError, match="labels: expected ids"):
            model(**inputs, labels=torch.full_like(labels, V))
        loss = model(**inputs, labels=torch.full_like(labels, -100)).loss
        assert loss.item() == 0
        loss.backward()


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 8])
def test_adapters_over_quantised_weights(bits, tmp_path):
    """The check at enable time must not let bitsandbytes repack the weights for inference."""
    pytest.importorskip("bitsandbytes")
    from families import SMALL
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

    LlamaForCausalLM(LlamaConfig(**{**SMALL, "hidden_size": 64, "intermediate_size": 128})).save_pretrained(tmp_path)
    kinds = {4: {"load_in_4bit": True, "bnb_4bit_compute_dtype": torch.float32}, 8: {"load_in_8bit": True}}
    quantised = LlamaForCausalLM.from_pretrained(
        tmp_path, quantization_config=BitsAndBytesConfig(**kinds[bits]), device_map="cpu"
    )
    quantised = prepare_model_for_kbit_training(quantised, use_gradient_checkpointing=False)
    peft = get_peft_model(quantised, LoraConfig(r=2, target_modules=["q_proj", "v_proj", "up_proj"])).train()
    with torch.no_grad():
        for name, parameter in peft.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4)) / 9)
    inputs, labels = make_batch("right")
    _, wanted = reference(peft, inputs, labels)
    with enable_streambp(peft, layer_chunk_size=6, head_chunk_size=4):
        got = gradients(peft, peft(**inputs, labels=labels).loss)
    assert error(got, wanted) < 1e-4  # float32, and activations that 8 bits round
