"""A client's model: the global one where nothing is left out, frozen where it should be, small where it can be."""

import gc

import pytest
import torch
from leff_models import CONFIGS, batches, columns, make, same, state_of
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    DebertaV2Config,
    GPT2Config,
    LlamaConfig,
)

from thrifty.training.leff import (
    LayerView,
    LeffClient,
    LeffConfig,
    LeffServer,
    Report,
    StandIns,
    capacity_for_memory,
    compress_context,
    compute_share,
    gradient_gap,
    trained_parameters,
)
from thrifty.training.leff import stand_ins as module_of_stand_ins
from thrifty.training.leff.client_model import Shape
from thrifty.training.leff.context import Segment, lay_out
from thrifty.training.leff.distill import distill, segment_error, teacher_pass
from thrifty.training.leff.frozen import Int8Linear

DROP = LeffConfig(compression="drop")
every_family = pytest.mark.parametrize("kind", CONFIGS)


def logits(model, batch):
    with torch.no_grad():
        return model.eval()(**batch).logits


def meta(config, auto=AutoModelForCausalLM):
    with torch.device("meta"):
        return auto.from_config(config)


def test_published_parameter_counts():
    llama = LlamaConfig(
        vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, tie_word_embeddings=False,
    )  # fmt: skip
    large = GPT2Config(n_embd=1280, n_layer=36, n_head=20)
    deberta = {"vocab_size": 128100, "type_vocab_size": 0, "relative_attention": True, "position_buckets": 256,
               "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "share_att_key": True,
               "position_biased_input": False, "max_relative_positions": -1}  # fmt: skip
    base = DebertaV2Config(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, **deberta
    )
    big = DebertaV2Config(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, **deberta
    )
    classify = AutoModelForSequenceClassification
    for model, one, everything in (
        (meta(GPT2Config()), 7_089_408, 85_056_000),
        (meta(large), 19_680_000, 708_390_400),
        (meta(base, classify), 7_681_538, 85_648_130),
        (meta(big, classify), 13_649_922, 303_363_074),
        (meta(llama), 743_452_672, None),
    ):
        assert trained_parameters(model, 1) == one
        if everything:
            assert trained_parameters(model, LayerView(model).num_layers) == everything


@every_family
def test_every_family_with_every_context(kind):
    model, [batch, *_] = make(kind), batches(kind)
    before = state_of(model)
    whole = compress_context(model, 2, 2, 1.0)
    assert (logits(whole.model, batch) - logits(model, batch)).abs().max() <= 1e-6, "r = 1: the global model's output"
    config = LeffConfig(distill_steps=20, distill_lr=1e-3)
    for settings in (DROP, config):
        client = compress_context(model, 2, 2, 0.5, [batch], config=settings)
        assert client.layout.sources == (1, 2, 3, 5)
        assert client.model.config.num_hidden_layers == 4
        assert torch.isfinite(logits(client.model, batch)).all()
        sent = Shape.of(client, model, settings)
        rebuilt = Shape.from_json(sent.to_json()).build(client.state())
        assert torch.equal(logits(rebuilt.model, batch), logits(client.model, batch)), "as it is built elsewhere"
        assert rebuilt.trained().keys() == client.trained().keys()
    assert same(before, state_of(model)), "the global model is left as it was"


@every_family
def test_only_the_block_and_the_extras_learn(kind):
    model = make(kind)
    client = compress_context(model, 2, 1, 0.5, batches(kind), config=LeffConfig(distill_steps=3))
    trained = client.trained()
    before = {name: t.clone() for name, t in client.model.state_dict(keep_vars=False).items()}
    whole = state_of(model)
    LeffClient("a", columns(kind), capacity=1).train(client, 1, LeffConfig(lr=1e-2))
    moved = {id(t) for t in trained.values()}
    for name, tensor in client.model.state_dict(keep_vars=True).items():
        if id(tensor) in moved:
            assert not torch.equal(tensor, before[name]) or not tensor.requires_grad or tensor.grad.abs().sum() == 0, (
                name
            )
        else:
            assert torch.equal(tensor, before[name]), name
            assert tensor.grad is None, name
    assert same(whole, state_of(model)), "the block is the client's own"
    assert {name.split(".")[len(client.path.split("."))] for name in trained if name.startswith(client.path)} == {"2"}


