"""Every family against plain autograd in float64: loss, and each parameter's gradient."""

import pytest
import torch
from families import FAMILIES, T, error, gradients, make_batch, make_model, reference

from thrifty.training.streambp import enable_streambp
from thrifty.training.streambp.final_norm import find_final_norm

#: All others compute norms, routers or softmax in float32 whatever the model's dtype, and round there.
DOUBLE = {"phi", "starcoder2", "stablelm", "gpt-neox", "gpt2"}
#: One of each kind of mask and norm, for what need not be shown of every family.
SOME = ("llama", "starcoder2", "gemma3", "gpt-neox")


def exactness(family):
    return 1e-10 if family in DOUBLE else 1e-6


def compare(family, kind, model=None, **settings):
    model = model or make_model(family)
    inputs, labels = make_batch(kind)
    loss, wanted = reference(model, inputs, labels)
    with enable_streambp(model, **settings):
        ours = model(**inputs, labels=labels).loss
        got = gradients(model, ours)
    assert ours.item() == pytest.approx(loss.item(), rel=max(exactness(family) / 10, 1e-12))
    assert error(got, wanted) < exactness(family)
    return got


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_exact(family):
    compare(family, "right", layer_chunk_size=7, head_chunk_size=5)


@pytest.mark.parametrize("family", SOME)
@pytest.mark.parametrize("kind", ["none", "left", "packed"])
def test_every_mask(family, kind):
    compare(family, kind, layer_chunk_size=4, kv_policy="store")


@pytest.mark.parametrize("family", ["starcoder2", "gemma2"])
@pytest.mark.parametrize("chunk", [1, 3, 8, T - 1, T, T + 5])
def test_any_chunk_size_gives_the_same(family, chunk):
    compare(family, "right", layer_chunk_size=chunk, head_chunk_size=chunk)


def test_packed_documents_do_not_see_each_other_in_a_mixture_of_experts():
    compare("mixtral", "packed", layer_chunk_size=5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_norm_before_the_head_is_streamed_where_it_is_found(family):
    model = make_model(family)
    norm = find_final_norm(model.get_decoder())
    assert norm is not None
    lengths = []
    own = norm.forward
    norm.forward = lambda hidden: lengths.append(hidden.shape[1]) or own(hidden)
    compare(family, "right", model, layer_chunk_size=7)
    assert max(lengths[-6:]) == 7, "forward and backward pass meet chunks only"


def test_tied_embeddings_sum_both_uses():
    got = compare("starcoder2", "right", make_model("starcoder2", tie_word_embeddings=True), layer_chunk_size=6)
    assert "lm_head.weight" not in got


def test_one_chunk_is_ordinary_checkpointing_bit_for_bit():
    model = make_model("llama").float()
    inputs, _ = make_batch("none")

    def run():
        logits = model(**inputs, use_cache=False).logits
        return gradients(model, logits.square().mean())

    model.activation_checkpointing_enable({"use_reentrant": False})
    wanted = run()
    model.activation_checkpointing_disable()
    with enable_streambp(model, layer_chunk_size=T + 5, head="own"):
        got = run()
    assert all(torch.equal(got[name], wanted[name]) for name in wanted)


def test_finite_differences():
    model = make_model("starcoder2")
    inputs, labels = make_batch("right")
    weights = model.model.layers[0].self_attn.k_proj.weight
    with enable_streambp(model, layer_chunk_size=5):
        loss = model(**inputs, labels=labels).loss
        (slope,) = torch.autograd.grad(loss, weights)
        generator = torch.Generator().manual_seed(5)
        for _ in range(5):
            i = int(torch.randint(weights.numel(), (), generator=generator))
            ends = []
            for step in (1e-5, -1e-5):
                with torch.no_grad():
                    weights.view(-1)[i] += step
                ends.append(model(**inputs, labels=labels).loss.item())
                with torch.no_grad():
                    weights.view(-1)[i] -= step
            assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(slope.view(-1)[i].item(), rel=1e-6, abs=1e-9)


REFUSED = {
    "MambaConfig": {"state_size": 4, "expand": 1, "time_step_rank": 2},
    "Qwen3NextConfig": {
        "layer_types": ["linear_attention", "full_attention"], "num_experts": 2, "num_experts_per_tok": 1,
        "head_dim": 8,
        "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "linear_num_key_heads": 2,
        "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    },
    "Lfm2Config": {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "RwkvConfig": {"attention_hidden_size": 24},
    "BloomConfig": {"n_head": 4, "n_layer": 2},
    "MptConfig": {"d_model": 24, "n_heads": 4, "n_layers": 2},
    "DogeConfig": {"head_dim": 8},
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_streamed_exactly_is_refused(name):
    import transformers
    from families import SMALL

    config = getattr(transformers, name)(**{**SMALL, **REFUSED[name]})
    model = transformers.AutoModelForCausalLM.from_config(config)
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    with pytest.raises(ValueError, match="cannot be streamed"):
        enable_streambp(model)
    assert {name: dict(module.__dict__) for name, module in model.named_modules()}.keys() == before.keys()
    assert "_streambp_handle" not in model.__dict__


@pytest.mark.parametrize("name", ["Llama4TextConfig", "HrmTextConfig"])
def test_decoders_that_are_found_or_run_in_their_own_way(name):
    """A text model that names its larger model's parts; layers that run more than once, at first without gradients."""
    import transformers
    from families import HEAD, SMALL

    config = getattr(transformers, name)(**{**SMALL, **HEAD})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).double().train()
    compare("llama", "right", model, layer_chunk_size=7)
