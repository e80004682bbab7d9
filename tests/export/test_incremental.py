"""Later runs into the same output lose nothing and double nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.base.errors import RmqtoolError, UsageError
from rmqtool.scan.filters import Filters
from tests.building import LogBuilder, write_log
from tests.export.exporting import check, export, manifest_of, rows_of
from tests.sampling import examples


def offsets_of(output: Path) -> list[int]:
    return [row["physical_offset"] for row in rows_of(output)]


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.sampled_from([300, 2000, 1 << 20]))
def test_a_growing_log(tmp_path_factory: pytest.TempPathFactory, steps: list[int], split_size: int) -> None:
    """After each run the rows are the messages of the log; the sums too, and a check agrees."""
    folder = tmp_path_factory.mktemp("growing")
    builder = LogBuilder()
    for step in steps:
        builder.add_all([{"queue_offset": len(builder.offsets) + number} for number in range(step)])
        store = builder.write(folder / "store")
        export(store, folder / "out", "incremental", split_size=split_size)
        assert offsets_of(folder / "out") == builder.offsets
        assert check(store, folder / "out") == []
    manifest = manifest_of(folder / "out")
    assert len(manifest["runs"]) == len(steps)
    assert manifest["scanned"]["messages"] == len(builder.offsets)


def test_a_torn_tail_becomes_a_message(tmp_path: Path) -> None:
    """What was torn is looked at again: the broker has cut it, and written another message there."""
    builder = LogBuilder().add_all([{"queue_offset": number} for number in range(5)])
    end = builder.end
    torn = builder.images()
    torn[0] = torn[0][:end] + b"\0\0\0\x80\xda\xa3torn" + torn[0][end + 10 :]
    export(write_log(tmp_path / "store", torn), tmp_path / "out", "incremental")
    assert manifest_of(tmp_path / "out")["skipped"][0]["tail"]
    assert len(list((tmp_path / "out" / "_damaged").iterdir())) == 1
    builder.add(queue_offset=5)
    exported = export(builder.write(tmp_path / "store"), tmp_path / "out", "incremental")
    assert offsets_of(tmp_path / "out") == builder.offsets
    assert (manifest_of(tmp_path / "out")["skipped"], manifest_of(tmp_path / "out")["skipped_extents"]) == ([], 0)
    assert not (tmp_path / "out" / "_damaged").exists()
    assert not exported.totals.is_lossy


def test_a_run_without_news_changes_no_row(tmp_path: Path) -> None:
    """Only the list of runs grows."""
    store = LogBuilder().add_all([{}] * 7).write(tmp_path / "store")
    for _ in range(3):
        export(store, tmp_path / "out", "incremental")
    assert len(rows_of(tmp_path / "out")) == 7
    assert [run["rows"] for run in manifest_of(tmp_path / "out")["runs"]] == [7, 0, 0]


def test_what_the_broker_deleted_in_between_is_told(tmp_path: Path) -> None:
    """Files that went before they were exported are a gap, and the run is lossy."""
    builder = LogBuilder().add_all([{}] * 10)
    export(builder.write(tmp_path / "store"), tmp_path / "out", "incremental")
    before = builder.end
    builder.add_all([{}] * 100)
    images = {start: data for start, data in builder.images().items() if start >= 8192}
    exported = export(write_log(tmp_path / "store", images), tmp_path / "out", "incremental")
    assert exported.totals.is_lossy
    [gap] = manifest_of(tmp_path / "out")["skipped"]
    assert (gap["physical_offset"], gap["size"], gap["reason"]) == (before, 8192 - before, "missing")
    assert offsets_of(tmp_path / "out") == [at for at in builder.offsets if at < before or at >= 8192]


def test_deleted_files_that_were_exported_are_no_loss(tmp_path: Path) -> None:
    """The log may begin later by now."""
    builder = LogBuilder().add_all([{}] * 100)
    export(builder.write(tmp_path / "store"), tmp_path / "out", "incremental")
    expected = [*builder.offsets]
    expected.append(builder.add())
    images = {start: data for start, data in builder.images().items() if start >= 4096}
    exported = export(write_log(tmp_path / "store", images), tmp_path / "out", "incremental")
    assert not exported.totals.is_lossy
    assert offsets_of(tmp_path / "out") == expected


@pytest.mark.parametrize("length", [3, 20])
def test_another_log_is_refused(tmp_path: Path, length: int) -> None:
    """Cut below what was exported, or replaced: offsets would mean other messages. The output stays."""
    export(LogBuilder().add_all([{"body": b"a"}] * 10).write(tmp_path / "store"), tmp_path / "out", "incremental")
    rows = rows_of(tmp_path / "out")
    other = LogBuilder().add_all([{"body": b"b", "store_timestamp": 5}] * length).write(tmp_path / "store")
    with pytest.raises(RmqtoolError, match=r"the log ends before|another message is now at"):
        export(other, tmp_path / "out", "incremental")
    assert rows_of(tmp_path / "out") == rows
    export(other, tmp_path / "out", "overwrite")
    assert len(rows_of(tmp_path / "out")) == length


def test_other_options_are_refused(tmp_path: Path) -> None:
    """One output holds one selection in one form."""
    store = LogBuilder().add_all([{}] * 3).write(tmp_path / "store")
    export(store, tmp_path / "out", columns=["topic", "physical_offset"])
    for wrong, match in (
        ({}, "columns"),
        ({"columns": ["topic", "physical_offset"], "filters": Filters(topics=("a",))}, "filters"),
        ({"columns": ["topic", "physical_offset"], "partition_by": ("topic",)}, "partition by"),
        ({"columns": ["topic", "physical_offset"], "include": ()}, "include"),
    ):
        with pytest.raises(UsageError, match=match):
            export(store, tmp_path / "out", "incremental", **wrong)
    export(store, tmp_path / "out", "incremental", columns=["topic", "physical_offset"])
    assert manifest_of(tmp_path / "out")["rows"] == 3


@pytest.mark.slow
def test_several_stores_and_a_new_one(tmp_path: Path) -> None:
    """Each goes on where it was; one that comes later begins at its beginning; rows say whose they are."""
    one, two = LogBuilder(), LogBuilder()
    paths = [tmp_path / "a" / "store", tmp_path / "b" / "store", tmp_path / "c" / "store"]
    export([one.add_all([{}] * 3).write(paths[0]), two.add_all([{}] * 4).write(paths[1])], tmp_path / "out")
    one.add_all([{}] * 2).write(paths[0])
    export(paths[:1], tmp_path / "out", "incremental")
    export([paths[1], LogBuilder().add_all([{"body": b"c"}] * 6).write(paths[2])], tmp_path / "out", "incremental")
    names = [row["store"] for row in rows_of(tmp_path / "out")]
    assert {name: names.count(name) for name in names} == {"a": 5, "b": 4, "c": 6}
    assert check(paths, tmp_path / "out") == []


def test_append_takes_other_stores_only(tmp_path: Path) -> None:
    """The same store again would double its messages."""
    paths = [LogBuilder().add_all([{}] * 3).write(tmp_path / name / "store") for name in ("a", "b")]
    export(paths, tmp_path / "out")
    third = LogBuilder().add_all([{}] * 2).write(tmp_path / "c" / "store")
    export([third], tmp_path / "out", "append")
    assert len(rows_of(tmp_path / "out")) == 8
    for again in (paths[0], third, f"x={third}"):
        with pytest.raises(UsageError, match="twice"):
            export([again], tmp_path / "out", "append")


def test_a_store_keeps_its_name(tmp_path: Path) -> None:
    """A name given once, or made when another store had the short one, is the store's name in later runs."""
    store = LogBuilder().add_all([{}] * 3).write(tmp_path / "a" / "store")
    export([f"first={store}"], tmp_path / "out")
    export([store], tmp_path / "out", "incremental")
    assert [source["store"] for source in manifest_of(tmp_path / "out")["source"]] == ["first"]
    assert manifest_of(tmp_path / "out")["rows"] == 3


