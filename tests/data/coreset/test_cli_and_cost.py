"""The command, the dry run, and what the adviser is told."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from thrifty._common.ledger import Resource, Task, Workload
from thrifty.data.coreset import Coreset, RepresentativenessMonitor
from thrifty.data.coreset.cost import predict
from thrifty.data.coreset.estimate import Estimate, estimate
from thrifty.data.coreset.recipe import Recipe, baseline, network, read_samples


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    kinds = np.array(["ant", "bee", "cow"])[np.arange(120) % 3]
    shifts = {"ant": 0, "bee": 2, "cow": 4}
    lines = [
        f"{shifts[kind] + rng.normal():.3f},{rng.normal():.3f},{'xy'[i % 2]},{kind}" for i, kind in enumerate(kinds)
    ]
    path = tmp_path_factory.mktemp("coreset") / "animals.csv"
    path.write_text("a,b,c,kind\n" + "\n".join(lines) + "\n")
    return path


def words(table, out, *more):
    return ["coreset", "train", "--data", table, "--target", "kind", "--out", out, "--budget", "0.3", "--epochs", "9",
            "--batch", "9", "--anyway", *more]  # fmt: skip


def test_train_report_and_baselines(thrifty, table, tmp_path):
    done = thrifty(*words(table, tmp_path / "run", "--baseline", "fixed:3,random:3,infobatch,full"))
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert set(found) == {"coreset", "fixed:3", "random:3", "infobatch", "full"}
    assert found["full"]["accuracy"] > 0.7
    assert found["fixed:3"]["updates"] == 4
    assert "epoch 9 of 9" in done.err
    report = thrifty("coreset", "report", tmp_path / "run", "--json")
    assert len(json.loads(report.out)) == 5
    shown = thrifty("coreset", "report", tmp_path / "run")
    assert "random-3" in shown.out
    again = thrifty(*words(table, tmp_path / "run"))
    assert json.loads(again.out)["coreset"] == found["coreset"], "a finished run is not trained anew"


def test_an_interrupted_run_goes_on_to_the_same_end(thrifty, table, tmp_path, monkeypatch):
    from thrifty.data.coreset import recipe

    thrifty(*words(table, tmp_path / "whole"))
    keep = recipe._keep

    def stop(out, epoch, *rest):
        keep(out, epoch, *rest)
        if epoch == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(recipe, "_keep", stop)
        assert thrifty(*words(table, tmp_path / "cut")).code != 0
    assert thrifty(*words(table, tmp_path / "cut")).code == 0
    one, two = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)["model"] for name in ("whole", "cut"))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_dry_run_says_what_a_run_takes(thrifty, table, tmp_path):
    done = thrifty(*words(table, tmp_path / "none", "--dry-run"))
    assert done.code == 0
    assert "times as fast" in done.out
    assert not (tmp_path / "none").exists()


def test_what_does_not_pay_is_refused():
    with pytest.raises(ValueError, match=r"at least 1 times as fast .* got 0\.50 .* selections take most"):
        Estimate(full=10.0, steps=1.0, selections=18.0, checks=1.0, updates=9).check()
    Estimate(full=10.0, steps=1.0, selections=1.0, checks=1.0, updates=9).check(3.0)


def test_an_estimate_changes_nothing_and_counts_what_comes():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3))
    coreset = Coreset(
        model, TensorDataset(torch.randn(90, 6), torch.arange(90) % 3), budget=0.2,
        monitor=RepresentativenessMonitor(trigger="interval", every=5),
    )  # fmt: skip
    before, random = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    found = estimate(coreset, epochs=20, batch_size=6)
    assert found.updates == 5
    assert found.full / found.steps == pytest.approx(15 / 3)
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert (coreset.subset, coreset.epoch, list(coreset.history)) == (None, 0, [])
    assert torch.equal(random, torch.get_rng_state())
    with pytest.raises(ValueError, match="at most the 4 checks"):
        estimate(coreset, epochs=20, batch_size=6, updates=5)


@pytest.mark.parametrize("shape", [(7,), (9, 9), (3, 12, 10)])
def test_networks_fit_their_inputs(shape):
    assert network(shape, 4)(torch.zeros(2, *shape)).shape == (2, 4)


def test_arrays_and_pictures_are_read(tmp_path):
    np.savez(tmp_path / "pictures.npz", x=np.zeros((6, 8, 8)), y=np.arange(6) % 2)
    samples = read_samples(tmp_path / "pictures.npz")
    assert samples.x.shape == (6, 8, 8)
    assert samples.classes == ("0", "1")


def test_bad_input_is_one_line(thrifty, table, tmp_path):
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object), y=np.zeros(1))
    np.savez(tmp_path / "short.npz", x=np.zeros((3, 2)), y=np.zeros(2))
    np.savez(tmp_path / "one.npz", x=np.zeros((3, 2)), y=np.zeros(3))
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "hole.csv").write_text("a,kind\n1,x\n,y\n2,x\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    base = ["coreset", "train", "--out", tmp_path / "out"]
    for expected, more in {
        "expected arrays x and y": [*base, "--data", tmp_path / "pickled.npz"],
        "got shapes (3, 2) and (2,)": [*base, "--data", tmp_path / "short.npz"],
        "at least two classes": [*base, "--data", tmp_path / "one.npz"],
        "of numbers, got": [*base, "--data", tmp_path / "text.npz"],
        "in row 2": [*base, "--data", tmp_path / "hole.csv", "--target", "kind"],
        "--target: expected the column": [*base, "--data", table],
        "--target: expected a column among": [*base, "--data", table, "--target", "sort"],
        "--baseline: expected fixed:N": words(table, tmp_path / "out", "--baseline", "fixed"),
        "epochs behind the colon": words(table, tmp_path / "out", "--baseline", "random:x"),
        "selector: expected one of": words(table, tmp_path / "out", "--selector", "best"),
        "trigger: expected one of": words(table, tmp_path / "out", "--trigger", "above"),
        "kind: expected one of": words(table, tmp_path / "out", "--snr", "max"),
        "budget: expected": words(table, tmp_path / "out", "--budget", "1.5"),
        "there are files already": words(table, tmp_path / "other"),
        "folders of finished runs": ["coreset", "report", tmp_path / "other"],
    }.items():
        done = thrifty(*more)
        assert done.code == 2, (expected, done)
        assert expected in " ".join(done.err.split()), done.err
        assert "Traceback" not in done.err


def test_a_run_of_other_settings_is_not_gone_on_with(thrifty, table, tmp_path):
    thrifty(*words(table, tmp_path / "run"))
    done = thrifty(*words(table, tmp_path / "run", "--lr", "0.2"))
    assert done.code == 2
    assert "lr: the run in" in done.err


def test_baselines_are_recipes():
    assert baseline(Recipe(), "random").trigger == "never"
    assert (baseline(Recipe(), "random:5").selector, baseline(Recipe(), "random:5").every) == ("random", 5)
    assert Recipe.from_json(Recipe(budget=0.2).to_json()) == Recipe(budget=0.2)


def test_costs_are_those_of_the_formula():
    facts = {"examples": 1000, "epochs": 30, "batch": 10, "flops_per_example": 7.0, "selections": 4}
    delta = predict(Workload(Task.IMAGE_TRAINING, facts))
    assert delta.total(Resource.STEPS) == pytest.approx(-0.9 * 3000)
    assert delta.total(Resource.FLOPS) == pytest.approx(7 * (5 * 1000 + 10 * 100 - 3 * 30 * 900))
    assert not predict(Workload(Task.LM_SERVING, {})).entries
    with pytest.raises(ValueError, match="budget: expected"):
        predict(Workload(Task.IMAGE_TRAINING, facts | {"budget": 2}))
