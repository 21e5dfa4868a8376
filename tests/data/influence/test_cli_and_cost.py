"""The command on files, and the cost model on the published figures."""

import json

import pytest
from influence_ground import command_folder, pool

from thrifty._common.ledger import Resource, Workload
from thrifty.data.influence import cost


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return command_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def call(thrifty):
    def run(folder, verb, *more):
        data = "--data", folder / "pool.jsonl", "--target", folder / "dev.jsonl"
        return thrifty("influence", verb, folder, *data, "--warmup-steps", 2, *more)

    return run


def test_select_writes_rows_and_prints_the_cost_first(folder, tmp_path, call):
    out = tmp_path / "sel.jsonl"
    arguments = ["-k", 6, "--out", out, "--num-landmarks", 12, "--num-blocks", 2, "--store", tmp_path / "store"]
    ran = call(folder, "select", *arguments)
    assert ran.code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 6
    assert all(row["id"] == f"r{row['influence_index']}" for row in rows)
    assert sum(row["influence_weight"] for row in rows) == pytest.approx(6, rel=1e-5)
    lines = ran.err.splitlines()
    first = next(i for i, line in enumerate(lines) if "backward passes instead of 34" in line)
    assert first < next(i for i, line in enumerate(lines) if line.startswith("embeddings"))
    assert "16 backward passes" in lines[first]
    assert ran.out.strip().endswith(f"6 of 30 examples: {out}")
    again = call(folder, "select", *arguments)
    assert again.code == 2
    assert "already exists" in again.err
    forced = call(folder, "select", *arguments, "--force")
    assert forced.code == 0
    assert "0 backward passes; propagation is" in forced.err
    assert [json.loads(line) for line in out.read_text().splitlines()] == rows


@pytest.mark.parametrize("method", ["exact", "less", "rds+", "mid-perplexity", "random"])
def test_other_methods(folder, tmp_path, method, call):
    assert call(folder, "select", "-k", 5, "--out", tmp_path / "o.jsonl", "--method", method).code == 0
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 5


def test_a_run_that_saves_nothing_says_so(folder, tmp_path, call):
    ran = call(folder, "select", "-k", 5, "--out", tmp_path / "o.jsonl", "--num-landmarks", 30)
    assert ran.code == 0
    assert "every example is a landmark, so that nothing is saved" in ran.err


def test_an_output_that_cannot_be_written_is_said_first(folder, tmp_path, call):
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file" / "o.jsonl"):
        ran = call(folder, "select", "-k", 5, "--out", out, "--force")
        assert ran.code == 2
        assert "cannot be written" in ran.err
        assert "backward passes" not in ran.err


def test_options(folder, tmp_path, call):
    base = ["-k", 5, "--out", tmp_path / "o.jsonl", "--num-landmarks", 10, "--force"]
    assert call(folder, "select", *base, "--order", 2, "--mode", "finite_difference").code == 0
    assert call(folder, "select", *base, "--group-field", "task", "--params", "all", "--mask-numel", 500).code == 0
    assert call(folder, "select", *base, "--aggregate", "mean", "--deduplicate", "--device", "cpu").code == 0


