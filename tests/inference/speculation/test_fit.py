"""Fits: known coefficients come back, the paper's protocol, warnings, what is refused."""

import csv
from dataclasses import asdict, replace

import numpy as np
import pytest

from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.fit import fit_speculation_model
from thrifty.inference.speculation.hardware import Hardware
from thrifty.inference.speculation.model import TIMES, SpeculationModel
from thrifty.inference.speculation.rows import NAMES, Row, append_row, read_rows, stride_sample
from thrifty.inference.speculation.shapes import MoEShape
from thrifty.inference.speculation.study import selection_study, speedup_errors

BATCHES = [1, 2, 4, *range(8, 60, 4), 60, 80, 100]
TRUE = SpeculationModel(32, 4, 20.0, 1.05, 2.0, 0.05, 0.3, 0.1, 0.4, 0.01, 0.05, 0.001)
HARDWARE = Hardware("toy", 40e9, 1e9)
TARGET = MoEShape("toy", 32, 4, 4, 0, 100_000, 650_000, 2, 2, 0)
DRAFT = MoEShape("toy draft", 1, 1, 0, 0, 0, 150_000, 2, 2, 0)
ACCEPTANCE = Acceptance.from_rate(0.85)


def rows_of(model, top_k=(1, 2, 4, 8, 16), gammas=(2, 4), batches=BATCHES):
    return [
        Row(
            b, g, 32, k, float(ACCEPTANCE.sigma(g)), float(model.speedup(b, g, ACCEPTANCE, top_k=k)),
            float(model.target_time(b, top_k=k)), float(model.target_time(b, model.width(g), top_k=k)),
            float(model.draft_time(b)), float(model.reject_time(b)),
        )
        for k in top_k for g in gammas for b in batches
    ]  # fmt: skip


def without_times(rows, largest_reject=0.15):
    return [replace(row, t_ar_ms=None, t_verify_ms=None, t_draft_ms=None, t_reject_ms=largest_reject) for row in rows]


def test_times_give_every_coefficient_back():
    found = fit_speculation_model(rows_of(TRUE))
    assert found.objective == "time"
    assert found.rmse < 1e-6
    for name in (*TIMES, "ridge", "growth"):
        assert getattr(found.model, name) == pytest.approx(getattr(TRUE, name), rel=0.01), name
    assert found.model.measured_batches == (1, 100)
    assert np.isfinite(found.condition)


def test_contexts_of_several_lengths_say_what_a_token_of_them_costs():
    true = replace(TRUE, kv_target=2e-4, kv_draft=3e-5)

    def at(context):
        return [
            Row(
                b, g, 32, 4, None, None, float(true.target_time(b, context=context)),
                float(true.target_time(b, g + 1, context=context)), float(true.draft_time(b, context=context)),
                float(true.reject_time(b)), context=context,
            )
            for b in (1, 4, 16, 64) for g in (1, 3)
        ]  # fmt: skip

    found = fit_speculation_model([*at(256), *at(2048)])
    assert found.model.kv_target == pytest.approx(true.kv_target, rel=1e-3)
    assert found.model.kv_draft == pytest.approx(true.kv_draft, rel=1e-3)
    assert {"kv_target", "kv_draft"} < set(found.parameters)
    assert found.covariance.shape == (len(found.parameters),) * 2
    longer = {"acceptance": ACCEPTANCE, "context": 8192}
    assert found.model.speedup(32, 3, **longer) == pytest.approx(true.speedup(32, 3, **longer), rel=1e-3)
    assert found.bands([32], 3, ACCEPTANCE, refits=3)[0].shape == (1,)
    one = fit_speculation_model(at(256)).model  # one length says nothing of it
    assert (one.kv_target, one.kv_draft) == (0, 0)
    with pytest.raises(ValueError, match="row 9: context"):
        fit_speculation_model([*at(256), *(replace(row, context=None) for row in at(2048))])
    gained = [replace(row, sigma=0.8, speedup=1.5) for row in (*at(256), *at(2048))]
    by_speedup = fit_speculation_model(
        gained, target=TARGET, draft=DRAFT, hardware=HARDWARE, objective="speedup", starts=1
    )
    assert any("contexts differ" in warning for warning in by_speedup.warnings)


def test_rows_of_several_models_or_machines_are_warned_of():
    rows = rows_of(TRUE, top_k=(4,))
    several = [replace(rows[0], model="a", hardware="x"), replace(rows[1], model="b", hardware="x"), *rows[2:]]
    warnings = fit_speculation_model(several).warnings
    assert any("several models are fitted as one: a, b" in warning for warning in warnings)
    assert not any("hardwares" in warning for warning in warnings)


