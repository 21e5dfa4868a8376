"""The command line from measurement to schedule, its one-line errors, and the adviser's prediction."""

import json
import subprocess
import sys
from functools import partialmethod

import pytest
import torch
import typer

from thrifty._common.ledger import Resource, Workload
from thrifty.inference.speculation import Acceptance, Row, SpeculationModel
from thrifty.inference.speculation.cli import app
from thrifty.inference.speculation.cost import predict
from thrifty.inference.speculation.fit_result import FitResult
from thrifty.inference.speculation.rows import append_row, read_rows

TRUE = SpeculationModel(32, 4, 20.0, 1.05, 2.0, 0.05, 0.3, 0.1, 0.4, 0.01, 0.05, 0.001)
PRIOR = ["--config", "qwen2-57b-a14b", "--draft-config", "qwen2-0.5b", "--hardware", "a800", "--gpus", "2"]


@pytest.fixture
def run(capsys):
    command = typer.main.get_command(app)

    def call(*words):
        command.main(args=[str(word) for word in words], standalone_mode=False)
        found = capsys.readouterr()
        return found.out, found.err

    return call


@pytest.fixture
def rows_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    acceptance = Acceptance.from_rate(0.8)
    for batch in (1, 2, 4, 8, 16, 32, 64, 128):
        for gamma in (1, 3):
            append_row(
                path,
                Row(
                    batch, gamma, 32, 4, float(acceptance.sigma(gamma)), float(TRUE.speedup(batch, gamma, acceptance)),
                    float(TRUE.target_time(batch)), float(TRUE.target_time(batch, gamma + 1)),
                    float(TRUE.draft_time(batch)), float(TRUE.reject_time(batch)),
                ),
            )  # fmt: skip
    return path


