"""What cannot be streamed, or makes no sense, is refused by name."""

import functools
from unittest.mock import Mock, call

import pytest
import torch
from families import error, gradients, make_batch, make_model, reference
from transformers.utils import generic

from thrifty.training.streambp import enable_streambp
from thrifty.training.streambp.decoder_layer import CACHE_NAMES

ONCE = call("`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.")


def test_attention_that_misuses_its_cache_is_refused():
    for change, message in (("twice", "writes its cache twice"), ("never", "ignores its cache")):
        model = make_model("llama")
        attention = model.model.layers[0].self_attn

        def misuse(*args, own=attention.forward, change=change, **kwargs):
            if change == "twice":
                own(*args, **kwargs)
            else:
                kwargs = {key: value for key, value in kwargs.items() if key not in CACHE_NAMES}
            return own(*args, **kwargs)

        attention.forward = misuse
        with pytest.raises(ValueError, match=f"LlamaDecoderLayer cannot be streamed: it {message}"):
            enable_streambp(model)


def test_a_cache_is_not_kept_in_training_and_labels_must_fit(model, monkeypatch):
    warned = Mock()
    monkeypatch.setattr(generic.logger, "warning_once", functools.cache(warned))
    inputs, labels = make_batch("none")
    _, wanted = reference(model, inputs, labels)
    with enable_streambp(model, layer_chunk_size=4):
        output = model(**inputs, labels=labels, use_cache=True)
        assert not output.past_key_values
        model(**inputs, labels=labels, use_cache=True)
        assert [found for found in map(str, warned.call_args_list) if "use_cache" in found] == [str(ONCE)]
        assert error(gradients(model, output.loss), wanted) < 1e-10
        with pytest.raises(ValueError, match="labels: expected one a position"):
            model(**inputs, labels=labels[:, :-1])
        loss = model(**inputs, labels=torch.full_like(labels, -100)).loss
        assert loss.item() == 0
        assert all(not grad.any() for grad in gradients(model, loss).values())


def test_second_order_is_refused(model):
    inputs, _ = make_batch("none")
    with enable_streambp(model, layer_chunk_size=5, head="own"):
        loss = model(**inputs, use_cache=False).logits.square().mean()
        with pytest.raises(NotImplementedError, match="create_graph"):
            torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        loss = model(**inputs, use_cache=False).logits.square().mean()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_chunk_size": 0}, "layer_chunk_size"),
        ({"head_chunk_size": "large"}, "head_chunk_size"),
        ({"kv_policy": "forget"}, "kv_policy"),
        ({"grad_mode": "global"}, "grad_mode"),
        ({"accum_dtype": "bfloat16"}, "accum_dtype"),
        ({"every_n_layers": 0}, "every_n_layers"),
        ({"memory_budget_bytes": 0.5}, "memory_budget_bytes"),
        ({"chunk": 3}, "chunk: no such setting"),
        ({"head": "trl"}, "head"),
    ],
)
def test_bad_settings_are_named(model, change, message):
    with pytest.raises(ValueError, match=message):
        enable_streambp(model, **change)


def test_other_models_are_refused():
    from transformers import BertConfig, BertModel, T5Config, T5ForConditionalGeneration

    small = {
        "hidden_size": 8,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "vocab_size": 9,
    }
    with pytest.raises(ValueError, match="Linear"):
        enable_streambp(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="BertLayer cannot be streamed: .*bidirectional"):
        enable_streambp(BertModel(BertConfig(**small)))
    t5 = T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=9)
    with pytest.raises(ValueError, match="T5ForConditionalGeneration cannot be streamed"):
        enable_streambp(T5ForConditionalGeneration(t5))
    flash = make_model("llama")
    flash.config._attn_implementation = "flex_attention"
    with pytest.raises(ValueError, match="flex_attention"):
        enable_streambp(flash)


def test_without_the_check_a_model_that_mixes_positions_is_taken_on_ones_own_responsibility():
    model = make_model("llama")
    mlp = model.model.layers[0].mlp
    own = mlp.forward
    mlp.forward = lambda h: own(h + h.cumsum(1))  # a token mixer outside attention
    with pytest.raises(ValueError, match="LlamaDecoderLayer cannot be streamed: .*mixes positions"):
        enable_streambp(model)
    enable_streambp(model, check=False).remove()