def test_nothing_is_kept_below_the_block():
    model, batch = make("llama"), batches("llama")[0]

    def kept(start):
        client = compress_context(model, start, 1, 1.0)
        client.train_mode()
        seen, inside = [], client.view.layers
        for index, layer in enumerate(inside):
            layer.register_forward_hook(lambda _, __, out, index=index: seen.append((index, out.requires_grad)))
        client.model(**batch).loss.backward()
        return dict(seen)

    assert kept(3) == {0: False, 1: False, 2: False, 3: True, 4: True, 5: True}
    who = LeffClient("a", columns("llama"), capacity=1)
    high, low = (who.train(compress_context(model, start, 1, 1.0), 1, LeffConfig(lr=1e-3)) for start in (5, 0))
    assert high.metrics["peak_bytes"] < low.metrics["peak_bytes"]


def test_the_optimizer_knows_the_block_alone(monkeypatch):
    from thrifty.training.leff import local

    made = []
    plain = local.make_optimizer
    monkeypatch.setattr(local, "make_optimizer", lambda *a: made.append(plain(*a)) or made[-1])
    client = compress_context(make("bert"), 0, 1, 0.5, config=DROP)
    LeffClient("a", columns("bert"), capacity=1).train(client, 1, DROP)
    [optimizer] = made
    own = {id(t) for t in client.trained().values()}
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == own
    assert {id(p) for p in optimizer.state} <= own


def test_a_fresh_head_learns_at_a_rate_of_its_own():
    moved = {}
    for rate in (None, 1e-2):
        model = make("bert")
        client = compress_context(model, 0, 1, 0.5, config=DROP)
        before = {n: t.detach().clone() for n, t in client.trained().items()}
        config = DROP.with_overrides(lr=1e-4, extras_lr=rate, max_steps=1, weight_decay=0.0)
        state = LeffClient("a", columns("bert"), capacity=1).train(client, 1, config).state
        moved[rate] = {n: float((t - before[n]).abs().max()) for n, t in state.items()}
        assert all((n in client.extras) == (not n.startswith(client.path)) for n in state)
    for name, far in moved[1e-2].items():  # the first step of AdamW is as long as its rate
        if name.endswith("key.bias"):  # attention does not depend on it
            continue
        own = 1e-4 if name.startswith(client.path) else 1e-2
        assert far == pytest.approx(own, rel=0.02), name
        assert moved[None][name] == pytest.approx(1e-4, rel=0.02), name


def test_what_is_frozen_is_shared_and_in_evaluation_mode():
    model = make("bert")
    client = compress_context(model, 2, 1, 1.0)
    client.train_mode()
    inside = client.view.layers
    assert [layer.training for layer in inside] == [False, False, True, False, False, False]
    assert not client.model.bert.embeddings.training
    assert {id(p) for p in client.model.parameters() if p.requires_grad} == {id(t) for t in client.trained().values()}
    theirs = {t.data_ptr() for t in model.state_dict().values()}
    shared = sum(p.data_ptr() in theirs for p in client.model.parameters() if not p.requires_grad)
    assert shared == sum(not p.requires_grad for p in client.model.parameters())
    assert not any(p.data_ptr() in theirs for p in client.model.parameters() if p.requires_grad)


def test_two_segments_of_a_wrapped_block():
    model, batch = make("llama"), batches("llama")[0]
    client = compress_context(model, 5, 2, 0.5, config=LeffConfig(compression="drop", edge="wrap"))
    assert client.layout.block == (0, 5)
    assert client.layout.segments == (Segment(1, 4, 2),)
    assert {name.split(".")[2] for name in client.trained() if "layers" in name} == {"0", "5"}
    assert torch.isfinite(logits(client.model, batch)).all()


