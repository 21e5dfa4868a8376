"""Hosts for real: TRL's GRPO, a Transformers model through a run, and the harnesses where they are installed."""

import json
import math

import pytest

from thrifty.evaluation.reasoning import TransformersModel, efficiency_reward, evaluate, generate
from thrifty.evaluation.reasoning.hosts.rewards import reward_rows
from thrifty.evaluation.reasoning.runners.prompts import prompt


@pytest.fixture(scope="module")
def tiny():
    """A Llama of some thousand weights, and a tokenizer that knows the words of a few problems."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    problems = generate(4, 41)
    texts = [f"{problem.text} {problem.eager_trace}" for problem in problems]
    split = pre_tokenizers.Whitespace()
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text)})
    special = ["<pad>", "<unk>", "<end>"]
    core = Tokenizer(models.WordLevel({word: at for at, word in enumerate([*special, *words])}, unk_token="<unk>"))
    core.pre_tokenizer = split
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", unk_token="<unk>", eos_token="<end>"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        pad_token_id=0, eos_token_id=2, bos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config).eval()
    return model, tokenizer, problems


def test_a_transformers_model_is_run_scored_and_never_asked_twice(tiny, tmp_path):
    model, tokenizer, problems = tiny
    asked = TransformersModel(model, tokenizer, name="tiny")
    calls = []
    asked.model.register_forward_hook(lambda *_: calls.append(1))
    report = evaluate(problems[:2], asked, tmp_path / "c.jsonl", k=1, max_tokens=8)
    first = len(calls)
    assert first > 0
    again = evaluate(problems[:2], asked, tmp_path / "c.jsonl", k=1, max_tokens=8)
    assert len(calls) == first
    assert again.cells()[0]["accuracy"] == report.cells()[0]["accuracy"]
    lines = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()]
    assert all(line["tokens_in"] > 50 and 0 < line["tokens_out"] <= 8 for line in lines)
    assert {line["finish_reason"] for line in lines} <= {"length", "stop"}


def test_prompts_in_a_batch_are_answered_as_they_are_alone(tiny):
    model, tokenizer, problems = tiny
    prompts = [prompt(problem, problems[:at]) for at, problem in enumerate(problems)]
    alone, together = (list(TransformersModel(model, tokenizer, batch=batch).complete(prompts, 6)) for batch in (1, 3))
    assert [at for at, _ in together] == [0, 1, 2, 3]
    assert together == alone
    assert len({found.prompt_tokens for _, found in alone}) > 1


@pytest.mark.slow
@pytest.mark.ci
def test_grpo_trains_with_the_reward(tiny, tmp_path):
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    model, tokenizer, problems = tiny
    seen = []
    reward = efficiency_reward()

    def told(**given):
        seen.append(reward(**given))
        return seen[-1]

    told.__name__ = "efficiency_reward"
    settings = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, num_generations=2,
        max_completion_length=8, report_to=[], save_strategy="no", use_cpu=True, logging_steps=1, seed=0,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=model, reward_funcs=[told], args=settings, processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(reward_rows(problems)),
    )  # fmt: skip
    trainer.train()
    assert len(seen) >= 2
    assert all(isinstance(worth, float) and math.isfinite(worth) for worths in seen for worth in worths)
    logged = [entry for entry in trainer.state.log_history if "rewards/efficiency_reward/mean" in entry]
    assert len(logged) == 2


def test_inspect_scores_what_its_mock_model_says(tmp_path):
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    problems = generate(2, 0, "disconnected", "complex", "agent_entity_overlap")
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in (problems[0].gold_trace, "I do not know.")]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it fetches a tokenizer
    (log,) = inspect_ai.eval(
        "thrifty/proof_efficiency", model=get_model("mockllm/model", custom_outputs=outputs),
        task_args={"n": 2, "k": 1}, log_dir=str(tmp_path), display="none", max_connections=1,
    )  # fmt: skip
    assert log.status == "success"
    found = {scored.name: next(iter(scored.metrics.values())).value for scored in log.results.scores}
    assert found["correct"] == 0.5
    assert found["efficiency"] == found["precision"] == 1


def test_the_harness_runs_the_task_of_its_folder():
    lm_eval = pytest.importorskip("lm_eval")
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    from thrifty.evaluation.reasoning.hosts.lm_eval import task_folder

    asked = []

    class Knowing(LM):
        def loglikelihood(self, requests):
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

        def generate_until(self, requests, **_):
            asked.extend([request.args[0] for request in requests])
            return [request.doc["gold"] for request in requests]

    tasks = TaskManager(include_path=str(task_folder()), include_defaults=False, metadata={"n": 3, "amount": "simple"})
    found = lm_eval.simple_evaluate(model=Knowing(), tasks=["proof_efficiency"], task_manager=tasks)
    (results,) = found["results"].values()
    assert results["sample_len"] == 3
    assert results["correct,none"] == results["efficiency,none"] == 1
    assert {text.count("Q:") for text in asked} == {6}
