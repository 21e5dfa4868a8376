"""The decoder gives exactly what the target alone would: token for token when greedy, in distribution when sampling."""

import importlib.util
import itertools
import logging
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from transformers import (
    BloomConfig,
    FalconConfig,
    GenerationConfig,
    GPTNeoConfig,
    JetMoeConfig,
    LlamaConfig,
    MambaConfig,
    OPTConfig,
    RwkvConfig,
)

from thrifty.inference.speculation import (
    Acceptance,
    GammaController,
    Schedule,
    SpeculationModel,
    SpeculativeDecoder,
    expected_active_experts,
)
from thrifty.inference.speculation.decode.accept import accept_greedy, accept_sampled
from thrifty.inference.speculation.decode.batch import Batch
from thrifty.inference.speculation.decode.stats import Round, SpeculativeStats
from thrifty.inference.speculation.decode.warp import warper
from thrifty.inference.speculation.experts import counted_experts, pinned_experts

spec = importlib.util.spec_from_file_location("speculation_tiny", Path(__file__).with_name("tiny.py"))
tiny = sys.modules.setdefault("speculation_tiny", importlib.util.module_from_spec(spec))
spec.loader.exec_module(tiny)

LENGTHS, NEW = (6, 3, 5, 1, 2, 6, 4, 3), 12


@pytest.fixture(scope="module")
def pair():
    target = tiny.qwen_moe(dtype=torch.float64)
    return target, tiny.disturbed(target, 0.15)


@pytest.fixture(scope="module")
def reference(pair):
    ids, mask = tiny.prompts(LENGTHS)
    return [tiny.plain(pair[0], ids[i][mask[i].bool()], NEW) for i in range(len(LENGTHS))]


def run(target, draft, gamma, ids, mask, **more):
    settings = {"do_sample": False, "max_new_tokens": NEW} | more
    return SpeculativeDecoder(target, draft, gamma, experts=None).generate(ids, mask, **settings)


def new_tokens(out, ids):
    return [out.sequences[i, ids.shape[1] :][: out.lengths[i]].tolist() for i in range(len(ids))]


def test_the_reference_is_worth_comparing_with(pair, reference):
    assert all(len(set(row)) >= 4 for row in reference)
    ids, mask = tiny.prompts(LENGTHS)
    survival = run(*pair, 3, ids, mask).stats.survival()
    assert 0.2 < survival[-1] < survival[0] < 0.98  # rows really part


@pytest.mark.parametrize("batch", [1, 4, 8])
@pytest.mark.parametrize("gamma", [0, 1, 2, 3, 4, 5, 6])
def test_greedy_is_the_targets_own_output(pair, reference, batch, gamma):
    ids, mask = tiny.prompts(LENGTHS)
    ids, mask = ids[:batch], mask[:batch]
    out = run(*pair, gamma, ids, mask)
    assert new_tokens(out, ids) == reference[:batch]
    assert out.sequences[:, : ids.shape[1]].equal(ids)
    assert out.stats.tokens == batch * NEW


@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_rows_end_on_their_own(pair, reference, gamma):
    ends = sorted({reference[0][4], reference[1][1], reference[2][8]})
    ids, mask = tiny.prompts(LENGTHS)
    expected = [tiny.plain(pair[0], ids[i][mask[i].bool()], NEW, ends) for i in range(len(LENGTHS))]
    assert len({len(row) for row in expected}) > 2
    out = run(*pair, gamma, ids, mask, eos_token_id=ends, pad_token_id=39)
    assert new_tokens(out, ids) == expected
    assert out.lengths.tolist() == [len(row) for row in expected]
    for i in range(len(ids)):
        assert (out.sequences[i, ids.shape[1] + len(expected[i]) :] == 39).all()
    sizes = [round_.batch for round_ in out.stats.rounds]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0] == len(ids)  # finished rows left the batch


@pytest.mark.parametrize("name", tiny.others())
def test_other_families_and_kinds_of_attention(name):
    target = tiny.made(tiny.others()[name], dtype=torch.float32)
    draft = tiny.disturbed(target, 0.05)
    ids, mask = tiny.prompts((9, 4, 1))
    expected = [tiny.plain(target, ids[i][mask[i].bool()], NEW) for i in range(3)]
    assert new_tokens(run(target, draft, 3, ids, mask), ids) == expected