@pytest.mark.parametrize("kind", ["bert", "llama", "deberta", "vit", "gpt2"])
def test_distillation_of_a_copy_is_perfect_and_stays_so(kind):
    model, some = make(kind), batches(kind)
    view, segment = LayerView(model), Segment(0, 3, 3)
    stand_ins = StandIns(LeffConfig())
    [batch, *_] = kept = teacher_pass(view, some, [segment], stand_ins.config)
    from thrifty.training.leff.distill import eager_copy

    students = nn.ModuleList(eager_copy(view).layers[:3])
    before = state_of(students)
    assert float(segment_error(list(students), segment, batch, stand_ins.config)) == 0
    assert distill(students, segment, kept, LeffConfig(distill_steps=5)) == [0.0]
    assert same(before, state_of(students))


@pytest.mark.parametrize("attn_map", ["last", pytest.param("uniform", marks=pytest.mark.slow)])
def test_distillation_lowers_its_loss_and_the_gradient_error(attn_map):
    model, some = make("bert", 8), batches("bert", 4)
    settings = {"attn_map": attn_map, "distill_lr": 3e-3, "distill_steps": 60}
    stand_ins = StandIns(LeffConfig(**settings))
    distilled = compress_context(model, 5, 1, 0.5, some, stand_ins, config=stand_ins.config)
    for first, last in stand_ins.errors.values():
        assert 0 <= last < 0.8 * first
    dropped = compress_context(model, 5, 1, 0.5, config=DROP)
    assert gradient_gap(model, distilled, some).squared < gradient_gap(model, dropped, some).squared
    assert gradient_gap(model, compress_context(model, 5, 1, 1.0), some).squared <= 1e-10
    again = compress_context(model, 5, 1, 0.5, some, stand_ins, config=stand_ins.config)
    assert torch.equal(
        again.view.layers[0].attention.self.query.weight, distilled.view.layers[0].attention.self.query.weight
    )


def test_padding_does_not_reach_the_distillation_loss():
    model = make("bert")
    some = batches("bert")
    other = [{**b, "input_ids": torch.where(b["attention_mask"].bool(), b["input_ids"], 7)} for b in some]
    segment, config = Segment(0, 4, 2), LeffConfig()
    view = LayerView(model)
    losses = []
    for proxy in (some, other):
        [batch, *_] = teacher_pass(view, proxy, [segment], config)
        students = [view.layers[i] for i in segment.sources]
        eager = compress_context(model, 4, 1, 1.0).model  # any copy whose attention is computed in full
        eager.set_attn_implementation("eager")
        students = [eager.bert.encoder.layer[i] for i in segment.sources]
        losses.append(float(segment_error(students, segment, batch, config)))
        assert batch.valid is not None
        del students
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_labels_of_the_proxy_set_are_not_looked_at():
    model, some = make("bert"), batches("bert")
    flipped = [{**b, "labels": 1 - b["labels"]} for b in some]
    bare = [{k: v for k, v in b.items() if k != "labels"} for b in some]
    made = [
        compress_context(model, 3, 1, 0.5, p, config=LeffConfig(distill_steps=4)).state() for p in (some, flipped, bare)
    ]
    assert same(made[0], made[1])
    assert same(made[0], made[2])


