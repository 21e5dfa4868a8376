"""Asking models: a local endpoint that fails first, resuming, hosts, reports and the command line."""

import hashlib
import json
import math
import threading
import time
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
    score_all,
)
from thrifty.evaluation.reasoning.hosts import lm_eval
from thrifty.evaluation.reasoning.hosts.rewards import reward_rows
from thrifty.evaluation.reasoning.runners.prompts import prompt
from thrifty.evaluation.reasoning.runners.run import read_completions


@pytest.fixture
def endpoint():
    """A server that knows every answer; what it is asked first, ``trouble`` decides."""
    problems = generate(6, 41)
    known = {f"Q: {problem.text}": problem.gold_trace for problem in problems}
    seen = SimpleNamespace(bodies=[], keys=[], problems=problems, trouble=[], most=0, now=0, wait=0.0, moved=[])
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                seen.bodies.append(body)
                seen.keys.append(self.headers.get("Authorization"))
                status, headers, text = seen.trouble.pop(0) if seen.trouble else (200, {}, None)
                seen.now += 1
                seen.most = max(seen.most, seen.now)
            time.sleep(seen.wait)
            if text is None:
                asked = [m["content"] for m in body["messages"] if m["role"] == "user" and m["content"] in known][-1]
                choice = {"message": {"content": known[asked]}, "finish_reason": "stop"}
                text = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 5}})
            with lock:
                seen.now -= 1
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self):
            seen.moved.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()

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
    caplog.set_level("DEBUG")
    endpoint.trouble = [(503, {}, ""), (429, {"Retry-After": "0"}, ""), (200, {}, "no JSON"), (200, {}, "{}")]
    model, out = EndpointModel("m", endpoint.url, wait=0.01, concurrency=2), tmp_path / "c.jsonl"
    run(endpoint.problems[:2], model, out)
    assert len(endpoint.bodies) == 6
    report = evaluate(endpoint.problems[:3], model, out)
    assert len(endpoint.bodies) == 7
    assert report.cells()[0]["accuracy"] == report.cells()[0]["efficiency"] == 1
    assert set(endpoint.keys) == {"Bearer sk-secret"}
    assert "sk-secret" not in out.read_text() + caplog.text + repr(vars(model))
    assert all(body["continue_final_message"] and body["temperature"] == 0 for body in endpoint.bodies)


def test_as_many_requests_are_under_way_as_were_asked_for(endpoint, tmp_path):
    endpoint.wait = 0.2
    run(endpoint.problems, EndpointModel("m", endpoint.url, concurrency=3), tmp_path / "c.jsonl")
    assert endpoint.most == 3


def test_a_server_that_stays_away_loses_nothing(endpoint, tmp_path):
    out = tmp_path / "c.jsonl"
    endpoint.trouble = [(200, {}, None), (200, {}, None), *[(500, {}, "")] * 2]
    with pytest.raises(RuntimeError, match="did not answer in 2 attempts: status 500"):
        run(endpoint.problems, EndpointModel("m", endpoint.url, wait=0.01, retries=1, concurrency=1), out)
    assert len(out.read_text().splitlines()) >= 2
    before = len(endpoint.bodies)
    missing = len(endpoint.problems) - len(out.read_text().splitlines())
    done = run(endpoint.problems, EndpointModel("m", endpoint.url, concurrency=1), out)
    assert [line["problem_id"] for line in done] == [problem.id for problem in endpoint.problems]
    assert len(endpoint.bodies) == before + missing


def test_another_model_length_or_prompt_is_another_completion(endpoint, tmp_path):
    out, (problem, *_) = tmp_path / "c.jsonl", endpoint.problems
    for name, options in (("m", {}), ("n", {}), ("n", {"max_tokens": 9}), ("n", {"max_tokens": 9, "k": 1}), ("m", {})):
        run([problem], EndpointModel(name, endpoint.url), out, **options)
    assert len(endpoint.bodies) == 4
    assert [line["model"] for line in read_completions(out)] == ["m", "n", "n", "n"]


def test_a_line_that_was_cut_off_is_asked_for_again(endpoint, tmp_path):
    out, model = tmp_path / "c.jsonl", EndpointModel("m", endpoint.url)
    run(endpoint.problems, model, out)
    whole = out.read_text().splitlines(keepends=True)
    for cut in ("", '{"problem', whole[-1][:-9], whole[-1][:-1]):
        out.write_text("".join(whole[:-1]) + cut)
        again = run(endpoint.problems, model, out)
        assert len(again) == len(read_completions(out)) == len(endpoint.problems)
        assert sorted(out.read_text().splitlines()) == sorted(line.rstrip() for line in whole)