def test_eager_attention_and_grouped_experts(reference):
    target = tiny.qwen_moe()
    expected = new_tokens(run(target, target, 0, *tiny.prompts(LENGTHS)), tiny.prompts(LENGTHS)[0])
    target.set_attn_implementation("eager")
    ids, mask = tiny.prompts(LENGTHS)
    out = SpeculativeDecoder(target, tiny.disturbed(target, 0.1), 3).generate(
        ids, mask, max_new_tokens=NEW, do_sample=False
    )
    assert new_tokens(out, ids) == expected == reference


def test_a_draft_that_is_the_target_is_always_right(pair):
    ids, mask = tiny.prompts(LENGTHS)
    for gamma in (1, 2, 3):
        out = run(pair[0], pair[0], gamma, ids, mask)
        assert out.stats.survival() == [1.0] * gamma
        assert len(out.stats.rounds) == -(-NEW // (gamma + 1))


def test_nothing_is_drafted_that_no_row_has_room_for(pair, reference):
    ids, mask = tiny.prompts(LENGTHS)
    out = run(pair[0], pair[0], 6, ids, mask)
    assert [r.gamma for r in out.stats.rounds] == [6, NEW - 7 - 1]  # a round gives one token more than it drafts
    assert new_tokens(out, ids) == reference
    assert [r.gamma for r in run(*pair, 3, ids, mask, max_new_tokens=1).stats.rounds] == [0]


def test_a_draft_of_another_kind_agrees_with_the_target_too(pair, reference):
    ids, mask = tiny.prompts(LENGTHS)
    out = run(pair[0], tiny.llama(dtype=torch.float64), 2, ids, mask)
    assert new_tokens(out, ids) == reference


def quick_compile(calls):
    """torch.compile without generating code, which takes half a minute: what is traced, and how often it is called."""
    real = torch.compile

    def compile_(function, mode=None):
        assert mode is None  # CUDA graphs are for GPUs
        traced = real(function, backend="eager", fullgraph=True)

        def step(**given):
            calls.append(given)
            return traced(**given)

        return step

    return compile_


@pytest.mark.parametrize("sampled", [False, True])
def test_a_compiled_draft_changes_nothing(monkeypatch, sampled):
    target, calls = tiny.qwen_moe(), []
    draft = tiny.disturbed(target, 0.15)
    ids, mask = tiny.prompts(LENGTHS)
    more = {"do_sample": sampled, "max_new_tokens": NEW}

    def generate(compile_draft):
        decoder = SpeculativeDecoder(target, draft, 3, compile_draft=compile_draft)
        return decoder.generate(ids, mask, generator=torch.Generator().manual_seed(0), **more)

    expected = generate(False)
    monkeypatch.setattr(torch, "compile", quick_compile(calls))
    out = generate(True)
    assert out.sequences.equal(expected.sequences)
    assert out.stats.survival() == expected.stats.survival()
    widths = {tuple(call["attention_mask"].shape[2:]) for call in calls}
    assert widths == {(1, 64), (2, 64)}  # every pass sees every slot: two shapes in all
    short = sum(r.gamma for r in out.stats.rounds)
    assert short - len(out.stats.rounds) < len(calls) <= short


@pytest.mark.slow
def test_a_draft_is_really_compiled():
    target = tiny.qwen_moe()
    ids, mask = tiny.prompts((5, 3))
    expected = run(target, target, 0, ids, mask)
    decoder = SpeculativeDecoder(target, tiny.llama(), 2, compile_draft=True)
    assert decoder.generate(ids, mask, max_new_tokens=NEW, do_sample=False).sequences.equal(expected.sequences)


def test_schedules_and_controllers_change_the_length_and_nothing_else(pair, reference):
    ids, mask = tiny.prompts(LENGTHS)
    schedule = Schedule(((1, 3, 4), (4, 7, 0), (8, 8, 2)))
    ends = [reference[0][3], reference[1][5]]
    expected = [tiny.plain(pair[0], ids[i][mask[i].bool()], NEW, ends) for i in range(len(LENGTHS))]
    out = run(*pair, schedule, ids, mask, eos_token_id=ends)
    assert new_tokens(out, ids) == expected
    assert all(r.gamma <= schedule.gamma(r.batch) for r in out.stats.rounds)  # less near the end
    for low, high in ((1, 3), (4, 7), (8, 8)):
        lengths = [r.gamma for r in out.stats.rounds if low <= r.batch <= high]
        assert max(lengths) > 2 if low == 1 else lengths[0] == schedule.gamma(low)
    model = SpeculationModel(8, 2, 50, 1.02, 1.0, 0.01, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0)
    controller = GammaController(model, max_gamma=4, every=2)
    controlled = run(*pair, controller, ids, mask)
    assert new_tokens(controlled, ids) == reference
    assert controller.acceptance().alpha != pytest.approx(0.8)  # it has learnt


def test_plain_steps_in_between_leave_the_draft_behind_and_it_catches_up(pair, reference):
    """γ alternates between 0 and 3: the draft has to read several tokens before it drafts again."""

    class Alternating:
        max_gamma = 3
        calls = 0

        def gamma(self, batch):
            self.calls += 1
            return 3 if self.calls % 4 == 0 else 0

    ids, mask = tiny.prompts(LENGTHS)
    out = run(pair[0], pair[0], Alternating(), ids, mask)
    assert new_tokens(out, ids) == reference
    assert all(r.accepted[-1] == r.batch for r in out.stats.rounds if r.gamma)  # with the target as draft: all


# Sampling ------------------------------------------------------------------------------------------------------------


def joint(model, prompt, warp, count):
    """Return the probability of every continuation, by enumeration."""
    vocabulary = model.config.vocab_size
    table = torch.ones((), dtype=torch.float64)
    for step in range(count):
        prefixes = list(itertools.product(range(vocabulary), repeat=step))
        ids = torch.tensor([[*prompt, *prefix] for prefix in prefixes])
        with torch.inference_mode():
            logits = model(input_ids=ids, use_cache=False).logits[:, -1]
        table = (table.reshape(-1)[:, None] * warp(logits)).double()
    return table.reshape(-1)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 3}], ids=["plain", "temperature and top-k"])
