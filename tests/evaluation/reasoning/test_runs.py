"""Asking models: a local endpoint that fails first, resuming, hosts, reports and the command line."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from thrifty.evaluation.reasoning import (
    EndpointModel,
    ReasoningDataset,
    Report,
    VLLMModel,
    efficiency_reward,
    evaluate,
    generate,
    proof_html,
    run,
)
from thrifty.evaluation.reasoning.hosts import lm_eval
from thrifty.evaluation.reasoning.hosts.rewards import reward_rows
from thrifty.evaluation.reasoning.runners.prompts import prompt


@pytest.fixture
def endpoint():
    """A server that knows every answer, and fails the first request."""
    problems = generate(3, 41)
    known = {f"Q: {problem.text}": problem.gold_trace for problem in problems}
    seen = SimpleNamespace(calls=0, keys=[], problems=problems, status=503)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.calls += 1
            seen.keys.append(self.headers.get("Authorization"))
            if seen.calls == 1 or seen.status == 401:
                self.send_response(seen.status)
                self.end_headers()
                return
            asked = [message["content"] for message in body["messages"] if message["role"] == "user"][-1]
            choice = {"message": {"content": known[asked]}, "finish_reason": "stop"}
            reply = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    seen.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield seen
    server.shutdown()
    server.server_close()


def test_an_endpoint_is_asked_again_and_a_run_goes_on(endpoint, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    model, out = EndpointModel("m", endpoint.url, wait=0.01, concurrency=2), tmp_path / "c.jsonl"
    run(endpoint.problems[:2], model, out)
    assert endpoint.calls == 3
    report = evaluate(endpoint.problems, model, out)
    assert endpoint.calls == 4
    assert report.cells()[0]["accuracy"] == report.cells()[0]["efficiency"] == 1
    assert set(endpoint.keys) == {"Bearer sk-secret"}
    assert "sk-secret" not in out.read_text() + caplog.text + repr(vars(model))


def test_a_refusal_is_no_reason_to_try_again(endpoint, tmp_path):
    endpoint.status = 401
    with pytest.raises(RuntimeError, match="status 401"):
        run(endpoint.problems, EndpointModel("m", endpoint.url, wait=0.01, concurrency=1), tmp_path / "c.jsonl")


def test_vllm_is_given_messages_to_continue():
    def engine(path, **options):
        def chat(prompts, settings, **how):
            assert how == {"add_generation_prompt": False, "continue_final_message": True}
            first = SimpleNamespace(text="11", finish_reason="stop", token_ids=[1])
            return [SimpleNamespace(outputs=[first], prompt_token_ids=[1, 2]) for _ in prompts]

        return SimpleNamespace(chat=chat)

    problem = generate(1, 41)[0]
    model = VLLMModel("org/m", engine=engine)
    assert [found.text for _, found in model.complete([prompt(problem, [])], 9)] == ["11"]


def test_the_reward_prefers_the_shorter_of_two_right_proofs():
    problem = generate(1, 41, "disconnected", "complex", "no_overlap")[0]
    record = reward_rows([problem])[0]["problem"]
    chat = [
        [{"role": "assistant", "content": text}]
        for text in (problem.gold_trace, problem.eager_trace, "The answer is 0.")
    ]
    best, worse, nothing = efficiency_reward()(
        prompts=[""] * 3, completions=chat, problem=[record] * 3, trainer_state=None
    )
    assert best == 2 > worse > 1
    assert nothing == 0


def test_a_dataset_item_is_the_problem_that_generate_has_there():
    data = ReasoningDataset(3, seed=41)
    assert [item["question"] for item in data] == [problem.text for problem in generate(3, 41)]
    assert data.score_answer(data[1]["metadata"]["gold_trace"], data[1]) == 1
    assert data.score_answer(f"The answer is {data[1]['answer']}", data[1]) == 0.5


def test_the_harness_functions_score_a_document():
    problem = generate(1, 41)[0]
    doc = {"question": problem.text, "gold": problem.gold_trace, "record": json.dumps(problem.to_record())}
    assert lm_eval.process_results(doc, [problem.gold_trace])["efficiency"] == 1
    assert lm_eval.mean_of_known([1.0, float("nan")]) == 1
    assert (lm_eval.task_folder() / "proof_efficiency.yaml").exists()


def test_the_inspect_task_runs_with_its_mock_model(tmp_path):
    inspect_ai = pytest.importorskip("inspect_ai")
    from thrifty.evaluation.reasoning.hosts.inspect_task import proof_efficiency

    (log,) = inspect_ai.eval(proof_efficiency(n=1), model="mockllm/model", log_dir=str(tmp_path), display="none")
    assert log.status == "success"


def test_the_command_line_from_problems_to_a_page(thrifty, tmp_path):
    data, out = tmp_path / "data", tmp_path / "c.jsonl"
    assert thrifty("reasoning", "generate", "--n", 2, "--cell", "base", "--out", data).code == 0
    assert "SHA-256" in (data / "README.md").read_text()
    assert thrifty("reasoning", "generate", "--n", 2, "--cell", "base", "--out", data).code == 2
    problems = data / "problems.jsonl"
    lines = [json.loads(line) for line in problems.read_text().splitlines()]
    out.write_text(
        "".join(json.dumps({"problem_id": p["id"], "completion": f"The answer is {p['answer']}"}) + "\n" for p in lines)
    )
    told = thrifty(
        "reasoning", "run", "--problems", problems, "--model", "m", "--out", out, "--price-in", 1, "--dry-run"
    )
    assert "2 prompts" in told.err
    assert "$" in told.err
    scores = tmp_path / "s.jsonl"
    table = thrifty("reasoning", "score", "--problems", problems, "--completions", out, "--out", scores)
    assert "| base | question | 2 | 1.000" in table.out
    assert len(Report.load(scores).lines) == 2
    page = tmp_path / "r.html"
    words = ["--scores", scores, "--problems", problems, "--completions", out, "--out", page]
    assert thrifty("reasoning", "report", *words).code == 0
    assert "inferences needed" in page.read_text()


def test_a_program_is_proven_from_the_shell(thrifty, tmp_path):
    file = tmp_path / "p.txt"
    file.write_text("cont(Ada, fig) = 3. comp(Bo, Ada, fig) = 2. goal cont(Bo, fig) = ?")
    assert "shortest proof: 1 steps" in thrifty("reasoning", "prove", file).out
    assert "goal(V)" in thrifty("reasoning", "prove", file, "--to", "prolog").out
    file.write_text("cont(Ada, fig) = 3. goal cont(Bo, fig) = ?")
    assert thrifty("reasoning", "prove", file).code == 2


def test_a_proof_is_shown_in_colours():
    problem = generate(1, 41, "disconnected", "complex", "no_overlap")[0]
    page = proof_html(problem, problem.eager_trace)
    assert "(needed)" in page
    assert "(wasted)" in page
    assert "<del>" in page
