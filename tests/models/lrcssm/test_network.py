"""The network, its files, training and the scikit-learn estimators."""

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from lrc_cells import random
from safetensors.torch import load_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

from thrifty.models.lrcssm import LrcSSMClassifier, LrcSSMConfig, LrcSSMModel, LrcSSMRegressor
from thrifty.models.lrcssm.fitting import Recipe, evaluate, fit, outputs
from thrifty.models.lrcssm.network import pool
from thrifty.models.lrcssm.sequences import Sequences, from_arrays, read


def u32(*shape, seed=0):
    return random(*shape, seed=seed, dtype=torch.float32)


def small(**settings):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LrcSSMModel(3, 4, **{"d_model": 16, "d_state": 8, "n_layers": 2, **settings})


def test_the_published_network_has_the_published_number_of_parameters():
    model = LrcSSMModel(2, 4, d_model=128, d_state=16, n_layers=2, elastance="symmetric")
    assert sum(p.numel() for p in model.parameters()) == 80_292


def test_a_block_is_the_figure():
    for d_state in (8, 16):
        block = small(d_state=d_state).blocks[0]
        x = u32(2, 20, 16)
        y = nn.functional.layer_norm(x, (16,))
        s, _ = block.rnn(y)
        if d_state == 16:
            r = nn.functional.layer_norm(s + y, (16,))
            expected = block.mlp(r) + r
        else:
            expected = nn.functional.layer_norm(block.mlp(s) + y, (16,))
        assert torch.allclose(block(x)[0], expected, atol=1e-6)


@pytest.mark.parametrize("how", ["mean", "last", "max"])
def test_pooling_sees_valid_steps_only(how):
    x, mask = u32(3, 20, 4), torch.arange(20) < torch.tensor([20, 7, 1])[:, None]
    pooled = pool(x, mask, how)
    for i, T in enumerate((20, 7, 1)):
        assert torch.allclose(pooled[i], pool(x[i : i + 1, :T], None, how)[0], atol=1e-6)


def test_padding_changes_nothing():
    for settings in ({}, {"bidirectional": True}, {"pooling": "last"}, {"cell": "gru"}):
        model, u = small(**settings).eval(), u32(2, 30, 3)
        padded = torch.cat((u[:1, :12], 1e3 * torch.ones(1, 18, 3)), 1)
        both = torch.cat((u[:1], padded))
        out = model(both, lengths=torch.tensor([30, 12]))
        assert torch.allclose(out[1], model(u[:1, :12])[0], atol=1e-4)


def test_a_stream_of_outputs():
    model, u = small(per_step=True, rho=0.99).eval(), u32(2, 30, 3)
    full = model(u)
    state, outs = model.initial_state(2), []
    for t in range(30):
        out, state = model.step(u[:, t], state)
        outs.append(out)
    assert (torch.stack(outs, 1) - full).abs().max() < 1e-5
    first, state = model(u[:, :11], return_state=True)
    rest, state, infos = model(u[:, 11:], state=state, return_state=True, return_info=True)
    assert (torch.cat((first, rest), 1) - full).abs().max() < 1e-5
    assert len(infos) == len(state) == 2
    with pytest.raises(ValueError, match="per_step=True in one direction"):
        small().step(u[:, 0], state)


