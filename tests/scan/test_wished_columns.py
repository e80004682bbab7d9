"""Columns that are there only where they are asked for: text of the body, one property, one field of JSON."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.base.errors import UsageError
from rmqtool.formats.message import COMPRESSED
from rmqtool.scan import json_fields as json_module
from rmqtool.scan.filters import Filters
from rmqtool.scan.json_fields import json_fields
from rmqtool.store.message_reader import EXPORT_COLUMNS, make_query
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.export.exporting import check, export, rows_of
from tests.golden import stores

STORE = "5.5.0-clean"
DOCUMENT = (
    b'{"id": 12345678901234567890, "price": 10.50, "name": "caf\xc3\xa9", "ok": true, "none": null, "a.b": 1,'
    b' "items": [{"sku": "x"}, {"sku": 7, "n": [1.10, "2"]}], "half": "\\ud83d", "nan": NaN, "e": 1E400, "empty": ""}'
)


def texts(body: bytes, *paths: str) -> list[str | None]:
    """What stands at the paths of a body, which msgspec and Python must agree on."""
    bodies = pa.array([body], pa.binary())
    fast = [column[0].as_py() for column in json_fields(bodies, paths).values()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_module, "_fast_reader", lambda _: None)
        slow = [column[0].as_py() for column in json_fields(bodies, paths).values()]
    assert fast == slow
    return fast


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("id", "12345678901234567890"), ("price", "10.50"), ("name", "café"), ("ok", "true"), ("none", None),
        ("nosuch", None), ("name.first", None), ("items.0.sku", "x"), ("items.1.sku", "7"), ("items.2", None),
        ("items.-1", None), ("items.1.n", '[1.10,"2"]'), ("items.1", '{"sku":7,"n":[1.10,"2"]}'), ("half", "?"),
        ("nan", "NaN"), ("e", "1E400"), ("empty", ""), ("", None),
    ],
)  # fmt: skip
def test_fields(path: str, expected: str | None) -> None:
    """Text and numbers as they are written, objects and lists as JSON."""
    assert texts(DOCUMENT, path) == [expected]
    assert texts(DOCUMENT.replace(b"NaN", b"null"), path) == [None if path == "nan" else expected]


@pytest.mark.parametrize("body", [b"", b"no", b"\xff", b"{", b"[" * 100_000, b"1", b'"text"', b"[]", b"null"])
def test_bodies_without_fields(body: bytes) -> None:
    """Nothing, and no error."""
    assert texts(body, "a") == [None]


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_what_is_shown_is_json(value: Any) -> None:
    """Also within lists."""
    (shown,) = texts(json.dumps({"v": [value]}).encode(), "v")
    assert shown is not None
    if all(char not in shown for char in "?"):
        assert json.loads(shown) == [value]


def test_several_paths_are_read_at_once() -> None:
    """Also where one leads on from another, or into a list, and where a name is there twice: the last one counts."""
    body = b'{"a": {"b": 1, "c": "\\u00e9\\n"}, "d": [{"e": 2}], "b": true, "a": {"b": 1.50, "c": "x"}}'
    assert texts(body, "a.b", "a.c", "b", "nosuch.x") == ["1.50", "x", "true", None]
    assert texts(body, "a", "a.b") == ['{"b":1.50,"c":"x"}', "1.50"]
    assert texts(body, "d.0.e", "b") == ["2", "true"]
    assert texts(b'{"a": "text", "b": 1}', "a.b", "b") == [None, "1"]
    assert texts(b'{"a": null, "b": 1}', "a.b", "b") == [None, "1"]
    assert texts(b'{"other": "\xff", "b": 1}', "b", "c") == [None, None]


def test_msgspec_reads_what_it_can() -> None:
    reader = json_module._fast_reader(("a.b", "c"))
    assert reader is not None
    bodies = [b'{"a": {"b": 12345678901234567890.10}, "x": [1, {"y": null}], "c": "text"}', b'{"a": 1}']
    found, refused = reader.texts(bodies, is_utf8=True)
    assert (found["a.b"][0].as_py(), found["c"][0].as_py(), refused) == ("12345678901234567890.10", "text", [1])


_NAMES = st.sampled_from(["a", "b", "c", ""])
_VALUES = st.recursive(
    st.sampled_from(
        ["1", "-0", "1.50", "1E400", "NaN", "null", "true", '"x"', '"\\u00e9"', '"\\ud83d"', '"\x01"', "01", '"é"']
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]")
        | st.lists(st.tuples(_NAMES, inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f'"{name}": {value}' for name, value in pairs) + "}"
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.lists(st.tuples(_NAMES, _VALUES), max_size=4), st.binary(max_size=1), st.integers(0, 80))
def test_msgspec_and_python_agree(pairs: list[tuple[str, str]], byte: bytes, place: int) -> None:
    """Whatever stands in a body, and wherever it is damaged."""
    body = ("{" + ", ".join(f'"{name}": {value}' for name, value in pairs) + "}").encode()
    texts(body, "a.b", "b", "c.a")
    texts(body[:place] + byte + body[place + 1 :], "a.b", "b", "c.a")


@pytest.mark.slow
def test_rows_of_an_export(golden_store: GoldenStore, tmp_path: Path) -> None:
    """They are what the broker's decoder says, and a check compares them."""
    columns = ("physical_offset", "body_text", "properties.TAGS", "properties.KEYS", "file", "file_position")
    export(golden_store(STORE), tmp_path / "out", columns=columns, split_size=20_000)
    expected = {row["physical_offset"]: row for row in stores.oracle(STORE)["records"]}
    rows = rows_of(tmp_path / "out")
    assert len(rows) == len(expected)
    for row in rows:
        record = expected[row["physical_offset"]]
        properties = dict(record["properties"])
        assert (row["properties.TAGS"], row["properties.KEYS"]) == (properties.get("TAGS"), properties.get("KEYS"))
        assert int(Path(row["file"]).name) + row["file_position"] == row["physical_offset"]
        assert (golden_store(STORE) / row["file"]).is_file()
    assert check(golden_store(STORE), tmp_path / "out") == []