def test_samples_follow_the_targets_distribution(settings):
    target, draft = tiny.llama(vocab=5, layers=2, seed=3), tiny.llama(vocab=5, seed=4)
    prompt, count, batch = [1, 4], 3, 5000

    def warp(logits):
        scores = logits.float() / settings.get("temperature", 1.0)
        if k := settings.get("top_k"):
            scores = scores.masked_fill(scores < scores.topk(k).values[..., -1:], float("-inf"))
        return scores.softmax(-1)

    expected = joint(target, prompt, warp, count)
    observed = torch.zeros(5**count, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    ids = torch.tensor([prompt]).expand(batch, -1)
    options = {"do_sample": True, "max_new_tokens": count, "top_k": 0, **settings}
    for _ in range(10):
        out = SpeculativeDecoder(target, draft, 2).generate(ids, generator=generator, **options)
        new = out.sequences[:, len(prompt) :]
        observed += torch.bincount((new * torch.tensor([25, 5, 1])).sum(1), minlength=125).double()
    possible = expected > 0
    assert observed[~possible].sum() == 0
    wanted = expected[possible] * observed.sum()
    statistic = float(((observed[possible] - wanted) ** 2 / wanted)[wanted > 5].sum())
    assert chi2.sf(statistic, int((wanted > 5).sum()) - 1) > 1e-3
    survival = out.stats.survival()
    assert 0.02 < survival[0] < 0.999  # of 5000 rounds at least a hundred were accepted, and not all


def test_rejection_sampling_gives_p_and_accepts_the_overlap():
    generator = torch.Generator().manual_seed(0)
    n, vocabulary = 200_000, 6
    p, q = torch.rand(2, 2, vocabulary, generator=generator).softmax(-1).double().pow(3).unbind(0)
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    drafts = torch.multinomial(q[:1], n, replacement=True, generator=generator).T
    tables = q[:1].expand(n, 1, vocabulary), p[None].expand(n, 2, vocabulary)
    accepted, following = accept_sampled(drafts, *tables, generator)
    overlap = float(torch.minimum(p[0], q[0]).sum())
    assert accepted.double().mean() == pytest.approx(overlap, abs=0.005)
    first = torch.where(accepted == 1, drafts[:, 0], following)
    found = torch.bincount(first, minlength=vocabulary).double() / n
    assert found.tolist() == pytest.approx(p[0].tolist(), abs=0.006)
    after = torch.bincount(following[accepted == 1], minlength=vocabulary).double()
    assert (after / after.sum()).tolist() == pytest.approx(p[1].tolist(), abs=0.008)


def test_expected_tokens_are_the_products_of_overlaps():
    """E[tokens] = 1 + Σ_i Π_{j≤i} Σ_v min(p_j, q_j), for distributions that do not depend on the tokens."""
    generator = torch.Generator().manual_seed(1)
    n, gamma, vocabulary = 100_000, 3, 5
    q = torch.rand(gamma, vocabulary, generator=generator).pow(2)
    p = torch.rand(gamma + 1, vocabulary, generator=generator).pow(2)
    q, p = q / q.sum(-1, keepdim=True), p / p.sum(-1, keepdim=True)
    drafts = torch.stack([torch.multinomial(q[i], n, replacement=True, generator=generator) for i in range(gamma)], 1)
    accepted, _ = accept_sampled(drafts, q.expand(n, gamma, vocabulary), p.expand(n, gamma + 1, vocabulary), generator)
    survival = torch.minimum(p[:gamma], q).sum(-1).cumprod(0)
    assert 1 + accepted.double().mean() == pytest.approx(1 + float(survival.sum()), abs=0.01)
    found = Acceptance.from_survival([(accepted >= i).double().mean().item() for i in (1, 2, 3)])
    assert found.curve(3).tolist() == pytest.approx(survival.tolist(), abs=0.01)


def test_equal_distributions_accept_everything_even_where_rounding_rejects():
    p = torch.tensor([[[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]]])
    accepted, following = accept_sampled(torch.tensor([[1]]), p[:, :1], p)
    assert accepted.tolist() == [1]
    assert following.item() in (0, 1, 2)
    # q says 1, p cannot: the residual is all of p.
    accepted, following = accept_sampled(torch.tensor([[2]]), torch.tensor([[[0.0, 0.0, 1.0]]]), p)
    assert accepted.tolist() == [0]
    assert following.item() in (0, 1)


def test_a_rejection_that_leaves_nothing_draws_from_the_target():
    """Rounding can leave p below q everywhere: there is no residual then."""
    q = torch.tensor([0.5, 0.5, 0.0]).expand(500, 1, 3)
    p = torch.tensor([0.1, 0.3, 0.0]).expand(500, 2, 3)
    accepted, following = accept_sampled(torch.zeros(500, 1, dtype=torch.long), q, p, torch.Generator().manual_seed(0))
    rejected = following[accepted == 0]
    assert len(rejected) > 300
    assert (rejected == 1).double().mean() == pytest.approx(0.75, abs=0.06)


def test_greedy_acceptance_is_a_prefix():
    logits = torch.eye(5)[[1, 2, 3, 4]][None].expand(3, -1, -1)
    drafts = torch.tensor([[1, 2, 3], [1, 0, 3], [0, 2, 3]])
    accepted, following = accept_greedy(drafts, logits)
    assert accepted.tolist() == [3, 1, 0]
    assert following.tolist() == [4, 2, 1]


def test_the_same_generator_gives_the_same_samples(pair):
    ids, mask = tiny.prompts(LENGTHS)

    def sample(seed):
        generator = torch.Generator().manual_seed(seed)
        return run(*pair, 2, ids, mask, do_sample=True, top_p=0.9, generator=generator).sequences

    assert sample(0).equal(sample(0))
    assert not sample(0).equal(sample(1))


# Vocabularies, settings, what is refused -----------------------------------------------------------------------------


def test_heads_that_are_padded_differently(pair, reference):
    ids, mask = tiny.prompts(LENGTHS)
    target = pair[0]
    for size in (36, 44):
        draft = tiny.llama(vocab=size, dtype=torch.float64)
        with pytest.raises(ValueError, match=rf"{size} tokens, the target's 40"):
            SpeculativeDecoder(target, draft)
        decoder = SpeculativeDecoder(target, draft, 2, experts=None, vocab_size=36)
        small = ids.clamp(max=35)
        expected = run(target, target, 0, small, mask)
        out = decoder.generate(small, mask, max_new_tokens=NEW, do_sample=False)
        assert out.sequences.equal(expected.sequences)
        sampled = decoder.generate(small, mask, max_new_tokens=4, do_sample=True)
        assert sampled.lengths.tolist() == [4] * len(ids)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"repetition_penalty": 1.2}, "repetition_penalty"),
        ({"num_beams": 2}, "num_beams"),
        ({"no_repeat_ngram_size": 2}, "no_repeat_ngram_size"),
        ({"stop_strings": ["x"]}, "stop_strings"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"do_sample": True, "temperature": -1.0}, "temperature"),
        ({"output_scores": True}, "output_scores"),
        ({"temprature": 9.0}, "temprature"),
        ({"logits_processor": [lambda ids, scores: scores]}, "logits_processor"),
        ({"stopping_criteria": []}, "stopping_criteria"),
    ],
)
def test_settings_that_are_not_honoured_are_refused(pair, more, message):
    ids, mask = tiny.prompts((3, 2))
    with pytest.raises(ValueError, match=message):
        run(*pair, 2, ids, mask, **more)