def test_a_saved_model_is_the_same_model(tmp_path):
    model, u = small(rho=0.9, standardize=True, elastance="symmetric").eval(), u32(2, 30, 3)
    model.standardize(torch.ones(3), torch.full((3,), 2.0))
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {"config.json", "model.safetensors"}
    loaded = LrcSSMModel.from_pretrained(tmp_path)
    assert loaded.config == model.config
    assert torch.equal(loaded(u), model(u))
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "d_state": 9}))
    with pytest.raises(ValueError, match="weights do not fit the config"):
        LrcSSMModel.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**settings, "colour": 1}))
    with pytest.raises(ValueError, match="got also 'colour'"):
        LrcSSMModel.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model.safetensors is missing"):
        LrcSSMModel.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        LrcSSMModel.from_pretrained(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 0}, "d_model: expected a whole number"),
        ({"cell": "lru"}, "cell: expected one of 'lrc'"),
        ({"pooling": "median"}, "pooling: expected one of 'mean'"),
        ({"dropout": 1.0}, r"dropout: expected a share in \[0, 1\)"),
        ({"colour": 1}, "settings: .*colour"),
        ({"d_model": True}, "d_model: expected a whole number of at least 1, got True"),
        ({"per_step": "no"}, "per_step: expected True or False, got 'no'"),
        ({"cell": ["gru"]}, "cell: expected one of 'lrc'"),
        ({"layers": [nn.GRU(16, 16)]}, r"layers: expected 2 \(n_layers\), got 1"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)


@pytest.mark.parametrize("text", ["nonsense", "{}", '{"schema": "thrifty.lrcssm", "version": 2}'])
def test_a_file_that_is_no_config_is_refused(text):
    with pytest.raises(ValueError, match="config: expected"):
        LrcSSMConfig.from_json(text)


@pytest.mark.parametrize("damage", ["config empty", "config a list", "weights cut", "weights empty"])
def test_a_damaged_model_is_refused(tmp_path, damage):
    small().save_pretrained(tmp_path)
    what, how = damage.split(" ", 1)
    path = tmp_path / ("config.json" if what == "config" else "model.safetensors")
    path.write_bytes({"empty": b"", "a list": b"[]", "cut": path.read_bytes()[:100]}[how])
    with pytest.raises(ValueError, match="config: expected" if what == "config" else "weights: .*which is damaged"):
        LrcSSMModel.from_pretrained(tmp_path)