@pytest.mark.parametrize("body", ["decompressed", "stored", "none"])
def test_made_from_the_decompressed_body(tmp_path: Path, body: Any) -> None:
    """Whichever body is exported beside them."""
    document = b'{"order": 7}'
    log = LogBuilder().add_all([{"body": document}, {"body": zlib.compress(document), "sys_flag": COMPRESSED}])
    columns = ("*", "body.order", "body_text")
    export(log.write(tmp_path / "store"), tmp_path / "out", columns=columns, body=body)
    rows = rows_of(tmp_path / "out")
    assert [(row["body.order"], row["body_text"]) for row in rows] == [("7", document.decode())] * 2
    assert ("body" in rows[0]) == (body != "none")
    assert set(EXPORT_COLUMNS) - {"body"} <= set(rows[0])


@pytest.mark.parametrize("body", ["decompressed", "stored", "none"])
def test_in_a_listing(tmp_path: Path, body: str) -> None:
    """As CSV, say; beside a body or without."""
    document = b'{"order": {"id": 7}}'
    log = LogBuilder().add_all([{"body": zlib.compress(document), "sys_flag": COMPRESSED}, {"body": b"text"}])
    place = log.write(tmp_path / "store") / "commitlog"
    done = rmqtool("inspect", place, "--columns", "topic,body.order.id", "--body", body, "--format", "csv")
    assert done.out.splitlines() == ["topic,body.order.id", "orders,7", "orders,"]


@pytest.mark.parametrize("name", ["body.", "properties.", "nosuch", "body_texts", "property.x", ""])
def test_no_such_column(name: str, tmp_path: Path) -> None:
    """The message says how those that are wished for are written."""
    with pytest.raises(UsageError) as raised:
        make_query((name,), "none", Filters())
    assert "properties.NAME, body.PATH, file" in str(raised.value.hint)
    place = LogBuilder().add_all([{}]).write(tmp_path / "store") / "commitlog"
    assert "body.PATH" in rmqtool("inspect", place, "--columns", f"topic,{name or 'x'}").err