def test_check(folder, call):
    ran = call(folder, "check", "--num-landmarks", 12, "--num-check", 6, "--num-blocks", 1, "--json")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert found["propagation"]["how"] == "held out"
    assert found["propagation"]["examples"] == 6
    assert -1 <= found["propagation"]["correlation"] <= 1
    assert found["cost"]["backward_passes"] == 22
    ran = call(folder, "check", "--num-landmarks", 12, "--num-check", 0)
    assert ran.code == 0
    assert "leave-one-out" in ran.out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["-k", 31], "has 30 examples, got 31"),
        (["-k", 3, "--method", "magic"], "--method: expected one of 'influence', 'exact', 'less'"),
        (["-k", 3, "--group-field", "colour"], "has no field 'colour'"),
        (["-k", 3, "--params", "c_proj"], "'c_proj' matches none"),
        (["-k", 3, "--optimizer-state", "/nowhere/optimizer.pt"], "No such file"),
        (["-k", 3, "--aggregate", "max"], "aggregate: expected"),
        (["-k", 3, "--mode", "magic"], "mode: expected one of"),
        (["-k", 3, "--device", "tpu"], "device: expected auto or one of"),
        (["-k", 3, "--length", 2], "--length: cut to 2 tokens, no example of --target has one to learn from"),
    ],
)
def test_errors_are_one_line(folder, tmp_path, call, more, message):
    ran = call(folder, "select", "--out", tmp_path / "o.jsonl", "--num-landmarks", 10, *more)
    assert ran.code == 2
    *_, last = ran.err.strip().splitlines()
    assert last.startswith("error: ")
    assert message in last
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize("option", ["--data", "--target"])
def test_a_row_that_is_none_is_named_with_its_option(folder, tmp_path, call, option):
    (tmp_path / "odd.jsonl").write_text('{"text": "\\ud800 red"}\n')
    arguments = ["-k", 1, "--out", tmp_path / "o.jsonl", "--method", "random", option, tmp_path / "odd.jsonl"]
    ran = call(folder, "select", *arguments)
    assert ran.code == 2
    assert f"error: {option}: row 0: expected text that the tokenizer takes" in ran.err.splitlines()[-1]
    assert not (tmp_path / "o.jsonl").exists()


def test_no_model(tmp_path, thrifty):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a"}\n')
    ran = thrifty("influence", "check", tmp_path / "none", "--data", rows, "--target", rows)
    assert ran.code == 2
    assert "model: expected the folder of a local model" in ran.err


@pytest.mark.parametrize(
    ("layers", "paper", "honest", "rough"), [(32, 3.21, 1.46, 2.29), (28, 2.88, 1.29, 2.04), (36, 3.53, 1.62, 2.53)]
)
def test_the_published_ratios_and_the_honest_ones(layers, paper, honest, rough):
    for count, expected in (("paper", paper), ("forward_ad", honest), ("finite_difference", rough)):
        ours = cost.influence_flops(1.0, 200_000, 4096, layers=layers, count=count)
        assert cost.forward_flops(1.0, 200_000) / ours == pytest.approx(expected, abs=0.006)


def test_the_published_teraflops():
    N, n = 7e9, 200_000
    assert cost.forward_flops(N, n) / 1e12 == pytest.approx(2800)
    assert cost.exact_flops(N, n) / 1e12 == pytest.approx(8400)
    assert cost.influence_flops(N, n, 4096, layers=32, count="paper") / 1e12 == pytest.approx(872, abs=0.5)


def test_the_adviser_is_told_both_sides():
    facts = {"parameters": 7e9, "pool": 200_000, "sequence": 1000, "selected": 10_000}
    saved = cost.predict(Workload("language-model fine-tuning", facts))
    assert saved.total(Resource.EXAMPLES) == -190_000
    assert saved.total(Resource.FLOPS) < 0
    less = cost.predict(Workload("language-model fine-tuning", facts | {"selection": "less"}))
    ours = cost.influence_flops(7e9, 200_000, 4196, layers=32)
    assert less.total(Resource.FLOPS) == pytest.approx(1000 * (ours - 6 * 7e9 * 200_000))
    assert less.total(Resource.EXAMPLES) == 0
    assert not cost.predict(Workload("image-model training", {})).applies
    assert not cost.predict(Workload("language-model fine-tuning", facts | {"selected": 200_000})).applies
    with pytest.raises(ValueError, match="'selection' must be one of none, rds"):
        cost.predict(Workload("language-model fine-tuning", facts | {"selection": "magic"}))
    with pytest.raises(ValueError, match="'parameters' is needed"):
        cost.predict(Workload("language-model fine-tuning", {}))


def test_store_bytes():
    assert cost.store_bytes(10, 4, 2, embedding=8, gradient=16) == {"embeddings": 320, "gradients": 384, "scores": 80}
    assert len(pool(3)) == 3