def test_a_damaged_estimator_is_refused(tmp_path):
    X, y = problem(10)
    LrcSSMClassifier(**{**SMALL, "epochs": 1}).fit(X, y).save_pretrained(tmp_path)
    path = tmp_path / "estimator.json"
    record = json.loads(path.read_text())
    del record["n_channels_in"]
    for text, message in (
        ("", "expected JSON"),
        ("[]", "expected a JSON object, got a list"),
        (json.dumps(record), "got none of 'n_channels_in'"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            LrcSSMClassifier.from_pretrained(tmp_path)


def test_states_of_another_network_are_refused_and_grids_of_numpy_are_taken():
    with pytest.raises(ValueError, match="state: expected 2 states, one a block, got 1"):
        small()(u32(2, 9, 3), state=[torch.zeros(2, 8)])
    assert json.loads(small(d_state=np.int64(8)).config.to_json())["d_state"] == 8


def test_dropout_drops_in_training_only():
    model, u = small(dropout=0.5), u32(2, 30, 3)
    assert not torch.equal(model(u), model(u))
    model.eval()
    assert torch.equal(model(u), model(u))


def test_the_reference_initialisation_is_wider():
    ours, theirs = small(), small(init="reference")
    assert theirs.decoder[2].weight.abs().max() > 2 * ours.decoder[2].weight.abs().max()


def test_half_precision_of_a_whole_network():
    model, u = small(), u32(2, 30, 3)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(u)
    out.float().sum().backward()
    assert (out.float() - model(u)).abs().max() < 0.1


def problem(n=60, T=40, seed=0):
    """Two classes that differ in a slow rhythm under noise; channels of very different size."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.standard_normal((n, 2, T))
    X[y == 1, 0] += 1.5 * np.sin(np.arange(T) / 3)
    X[:, 1] = 1e4 + 100 * X[:, 1]
    return X, np.array(["no", "yes"])[y]


SMALL = {"d_model": 16, "d_state": 16, "n_layers": 1, "epochs": 25, "lr": 1e-2, "random_state": 0}


def test_the_classifier_learns_repeats_and_is_saved(tmp_path):
    X, y = problem()
    X_test, y_test = problem(seed=1)
    model = LrcSSMClassifier(**SMALL).fit(X, y)
    assert model.score(X_test, y_test) > 0.85
    assert model.classes_.tolist() == ["no", "yes"]
    chances = model.predict_proba(X_test)
    assert np.allclose(chances.sum(1), 1)
    assert (chances.argmax(1) == (model.predict(X_test) == "yes")).all()
    again = clone(model).fit(X, y)
    assert np.array_equal(again.predict_proba(X_test), chances)
    model.save_pretrained(tmp_path)
    loaded = LrcSSMClassifier.from_pretrained(tmp_path)
    assert np.allclose(loaded.predict_proba(X_test), chances)
    assert loaded.get_params()["d_state"] == 16
    with pytest.raises(ValueError, match="expected a LrcSSMRegressor in .*, got a LrcSSMClassifier"):
        LrcSSMRegressor.from_pretrained(tmp_path)


def test_sequences_of_unequal_length():
    X, y = problem(40)
    rng = np.random.default_rng(0)
    lengths = rng.integers(15, 41, 40)
    ragged = [x[:, :T] for x, T in zip(X, lengths, strict=True)]
    model = LrcSSMClassifier(**{**SMALL, "epochs": 5}).fit(ragged, y)
    alone = np.concatenate([model.predict_proba([x]) for x in ragged])
    assert np.allclose(model.predict_proba(ragged), alone, atol=1e-5)


def test_the_regressor_predicts_in_the_units_of_its_values(tmp_path):
    X, _ = problem(60)
    y = 1000 + 50 * X[:, 0].mean(1)
    model = LrcSSMRegressor(**{**SMALL, "epochs": 40, "patience": 60}).fit(X, y)
    assert model.predict(X).shape == (60,)
    assert model.score(X, y) > 0.5
    two = LrcSSMRegressor(**{**SMALL, "epochs": 2}).fit(X, np.stack([y, -y], 1))
    assert two.predict(X).shape == (60, 2)
    model.save_pretrained(tmp_path)
    assert np.allclose(LrcSSMRegressor.from_pretrained(tmp_path).predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((4, 2, 3, 5)), np.arange(4), r"X: expected shape \(n, channels, time\)"),
        (np.zeros((4, 2, 0)), np.arange(4), "X: expected sequences, steps and channels"),
        (np.full((4, 2, 5), np.nan), np.arange(4), "got nan in sequence 0, channel 0, step 0"),
        (np.zeros((4, 2, 5)), np.arange(3), "y: expected 4 values"),
        (np.zeros((4, 2, 5)), np.zeros(4), r"y: expected at least two classes, got only \[0.0\]"),
        (np.zeros((4, 2, 5)) * 1j, np.arange(4), "X: expected real numbers, got complex128"),
        (np.zeros((4, 2, 5)), np.array([1.0, np.nan, 1, 1]), "y: expected finite values, got nan"),
        (np.zeros((4, 2, 5)), np.array([b"a", b"b"] * 2), "y: expected labels that are text or numbers"),
        ([np.zeros((2, 5)), np.zeros((3, 5))], [0, 1], r"expected sequences of one number of channels, got \[2, 3\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(X, y, message):
    with pytest.raises(ValueError, match=message):
        LrcSSMClassifier(**SMALL).fit(X, y)


def test_an_estimator_wants_to_be_fitted_and_given_the_same_channels():
    X, y = problem(20)
    with pytest.raises(NotFittedError):
        LrcSSMClassifier().predict(X)
    model = LrcSSMClassifier(**{**SMALL, "epochs": 1}).fit(X, y)
    with pytest.raises(ValueError, match="expected 2 channels as in fit, got 1"):
        model.predict(X[:, :1])


def coded(n=24):
    X, y = problem(n)
    data = from_arrays(X)
    return Sequences(data.X / 1e4, data.lengths, (y == "yes").astype(int))


def test_an_interrupted_run_goes_on_and_ends_where_a_whole_one_does(tmp_path, torchrun):
    data, recipe = coded(), Recipe(epochs=4, lr=1e-2, batch_size=8)
    whole = LrcSSMModel(2, 2, d_model=8, d_state=4, n_layers=1, dropout=0.3)
    parts = LrcSSMModel(2, 2, d_model=8, d_state=4, n_layers=1, dropout=0.3)
    parts.load_state_dict(whole.state_dict())
    torch.manual_seed(5)
    fitted = fit(whole, data, data, recipe)
    torch.manual_seed(5)

    def stop(epoch, *_):
        if epoch == 2:
            raise KeyboardInterrupt

    path = tmp_path / "checkpoint.pt"
    with pytest.raises(KeyboardInterrupt):
        fit(parts, data, data, recipe, checkpoint=path, progress=stop)
    other = LrcSSMModel(2, 2, d_model=8, d_state=4, n_layers=1, dropout=0.3)
    resumed = fit(other, data, data, recipe, checkpoint=path)
    assert resumed.losses == pytest.approx(fitted.losses, rel=1e-5)
    assert not path.exists()
    for a, b in zip(whole.parameters(), other.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_a_run_that_blows_up_says_so():
    model = LrcSSMModel(2, 2, d_model=8, d_state=4, n_layers=1)
    with pytest.raises(RuntimeError, match=r"training: the loss became nan in epoch \d; lower lr"):
        fit(model, coded(), None, Recipe(epochs=5, lr=1e30, batch_size=8))


def test_a_cosine_schedule_falls_from_the_rate_to_nothing():
    recipe = Recipe(epochs=10, lr=0.1, schedule="cosine")
    assert recipe.rate(0) == 0.1
    assert recipe.rate(5) == pytest.approx(0.05)
    assert 0 < recipe.rate(9) < 0.003
    assert Recipe(epochs=10, lr=0.1).rate(9) == 0.1
    with pytest.raises(ValueError, match="schedule: expected one of 'constant', 'cosine', got 'linear'"):
        Recipe(schedule="linear")
    data, still = coded(), LrcSSMModel(2, 2, d_model=8, d_state=4, n_layers=1)
    moved = {}
    for schedule in ("constant", "cosine"):
        model = LrcSSMModel(2, 2, d_model=8, d_state=4, n_layers=1)
        model.load_state_dict(still.state_dict())
        fit(model, data, None, Recipe(epochs=4, lr=1e-2, batch_size=24, schedule=schedule))
        moved[schedule] = sum(
            float((a - b).abs().sum()) for a, b in zip(model.parameters(), still.parameters(), strict=True)
        )
    assert moved["cosine"] < 0.9 * moved["constant"]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    data, path = coded(), tmp_path / "checkpoint.pt"

    def stop(*_):
        raise KeyboardInterrupt

    model = LrcSSMModel(2, 2, d_model=8, d_state=4, n_layers=1)
    with pytest.raises(KeyboardInterrupt):
        fit(model, data, None, Recipe(epochs=3), checkpoint=path, progress=stop)
    with pytest.raises(ValueError, match="lr: the run in .* has 0.001, got 0.1"):
        fit(model, data, None, Recipe(epochs=3, lr=0.1), checkpoint=path)
    with pytest.raises(ValueError, match="is of another network or of other data"):
        fit(LrcSSMModel(2, 2, d_model=9, d_state=4, n_layers=1), data, None, Recipe(epochs=3), checkpoint=path)
    other = Sequences(data.X + 1, data.lengths, data.y)
    for train, validation in ((other, None), (data, data)):
        with pytest.raises(ValueError, match="is of another network or of other data"):
            fit(model, train, validation, Recipe(epochs=3), checkpoint=path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="checkpoint: .* is damaged"):
        fit(model, data, None, Recipe(epochs=3), checkpoint=path)


def test_every_sample_is_evaluated_in_its_place():
    model, data = LrcSSMModel(2, 2, d_model=8, d_state=4, n_layers=1), coded(25)
    data = Sequences(data.X, np.random.default_rng(0).integers(5, 41, 25), data.y)
    together = outputs(model, data, batch_size=4)
    assert together.shape == (25, 2)
    for i in (0, 7, 24):
        assert torch.allclose(together[i], outputs(model, data.rows(np.array([i])))[0], atol=1e-5)
    assert 0 <= evaluate(model, data)["score"] <= 1


def test_files_are_read(tmp_path):
    X, y = problem(6)
    np.savez(tmp_path / "a.npz", X=X.transpose(0, 2, 1), y=y)
    found = read(str(tmp_path / "a.npz"))
    assert found.X.shape == (6, 40, 2)
    lines = ["# a comment", "@problemName x", "@classLabel true no yes", "@data"]
    lines += [
        ":".join(",".join(map(str, channel[: 40 - i])) for channel in x) + f":{c}"
        for i, (x, c) in enumerate(zip(X, y, strict=True))
    ]
    (tmp_path / "a.ts").write_text("\n".join(lines))
    ragged = read(str(tmp_path / "a.ts"))
    assert ragged.lengths.tolist() == [40, 39, 38, 37, 36, 35]
    assert ragged.y.tolist() == y.tolist()
    assert np.allclose(ragged.X[3, :37], X[3, :, :37].T, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "1,2", "expected a .npz or .ts file, or uea:NAME"),
        ("a.ts", "1,2:a", "expected a line '@data'"),
        ("b.ts", "@data\n1,x:a", "b.ts, line 2"),
        ("c.ts", "@timestamps true\n@data\n(0,1):a", "time stamps are not supported"),
        ("e.ts", "@data\n1,2:3:a", r"channels of different lengths: \[2, 1\]"),
        ("a.npz", "", "is no sound .npz archive"),
        ("b.npz", "PK\x03\x04 and then nothing", "is no sound .npz archive"),
        ("d.ts", "@data\n1,?:a", "got nan in sequence 0, channel 0, step 1"),
    ],
)
def test_files_that_are_not_sound_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read(str(tmp_path / name))


def test_sets_by_name_come_through_aeon(monkeypatch):
    monkeypatch.setitem(sys.modules, "aeon", None)
    with pytest.raises(ImportError, match="'EigenWorms' is loaded by aeon, which is not installed: pip install aeon"):
        read("uea:EigenWorms")
    aeon, datasets = types.ModuleType("aeon"), types.ModuleType("aeon.datasets")

    def load_classification(name, split):
        raise ConnectionError("no route")

    datasets.load_classification = load_classification
    monkeypatch.setitem(sys.modules, "aeon", aeon)
    monkeypatch.setitem(sys.modules, "aeon.datasets", datasets)
    with pytest.raises(OSError, match="could not load 'EigenWorms' .ConnectionError: no route.; it needs the network"):
        read("uea:EigenWorms")
    datasets.load_classification = lambda name, split: problem(6)
    assert read("uea:EigenWorms", "train").X.shape == (6, 40, 2)


WORKER = Path(__file__).with_name("distributed_worker.py")


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_train_the_model_that_one_does(tmp_path, torchrun):
    from distributed_worker import small as network

    torchrun(WORKER, "data-parallel", tmp_path)
    alone = network()
    fit(alone, coded(), None, Recipe(epochs=2, lr=1e-2, batch_size=8))
    both = LrcSSMModel.from_pretrained(tmp_path)
    for a, b in zip(alone.parameters(), both.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_that_share_the_weights_train_the_model_that_one_does(tmp_path, torchrun):
    from distributed_worker import small as network
    from distributed_worker import three_steps

    torchrun(WORKER, "sharded", tmp_path)
    alone = network()
    three_steps(alone)
    for name, tensor in load_file(tmp_path / "sharded.safetensors").items():
        assert torch.allclose(alone.state_dict()[name], tensor, atol=1e-5), name
