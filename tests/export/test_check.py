"""`--check` finds whatever is not as the log says."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rmqtool.base.errors import UsageError
from tests.building import LogBuilder, write_log
from tests.export.exporting import check, export, manifest_of
from tests.sampling import one_in


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = LogBuilder().add_all(
        [{"queue_offset": number, "body": b"%d" % number, "queue_id": number % 2} for number in range(60)]
    )
    return builder.write(tmp_path / "store")


def rewrite(output: Path, change: Callable[[pa.Table], pa.Table], *, told: bool = True) -> None:
    """Change the first file's rows; the manifest is made to fit its size when `told`."""
    manifest = manifest_of(output)
    file = manifest["files"][0]
    table = change(pq.read_table(output / file["path"]))
    pq.write_table(table, output / file["path"])
    if told:
        data = (output / file["path"]).read_bytes()
        file["rows"], file["bytes"], file["crc32"] = table.num_rows, len(data), zlib.crc32(data)
        for name in ("rows", "bytes"):
            manifest[name] = sum(one[name] for one in manifest["files"])
        (output / "_manifest.json").write_text(json.dumps(manifest))


def with_body(table: pa.Table) -> pa.Table:
    bodies = table["body"].to_pylist()
    bodies[3] = b"changed"
    return table.set_column(table.column_names.index("body"), table.schema.field("body"), [pa.array(bodies)])


@pytest.mark.parametrize(
    ("change", "code", "count"),
    [
        (lambda table: table.slice(2), "export.missing", 2),
        (lambda table: pa.concat_tables([table, table.slice(0, 1)]), "export.doubled", 1),
        (with_body, "export.differs", 1),
        (lambda table: table.filter(pc.not_equal(table["queue_offset"], 5)), "export.missing", 1),
    ],
)
@pytest.mark.parametrize("partition_by", [(), ("queue",)])
def test_a_changed_file_is_found(
    change: Callable[[pa.Table], pa.Table], code: str, count: int, partition_by: Any, store: Path, tmp_path: Path
) -> None:
    """Rows that are gone, doubled or other than in the log, though file and manifest agree."""
    export(store, tmp_path / "out", partition_by=partition_by)
    assert check(store, tmp_path / "out") == []
    rewrite(tmp_path / "out", change)
    found = check(store, tmp_path / "out")
    if partition_by and "queue_offset" in str(code):
        return
    assert [(finding.code, finding.count) for finding in found] in ([(code, count)], [])
    assert found or (partition_by and count == 1)


def test_a_row_of_no_message(store: Path, tmp_path: Path) -> None:
    """A row at an offset where the log has no record is told, and so is the message whose row it was."""
    export(store, tmp_path / "out")

    def moved(table: pa.Table) -> pa.Table:
        offsets = table["physical_offset"].to_pylist()
        offsets[3] += 1
        number = table.column_names.index("physical_offset")
        return table.set_column(number, table.schema.field("physical_offset"), [pa.array(offsets)])

    rewrite(tmp_path / "out", moved)
    assert {"export.extra", "export.missing"} <= {finding.code for finding in check(store, tmp_path / "out")}


def test_files_and_the_manifest(store: Path, tmp_path: Path) -> None:
    """A file that is gone, cut, or not in the manifest."""
    export(store, tmp_path / "out", split_size=2000)
    first, second, *_ = (file["path"] for file in manifest_of(tmp_path / "out")["files"])
    (tmp_path / "out" / first).unlink()
    (tmp_path / "out" / second).write_bytes((tmp_path / "out" / second).read_bytes()[:-10])
    with pytest.raises((OSError, pa.ArrowInvalid)):
        pq.read_metadata(tmp_path / "out" / second)
    codes = [finding.code for finding in check_files_only(tmp_path / "out")]
    assert codes == ["export.file", "export.file"]
    pq.write_table(pa.table({"a": [1]}), tmp_path / "out" / "more.parquet")
    assert len(check_files_only(tmp_path / "out")) == 3


def check_files_only(output: Path) -> list[Any]:
    from rmqtool.export.check import check_files

    return list(check_files(output, manifest_of(output), []))


