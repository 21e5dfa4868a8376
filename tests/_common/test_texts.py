"""Rows and documents are read whole, or refused with file and line."""

import pytest

from thrifty._common.texts import documents, read_rows

DEEP = b"[" * 100_000


@pytest.mark.parametrize("line", [b"{", b"[1]", b'{"text": "\xff"}', DEEP])
def test_what_is_no_row_is_refused_with_its_place(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "one"}\n\n' + line + b"\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 3: expected a JSON object"):
        read_rows(path)


@pytest.mark.parametrize("line", [b"{", b'{"other": "two"}', DEEP])
def test_what_is_no_document_is_refused_with_its_place(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "one"}\n' + line + b"\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: expected an object with 'text'"):
        list(documents(path))
