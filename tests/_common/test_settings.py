"""Arguments and settings that will not do are refused in one wording."""

import json

import numpy as np
import pytest

from thrifty._common import settings
from thrifty._common.checks import number, one_of, whole


@pytest.mark.parametrize(
    ("value", "says"),
    [("c", "'c'"), (["a"], r"\['a'\]"), (np.array(["a", "b"]), "array"), (3, "3")],
)
def test_a_choice_is_one_of_those_known(value, says):
    one_of("mode", "a", ("a", None))
    one_of("mode", None, ("a", None))
    with pytest.raises(ValueError, match=f"^mode: expected one of 'a', None, got {says}"):
        one_of("mode", value, ("a", None))


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None, float("nan")])
def test_whole_numbers(value):
    assert type(whole("k", np.int32(3))) is int
    assert whole("k", -5, least=None) == -5
    with pytest.raises(ValueError, match=f"^k: expected a whole number of at least 1, got {value!r}$"):
        whole("k", value)


@pytest.mark.parametrize("value", [-0.1, 1, float("nan"), float("inf"), 10**400, True, "1", None])
def test_numbers(value):
    assert number("share", np.float32(0.5), "a share", least=0, below=1) == 0.5
    with pytest.raises(ValueError, match=f"^share: expected a share, got {value!r}$"):
        number("share", value, "a share", least=0, below=1)


def test_settings_come_back():
    text = settings.dump({"a": 1, "b": [2]}, "thrifty.x", 1)
    assert settings.parse(text, "thrifty.x", 1, known=("a", "b"), needed=("a",)) == {"a": 1, "b": [2]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "x.json: expected JSON, got '{'"),
        ("[" * 100_000, "x.json: expected JSON"),
        ("[1]", "x.json: expected a JSON object, got a list"),
        (json.dumps({"a": 1}), "x.json: expected schema 'thrifty.x' version 1, got None version None"),
        (settings.dump({"a": 1}, "thrifty.y", 1), "got 'thrifty.y' version 1"),
        (settings.dump({"a": 1}, "thrifty.x", 2), "got 'thrifty.x' version 2"),
        (settings.dump({"a": 1, "c": 1}, "thrifty.x", 1), "x.json: expected the keys a, b, got also 'c'"),
        (settings.dump({"b": 1}, "thrifty.x", 1), "x.json: expected the keys a, got none of 'a'"),
    ],
)
def test_what_is_no_such_settings_is_refused(text, says):
    with pytest.raises(ValueError, match=says):
        settings.parse(text, "thrifty.x", 1, known=("a", "b"), needed=("a",), name="x.json")
