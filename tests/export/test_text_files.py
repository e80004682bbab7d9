"""CSV and NDJSON: the same messages as Parquet, read back with Python's own readers."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtool.base.errors import UsageError
from rmqtool.export import sink
from rmqtool.export.check import count_rows
from rmqtool.export.options import ExportOptions, Format, parse_compression
from tests.building import LogBuilder
from tests.conftest import GoldenStore
from tests.export.exporting import EPOCH, Row, check, export, manifest_of, oracle_row
from tests.golden import stores

ALL_FORMS = "5.5.0-clean"
TEXTS: tuple[Format, ...] = ("csv", "ndjson")
BIG = (1 << 63) - 1
ODD = 'a,"b"\r\n=1+1\n\u202e中'


def files_of(output: Path) -> list[Path]:
    return [output / file["path"] for file in manifest_of(output)["files"]]


def text_of(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix == ".zst":
        data = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def rows_of(output: Path) -> list[dict[str, Any]]:
    """All rows by Python's readers: of CSV all values are text."""
    rows: list[dict[str, Any]] = []
    for path in files_of(output):
        text = text_of(path)
        is_csv = ".csv" in path.suffixes
        rows += csv.DictReader(io.StringIO(text, newline="")) if is_csv else map(json.loads, text.split("\n")[:-1])
    assert len(rows) == manifest_of(output)["rows"]
    return sorted(rows, key=lambda row: int(row["physical_offset"]))


def as_json(row: Row) -> dict[str, Any]:
    """A row of the oracle as NDJSON has it."""
    times = {name: (row[name] - EPOCH) // timedelta(milliseconds=1) for name in ("born_timestamp", "store_timestamp")}
    body = {"body": base64.b64encode(row["body"]).decode()} if "body" in row else {}
    return {**row, **times, **body, "properties": dict(row["properties"])}


def as_csv(row: dict[str, Any]) -> dict[str, str]:
    """A row of NDJSON as CSV has it."""
    return {
        name: json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, dict)
        else " ".join(value) if isinstance(value, list)
        else "" if value is None
        else str(value)
        for name, value in row.items()
    }  # fmt: skip