def test_a_store_that_was_moved_is_not_another_one(tmp_path: Path) -> None:
    """A snapshot of today, or another name: its messages would be there twice. Its name says that it is the same."""
    builder = LogBuilder().add_all([{}] * 3)
    today, tomorrow = tmp_path / "1" / "store", tmp_path / "2" / "store"
    export([f"first={builder.write(today)}"], tmp_path / "out", "incremental")
    builder.add_all([{}] * 2).write(tomorrow)
    for again in (tomorrow, f"x={tomorrow}", f"x={today}"):
        with pytest.raises(UsageError, match=r"is that of first, .* twice") as raised:
            export([again], tmp_path / "out", "incremental")
        assert str(raised.value.hint).startswith("first=STORE continues")
    export([f"first={tomorrow}"], tmp_path / "out", "incremental")
    assert offsets_of(tmp_path / "out") == builder.offsets
    other = LogBuilder().add_all([{"body": b"other"}] * 4).write(today)
    export([f"second={other}"], tmp_path / "out", "incremental")  # the directory is another broker's by now
    export([f"slave={tomorrow}"], tmp_path / "slaves", "incremental")
    copy = builder.write(tmp_path / "3" / "store")
    export([f"copy={copy}"], tmp_path / "slaves", "append")
    assert manifest_of(tmp_path / "slaves")["rows"] == 10


@pytest.mark.parametrize("names", [("", ""), ("a=", "b=")])
def test_a_store_that_is_given_twice(names: tuple[str, str], tmp_path: Path) -> None:
    """Patterns may overlap, and a link is another path; its messages would be there twice."""
    store = LogBuilder().add_all([{}] * 3).write(tmp_path / "store")
    (tmp_path / "link").symlink_to(store)
    for other in (store, tmp_path / "link"):
        with pytest.raises(UsageError, match="this store is given twice"):
            export([f"{names[0]}{store}", f"{names[1]}{other}"], tmp_path / "out")
