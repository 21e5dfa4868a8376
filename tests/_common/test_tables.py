"""Tables as users have them."""

import numpy as np
import pytest

from thrifty._common.tables import one_hot, read_table


@pytest.fixture
def csv_file(tmp_path):
    def write(text):
        path = tmp_path / "table.csv"
        path.write_text(text, encoding="utf-8-sig")
        return path

    return write


def test_numbers_text_and_gaps(csv_file):
    columns = read_table(csv_file("age, colour ,y\n1.5,red,no\n,blue,yes\n3,?,no\n"))
    assert list(columns) == ["age", "colour", "y"]
    np.testing.assert_array_equal(columns["age"], [1.5, np.nan, 3])
    assert columns["colour"].tolist() == ["red", "blue", None]


def test_one_hot_names_its_columns_and_keeps_gaps(csv_file):
    columns = read_table(csv_file("age,colour\n1,red\n2,blue\n3,NA\n"))
    X, names = one_hot(columns)
    assert names == ("age", "colour=blue", "colour=red")
    np.testing.assert_array_equal(X, [[1, 0, 1], [2, 1, 0], [3, np.nan, np.nan]])


def test_parquet_gives_the_same(csv_file, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"age": [1, None], "colour": ["red", None]}), tmp_path / "t.parquet")
    columns = read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(columns["age"], [1, np.nan])
    assert columns["colour"].tolist() == ["red", None]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "got 0 rows under 0 names"),
        ("a,b\n", "got 0 rows under 2 names"),
        ("a,a\n1,2\n", r"names \['a'\] more than once"),
        ("a,b\n1,2\n1\n", "row 3: expected 2 cells as in the header, got 1"),
    ],
)
def test_what_is_no_table_is_refused(csv_file, text, says):
    with pytest.raises(ValueError, match=says):
        read_table(csv_file(text))


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"a,b\n1,\xff\n", "in UTF-8, got what"), (b"a\n" + b"x" * 200_000, "larger than field limit")],
)
def test_what_is_no_text_is_refused_with_the_files_name(tmp_path, content, says):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"table\.csv: .*{says}"):
        read_table(path)