def test_a_refusal_is_no_reason_to_try_again_and_tells_no_key(endpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    said = json.dumps({"error": {"message": "wrong key: sk-secret"}})
    endpoint.trouble = [(401, {}, said)] * 9
    with pytest.raises(RuntimeError, match=r"status 401: wrong key: \.\.\.$"):
        run(endpoint.problems[:1], EndpointModel("m", endpoint.url, wait=0.01), tmp_path / "c.jsonl")
    assert len(endpoint.bodies) == 1


def test_a_redirect_is_not_followed_with_the_key(endpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    endpoint.trouble = [(302, {"Location": endpoint.url.replace("127.0.0.1", "localhost")}, "")]
    with pytest.raises(RuntimeError, match="status 302"):
        run(endpoint.problems[:1], EndpointModel("m", endpoint.url, wait=0.01), tmp_path / "c.jsonl")
    assert endpoint.moved == []


def test_an_endpoint_without_prefill_is_asked_for_the_number_in_a_turn_of_its_own(endpoint, tmp_path):
    short = json.dumps({"choices": [{"message": {"content": "It is easy."}, "finish_reason": "stop"}]})
    number = json.dumps({"choices": [{"message": {"content": "7"}, "finish_reason": "stop"}]})
    endpoint.trouble = [(200, {}, short), (200, {}, number)]
    body = {"max_tokens": None, "max_completion_tokens": 99}
    model = EndpointModel("m", endpoint.url, prefill=False, body=body)
    (found,) = run(endpoint.problems[:1], model, tmp_path / "c.jsonl")
    assert found["completion"].endswith("the answer (arabic numerals) is 7")
    first, second = endpoint.bodies
    assert first["messages"][-1]["role"] == "user"
    assert [m["role"] for m in second["messages"][-2:]] == ["assistant", "user"]
    assert "It is easy." in second["messages"][-2]["content"]
    assert "max_tokens" not in first
    assert first["max_completion_tokens"] == 99


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


def test_the_command_line_from_problems_to_a_page(thrifty, tmp_path):
    data, out = tmp_path / "data", tmp_path / "c.jsonl"
    assert thrifty("reasoning", "generate", "--n", 2, "--cell", "base", "--out", data).code == 0
    assert hashlib.sha256((data / "problems.jsonl").read_bytes()).hexdigest() in (data / "README.md").read_text()
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
    labelled = tmp_path / "steps.jsonl"
    words = ["--problems", problems, "--completions", out, "--out", scores, "--steps", labelled]
    table = thrifty("reasoning", "score", *words)
    assert [step["label"] for step in json.loads(labelled.read_text().splitlines()[0])["steps"]] == ["other"]
    assert "| base | question | 2 | 1.000" in table.out
    assert len(Report.load(scores).lines) == 2
    page = tmp_path / "r.html"
    words = ["--scores", scores, "--problems", problems, "--completions", out, "--out", page]
    assert thrifty("reasoning", "report", *words).code == 0
    assert "inferences needed" in page.read_text()


def test_a_report_compares_conditions_pair_by_pair():
    cells = [("none", "none", "none"), *(("disconnected", "complex", f"{o}_overlap") for o in ("no", "entity"))]
    problems = [problem for cell in cells for problem in generate(4, 3, *cell)]
    base, without, shared = problems[:4], problems[4:8], problems[8:]
    said = {p.id: p.gold_trace for p in (*base, *without)} | {p.id: p.eager_trace for p in shared}
    said |= {without[0].id: "The answer is 0.", shared[0].id: "The answer is 0.", shared[1].id: "The answer is 0."}
    report = score_all(problems, said)
    assert [row["accuracy"] for row in report.cells()] == [1.0, 0.75, 0.5]
    assert [(row["drop"], row["n"]) for row in report.drops()] == [(0.25, 4), (0.5, 4)]
    assert report.drops(against="control") == []
    assert report.overlap_effect("precision").f > 1
    assert math.isnan(report.overlap_effect("precision", query="prove").f)
    assert report.cells()[0]["efficiency"] == report.cells()[1]["efficiency"] == 1 > report.cells()[2]["efficiency"]
    assert report.cells()[2]["no efficiency"] == 2


def test_a_program_is_proven_from_the_shell(thrifty, tmp_path):
    file = tmp_path / "p.txt"
    file.write_text("cont(Ada, fig) = 3. comp(Bo, Ada, fig) = 2. goal cont(Bo, fig) = ?")
    assert "shortest proof: 1 step;" in thrifty("reasoning", "prove", file).out
    assert "goal(V)" in thrifty("reasoning", "prove", file, "--to", "prolog").out
    file.write_text("cont(Ada, fig) = 3. goal cont(Bo, fig) = ?")
    assert thrifty("reasoning", "prove", file).code == 2


def test_a_proof_is_shown_in_colours():
    problem = generate(1, 41, "disconnected", "complex", "no_overlap")[0]
    page = proof_html(problem, problem.eager_trace)
    assert "(needed)" in page
    assert "(wasted)" in page
    assert "<del>" in page
