"""Which parameters go where, steps in the backward pass, bytes, diagnostics and adapters."""

import json

import pytest
import torch
from sumo_ground import conditioned, matrix
from torch import nn

from thrifty.training.sumo import (
    SUMO,
    attach_layerwise,
    describe_moment,
    estimate_state_bytes,
    extract_lora,
    lora_factors,
    optimizer_state_bytes,
    sumo_param_groups,
)


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.attention = nn.Linear(32, 96)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 32))
        self.norm = nn.LayerNorm(32)
        self.narrow = nn.Linear(32, 4)
        self.lm_head = nn.Linear(32, 100, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, x):
        x = self.embed(x)
        x = x + self.mlp(self.norm(x)) + self.attention(x)[..., :32] * self.narrow(x).sum(-1, keepdim=True)
        return self.lm_head(x)


def names(group):
    return [name for name, _ in group["params"]]


def test_blocks_go_to_sumo_and_the_rest_to_adamw():
    low, dense, short = sumo_param_groups(Tiny(), rank=8, aux_lr=0.5, scale=2.0)
    assert names(low) == ["attention.weight", "mlp.0.weight", "mlp.1.weight"]
    assert names(dense) == ["embed.weight", "narrow.weight"], "a tied head once; a weight of four rows has no subspace"
    assert all(name.endswith("bias") or name.startswith("norm") for name in names(short))
    assert (low["rank"], low["scale"], low["use_sumo"]) == (8, 2.0, True)
    assert (dense["lr"], dense["use_sumo"], short["weight_decay"]) == (0.5, False, 0.0)
    optimizer = SUMO([low, dense, short], lr=1e-3)
    assert optimizer.name_of(1) == "mlp.0.weight"


def test_a_head_that_shares_its_weight_with_an_embedding_goes_with_it_whatever_its_name():
    model = nn.Module()
    model.words, model.out, model.inner = nn.Embedding(40, 32), nn.Linear(32, 40, bias=False), nn.Linear(32, 32)
    model.out.weight = model.words.weight
    low, dense, _ = sumo_param_groups(model)
    assert (names(low), names(dense)) == (["inner.weight"], ["words.weight"])


def test_modules_can_be_chosen_by_expression_or_list():
    (low, *_) = sumo_param_groups(Tiny(), target_modules=r"mlp\.\d")
    assert names(low) == ["mlp.0.weight", "mlp.1.weight"]
    (low, *_) = sumo_param_groups(Tiny(), target_modules=["attention", "embed"])
    assert names(low) == ["embed.weight", "attention.weight"]
    with pytest.raises(ValueError, match="target_modules: 'nothing'"):
        sumo_param_groups(Tiny(), target_modules="nothing")
    with pytest.raises(ValueError, match="no regular expression"):
        sumo_param_groups(Tiny(), target_modules="(")
    with pytest.raises(ValueError, match="no trainable parameter"):
        sumo_param_groups(Tiny().requires_grad_(False))

    with pytest.raises(TypeError, match="options: SUMO has no rnk; a group may set .*rank"):
        sumo_param_groups(Tiny(), rnk=4)


def test_convolutions_and_torchs_own_attention_count_as_linear_layers():
    layers = [nn.Conv1d(16, 32, 3), nn.Conv2d(16, 32, 3), nn.MultiheadAttention(32, 4)]
    layers += [nn.MultiheadAttention(32, 4, kdim=16, vdim=16), nn.ConvTranspose2d(16, 32, 3), nn.LSTM(32, 32)]
    (low, *_) = sumo_param_groups(nn.Sequential(*layers), rank=4)
    assert names(low) == [
        *("0.weight", "1.weight", "2.in_proj_weight", "2.out_proj.weight"),
        *("3.q_proj_weight", "3.k_proj_weight", "3.v_proj_weight", "3.out_proj.weight"),
    ]
    (low, *_) = sumo_param_groups(nn.TransformerEncoderLayer(32, 4, 64), target_modules="attn")
    assert names(low) == ["self_attn.in_proj_weight", "self_attn.out_proj.weight"]


