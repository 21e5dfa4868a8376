"""No causal language model of transformers is streamed inexactly: refused, or plain autograd's gradients."""

import pytest
import torch
import transformers
from families import SMALL, error, gradients, make_batch, reference
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from thrifty.training.streambp import enable_streambp

pytestmark = pytest.mark.slow

#: Settings that families name in their own way; each takes those that it has.
OTHERS = {
    "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "head_dim": 8,
    "moe_intermediate_size": 16, "n_layer": 2, "n_head": 4, "n_embd": 24, "num_layers": 2, "d_model": 24,
    "num_heads": 4, "ffn_dim": 40, "encoder_layers": 2, "decoder_layers": 2, "decoder_attention_heads": 4,
    "decoder_ffn_dim": 40, "n_positions": 64, "rotary_dim": 4,
}  # fmt: skip
LARGEST = 13_000_000


def tiny_config(name):
    """Return a small configuration of a model type, without dropout; raises whatever the type raises."""
    kind = transformers.CONFIG_MAPPING[name]
    default = kind()
    config = kind(**{key: value for key, value in {**SMALL, **OTHERS}.items() if hasattr(default, key)})
    if getattr(config, "is_decoder", None) is False:
        config.is_decoder = True
    for key, value in list(vars(config).items()):
        if ("drop" in key or key.endswith("pdrop")) and isinstance(value, float):
            setattr(config, key, 0.0)
    return config


def plain(name):
    """Return a tiny model and what plain autograd says of it; skips what cannot be made or run so small."""
    inputs, labels = make_batch("right")
    try:
        config = tiny_config(name)
        with torch.device("meta"):
            parameters = sum(p.numel() for p in transformers.AutoModelForCausalLM.from_config(config).parameters())
        if parameters > LARGEST:
            pytest.skip("its parts have sizes of their own")
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        if hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("eager")
        model = model.double().train()
        return model, inputs, labels, *reference(model, inputs, labels)
    except Exception as error:
        pytest.skip(f"not to be had small: {type(error).__name__}")


@pytest.mark.parametrize("name", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_exact_or_refused(name):
    model, inputs, labels, loss, wanted = plain(name)
    try:
        handle = enable_streambp(model, layer_chunk_size=7, head_chunk_size=5)
    except ValueError:
        return
    with handle:
        ours = model(**inputs, labels=labels).loss
        got = gradients(model, ours)
    assert ours.item() == pytest.approx(loss.item(), rel=1e-6)
    assert error(got, wanted) < 1e-6
    assert handle.stats().backward_chunks >= 3