def test_stand_ins_are_shared_kept_warm_and_refreshed():
    config = LeffConfig(distill_steps=4, distill_every=2, sampler="random", alpha=0.0)
    server = LeffServer(make("llama"), config, batches("llama"))
    steps = []
    for _ in range(4):
        server.plan([Report(str(i), 4, 6 if i else 1) for i in range(3)])
        steps.append(server._current.distill_steps)
        server.finish()
    one_block = LeffServer(make("llama", 2), config, batches("llama"))
    one_block.plan([Report(str(i), 4, 2) for i in range(5)])
    assert one_block._current.distill_steps == 0, "full models need no stand-in"
    keys = list(server.stand_ins.made)
    assert len(keys) == len({(s.start, s.length) for s in keys})
    segment = keys[0]
    server.stand_ins.refreshed[segment] = 10
    before = server.stand_ins.made[segment]
    assert server.stand_ins.refresh(server.view, [segment], server.proxy, 11) == 0
    assert server.stand_ins.made[segment] is before
    warm = [t.clone() for t in before.parameters()]
    losses = server.stand_ins.errors[segment]
    assert server.stand_ins.refresh(server.view, [segment], server.proxy, 12) > 0
    assert server.stand_ins.errors[segment][0] <= losses[0]
    assert any(not torch.equal(a, b) for a, b in zip(warm, server.stand_ins.made[segment].parameters(), strict=True))
    other = StandIns(config)
    other.load_state_dict(server.view, server.stand_ins.state_dict())
    assert other.refreshed == server.stand_ins.refreshed
    assert same(other.state_dict(), server.stand_ins.state_dict())