def test_what_a_fit_to_times_does_not_settle_is_said():
    rows = rows_of(TRUE, top_k=(4,))
    assert not any(
        "few" in w or "cost nothing" in w or "verification" in w for w in fit_speculation_model(rows).warnings
    )
    bare = [replace(row, t_draft_ms=None) for row in rows if row.batch_size in (1, 16)]
    warnings = " ".join(fit_speculation_model(bare).warnings)
    assert "6 times of the target are few" in warnings
    assert "drafts cost nothing" in warnings
    plain = [replace(row, t_verify_ms=None) for row in rows]
    warnings = " ".join(fit_speculation_model(plain, objective="time").warnings)
    assert "no verification was timed" in warnings
    with pytest.raises(ValueError, match="target: it has 32 experts, the rows 64"):
        fit_speculation_model([replace(row, num_experts=64) for row in rows], target=TARGET, hardware=HARDWARE)


def test_times_of_one_k_are_enough_for_predictions():
    found = fit_speculation_model(rows_of(TRUE, top_k=(4,)))
    b = np.arange(1, 101)
    assert found.model.speedup(b, 3, ACCEPTANCE, top_k=4) == pytest.approx(TRUE.speedup(b, 3, ACCEPTANCE), rel=1e-3)
    assert any("one K" in warning for warning in found.warnings)


def test_speedups_give_predictions_back_and_coefficients_up_to_a_factor():
    rows = without_times(rows_of(TRUE))
    found = fit_speculation_model(rows, target=TARGET, draft=DRAFT, hardware=HARDWARE)
    assert found.objective == "speedup"
    assert np.abs(speedup_errors(found.model, rows)).max() < 1e-3
    factor = found.model.bias / TRUE.bias
    for name in TIMES:
        assert getattr(found.model, name) == pytest.approx(factor * getattr(TRUE, name), rel=0.02), name
    assert found.condition > 1e4  # the null direction
    assert "common factor" in found.model.source
    anchored = fit_speculation_model(rows, target=TARGET, draft=DRAFT, hardware=HARDWARE, anchor=(16, 10.0))
    assert anchored.model.target_time(16) == pytest.approx(10.0)


def test_plain_steps_anchor_a_fit_to_speedups():
    rows = [replace(row, t_verify_ms=None, t_draft_ms=None, t_reject_ms=0.15) for row in rows_of(TRUE)]
    found = fit_speculation_model(rows, target=TARGET, draft=DRAFT, hardware=HARDWARE).model
    assert found.bias == pytest.approx(TRUE.bias, rel=0.02)
    assert "anchored" in found.source


def test_a_draft_without_a_shape_is_fitted_too():
    rows = without_times(rows_of(TRUE))
    found = fit_speculation_model(rows, target=TARGET, hardware=HARDWARE)
    assert np.abs(speedup_errors(found.model, rows)).max() < 0.02


def test_noise_gives_bands_that_hold_the_truth():
    rng = np.random.default_rng(1)
    noisy = [
        replace(row, t_ar_ms=row.t_ar_ms * rng.normal(1, 0.03), t_verify_ms=row.t_verify_ms * rng.normal(1, 0.03))
        for row in rows_of(TRUE, top_k=(4, 8))
    ]
    found = fit_speculation_model(noisy)
    assert 0.015 < found.rmse < 0.04  # errors are relative: the noise is 3 % of 4 ms as of 40
    low, high = found.bands([1, 8, 32, 80], 4, ACCEPTANCE, refits=40, level=0.98)
    truth = TRUE.speedup([1, 8, 32, 80], 4, ACCEPTANCE, top_k=8)
    assert np.all(low < truth)
    assert np.all(truth < high)
    assert np.all(high - low < 0.5)
    again = found.bands([1, 8, 32, 80], 4, ACCEPTANCE, refits=40, level=0.98)
    assert np.array_equal(again[0], low)


def test_the_papers_row_selection():
    rows = [Row(b, g, 64, k, speedup=1.0) for k in (1, 2, 4, 8, 16, 32) for g in (2, 4) for b in BATCHES]
    assert len(rows) == 228
    ten = stride_sample(rows, 10)
    assert sorted({row.batch_size for row in ten}) == [1, 12, 16, 20, 36, 40, 44, 60, 80, 100]
    assert len(ten) == 10
    assert len(stride_sample(rows, 21)) == 21
    assert stride_sample(rows, 228)[0] == Row(1, 2, 64, 1, speedup=1.0)
    with pytest.raises(ValueError, match="count"):
        stride_sample(rows, 0)


def test_more_measurements_fit_better():
    rng = np.random.default_rng(0)
    rows = without_times([replace(row, speedup=row.speedup * rng.normal(1, 0.02)) for row in rows_of(TRUE)])
    few, many = selection_study(rows, (10, 48), target=TARGET, draft=DRAFT, hardware=HARDWARE)
    assert few.batches == tuple(sorted({row.batch_size for row in stride_sample(rows, 10)}))
    assert few.count == len(stride_sample(rows, 10))
    assert many.rmse < few.rmse
    assert many.rmse < 0.08
    assert any("few" in warning for warning in few.warnings)
    assert few.error_sum == pytest.approx(few.rmse**2 * len(rows))