def test_from_rows_to_a_schedule(run, rows_file, tmp_path, monkeypatch):
    monkeypatch.setattr(FitResult, "bands", partialmethod(FitResult.bands, refits=5))  # a hundred take seconds
    model = tmp_path / "model.json"
    out, err = run("fit", rows_file, "--out", model)
    assert "expert_load" in out
    assert "wrote" in err
    shown = json.loads(run("fit", rows_file, "--json")[0])
    assert shown["parameters"]["bias"] == pytest.approx(2.0, rel=0.01)
    assert shown["bands"] == []
    (band,) = (b for b in json.loads(run("fit", rows_file, "--alpha", "0.8", "--json")[0])["bands"] if b["batch"] == 16)
    truth = float(TRUE.speedup(16, 4, Acceptance.from_rate(0.8)))
    assert band["low"] <= band["speedup"] * 1.001
    assert band["speedup"] == pytest.approx(truth, rel=1e-3)
    assert band["speedup"] <= band["high"] * 1.001
    assert "speed-up, 2 drafts" in run("fit", rows_file, "--alpha", "0.8", "--at", "2")[0]
    with pytest.raises(FileExistsError):
        run("fit", rows_file, "--out", model)
    out, _ = run("predict", model, "--batch", "8,512", "--gamma", "3", "--alpha", "0.8", "--json")
    first, second = json.loads(out)["rows"]
    assert first["speedup"] == pytest.approx(float(TRUE.speedup(8, 3, Acceptance.from_rate(0.8))), rel=0.01)
    assert (first["extrapolated"], second["extrapolated"]) == (False, True)
    out, _ = run("predict", model, "--batch", "8,512", "--alpha", "0.8")
    assert "512 *" in out
    for verb in ("predict", "recommend"):
        assert "--context changes nothing" in run(verb, model, "--alpha", "0.8", "--context", "4096")[1]
    assert "extrapolated" in out
    vllm = json.loads(run("recommend", model, "--alpha", "0.8", "--format", "vllm", "--max-batch", "64")[0])
    table = vllm["num_speculative_tokens_per_batch_size"]
    assert table[0][0] == 1
    assert table[-1][1] == 64
    assert vllm["num_speculative_tokens"] == max(row[2] for row in table)
    out, err = run("recommend", model, "--alpha", "0.8", "--format", "sglang", "--max-batch", "64")
    assert json.loads(out)["1"] == {"candidate_steps": [table[0][2]]}
    assert "--speculative-adaptive-config" in err
    assert json.loads(run("recommend", model, "--alpha", "0.8", "--format", "json")[0])["entries"][0]["first"] == 1
    assert "draft tokens" in run("recommend", model, "--alpha", "0.8")[0]
    run("plot", model, "--alpha", "0.8", "--rows", rows_file, "--gamma", "1,3", "--out", tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text().startswith("<?xml")
    passes = tmp_path / "passes.csv"
    passes.write_text("batch_size,t_ar_ms\n1,2.0\n")
    _, err = run("plot", model, "--alpha", "0.8", "--rows", passes, "--out", tmp_path / "plot2.svg")
    assert "no points are drawn" in err


def test_without_a_measurement_there_is_a_prior(run):
    out, _ = run("predict", *PRIOR, "--sigma", "0.9", "--batch", "1,16")
    assert "prior, not fitted" in out
    assert "*" not in out
    _, err = run("predict", "--config", "gpt-oss-20b", *PRIOR[2:], "--sigma", "0.9", "--context", "4096")
    assert "gpt-oss-20b: weights of 2, experts of 0.53125 bytes" in err
    assert "changes nothing" not in err
    _, err = run("recommend", *PRIOR, "--sigma", "0.9", "--at", "4")
    assert "nothing was measured" in err
    assert "cost nothing" not in err


def test_a_prior_without_a_draft_says_that_drafts_are_free_in_it(run):
    out, err = run("recommend", "--config", "deepseek-v3", "--hardware", "h200", "--gpus", "8", "--alpha", "0.7")
    assert "drafts cost nothing in this model: no draft was measured or named" in err
    assert "where less than 3% is gained" in err  # 1.70 tokens for 1.67 steps is a gain, but a small one
    assert "rises with the batch" in err
    assert "1 to 1" in out


def test_speculation_that_will_not_help_is_warned_of(run):
    heavy = ["--config", "qwen3-30b-a3b", "--draft-config", "mixtral-8x7b", "--hardware", "h100", "--alpha", "0.7"]
    _, err = run("recommend", *heavy, "--max-batch", "16")
    assert "off at batch 1 to 16" in err
    with pytest.raises(ValueError, match="pays at no batch size"):
        run("recommend", *heavy, "--max-batch", "16", "--format", "vllm")


def test_vllm_results_are_fitted(run, tmp_path):
    acceptance, paths = Acceptance.from_rate(0.8), []
    counts = {"spec_decode_num_drafts": 1000}
    for batch in (1, 2, 4, 8, 16, 32):
        plain = float(TRUE.target_time(batch))
        record = {"max_concurrency": batch, "mean_tpot_ms": plain, "output_throughput": 1e3 * batch / plain}
        paths.append(tmp_path / f"plain{batch}.json")
        paths[-1].write_text(json.dumps(record))
        for gamma in (2, 4):
            accepted = 1000 * (float(acceptance.expected_tokens(gamma)) - 1)
            faster = plain / float(TRUE.speedup(batch, gamma, acceptance))
            counts |= {"spec_decode_draft_tokens": 1000 * gamma, "spec_decode_accepted_tokens": accepted}
            paths.append(tmp_path / f"sd{batch}-{gamma}.json")
            paths[-1].write_text(json.dumps(record | counts | {"mean_tpot_ms": faster}))
    device = tmp_path / "device.json"
    device.write_text(json.dumps({"tflops": 0.04, "tb_per_s": 0.001}))
    fields = {
        "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
        "vocab_size": 16_000, "num_attention_heads": 4, "num_key_value_heads": 4, "num_local_experts": 32,
        "num_experts_per_tok": 4,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(fields))
    out, _ = run("fit", *paths, "--config", tmp_path / "config.json", "--hardware", device, "--json")
    assert json.loads(out)["objective"] == "speedup"
    assert json.loads(out)["rmse"] < 0.2


def test_a_model_is_measured_batch_by_batch_and_resumed(run, tmp_path, capsys):
    fields = {
        "model_type": "qwen3_moe", "hidden_size": 32, "intermediate_size": 32, "moe_intermediate_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 4,
        "num_experts_per_tok": 2, "vocab_size": 64,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(fields))
    rows = tmp_path / "rows.jsonl"
    words = ("measure", tmp_path, "--random", "--out", rows, "--repeats", "1", "--precision", "fp32")

    def measured(batch, tokens, context="4"):
        _, err = run(*words, "--batch", batch, "--tokens", tokens, "--context", context)
        return err, [(row.batch_size, row.verify_tokens, row.context) for row in read_rows(rows)]

    rows.touch()  # a file that an interruption left empty
    first = [(1, 1, 4), (1, 2, 4)]
    assert measured("1", "1,2")[1] == first
    err, found = measured("1,2", "1,2")
    assert "batch 2" in err
    assert "batch 1\n" not in err
    assert found == [*first, (2, 1, 4), (2, 2, 4)]
    # Half a batch, and half a line: what is missing is measured, and nothing else.
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:3]) + '{"batch_size": 2, "gam')
    assert measured("1,2", "1,2")[1] == found
    assert measured("1", "1,3")[1] == [*found, (1, 3, 4)]
    assert measured("1", "1", "8")[1] == [*found, (1, 3, 4), (1, 1, 8)]
    where = f"cpu, fp32, {torch.get_num_threads()} threads, grouped_mm, random tokens"
    assert {row.hardware for row in read_rows(rows)} == {where}
    with pytest.raises(ValueError, match="--draft"):
        run(*words, "--batch", "1", "--gamma", "2")
    both = tmp_path / "both.jsonl"
    more = ("--draft", tmp_path, "--out", both, "--tokens", "3", "--new-tokens", "12", "--context", "4")
    for lengths in ("2", "2,3"):
        run(*words[:3], *words[5:], *more, "--batch", "1,2", "--gamma", lengths)
    of_generations = [row for row in read_rows(both) if row.speedup]
    assert sorted((row.batch_size, row.gamma) for row in of_generations) == [(1, 2), (1, 3), (2, 2), (2, 3)]
    assert all(row.sigma and row.t_draft_ms and row.context == 4 for row in of_generations)
    assert len(read_rows(both)) == 4 + 4
    before = rows.read_text()
    for more in (("--draft", tmp_path), ("--experts", "eager")):
        with pytest.raises(ValueError, match="another file"):
            run(*words, *more, "--batch", "1")
    for wrong in ("rows.csv", "nowhere/rows.jsonl"):
        with pytest.raises(ValueError, match=r"ends in \.jsonl, in a folder that exists"):
            run("measure", tmp_path, "--random", "--out", tmp_path / wrong)
    fresh = ("--out", tmp_path / "fresh.jsonl", "--batch", "4")
    with pytest.raises(ValueError, match="target: expected a folder"):
        run("measure", tmp_path / "nowhere", *fresh)
    with pytest.raises(ValueError, match=r"config: .*nodraft"):
        run("measure", tmp_path, "--random", "--draft", "nodraft", *fresh)
    with pytest.raises(ValueError, match="precision"):
        run("measure", tmp_path, "--random", *fresh, "--precision", "fp99")
    assert rows.read_text() == before


