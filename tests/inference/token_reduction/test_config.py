"""Settings: bad values name their field, and JSON comes back as it went."""

import json

import numpy as np
import pytest

from thrifty.inference.token_reduction import (
    EViTConfig,
    FreqReduceConfig,
    PoolConfig,
    ToMeConfig,
    config_from_json,
    named,
)
from thrifty.inference.token_reduction.config import METHODS


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"keep": 0.0}, r"keep: expected shares in \(0, 1\], got \(0.0, 0.0, 0.0\)"),
        ({"keep": (0.7, 1.5, 0.7)}, "keep: expected shares"),
        ({"keep": (0.7, float("nan"), 0.7)}, "keep: expected shares"),
        ({"keep": (0.7, 0.7)}, "keep: expected 3 shares, one a layer, got 2"),
        ({"layers": (0, 4, 7)}, r"layers: they are numbered from 1, got \(0, 4, 7\) \(EViT"),
        ({"layers": (7, 4, 10)}, "layers: expected strictly rising"),
        ({"layers": (4, 4, 10)}, "layers: expected strictly rising"),
        ({"layers": ()}, "layers: expected at least one"),
        ({"layers": (4.5, 7, 10)}, r"layers: expected a sequence of whole numbers, got \(4.5"),
        ({"layers": 4}, "layers: expected a sequence of whole numbers, got 4"),
        ({"layers": (True, 7, 10)}, "layers: expected a sequence of whole"),
        ({"keep": "0.5"}, "keep: expected a share"),
        ({"keep": True}, "keep: expected a share"),
        ({"keep": None}, "keep: expected a share"),
        ({"window": 1.0}, "window: expected a sequence of whole numbers, got 1.0"),
        ({"beta_init": float("nan")}, "beta_init: expected a finite number"),
        ({"window": (2, 1)}, "window: expected 3 numbers"),
        ({"layers": (2, 4), "window": (2, 1, 1)}, "window: expected 2 numbers, one a layer, got 3"),
        ({"beta_init": "x"}, "beta_init: expected a finite number, got 'x'"),
        ({"dc_size_bias": "no"}, "dc_size_bias: expected True or False, got 'no'"),
        ({"seed": "x"}, "seed: expected a whole number"),
        ({"seed": 10**20}, "seed: expected a whole number"),
        ({"window": (1, 2, 2)}, "window: each must be a multiple of the next"),
        ({"window": (3, 2, 1)}, "window: each must be a multiple of the next"),
        ({"window": (2, 1, 0)}, "window: 0"),
        ({"window": (-1, -1, -1)}, "window: expected whole numbers"),
        ({"score": "mean"}, "score: expected one of 'attn_mean', .* got 'mean'"),
        ({"where": "start"}, "where: expected one of"),
        ({"rounding": "round"}, "rounding"),
        ({"dc_update": "sum"}, "dc_update"),
        ({"reweight": True}, "reweight"),
        ({"dc_pos_embed": "sine"}, "dc_pos_embed"),
    ],
)
def test_a_bad_field_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        FreqReduceConfig(**fields)


@pytest.mark.parametrize("windows", [(2, 1, 1), (2, 2, 1), (2, 2, 2), (4, 2, 1)])
def test_published_windows_nest(windows):
    assert FreqReduceConfig(window=windows).window == windows


def test_rivals_settings_are_checked_too():
    with pytest.raises(ValueError, match=r"keep: merging pairs keeps at least 0.5"):
        ToMeConfig(keep=0.4)
    assert ToMeConfig() == ToMeConfig(keep=0.7)
    with pytest.raises(ValueError, match="keep: give one of keep and r"):
        ToMeConfig(keep=0.7, r=8)
    with pytest.raises(ValueError, match=r"r: merging in every layer"):
        ToMeConfig(layers=None)
    with pytest.raises(ValueError, match="layers: expected numbers beside keep"):
        ToMeConfig(layers=None, keep=0.7)
    with pytest.raises(ValueError, match="r: expected a whole number of tokens to merge a layer, of at least 1, got 0"):
        ToMeConfig(r=0)
    with pytest.raises(ValueError, match="numbered from 1"):
        EViTConfig(layers=(0, 3))
    with pytest.raises(ValueError, match="keep"):
        PoolConfig(keep=2.0)
    with pytest.raises(ValueError, match="method: expected one of .* got 'diffrate'"):
        named("diffrate")


@pytest.mark.parametrize("method", METHODS)
def test_json_comes_back_as_it_went(method):
    config = named(method, (2, 3), (0.9, 0.6))
    assert config_from_json(config.to_json()) == config


def test_json_of_another_kind_is_refused():
    good = json.loads(FreqReduceConfig().to_json())
    for change, message in [
        ({"version": 2}, "version 1"),
        ({"schema": "x"}, "schema"),
        ({"method": "dynamic"}, "method: expected one of 'frequency', .* got 'dynamic'"),
        ({"keeep": 1}, "got also 'keeep'"),
        ({"keep": [2, 2, 2]}, "keep: expected shares"),
    ]:
        with pytest.raises(ValueError, match=message):
            config_from_json(json.dumps(good | change))
    for text in ("", "[1]", "{"):
        with pytest.raises(ValueError, match="text: expected"):
            config_from_json(text)


def test_numbers_of_numpy_are_numbers():
    config = FreqReduceConfig(layers=np.array([2, 4]), keep=np.float64(0.5), window=np.array([2, 1]))
    assert config == FreqReduceConfig(layers=(2, 4), keep=0.5)
    assert config_from_json(config.to_json()) == config
    assert FreqReduceConfig(window=np.int64(2)).window == (2, 2, 2)


def test_one_share_and_a_default_window_fit_any_number_of_layers():
    config = FreqReduceConfig(layers=(2, 5), keep=0.6)
    assert (config.keep, config.window) == ((0.6, 0.6), (2, 1))
    assert FreqReduceConfig(layers=(4, 20)).keep == EViTConfig(layers=(4, 20)).keep == (0.7, 0.7)
