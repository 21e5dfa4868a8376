"""vLLM's, SGLang's and TensorRT-LLM's own outputs."""

import http.server
import json
import logging
import threading
from typing import ClassVar

import pytest

from thrifty.inference.speculation.engines import (
    Counters,
    acceptance_of_log,
    read_metrics,
    read_sglang_bench,
    read_specforge,
    read_vllm_bench,
    scrape_acceptance,
)

PAGE = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 200.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 160.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 90.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 70.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 70.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="1"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 40.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="2"} 40.0
"""


def bench(concurrency, tpot, throughput, **more):
    return {
        "model_id": "m", "max_concurrency": concurrency, "output_throughput": throughput, "mean_tpot_ms": tpot, **more,
    }  # fmt: skip


def drafting(concurrency, tpot, throughput, *, itl=None):
    counts = {
        "spec_decode_acceptance_rate": 60.0, "spec_decode_acceptance_length": 2.8, "spec_decode_num_drafts": 1000,
        "spec_decode_draft_tokens": 3000, "spec_decode_accepted_tokens": 1800,
        "spec_decode_per_position_acceptance_rates": [0.8, 0.6, 0.4],
    }  # fmt: skip
    return bench(concurrency, tpot, throughput, mean_itl_ms=itl or tpot * 2.8, **counts)


def test_vllm_results_are_paired_by_concurrency(tmp_path, caplog):
    paths = []
    for name, record in {
        "plain1": bench(1, 10.0, 95.0), "plain16": bench(16, 20.0, 700.0),
        "sd1": drafting(1, 8.0, 120.0), "sd16": drafting(16, 10.0, 1300.0, itl=20.0),
    }.items():  # fmt: skip
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(record))
    with caplog.at_level(logging.WARNING):
        one, sixteen = read_vllm_bench(paths, num_experts=64, top_k=8)
    assert (one.batch_size, one.gamma, one.num_experts, one.top_k) == (1, 3, 64, 8)
    assert one.speedup == pytest.approx(1.25)
    assert one.sigma == pytest.approx(2.8 / 4)
    assert one.t_ar_ms == 10
    assert sixteen.speedup == pytest.approx(2.0)
    assert "not saturated" in caplog.text
    assert "sd16" in caplog.text
    assert "sd1.json" not in caplog.text
    assert read_vllm_bench(paths, metric="throughput")[1].speedup == pytest.approx(1300 / 700)
    with pytest.raises(ValueError, match="max_concurrency 1"):
        read_vllm_bench(paths[1:])
    with pytest.raises(ValueError, match="none of the results"):
        read_vllm_bench(paths[:2])
    with pytest.raises(ValueError, match="metric"):
        read_vllm_bench(paths, metric="itl")
    paths[0].write_text("[]")
    with pytest.raises(ValueError, match="expected an object"):
        read_vllm_bench(paths)
    paths[0].write_text(json.dumps(bench(1, None, 95.0)))
    with pytest.raises(ValueError, match="mean_tpot_ms"):
        read_vllm_bench(paths)


def test_sglang_results(tmp_path):
    path = tmp_path / "bench.jsonl"
    lines = [bench(4, 10.0, 100.0, accept_length=None), bench(4, 5.0, 190.0, accept_length=3.0)]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    (row,) = read_sglang_bench([path], gamma=4)
    assert (row.batch_size, row.gamma, row.speedup) == (4, 4, pytest.approx(2.0))
    assert row.sigma == pytest.approx(0.6)


def test_repeats_of_plain_runs_are_averaged_and_strange_pairs_are_refused(tmp_path):
    def read(*records):
        paths = [tmp_path / f"{number}.json" for number in range(len(records))]
        for path, record in zip(paths, records, strict=True):
            path.write_text(json.dumps(record))
        return read_vllm_bench(paths)

    plain, faster = bench(4, 10.0, 95.0), drafting(4, 8.0, 120.0)
    (row,) = read(plain, bench(4, 14.0, 90.0), faster)
    assert (row.t_ar_ms, row.speedup) == (12, pytest.approx(1.5))
    for change, message in (
        ({"spec_decode_num_drafts": 0, "spec_decode_draft_tokens": 0}, "nothing was drafted"),
        ({"spec_decode_accepted_tokens": 4000}, "at most 3000 accepted"),
        ({"model_id": "another"}, "no pair"),
    ):
        with pytest.raises(ValueError, match=message):
            read(plain, faster | change)


def test_requests_of_other_lengths_are_no_pair(tmp_path, caplog):
    sizes = {"completed": 10, "total_output_tokens": 1000}
    for name, record, read in (
        ("plain.json", bench(4, 10.0, 95.0), 10240),
        ("sd.json", drafting(4, 8.0, 120.0), 20480),
    ):
        (tmp_path / name).write_text(json.dumps(record | sizes | {"total_input_tokens": read}))
    with caplog.at_level(logging.WARNING):
        read_vllm_bench([tmp_path / "plain.json", tmp_path / "sd.json"])
    assert "input tokens of a request are 2048, in" in caplog.text
    assert "1024: their contexts differ" in caplog.text
    assert "output tokens" not in caplog.text


def test_a_restarted_server_counts_from_nothing_whatever_it_counts():
    after = Counters(drafted=10, accepted=5)  # TensorRT-LLM counts no rounds
    assert after.since(Counters(drafted=100, accepted=3)) == after
    assert after.since(Counters(drafted=3, accepted=60)) == after
    assert after.since(Counters(drafted=4, accepted=1)) == Counters(drafted=6, accepted=4)


def test_a_broken_line_of_sglang_is_named(tmp_path):
    path = tmp_path / "bench.jsonl"
    path.write_text(json.dumps(bench(4, 10.0, 100.0)) + "\n{accept\n")
    with pytest.raises(ValueError, match=r"bench\.jsonl, line 2: expected JSON"):
        read_sglang_bench([path], gamma=4)


def test_lines_of_a_log_weigh_what_they_drafted():
    line = "SpecDecoding metrics: Mean acceptance length: {}, Drafted: {} tokens, Per-position acceptance rate: {}, {}"
    text = f"{line.format(2.5, 40000, 0.9, 0.6)}\n2026-11-30 12:00 {line.format(1.0, 10, 0.0, 0.0)}\n1 more line\n"
    assert acceptance_of_log(text).survival == pytest.approx((0.9, 0.6), abs=1e-3)


def test_specforge_tables(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(
        "batch_size,steps,topk,num_draft_tokens,throughput,accept_length\n1,0,1,1,100,1\n1,3,1,4,180,2.4\n8,0,1,1,500,1\n8,3,1,4,600,2.4\n"
    )
    one, eight = read_specforge(path)
    assert (one.gamma, one.speedup, one.sigma) == (3, pytest.approx(1.8), pytest.approx(0.6))
    assert eight.speedup == pytest.approx(1.2)
    path.write_text("batch_size,steps,topk,throughput,accept_length\n1,0,1,100,1\n1,3,4,180,2.4\n")
    with pytest.raises(ValueError, match="trees"):
        read_specforge(path)
    path.write_text("batch_size,steps\n1,0\n")
    with pytest.raises(ValueError, match="missing columns"):
        read_specforge(path)
    path.write_text("batch_size,steps,throughput,accept_length\n1,3,180,2.4\n")
    with pytest.raises(ValueError, match="no row without"):
        read_specforge(path)


def test_counters_of_all_engines_add_up_and_are_subtracted():
    after = read_metrics(PAGE)
    assert (after.drafts, after.drafted, after.accepted) == (200, 600, 360)
    assert after.acceptance().curve(3) == pytest.approx([0.8, 0.6, 0.4])
    before = Counters(100, 300, 160, {0: 80.0, 1: 50.0, 2: 30.0})
    assert after.since(before).acceptance().curve(3) == pytest.approx([0.8, 0.7, 0.5])
    assert read_metrics(PAGE.replace("_total{", "{")) == after  # older names


def test_a_restarted_server_counts_from_nothing():
    after = read_metrics(PAGE)
    assert after.since(Counters(10_000, 30_000, 20_000)) == after


def test_nothing_drafted_is_no_data_and_not_zero():
    after = read_metrics(PAGE)
    with pytest.raises(ValueError, match="no data"):
        after.since(after).acceptance()
    with pytest.raises(ValueError, match="got none"):
        read_metrics("process_cpu_seconds_total 3\n")


def test_sglang_gauges_and_tensorrt_counters():
    gauge = read_metrics('sglang:spec_accept_length{model_name="m"} 2.5\nsglang:spec_accept_rate 0.5\n')
    assert gauge.acceptance(gamma=3).expected_tokens(3) == pytest.approx(2.5)
    with pytest.raises(ValueError, match="gamma"):
        gauge.acceptance()
    with pytest.raises(ValueError, match="no data"):
        read_metrics("sglang:spec_accept_length 0.0\n").acceptance(3)
    trt = read_metrics(
        "trtllm_spec_decode_num_draft_tokens_total 400\ntrtllm_spec_decode_num_accepted_tokens_total 200\n"
    )
    assert trt.acceptance(gamma=4).expected_tokens(4) == pytest.approx(3.0)


class _Server(http.server.BaseHTTPRequestHandler):
    pages: ClassVar[list[str]] = []

    def do_GET(self):
        body = self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(pages):
        handler = type("Handler", (_Server,), {"pages": list(pages)})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_live_server_is_read_twice(serve):
    earlier = PAGE
    for after, before in ((100, 60), (300, 180), (200, 130), (160, 100), (90, 56), (70, 44), (50, 28), (40, 23)):
        earlier = earlier.replace(f" {after}.0", f" {before}.0")
    found = scrape_acceptance(serve([earlier, PAGE]), seconds=0.01)
    assert found.curve(3) == pytest.approx([(160 - 100) / 80, (120 - 72) / 80, (80 - 46) / 80])
    sglang = serve([json.dumps({"internal_states": [{"avg_spec_accept_length": 2.5}], "speculative_num_steps": 3})])
    assert scrape_acceptance(f"{sglang}/server_info").expected_tokens(3) == pytest.approx(2.5)
    assert len(scrape_acceptance(f"{sglang}/server_info").survival) == 3  # known up to the server's own length
    silent = serve([json.dumps({"internal_states": [{}]})])
    with pytest.raises(ValueError, match="no data"):
        scrape_acceptance(f"{silent}/server_info")
    gauges = serve(["sglang:spec_accept_length 2.5\n"])
    assert scrape_acceptance(f"{gauges}/metrics", gamma=3, seconds=0).expected_tokens(3) == pytest.approx(2.5)


def test_a_server_that_does_not_answer():
    with pytest.raises(OSError, match="cannot be read"):
        scrape_acceptance("http://127.0.0.1:9", seconds=0, timeout=1)
    with pytest.raises(ValueError, match="url"):
        scrape_acceptance("localhost:8000")


def test_logs():
    line = (
        "INFO 11-30 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.80, Accepted throughput: 18.0 "
        "tokens/s, Per-position acceptance rate: 0.800, 0.600, 0.400, Avg Draft acceptance rate: 60.0%\n"
    )
    assert acceptance_of_log(line * 3).curve(3) == pytest.approx([0.8, 0.6, 0.4])
    with pytest.raises(ValueError, match="no data"):
        acceptance_of_log("nothing here")