@pytest.mark.slow
def test_a_damaged_file_is_a_finding(store: Path, tmp_path: Path) -> None:
    """Cut or changed anywhere: it is said which file, and the rest is compared."""
    export(store, tmp_path / "out", split_size=2000)
    manifest = manifest_of(tmp_path / "out")
    path = manifest["files"][0]["path"]
    file, rows = tmp_path / "out" / path, manifest["files"][0]["rows"]
    data = file.read_bytes()
    for size in (0, 4, 100, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:size])
        found = check(store, tmp_path / "out")
        counts = {one.code: (one.file, one.count) for one in found}
        assert counts == {"export.file": (path, 1), "export.missing": (str(store), rows)}
    codes = set()
    for at in one_in(3, range(0, len(data), 41), "damaged"):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        found = check(store, tmp_path / "out")
        assert ("export.file", path) in {(one.code, one.file) for one in found}, at
        codes |= {one.code for one in found}
    assert {"export.missing", "export.differs"} <= codes


@pytest.mark.slow
def test_each_flipped_byte_is_found(store: Path, tmp_path: Path) -> None:
    """Those too that change no row: statistics, by which readers pass over rows, and what nobody reads."""
    export(store, tmp_path / "out")
    file = tmp_path / "out" / manifest_of(tmp_path / "out")["files"][0]["path"]
    data = file.read_bytes()
    for at in one_in(3, range(0, len(data), 3), "flipped"):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert check_files_only(tmp_path / "out"), at


def test_a_manifest_of_before(store: Path, tmp_path: Path) -> None:
    """Files of which the manifest has no CRC are compared with the log all the same."""
    export(store, tmp_path / "out")
    manifest = manifest_of(tmp_path / "out")
    for file in manifest["files"]:
        del file["crc32"]
    (tmp_path / "out" / "_manifest.json").write_text(json.dumps(manifest))
    assert check(store, tmp_path / "out") == []


def test_sums_of_the_manifest(store: Path, tmp_path: Path) -> None:
    """A count in the manifest that is not the log's, with no column to compare rows by."""
    export(store, tmp_path / "out", columns=["topic", "queue_id"])
    assert check(store, tmp_path / "out") == []
    manifest = manifest_of(tmp_path / "out")
    manifest["queues"][0]["rows"] += 1
    manifest["queues"][1]["queue_id"] = 7
    (tmp_path / "out" / "_manifest.json").write_text(json.dumps(manifest))
    messages = [finding.message for finding in check(store, tmp_path / "out")]
    assert messages[0] == "rows 31, in the log 30"
    assert len(messages) == 3


@pytest.mark.parametrize("name", ["rows", "bytes"])
def test_totals_of_the_manifest(name: str, store: Path, tmp_path: Path) -> None:
    """They are those of its files."""
    export(store, tmp_path / "out")
    manifest = manifest_of(tmp_path / "out")
    right, manifest[name] = manifest[name], 7
    (tmp_path / "out" / "_manifest.json").write_text(json.dumps(manifest))
    [found] = check(store, tmp_path / "out")
    assert (found.code, found.file) == ("export.sums", "_manifest.json")
    assert found.message == f"7 {name} in all, where the files in it have {right}"


def test_a_log_that_has_changed_is_found(store: Path, tmp_path: Path) -> None:
    """Another body under the same header."""
    export(store, tmp_path / "out")
    images = {int(path.name): path.read_bytes() for path in (store / "commitlog").iterdir()}
    at = images[0].index(b"\x06orders") - 1
    images[0] = images[0][:at] + b"!" + images[0][at + 1 :]
    write_log(store, images)
    assert [finding.code for finding in check(store, tmp_path / "out")] == ["export.differs"]


def test_a_log_that_has_moved_on(store: Path, tmp_path: Path) -> None:
    """Messages that came later are not missed, and those that were deleted cannot be compared."""
    builder = LogBuilder().add_all([{"queue_offset": number} for number in range(120)])
    export(builder.write(store), tmp_path / "out")
    builder.add_all([{}] * 50)
    images = {start: data for start, data in builder.images().items() if start}
    assert check(write_log(store, images), tmp_path / "out") == []


def test_a_store_that_was_not_exported(store: Path, tmp_path: Path) -> None:
    """It is refused."""
    export(store, tmp_path / "out")
    other = LogBuilder().add_all([{}]).write(tmp_path / "other")
    with pytest.raises(UsageError, match="nothing from this store"):
        check(other, tmp_path / "out")