def batches(count):
    return [torch.randint(0, 100, (4, 7), generator=torch.Generator().manual_seed(i)) for i in range(count)]


def loss_of(model, x):
    return nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())


def test_stepping_in_the_backward_pass_is_the_same_training_with_one_gradient_at_a_time():
    torch.manual_seed(0)
    plain = Tiny()
    eager = Tiny()
    eager.load_state_dict(plain.state_dict())
    options = {"lr": 0.01, "update_proj_gap": 3, "weight_decay": 0.1}
    optimizer = SUMO(sumo_param_groups(plain, rank=4), **options)
    handle = attach_layerwise(eager, SUMO, rank=4, **options)
    alive = []
    for parameter in eager.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda _: alive.append(sum(p.grad is not None for p in eager.parameters()))
        )
    for x in batches(7):
        optimizer.zero_grad()
        loss_of(plain, x).backward()
        optimizer.step()
        loss_of(eager, x).backward()
        handle.optimizer.step()
    for a, b in zip(plain.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-7, rtol=0)
    assert max(alive) == 0, "by the time a later hook looks, the gradient is used and gone"
    handle.remove()
    loss_of(eager, x).backward()
    assert eager.mlp[0].weight.grad is not None


def test_what_needs_whole_gradients_is_refused_with_the_reason():
    model = Tiny()
    with pytest.raises(ValueError, match="gradient_accumulation_steps: expected 1, got 4"):
        attach_layerwise(model, SUMO, gradient_accumulation_steps=4)
    with pytest.raises(ValueError, match=r"max_grad_norm: expected None, got 1.0"):
        attach_layerwise(model, SUMO, max_grad_norm=1.0)
    with pytest.raises(ValueError, match="grad_scaler"):
        attach_layerwise(model, SUMO, grad_scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(ValueError, match="DataParallel"):
        attach_layerwise(nn.DataParallel(model), SUMO)
    with pytest.raises(ValueError, match="built already"):
        attach_layerwise(model, SUMO(sumo_param_groups(model, rank=4)), lr=1.0)
    handle = attach_layerwise(model, SUMO, rank=4)
    (x,) = batches(1)
    loss_of(model, x).backward()
    with pytest.raises(ValueError, match="gradient accumulation"):
        loss_of(model, x).backward()
    with pytest.raises(KeyError, match="not among"):
        handle.optimizer.step_parameter(nn.Parameter(torch.ones(2)))


def test_state_takes_exactly_the_bytes_that_are_foretold():
    model = Tiny()
    optimizer = SUMO(sumo_param_groups(model, rank=8), lr=0.01)
    (x,) = batches(1)
    loss_of(model, x).backward()
    optimizer.step()
    held = optimizer_state_bytes(optimizer)
    assert held["basis"] + held["moment"] == 4 * 8 * ((96 + 32) + (64 + 32) + (32 + 64))
    foretold = estimate_state_bytes(model, 8)
    assert held["basis"] + held["moment"] == foretold["matrices"]
    assert held["exp_avg"] + held["exp_avg_sq"] == foretold["others"]
    assert held["total"] - foretold["total"] < 20 * len(optimizer.state), "scalars only"


def test_foretold_bytes_of_rivals_are_theirs():
    galore_torch = pytest.importorskip("galore_torch")
    for shape in ((64, 48), (48, 64), (50, 50)):
        for method, optimizer in (
            ("galore", lambda p: galore_torch.GaLoreAdamW([_galore(p)], no_deprecation_warning=True)),
            ("adamw", lambda p: torch.optim.AdamW([p])),
            ("muon", lambda p: torch.optim.Muon([p])),
            ("sgd", lambda p: torch.optim.SGD([p], momentum=0.9)),
        ):
            weight = nn.Parameter(torch.randn(shape))
            weight.grad = torch.randn(shape)
            made = optimizer(weight)
            made.step()
            scalars = 8 if method == "adamw" else 0
            held = optimizer_state_bytes(made)["total"]
            assert 0 <= held - estimate_state_bytes([shape], 4, method)["total"] <= scalars, method


def _galore(p):
    return {"params": [p], "rank": 4, "update_proj_gap": 200, "scale": 1.0, "proj_type": "std"}


def test_memory_of_a_square_weight_is_two_thirds_of_galores():
    ours, theirs = (estimate_state_bytes([(512, 512)], 128, method)["matrices"] for method in ("sumo", "galore"))
    assert ours * 3 == theirs * 2
    numbers = {m: estimate_state_bytes([(4096, 11008)], 128, m)["matrices"] // 4 for m in ("sumo", "galore", "muon")}
    assert numbers == {"sumo": 1_933_312, "galore": 3_342_336, "muon": 45_088_768}
    with pytest.raises(ValueError, match="method: expected one of"):
        estimate_state_bytes([(4, 4)], 2, "lion")
    with pytest.raises(ValueError, match="rank"):
        estimate_state_bytes([(4, 4)], 0)
    with pytest.raises(ValueError, match=r"model: .*list of shapes.*got \(4, 4\)"):
        estimate_state_bytes((4, 4), 2)


def test_reports_tell_what_a_moment_looks_like(rng):
    weight = nn.Parameter(torch.zeros(30, 12))
    optimizer = SUMO([("w", weight)], rank=4, momentum=0.0, diagnostics=True, update_proj_gap=1, projector="exact")
    weight.grad = conditioned(rng, 12, 30, 1e3).T
    optimizer.step()
    report = optimizer.reports["w"]
    sigma = torch.logspace(0, -3, 12)
    assert report.condition == pytest.approx((sigma[0] / sigma[3]).item(), rel=1e-3)
    assert report.captured == pytest.approx((sigma[:4].square().sum() / sigma.square().sum()).item(), rel=1e-4)
    assert report.stable_rank == pytest.approx((sigma[:4].square().sum()).item(), rel=1e-3)
    assert report.beyond_rank_one == pytest.approx(1 - 1 / report.stable_rank, rel=1e-3)
    assert 0.1 < report.newton_schulz_error < 0.4
    assert describe_moment(torch.zeros(3, 4)).rank == 0


def test_under_gradient_descent_the_moment_of_a_reversible_layer_tends_to_rank_one(rng):
    """The paper's lemma: ‖M − P₁M‖²/‖M‖² falls geometrically; here G = H(W − W*), H with one smallest eigenvalue."""
    H = torch.linspace(1, 0.2, 12, dtype=torch.float64)
    W, M, shares = matrix(rng, 12, 20, dtype=torch.float64), 0.0, []
    for _ in range(200):
        G = H[:, None] * W
        W, M = W - 0.5 * G, 0.5 * M + G
        shares.append(describe_moment(M).beyond_rank_one)
    assert shares[0] > 0.5
    assert shares[199] / shares[150] == pytest.approx(shares[150] / shares[101], rel=0.3)
    assert shares[199] < 1e-3


def test_an_adapter_is_what_changed(rng, tmp_path):
    torch.manual_seed(0)
    model = Tiny()
    base = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        model.mlp[0].weight += matrix(rng, 64, 3) @ matrix(rng, 3, 32)
        model.attention.weight += matrix(rng, 96, 1) @ matrix(rng, 1, 32)
        model.norm.weight += 1
    adapter = extract_lora(model, base)
    assert {name: factors.rank for name, factors in adapter.layers.items()} == {"attention": 1, "mlp.0": 3}
    assert adapter.left_out == ("norm.weight",)
    for name, factors in adapter.layers.items():
        change = model.state_dict()[f"{name}.weight"] - base[f"{name}.weight"]
        torch.testing.assert_close(factors.B @ factors.A, change, atol=1e-4, rtol=0)
        assert factors.error < 1e-4
    cut = extract_lora(model, base, rank=2).layers["mlp.0"]
    sigma = torch.linalg.svdvals(model.mlp[0].weight.detach() - base["mlp.0.weight"])
    assert cut.error == pytest.approx((sigma[2] / sigma.norm()).item(), rel=1e-3), "Eckart and Young"
    by_name = extract_lora(model.state_dict(), base)
    assert set(by_name.layers) == set(adapter.layers)


def test_a_large_change_is_found_by_a_sketch(rng):
    delta = matrix(rng, 1500, 4) @ matrix(rng, 4, 1100)
    factors = lora_factors(delta, rank=6)
    assert factors.rank == 4
    assert factors.error < 1e-3


def test_peft_reads_the_adapter(rng, tmp_path):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    model, base = Tiny(), Tiny()
    base.load_state_dict(model.state_dict())
    with torch.no_grad():
        model.mlp[0].weight += 0.1 * matrix(rng, 64, 3) @ matrix(rng, 3, 32)
        model.attention.weight += 0.1 * matrix(rng, 96, 1) @ matrix(rng, 1, 32)
    extract_lora(model, base.state_dict(), out_dir=tmp_path / "adapter")
    (x,) = batches(1)
    assert not torch.allclose(base(x), model(x), atol=1e-3)
    loaded = peft.PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
    torch.testing.assert_close(loaded(x), model(x), atol=1e-4, rtol=1e-4)
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["lora_alpha"] == 3
    with pytest.raises(FileExistsError):
        extract_lora(model, _unwrapped(base), out_dir=tmp_path / "adapter")


def _unwrapped(base):
    """Names as before peft wrapped the layers in place."""
    return {
        name.replace(".base_layer", ""): tensor for name, tensor in base.state_dict().items() if "lora_" not in name
    }


def test_a_compiled_model_has_the_names_of_the_plain_one(rng):
    torch.manual_seed(0)
    model = Tiny()
    base = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        model.attention.weight += matrix(rng, 96, 1) @ matrix(rng, 1, 32)
    assert list(extract_lora(torch.compile(model), base).layers) == ["attention"]
    assert list(extract_lora(nn.DataParallel(model), base).layers) == ["attention"]


def test_gpt_2s_transposed_weights_are_told_by_their_biases(rng, tmp_path):
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    config = transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=24, n_layer=1, n_head=2)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config).eval()
    base = transformers.GPT2LMHeadModel(config).eval()
    base.load_state_dict(model.state_dict())
    block = model.transformer.h[0]
    with torch.no_grad():
        for layer in (block.attn.c_attn, block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj):  # the second is square
            layer.weight += matrix(rng, layer.weight.shape[0], 2) @ matrix(rng, 2, layer.weight.shape[1])
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    by_module, by_name = extract_lora(model, before), extract_lora(model.state_dict(), before)
    assert by_name.transposed == by_module.transposed
    assert by_name.layers.keys() == by_module.layers.keys()
    by_name.save(tmp_path)
    x = torch.arange(5)[None]
    expected = model(x).logits
    loaded = peft.PeftModel.from_pretrained(base, str(tmp_path))
    torch.testing.assert_close(loaded(x).logits, expected, atol=1e-3, rtol=1e-3)


def test_adapters_that_cannot_be_are_named(rng):
    model = Tiny()
    with pytest.raises(TypeError, match="base_state_dict: expected a mapping .* got Tiny"):
        extract_lora(model, Tiny())
    same = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match="no linear layer differs"):
        extract_lora(model, same)
    with pytest.raises(ValueError, match="lacks 'embed.weight'"):
        extract_lora(model, {})
    with pytest.raises(ValueError, match=r"embed.weight is \(3,\) there"):
        extract_lora(model, same | {"embed.weight": torch.ones(3)})
    with pytest.raises(ValueError, match="rank"):
        lora_factors(torch.ones(3, 3), rank=0)
    with pytest.raises(ValueError, match="tol"):
        lora_factors(torch.ones(3, 3), tol=1.0)
    with pytest.raises(ValueError, match="NaN"):
        lora_factors(torch.full((3, 3), float("nan")))