@pytest.fixture(params=stores.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.one_in(12)
@pytest.mark.slow
def test_rows_are_the_messages_of_the_broker(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Every field of every record; CSV says what NDJSON says; and a check agrees."""
    for form in TEXTS:
        export(golden_store(name), tmp_path / form, format=form, codec="none", split_size=20_000)
        assert check(golden_store(name), tmp_path / form) == []
    found = rows_of(tmp_path / "ndjson")
    assert found == [as_json(oracle_row(record)) for record in stores.oracle(name)["records"]]
    as_read = [{**row, "properties": json.loads(row["properties"])} for row in rows_of(tmp_path / "csv")]
    assert as_read == [{**as_csv(row), "properties": row["properties"]} for row in found]
    assert list(as_read[0]) == list(found[0]) if found else True


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Messages with all that text files trip over."""
    bodies = [b"plain", ODD.encode(), b"\xff\x00", b"", b'{"a": 9007199254740993,\n "a": [1e400, "\\ud800"]}', b"NaN"]
    builder = LogBuilder()
    for number, body in enumerate(bodies):
        builder.add(body=body, properties={"KEYS": "a b", "TAGS": ODD, ODD: f"v{number}"}, queue_offset=BIG - number)
    return builder.write(tmp_path / "store")


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_odd_text_and_every_compression(form: Format, codec: str, odd: Path, tmp_path: Path) -> None:
    """Line ends, quotes, formulas, control characters and 64-bit numbers come back as they are stored."""
    export(odd, tmp_path / "out", format=form, codec=codec, level=None if codec == "none" else 3)
    assert files_of(tmp_path / "out")[0].name.endswith(
        {"none": form, "gzip": f"{form}.gz", "zstd": f"{form}.zst"}[codec]
    )
    for number, row in enumerate(rows_of(tmp_path / "out")):
        properties = row["properties"] if form == "ndjson" else json.loads(row["properties"])
        assert (row["tags"], properties[ODD], int(row["queue_offset"])) == (ODD, f"v{number}", BIG - number)
    assert check(odd, tmp_path / "out") == []


@pytest.mark.parametrize("form", TEXTS)
def test_body_formats(form: Format, odd: Path, tmp_path: Path) -> None:
    """What is no text, or no JSON, stands as base64 beside it; JSON is what was written, to the digit."""
    bodies: dict[str, list[Any]] = {}
    for body_format in ("base64", "hex", "text", "json"):
        columns = ["physical_offset", "body"]
        output = tmp_path / body_format
        export(odd, output, format=form, codec="none", columns=columns, body_format=body_format)
        bodies[body_format] = [(row.get("body"), row.get("body_base64")) for row in rows_of(output)]
        assert check(odd, output) == []
    nothing = None if form == "ndjson" else ""
    assert [bodies["base64"][0], bodies["hex"][2]] == [("cGxhaW4=", None), ("ff00", None)]
    assert bodies["text"][:4] == [("plain", nothing), (ODD, nothing), (nothing, "/wA="), ("", nothing)]
    assert [one[1] for one in bodies["json"]] == ["cGxhaW4=", *(two[1] for two in bodies["json"][1:4]), nothing, "TmFO"]
    exact = '{"a": 9007199254740993,  "a": [1e400, "\\ud800"]}'
    assert exact in text_of(files_of(tmp_path / "json")[0]).replace('""', '"')


@pytest.mark.parametrize("form", TEXTS)
def test_partitions_frames_and_later_runs(
    form: Format, odd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with Parquet; an output has one format, and compression may change."""
    monkeypatch.setattr(sink, "_FRAME_BYTES", 1)
    store, output = tmp_path / "store", tmp_path / "out"
    builder = LogBuilder().add_all([{"topic": ODD[:5], "queue_id": number % 2} for number in range(4)])
    options: dict[str, Any] = {"format": form, "partition_by": ("topic", "queue")}
    export(builder.write(store), output, codec="gzip", level=1, **options)
    assert manifest_of(output)["files"][0]["path"].startswith("by_topic=")
    export(builder.add_all([{}, {}]).write(store), output, "incremental", codec="zstd", **options)
    assert {path.suffix for path in files_of(output)} == {".gz", ".zst"}
    assert len(rows_of(output)) == 6
    assert check(store, output) == []
    with pytest.raises(UsageError, match=f"other format: {form}"):
        export(store, output, "incremental", partition_by=("topic", "queue"))


@pytest.mark.parametrize("form", TEXTS)
def test_nothing_is_a_file_without_rows(form: Format, tmp_path: Path) -> None:
    """Of CSV the header line; a check finds nothing."""
    store = LogBuilder().write(tmp_path / "store")
    export(store, tmp_path / "out", format=form, codec="none")
    (path,) = files_of(tmp_path / "out")
    assert text_of(path)[:15] == ("topic,queue_id," if form == "csv" else "")
    assert check(store, tmp_path / "out") == []


@pytest.mark.parametrize("form", TEXTS)
def test_a_check_finds_what_was_changed(form: Format, odd: Path, tmp_path: Path) -> None:
    """A row that differs, is gone, is there twice; half a line; a file that no manifest names."""
    export(odd, tmp_path / "out", format=form, codec="none", columns=["physical_offset", "queue_id", "tags"])
    (path,) = files_of(tmp_path / "out")
    whole = path.read_bytes()
    ends = [number + 1 for number, byte in enumerate(whole) if byte == 10]
    last = whole.rindex(b'{"' if form == "ndjson" else b"\n", 0, whole.rindex(b",0,") if form == "csv" else None)
    last += form == "csv"
    changed = {
        "export.differs": whole.replace("中".encode(), b"X"),
        "export.missing": whole[:last],
        "export.doubled": whole + whole[last:],
        "cannot be read": whole[: ends[-1] - 1],
    }
    for found, data in changed.items():
        path.write_bytes(data)
        findings = check(odd, tmp_path / "out")
        assert found in {finding.code for finding in findings} or any(found in one.message for one in findings), found
    path.write_bytes(whole)
    (path.parent / f"more.{form}.gz").write_bytes(b"")
    assert [finding.file for finding in check(odd, tmp_path / "out")] == [f"more.{form}.gz"]


def test_a_record_of_text_may_be_longer_than_what_is_read_at_once(odd: Path, tmp_path: Path) -> None:
    """Rows are counted by their ends, of which those within quotes are none."""
    from rmqtool.export import check as stored_rows

    for form in TEXTS:
        export(odd, tmp_path / form, format=form, codec="none")
        options = ExportOptions(format=form)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stored_rows, "_READ_AT_ONCE", 50)
            assert count_rows(files_of(tmp_path / form)[0], options) == 6


def test_compressions_of_text() -> None:
    """Whole files, so only what readers of text files know; none unless it is asked for."""
    assert parse_compression(None, "csv") == ("none", None)
    assert parse_compression("gzip", "ndjson") == ("gzip", 6)
    assert parse_compression(None) == ("zstd", 1)
    with pytest.raises(UsageError, match="csv files are not compressed with snappy"):
        parse_compression("snappy", "csv")