def test_what_a_config_leaves_unset_is_the_models_own(pair, reference):
    target, draft = tiny.qwen_moe(), tiny.llama()
    ids, mask = tiny.prompts(LENGTHS)
    target.generation_config.eos_token_id = [reference[0][4], reference[2][8]]
    target.generation_config.pad_token_id = 39
    given = GenerationConfig(max_new_tokens=NEW, do_sample=False)
    out = SpeculativeDecoder(target, draft, 2).generate(ids, mask, given)
    assert out.sequences.equal(target.generate(ids, attention_mask=mask, generation_config=given))
    assert out.lengths.min() < NEW
    assert given.eos_token_id is None
    target.generation_config.update(do_sample=True, top_k=1, temperature=0.5)
    sampled = SpeculativeDecoder(target, draft, 2).generate(ids, mask, GenerationConfig(max_new_tokens=NEW))
    assert sampled.sequences.equal(out.sequences)  # the likeliest token alone is left to be drawn


def test_unset_settings_are_those_of_generate():
    logits = torch.randn(3, 80, generator=torch.Generator().manual_seed(0))
    assert ((warper(GenerationConfig())(logits) > 0).sum(-1) == 50).all()
    assert ((warper(GenerationConfig(top_k=0))(logits) > 0).sum(-1) == 80).all()
    nucleus = warper(GenerationConfig(top_k=0, top_p=0.5))(logits)
    assert (nucleus.sum(-1) - 1).abs().max() < 1e-6
    kept = (logits.softmax(-1) * (nucleus > 0)).sum(-1)
    assert ((kept >= 0.5) & (kept < 0.75)).all()
    floor = warper(GenerationConfig(top_k=0, min_p=0.2))(logits)
    assert (floor > 0).equal(logits.softmax(-1) >= 0.2 * logits.softmax(-1).amax(-1, keepdim=True))


