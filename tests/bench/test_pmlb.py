"""PMLB's tables, from a folder."""

import gzip

import numpy as np
import pytest

from thrifty.bench.data import pmlb

ROWS = "age\tkind\ttarget\n1.5\t0\t2\n2.5\t1\t0\n3.5\t2\t0\n"
METADATA = """dataset: pets
features:
  - name: age
    type: continuous
    description: null
  - name: 'kind'
    type: categorical
target:
  type: binary
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pets").mkdir()
    with gzip.open(tmp_path / "pets" / "pets.tsv.gz", "wt") as file:
        file.write(ROWS)
    with gzip.open(tmp_path / "plain.tsv.gz", "wt") as file:
        file.write(ROWS)
    return tmp_path


def test_both_layouts(folder):
    assert pmlb.names(folder) == ["pets", "plain"]
    table = pmlb.load("plain", folder)
    assert (table.feature_names, table.class_names, table.y.tolist()) == (("age", "kind"), ("0", "2"), [1, 0, 0])


def test_categories_are_one_hot_where_the_metadata_say_so(folder):
    (folder / "pets" / "metadata.yaml").write_text(METADATA)
    table = pmlb.load("pets", folder)
    assert table.feature_names == ("age", "kind=0", "kind=1", "kind=2")
    np.testing.assert_array_equal(table.X[1], [2.5, 0, 1, 0])


def test_what_is_not_there_is_named(folder):
    with pytest.raises(ValueError, match=r"no table 'teapot' in .*; there are pets, plain"):
        pmlb.load("teapot", folder)
    with pytest.raises(ValueError, match="is no folder"):
        pmlb.names(folder / "nowhere")
    with gzip.open(folder / "bad.tsv.gz", "wt") as file:
        file.write("a\tb\n1\t2\n")
    with pytest.raises(ValueError, match="expected a column 'target'"):
        pmlb.load("bad", folder)