def test_acceptance_of_a_log(run, tmp_path):
    path = tmp_path / "server.log"
    path.write_text(
        "SpecDecoding metrics: Mean acceptance length: 2.80, Per-position acceptance rate: 0.800, 0.600, 0.400\n"
    )
    found = json.loads(run("acceptance", path, "--json")[0])
    assert found["acceptance_length"] == pytest.approx(2.8)
    assert "0.8000, 0.6000, 0.4000" in run("acceptance", path)[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", *PRIOR], "expected one of --alpha"),
        (["predict", *PRIOR, "--alpha", "0.5", "--sigma", "0.9"], "--alpha and --sigma"),
        (["predict", "--alpha", "0.5"], "--config and --hardware"),
        (["recommend", *PRIOR, "--sigma", "0.9"], "at: expected the draft length at which --sigma was seen"),
        (["predict", *PRIOR, "--accept-rate", "58"], "per cent"),
        (["predict", *PRIOR, "--alpha", "0.5", "--batch", "1,x"], "whole numbers"),
        (["predict", *PRIOR, "--alpha", "0.5", "--batch", "0"], "at least 1"),
        (["recommend", *PRIOR, "--alpha", "0.5", "--format", "xml"], "format"),
        (["plot", *PRIOR, "--alpha", "0.5", "--out", "plot.gif"], r"\.png or \.svg"),
        (["acceptance", "nowhere.log"], "nowhere.log"),
    ],
)
def test_errors_say_what_would_do(run, words, message):
    with pytest.raises((ValueError, OSError), match=message):
        run(*words)


def test_a_model_and_a_config_exclude_each_other(run, tmp_path):
    TRUE.save(tmp_path / "model.json")
    with pytest.raises(ValueError, match="got both"):
        run("predict", tmp_path / "model.json", *PRIOR, "--alpha", "0.5")


FACTS = {"model": "qwen3-30b-a3b", "draft": "qwen3-0.6b", "hardware": "h100", "tokens": 1e6, "batch": 64}


def test_the_adviser_is_told_seconds_and_bytes():
    delta = predict(Workload("language-model serving", FACTS))
    assert delta.applies
    assert delta.total(Resource.SECONDS) < 0
    assert delta.total(Resource.WEIGHTS) == pytest.approx(2 * 596_049_920, rel=1e-3)
    better = predict(Workload("language-model serving", FACTS | {"alpha": 0.9}))
    assert better.total(Resource.SECONDS) < delta.total(Resource.SECONDS)


def test_the_adviser_is_told_where_it_does_not_apply():
    assert not predict(Workload("tabular classification", {})).applies
    useless = predict(Workload("language-model serving", FACTS | {"alpha": 0.0}))
    assert not useless.applies
    assert "does not pay" in useless.preconditions[0]
    with pytest.raises(ValueError, match="hardware"):
        predict(Workload("language-model serving", {k: v for k, v in FACTS.items() if k != "hardware"}))


def test_prediction_and_import_are_light():
    script = (
        "import sys; from thrifty.inference.speculation.cost import predict; import thrifty.inference.speculation;"
        "print([m for m in ('torch', 'transformers', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