def test_times_that_are_mere_noise_are_fitted_all_the_same():
    """Columns are all but collinear there, and whatever solves for the coefficients must stay finite."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        rows = [
            Row(b, s - 1, 32, k, t_ar_ms=5 * rng.lognormal(0, 0.5), t_verify_ms=5 * rng.lognormal(0, 0.5))
            for k in (1, 4, 16) for b in (1, 4, 16, 64, 128) for s in (2, 4, 7)
        ]  # fmt: skip
        found = fit_speculation_model(rows)
        assert np.isfinite(found.rmse)
        assert np.all(np.isfinite(found.model.target_time([1, 64])))


def test_gaps_between_batch_sizes_are_warned_of():
    found = fit_speculation_model(rows_of(TRUE, batches=[1, 2, 32, 64, 100]))
    assert any("2 to 32" in warning for warning in found.warnings)


def test_what_cannot_be_fitted_is_refused():
    rows = rows_of(TRUE)
    bare = without_times(rows)
    both = {"target": TARGET, "draft": DRAFT, "hardware": HARDWARE}
    with pytest.raises(ValueError, match="none"):
        fit_speculation_model([])
    with pytest.raises(ValueError, match="at least 10 rows, got 9"):
        fit_speculation_model(bare[:9], **both)
    with pytest.raises(ValueError, match="batch size 4"):
        fit_speculation_model([row for row in bare if row.batch_size == 4], **both)
    with pytest.raises(ValueError, match="one model"):
        fit_speculation_model([*rows, Row(1, 2, 64, 4, speedup=1.0)])
    with pytest.raises(ValueError, match="target and hardware"):
        fit_speculation_model(bare)
    with pytest.raises(ValueError, match="sigma is needed"):
        fit_speculation_model([replace(row, sigma=None) for row in bare], **both)
    with pytest.raises(ValueError, match="objective"):
        fit_speculation_model(rows, objective="both")
    with pytest.raises(ValueError, match="unknown coefficients"):
        fit_speculation_model(rows, bounds={"biass": (0, 1)})
    with pytest.raises(ValueError, match="t_ar_ms"):
        fit_speculation_model(bare, objective="time")


def test_times_that_the_hardware_cannot_reach_name_the_bound():
    slow = Hardware("slow", 4e9, 1e8)
    with pytest.raises(ValueError, match=r"bias and expert_load add up to .* imply .* TB/s"):
        fit_speculation_model(rows_of(TRUE), target=TARGET, draft=DRAFT, hardware=slow)


def test_rows_are_read_written_and_checked(tmp_path):
    rows = [replace(row, hardware="cpu, bf16") for row in rows_of(TRUE, top_k=(4,), batches=[1, 2])]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, NAMES)
        table.writeheader()
        table.writerows(asdict(row) for row in rows)
    assert read_rows(tmp_path / "rows.csv") == rows
    for row in rows:
        append_row(tmp_path / "rows.jsonl", row)
    assert read_rows(tmp_path / "rows.jsonl") == rows
    for text, message in (
        ("batch_size,gama\n1,2\n", "unknown columns gama"),
        ("gamma\n2\n", "batch_size is missing"),
        ("batch_size,speedup\n1,1.5\n2,-1\n", "row 2: speedup"),
        ("batch_size,gamma\n1,x\n", "row 1: gamma: expected a number"),
        ("batch_size,gamma\n1,2.5\n", "whole number"),
        ("batch_size,gamma,sigma\n1,4,0.1\n", "sigma"),
        ("batch_size,t_ar_ms\n0,1\n", "batch_size"),
        ("batch_size,num_experts,top_k\n1,4,8\n", "top_k"),
        ("batch_size,speedup\n1,\n2,nan\n", "row 2: speedup: expected a number"),
    ):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_rows(tmp_path / "bad.csv")
    for text, message in (
        ("{", "line 1"),
        ("[1]", "JSON object"),
        ('{"batch_size": 1, "speedup": NaN}', "row 1: speedup"),
    ):
        (tmp_path / "bad.jsonl").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_rows(tmp_path / "bad.jsonl")
    for wrong in ({"gamma": 2.5}, {"batch_size": "4"}, {"top_k": True}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected a (whole )?number"):
            Row(**{"batch_size": 4} | wrong)
    (tmp_path / "some.csv").write_text("batch_size,gamma,sigma,speedup,t_ar_ms\n1,0,,,2.5\n2,2,0.8,1.5,\n")
    plain, drafted = read_rows(tmp_path / "some.csv")
    assert (plain.speedup, plain.t_ar_ms, drafted.t_ar_ms) == (None, 2.5, None)
