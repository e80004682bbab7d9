"""Damaged logs: what is readable is exported once, and what is not is told, counted and kept."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from rmqtool.base.errors import UnreadableError
from rmqtool.export.write import PIECE_BYTES
from rmqtool.scan.block import Damage
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from tests.building import LOG, LogBuilder, message, write_log, write_sparse
from tests.conftest import GoldenStore
from tests.export.exporting import Row, check, export, manifest_of, rows_of
from tests.sampling import examples
from tests.scan.damaging import FILE_SIZE, damaged_logs
from tests.scan.reading import files_of, small_blocks

HEADER = 30  # a place in a record's header, bytes


def damaged_table(output: Path) -> list[Row]:
    return [row for file in manifest_of(output)["damaged"] for row in pq.read_table(output / file["path"]).to_pylist()]


def patched(images: dict[int, bytes], offset: int, data: bytes) -> dict[int, bytes]:
    """The files with `data` at a physical offset."""
    start = max(start for start in images if start <= offset)
    image, position = images[start], offset - start
    return {**images, start: image[:position] + data + image[position + len(data) :]}


@pytest.mark.slow
def test_a_flip_in_a_header_costs_one_message(tmp_path: Path) -> None:
    """The others are there; the bytes of the one are in the side table."""
    builder = LogBuilder().add_all([{"queue_offset": number} for number in range(40)])
    lost = builder.offsets[10]
    images = patched(builder.images(), lost + HEADER, b"\xff")
    exported = export(write_log(tmp_path / "store", images), tmp_path / "out", split_size=500)
    assert [row["physical_offset"] for row in rows_of(tmp_path / "out")] == [
        offset for offset in builder.offsets if offset != lost
    ]
    assert exported.totals.is_lossy
    size = builder.offsets[11] - lost
    extent = {"store": "out", "physical_offset": lost, "size": size, "reason": "physical-offset", "tail": False}
    assert manifest_of(tmp_path / "out")["skipped"] == [{**extent, "store": exported.manifest["source"][0]["store"]}]
    [row] = damaged_table(tmp_path / "out")
    assert (row["physical_offset"], row["reason"]) == (lost, "physical-offset")
    assert row["data"] == images[0][lost : lost + size]
    assert check(tmp_path / "store", tmp_path / "out") == []
    [file] = manifest_of(tmp_path / "out")["damaged"]
    changed = (tmp_path / "out" / file["path"]).read_bytes().replace(row["data"][-9:], b"elsewhere")
    (tmp_path / "out" / file["path"]).write_bytes(changed)
    assert [one.file for one in check(tmp_path / "store", tmp_path / "out")] == [file["path"]]


def test_a_body_that_is_not_what_was_stored_is_told(tmp_path: Path) -> None:
    """A message with a wrong CRC, and one that does not decompress, are exported as they stand."""
    builder = LogBuilder()
    builder.add(body=b"right")
    wrong = builder.add(body=b"right", body_crc=5)
    packed = builder.add(body=b"not zlib", sys_flag=1)
    builder.add(body=zlib.compress(b"plain"), sys_flag=1)
    exported = export(builder.write(tmp_path / "store"), tmp_path / "out")
    assert [row["body"] for row in rows_of(tmp_path / "out")] == [b"right", b"right", b"not zlib", b"plain"]
    assert exported.totals.is_lossy
    assert manifest_of(tmp_path / "out")["wrong_bodies"] == {
        "wrong_crc": {"count": 1, "physical_offsets": [wrong]},
        "not_decompressed": {"count": 1, "physical_offsets": [packed]},
        "not_decoded": {"count": 0, "physical_offsets": []},
    }


def test_a_zero_page_and_a_torn_tail(tmp_path: Path) -> None:
    """Both are skipped; a torn tail is marked as one."""
    builder = LogBuilder(1 << 14).add_all([{"queue_offset": number, "body": b"x" * 100} for number in range(60)])
    last = builder.offsets[-1]
    images = patched(patched(builder.images(), 4096, bytes(512)), last + 60, bytes(500))
    export(write_log(tmp_path / "store", images), tmp_path / "out", split_size=3000)
    manifest = manifest_of(tmp_path / "out")
    assert [extent["tail"] for extent in manifest["skipped"]] == [False, True]
    assert manifest["source"][0]["next_physical_offset"] == last
    assert check(tmp_path / "store", tmp_path / "out") == []


@pytest.mark.slow
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("torn", [b"", b"torn"])
def test_a_file_that_a_killed_broker_left(tmp_path: Path, torn: bytes, stored: bool) -> None:
    """No blank ends it: of its zeros the side table has the number, and the bytes of all else; a later file is read."""
    size, end = 3 * PIECE_BYTES, len(message())
    garbage = end + 2 * PIECE_BYTES + 5  # behind zeros
    pieces = {0: message() + torn, garbage: b"x" * 20}
    if stored:
        pieces[0] = pieces[0].ljust(garbage, b"\0")
        pieces[garbage] = pieces[garbage].ljust(size - garbage, b"\0")
    write_sparse(tmp_path / "store" / LOG / f"{0:020}", pieces, size)
    write_sparse(tmp_path / "store" / LOG / f"{size:020}", {0: message(size)}, size)
    export(tmp_path / "store", tmp_path / "out")
    assert [row["physical_offset"] for row in rows_of(tmp_path / "out")] == [0, size]
    [extent] = manifest_of(tmp_path / "out")["skipped"]
    assert (extent["physical_offset"], extent["size"]) == (end, size - end)
    rows = damaged_table(tmp_path / "out")
    zeros = [row for row in rows if row["data"] == b""]
    assert sum(row["size"] for row in rows) == size - end
    assert sum(row["size"] for row in zeros) == 2 * PIECE_BYTES + 5 - (PIECE_BYTES if torn else 0)
    written = b"".join(row["data"].ljust(row["size"], b"\0") for row in rows)
    assert written == (tmp_path / "store" / LOG / f"{0:020}").read_bytes()[end:]
    assert {(row["extent_offset"], row["extent_size"]) for row in rows} == {(end, size - end)}
    assert check(tmp_path / "store", tmp_path / "out") == []


@pytest.mark.parametrize("split_size", [700, 5000])
def test_missing_and_overlapping_files(tmp_path: Path, split_size: int) -> None:
    """Bytes that no file holds are skipped once; what two files hold is exported once."""
    builder = LogBuilder().add_all([{"queue_offset": number} for number in range(140)])
    images = builder.images()
    longer = {**images, 0: images[0] + images[4096][:1000]}
    del longer[8192]
    export(write_log(tmp_path / "store", longer), tmp_path / "out", split_size=split_size)
    expected = [offset for offset in builder.offsets if not 8192 <= offset < 12288]
    assert [row["physical_offset"] for row in rows_of(tmp_path / "out")] == expected
    gaps = [extent for extent in manifest_of(tmp_path / "out")["skipped"] if extent["reason"] == "missing"]
    assert [(gap["physical_offset"], gap["size"]) for gap in gaps] == [(8192, 4096)]
    [row] = [row for row in damaged_table(tmp_path / "out") if row["reason"] == "missing"]
    assert row["data"] is None


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(images=damaged_logs())
def test_any_damage_gives_what_the_scan_gives(
    tmp_path_factory: pytest.TempPathFactory, images: dict[int, bytes]
) -> None:
    """Whatever the damage and the splits: the rows of one scan of the whole log, and its damage."""
    folder = tmp_path_factory.mktemp("damaged")
    store = write_log(folder / "store", images)
    with small_blocks(FILE_SIZE, longest_blank=1 << 10):
        expected, damage = [], []
        for event in scan_files(files_of(store)):
            if isinstance(event, RecordRun):
                expected += event.physical_offsets.tolist()
            elif isinstance(event, Damage):
                damage.append((event.physical_offset, event.size, event.reason))
        export(store, folder / "out", split_size=1000)
        manifest = manifest_of(folder / "out")
        # A file that was cut short or made longer overlaps or leaves a gap, which one scan shows in its own order.
        assert [row["physical_offset"] for row in rows_of(folder / "out")] == sorted(set(expected))
        found = [(extent["physical_offset"], extent["size"], extent["reason"]) for extent in manifest["skipped"]]
        assert found == sorted(damage)
        assert check(store, folder / "out") == []


def test_a_store_without_a_message(golden_store: GoldenStore, tmp_path: Path) -> None:
    """An export of nothing has columns too, and a next run goes on from it."""
    export(golden_store("5.3.3-empty"), tmp_path / "out")
    assert rows_of(tmp_path / "out") == []
    assert pq.read_table(tmp_path / "out").column_names[0] == "topic"
    export(golden_store("5.3.3-empty"), tmp_path / "out", "incremental")
    assert rows_of(tmp_path / "out") == []


def test_a_file_that_cannot_be_read_ends_the_run(tmp_path: Path) -> None:
    """A file that vanishes while it is read is no damage: nothing is exported."""
    store = LogBuilder().add_all([{}] * 60).write(tmp_path / "store")

    def engine(plan: object) -> list[object]:
        (store / "commitlog" / f"{4096:020d}").unlink()
        from tests.export.exporting import run_here

        return run_here(plan)  # type: ignore[arg-type,return-value]

    with pytest.raises((UnreadableError, AssertionError)):
        export(store, tmp_path / "out", engine=engine)
    assert not (tmp_path / "out").exists()