def test_prompts_that_cannot_be_are_refused(pair):
    ids, mask = tiny.prompts((3, 2))
    for wrong in (mask.flip(1), torch.tensor([[1, 1, 1], [0, 0, 0]]), torch.tensor([[1, 0, 1], [0, 1, 1]])):
        with pytest.raises(ValueError, match="padded on the left"):
            run(*pair, 2, ids, wrong)
    with pytest.raises(ValueError, match="shape of input_ids"):
        run(*pair, 2, ids, mask[:1])
    for wrong in (ids[:, :0], ids[0]):
        with pytest.raises(ValueError, match="input_ids"):
            run(*pair, 2, wrong, None)
    with pytest.raises(TypeError, match="input_ids: expected a tensor"):
        run(*pair, 2, ids.tolist(), None)


def test_models_that_cannot_be_rolled_back_are_refused(pair):
    target, draft = pair
    state = tiny.Auto.from_config(MambaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, state_size=4))
    with pytest.raises(ValueError, match="keeps state"):
        SpeculativeDecoder(target, state)
    with pytest.raises(ValueError, match="gamma"):
        SpeculativeDecoder(target, draft, -1)
    with pytest.raises(TypeError, match=r"whole number, a Schedule or a GammaController, got 2\.5"):
        SpeculativeDecoder(target, draft, 2.5)
    assert SpeculativeDecoder(target, draft, np.int64(2)).gamma == 2
    size = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    local = [[["global", "local"], 1]]
    recurrent = RwkvConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2)
    for config, message in (
        (BloomConfig(vocab_size=40, hidden_size=16, n_layer=1, n_head=2), "ALiBi"),
        (FalconConfig(**size, alibi=True, new_decoder_architecture=False), "ALiBi"),
        (GPTNeoConfig(vocab_size=40, hidden_size=16, num_layers=2, num_heads=2, attention_types=local), "by slot"),
        (recurrent, "takes no cache of keys and values"),
    ):
        with pytest.raises(ValueError, match=message):
            SpeculativeDecoder(tiny.Auto.from_config(config), draft)
    flexible = tiny.qwen_moe()
    flexible.config._attn_implementation = "flex_attention"
    with pytest.raises(ValueError, match="attn_implementation='sdpa'"):
        SpeculativeDecoder(flexible, draft)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_rotary_embedding_that_depends_on_the_longest_row_is_refused_beyond_its_first_length(kind, pair):
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 16}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4}
    config = LlamaConfig(
        **tiny.SMALL | {"max_position_embeddings": 32 if kind == "longrope" else 16},
        vocab_size=40, num_hidden_layers=2, rope_parameters=rope,
    )  # fmt: skip
    target = tiny.made(config, dtype=torch.float32)
    ids, mask = tiny.prompts((6, 3))
    expected = [tiny.plain(target, ids[i][mask[i].bool()], 10) for i in range(2)]
    assert new_tokens(run(target, tiny.llama(), 3, ids, mask, max_new_tokens=10), ids) == expected
    with pytest.raises(ValueError, match="beyond 16 tokens"):
        run(target, tiny.llama(), 3, ids, mask, max_new_tokens=11)