def test_refreshes_with_few_steps_take_turns_with_the_proxy_set(monkeypatch):
    some, seen = batches("llama", 5), []
    plain = module_of_stand_ins.teacher_pass
    monkeypatch.setattr(
        module_of_stand_ins, "teacher_pass", lambda view, proxy, *rest: seen.append(proxy) or plain(view, proxy, *rest)
    )
    segment, view = Segment(0, 4, 2), LayerView(make("llama"))
    for steps, round_ in ((2, 0), (2, 1), (2, 2), (9, 1)):
        StandIns(LeffConfig(distill_steps=steps)).refresh(view, [segment], some, round_)
    taken = [[next(i for i, b in enumerate(some) if b is one) for one in batch] for batch in seen]
    assert taken == [[0, 1], [2, 3], [4, 0], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("kind", ["bert", "llama", "gpt2"])
def test_a_frozen_context_in_fewer_bits(kind, dtype):
    model, batch = make(kind), batches(kind)[0]
    config = LeffConfig(compression="drop", context_dtype=dtype)
    client, plain = (compress_context(model, 2, 1, 0.5, config=c) for c in (config, DROP))
    apart = (logits(client.model, batch) - logits(plain.model, batch)).abs().max()
    assert 0 < apart < 0.2 * logits(plain.model, batch).abs().max()
    assert all(t.dtype == torch.float32 for t in client.trained().values())
    size = lambda c: sum(t.numel() * t.element_size() for t in c.state().values())  # noqa: E731
    assert size(client) < size(plain)
    LeffClient("a", columns(kind), capacity=1).train(client, 1, LeffConfig(lr=1e-3))
    rebuilt = Shape.from_json(Shape.of(client, model, config).to_json()).build(client.state())
    assert torch.equal(logits(rebuilt.model, batch), logits(client.model, batch))
    assert same(state_of(model), state_of(make(kind)))


def test_int8_rows_are_off_by_half_a_step_at_most():
    weight = torch.randn(5, 7)
    layer = Int8Linear(weight, None)
    assert ((layer.weight_int8 * layer.weight_scale - weight).abs() <= layer.weight_scale / 2 + 1e-7).all()
    x = torch.randn(3, 7, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None


def test_gradient_checkpointing_changes_memory_and_nothing_else():
    model, config = make("llama"), LeffConfig(compression="none", lr=1e-3)
    found = {}
    for recompute in (False, True):
        settings = config.with_overrides(gradient_checkpointing=recompute)
        client = compress_context(model, 1, 3, 1.0, config=settings)
        found[recompute] = LeffClient("a", columns("llama"), capacity=3).train(client, 1, settings)
    assert same(found[False].state, found[True].state)
    assert found[True].metrics["peak_bytes"] < found[False].metrics["peak_bytes"]


def test_compute_shares_of_the_specification():
    share = compute_share(lay_out((2,), 6, LeffConfig()))
    assert share == pytest.approx(8 / 18)
    assert compute_share(lay_out(range(6), 6, LeffConfig())) == 1
    top = compute_share(lay_out((5,), 6, LeffConfig()))
    assert top == pytest.approx((3 + 1 + 2) / 18)


def test_capacity_from_bytes():
    model = meta(GPT2Config())
    found = [capacity_for_memory(model, budget) for budget in (4.5e8, 6e8, 1e9, 2e9)]
    assert found == sorted(found)
    assert found[0] < found[-1] == 12
    with pytest.raises(
        ValueError, match=r"budget: expected at least \d+ bytes, which one layer needs, got 1000"
    ) as error:
        capacity_for_memory(model, 1000)
    need = int(str(error.value).split("least ")[1].split()[0])
    assert capacity_for_memory(model, need) >= 1
    assert capacity_for_memory(model, need, LeffConfig(compression_rate=0.2)) >= capacity_for_memory(model, need)


class Convolutions(nn.Module):
    """Not a transformer: layers with batch norm, whose counters are integers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Conv1d(1, 4, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4), nn.Dropout(0.5)) for _ in range(4)
        )
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(2))


def test_any_stack_of_layers_and_buffers_of_batch_norm():
    torch.manual_seed(0)
    model = Convolutions()
    data = {"x": torch.randn(8, 1, 6), "y": torch.arange(8) % 2}
    loss = lambda m, b: nn.functional.cross_entropy(m(b["x"]), b["y"])  # noqa: E731
    config = LeffConfig(compression="drop", sampler="random", lr=1e-2)
    client = compress_context(model, 1, 1, 0.5, config=config)
    assert "blocks.1.1.running_mean" in client.trained()
    assert "blocks.1.1.num_batches_tracked" not in client.trained()
    frozen = client.view.layers[0][1]
    before = frozen.running_mean.clone()
    update = LeffClient("a", data, 1, loss_fn=loss).train(client, 1, config)
    assert torch.equal(frozen.running_mean, before), "batch norm of a frozen layer does not follow the data"
    assert not torch.equal(update.state["blocks.1.1.running_mean"], torch.zeros(4))
    assert torch.equal(model.blocks[1][1].running_mean, torch.zeros(4))
    gc.collect()


def test_configurations_with_entries_a_layer_follow_their_layers():
    model = make("gemma2")
    model.config.layer_types = ["sliding_attention", "full_attention"] * 3
    client = compress_context(model, 2, 2, 0.5, config=DROP)
    assert client.model.config.layer_types == [model.config.layer_types[i] for i in client.layout.sources]
    assert [layer.self_attn.layer_idx for layer in client.view.layers] == [0, 1, 2, 3]
    assert AutoConfig.for_model("gemma2").num_hidden_layers != 4


def test_statistics_of_batch_norm_outside_the_layers_stay():
    class Headed(Convolutions):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            x = self.embed(x)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x).mean(2))

    model = Headed()
    before = state_of(model)
    data = {"x": torch.randn(8, 1, 6), "y": torch.arange(8) % 2}
    loss = lambda m, b: nn.functional.cross_entropy(m(b["x"]), b["y"])  # noqa: E731
    client = compress_context(model, 1, 1, config=DROP)
    LeffClient("a", data, 1, loss_fn=loss).train(client, 1, DROP)
    assert same(before, state_of(model)), "training a client touches nothing of the global model"


def test_the_rate_is_that_of_the_settings_unless_it_is_given():
    model, config = make("bert"), DROP.with_overrides(compression_rate=0.2)
    assert len(compress_context(model, 0, 1, config=config).layout.places) == 2
    assert len(compress_context(model, 0, 1, 0.8, config=config).layout.places) == 5


def test_a_stand_in_that_diverges_is_said():
    with pytest.raises(
        ValueError, match="distill_lr: expected a rate at which the stand-in of layers 1 to 5 converges"
    ):
        compress_context(make("llama"), 0, 1, 0.5, batches("llama"), config=LeffConfig(distill_lr=1e30))