@pytest.mark.parametrize("gamma", [0, 4, 6])
def test_the_last_positions_of_a_model_can_be_used(gamma):
    config = OPTConfig(
        vocab_size=40, hidden_size=32, word_embed_proj_dim=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=14,
    )  # fmt: skip
    target = tiny.made(config, dtype=torch.float32)
    ids, mask = tiny.prompts((6, 3, 5))
    expected = [tiny.plain(target, ids[i][mask[i].bool()], 8) for i in range(3)]
    # The longest row is ahead of others, for whose sake drafts go on beyond its end.
    out = run(target, tiny.disturbed(target, 0.05), gamma, ids, mask, max_new_tokens=8)
    assert new_tokens(out, ids) == expected


# Experts -------------------------------------------------------------------------------------------------------------


def test_experts_are_pinned_and_given_back(caplog):
    model = tiny.qwen_moe()
    model.set_experts_implementation("batched_mm")
    with caplog.at_level(logging.WARNING), pinned_experts(model):
        assert set(model.get_experts_implementation().values()) == {"grouped_mm"}
    assert set(model.get_experts_implementation().values()) == {"batched_mm"}
    assert "batched_mm" in caplog.text
    with pinned_experts(tiny.llama()):
        pass
    jet = tiny.Auto.from_config(
        JetMoeConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_key_value_heads=2, kv_channels=8,
                     intermediate_size=16, num_local_experts=2)
    )  # fmt: skip
    with pytest.raises(ValueError, match="experts=None"), pinned_experts(jet):
        pass
    with pytest.raises(ValueError, match="float64"), pinned_experts(tiny.qwen_moe(dtype=torch.float64)):
        pass


def test_active_experts_are_counted():
    model = tiny.qwen_moe(layers=3)
    ids = torch.randint(1, 40, (1, 16), generator=torch.Generator().manual_seed(0))
    with counted_experts(model) as counts, torch.inference_mode():
        model(input_ids=ids)
        model(input_ids=ids[:, :1])
    assert [layer[1] for layer in counts.layers] == [2, 2, 2]
    assert all(2 <= layer[0] <= 8 for layer in counts.layers)
    assert counts.mean() <= float(expected_active_experts(16, 8, 2)) + 2
    assert counts.imbalance() >= 1
    with pytest.raises(ValueError, match="no pass"), counted_experts(tiny.llama()) as none:
        none.mean()


def test_a_position_survives_of_the_drafts_that_reach_it():
    times = {"draft_ms": 1.0, "verify_ms": 1.0, "reject_ms": 1.0, "tokens": 4, "total_ms": 3.0}
    rounds = [Round(4, 1, accepted=(2, 2), **times), Round(4, 2, accepted=(1, 1, 2), **times)]
    stats = SpeculativeStats([*rounds, Round(4, 0, accepted=(4,), **times)])
    assert stats.survival() == [5 / 8, 2 / 4]
    assert [r.gained for r in stats.rounds] == [4 + 2, 4 + 1 + 4, 4]


def test_times_are_of_the_rounds(pair):
    ids, mask = tiny.prompts(LENGTHS)
    stats = run(*pair, 3, ids, mask).stats
    for r in stats.rounds:
        assert min(r.draft_ms, r.verify_ms, r.reject_ms) > 0
        assert r.draft_ms + r.verify_ms + r.reject_ms <= r.total_ms * 1.001
        assert sum(r.accepted) == r.batch
    assert stats.decode_ms == pytest.approx(sum(r.total_ms for r in stats.rounds))
    assert 0 < stats.rejection_share < 1
    assert stats.prefill_ms > 0
    none = run(*pair, 0, ids, mask).stats
    with pytest.raises(ValueError, match="no data"):
        none.acceptance()


def test_a_cache_slot_is_a_position(pair):
    """After rounds of ragged acceptance the target's cache is, at live positions, that of the tokens themselves."""
    target, draft = pair
    ids, mask = tiny.prompts((5, 2, 4))
    batch = Batch(target, draft, ids, mask, 16, 3, None, None)
    with torch.inference_mode():
        batch.prefill(draft=True)
        for _ in range(3):
            drafts, q = batch.propose(3)
            accepted, _ = batch.accept(drafts, q, batch.verify(drafts))
            batch.advance(accepted.numpy())
        for row in range(3):
            live = int(batch.lengths[row]) - 1
            fresh = target(input_ids=batch.ids[row : row + 1, :live], use_cache=True).cache
            for layer, kept in zip(fresh.layers, batch.target.cache.layers, strict=True):
                assert torch.allclose(kept.keys[row, :, :live], layer.keys[0])
                assert torch.allclose(kept.values[row, :, :live], layer.values[0])
    assert len(set(batch.lengths.tolist())) > 1


@pytest.mark.gpu
@pytest.mark.parametrize("compile_draft", [False, True])
def test_on_a_gpu_too(compile_draft):
    target = tiny.qwen_moe().cuda()
    draft = tiny.disturbed(target.cpu(), 0.15).cuda()
    target = target.cuda()
    ids, mask = (tensor.cuda() for tensor in tiny.prompts(LENGTHS))
    expected = new_tokens(run(target, target, 0, ids, mask), ids)
    decoder = SpeculativeDecoder(target, draft, 4, compile_draft=compile_draft)
    for _ in range(2):  # a CUDA graph is recorded first, and replayed then
        assert new_tokens(decoder.generate(ids, mask, max_new_tokens=NEW, do_sample=False), ids) == expected
