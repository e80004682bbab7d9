"""A later run may add columns to a table: rows before have null there, once and wherever a run is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit, UsageError
from rmqtool.export import output as output_module
from rmqtool.export.output import MANIFEST
from rmqtool.store import message_reader
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.decoding import DIGESTS, digest
from tests.export.conftest import Table
from tests.export.exporting import check, export, manifest_of, rows_of
from tests.export.killing import KilledError, killed_at
from tests.export.tables import STEPS
from tests.sampling import one_in

pytestmark = pytest.mark.slow

FEW = ("topic", "physical_offset")
MORE = (*FEW, "properties.A", "file", "keys", "born_timestamp")

AGAIN = ("--mode", "incremental", "--include", "prepared,rolled-back", "--engine", "local")
"""Options of the command for a run after one of `export`."""


@pytest.fixture
def builder() -> LogBuilder:
    return LogBuilder()


def grown(builder: LogBuilder, store: Path, number: int = 5) -> Path:
    """The store, with more messages that have properties."""
    first = len(builder.offsets)
    builder.add_all(
        [{"queue_offset": at, "properties": {"A": str(at), "KEYS": f"k{at}"}} for at in range(first, first + number)]
    )
    return builder.write(store)


def test_new_columns_come_last_and_are_null_before(table: Table, builder: LogBuilder, tmp_path: Path) -> None:
    """Twice, named in any order; a check proves that each null stands where it has to, and no other."""
    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    export(store, output, table=table.option, columns=FEW)
    export(grown(builder, store), output, "incremental", table=table.option, columns=(*MORE[2:], *FEW))
    export(grown(builder, store), output, "incremental", table=table.option, columns=(*MORE, "tags", "file_position"))
    assert table.columns == [*MORE, "tags", "file_position"]
    assert table.values("physical_offset") == builder.offsets
    assert table.values("properties.A") == [None] * 5 + [str(number) for number in range(5, 15)]
    assert table.values("keys") == [None] * 5 + [[f"k{number}"] for number in range(5, 15)]
    assert [value is None for value in table.values("file_position")] == [True] * 10 + [False] * 5
    assert check(store, output) == []
    assert table.versions() == (5 if table.apart else 3)
    manifest = manifest_of(output)
    assert [run.get("added_columns") for run in manifest["runs"]] == [None, list(MORE[2:]), ["tags", "file_position"]]
    assert [column.get("null_before") for column in manifest["columns"]] == [
        None, None, *[{"shop": builder.offsets[5]}] * 4, *[{"shop": builder.offsets[10]}] * 2
    ]  # fmt: skip


def test_what_a_table_is_made_of_is_synced(
    table: Table, builder: LogBuilder, tmp_path: Path, synced: list[int]
) -> None:
    """By us: neither package does it, and a power failure leaves names without content."""
    store, output = grown(builder, tmp_path / "store"), tmp_path / "out"
    export(store, output, table=table.option)
    export(grown(builder, store), output, "incremental", table=table.option)
    logs = {path for pattern in ("_delta_log", "metadata") for path in tmp_path.rglob(pattern)}
    assert logs
    assert {*synced} >= {path.stat().st_ino for log in logs for path in (log, *log.iterdir())}


def test_a_check_sees_a_value_too_many_and_one_too_few(builder: LogBuilder, delta: Table, tmp_path: Path) -> None:
    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    export(store, output, table="delta", columns=FEW)
    export(grown(builder, store), output, "incremental", table="delta", columns=(*FEW, "properties.A"))
    for changed in (builder.offsets[4], builder.offsets[6]):
        manifest = manifest_of(output)
        manifest["columns"][2]["null_before"] = {"shop": changed}
        (output / MANIFEST).write_text(json.dumps(manifest))
        [found] = check(store, output)
        assert (found.code, "1 row has another properties.A" in found.message) == ("export.differs", True)


def test_a_version_claims_no_rows_that_it_does_not_have(builder: LogBuilder, delta: Table, tmp_path: Path) -> None:
    """That with the new columns comes before the rows, which bring how far the store is exported."""
    deltalake = pytest.importorskip("deltalake")
    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    export(store, output, table="delta", columns=FEW)
    export(grown(builder, store), output, "incremental", table="delta", columns=MORE)
    export(store, output, "incremental", table="delta", columns=(*MORE, "tags"))
    history = deltalake.DeltaTable(str(output)).history()
    assert [(each["operation"], "rmqtool" in each) for each in reversed(history)] == [
        ("CREATE TABLE", True), ("ADD COLUMN", False), ("WRITE", True), ("ADD COLUMN", True)
    ]  # fmt: skip


def test_new_columns_without_new_rows(table: Table, builder: LogBuilder, tmp_path: Path) -> None:
    """The table has them at once; the run after it is one of the same columns."""
    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    export(store, output, table=table.option, columns=FEW)
    for _ in range(2):
        export(store, output, "incremental", table=table.option, columns=MORE)
        assert table.columns == [*MORE]
        assert table.values("file") == [None] * 5
        assert check(store, output) == []
    export(grown(builder, store), output, "incremental", table=table.option, columns=MORE)
    assert table.values("properties.A")[4:] == [None, "5", "6", "7", "8", "9"]
    assert check(store, output) == []


def test_columns_that_a_newer_program_has(
    table: Table, builder: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are among the usual ones; an older program does not leave them out again."""
    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    every = message_reader.EXPORT_COLUMNS
    with monkeypatch.context() as older:
        older.setattr(message_reader, "EXPORT_COLUMNS", tuple(name for name in every if name not in ("keys", "flag")))
        export(store, output, table=table.option)
    export(grown(builder, store), output, "incremental", table=table.option)
    assert sorted(table.columns) == sorted(every)
    assert table.columns[-2:] == ["keys", "flag"]
    assert table.values("flag") == [None] * 5 + [0] * 5
    assert check(store, output) == []
    with monkeypatch.context() as older:
        older.setattr(message_reader, "EXPORT_COLUMNS", tuple(name for name in every if name not in ("keys", "flag")))
        with pytest.raises(UsageError, match="left out: keys, flag"):
            export(store, output, "incremental", table=table.option)


def test_bodies_and_decoders_may_come_later(table: Table, builder: LogBuilder, tmp_path: Path) -> None:
    """Where the output has no column of theirs; after that they are what they are."""
    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    export(store, output, table=table.option, body="none")
    export(grown(builder, store), output, "incremental", table=table.option)
    assert table.values("body") == [None] * 5 + [b"body"] * 5
    for other in ("stored", "none"):
        with pytest.raises(UsageError, match=r"other body|left out: body"):
            export(store, output, "incremental", table=table.option, body=other)
    grown(builder, store)
    command = ("export", store, "-o", output, "--table", table.option, *AGAIN)
    assert rmqtool(*command, "--decoder", DIGESTS).err == ""
    assert table.values("body_decoded") == [None] * 10 + [digest(b"body")] * 5
    assert rmqtool("export", store, "--check", output, "--decoder", DIGESTS).status == Exit.OK
    assert rmqtool(*command).status == rmqtool(*command, "--decoder", "cat").status == Exit.USAGE


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (("topic",), "left out: physical_offset"),
        ((*FEW, "store"), "column store cannot be added"),
    ],
)
def test_what_a_table_does_not_take(
    table: Table, columns: tuple[str, ...], match: str, builder: LogBuilder, tmp_path: Path
) -> None:
    """Nothing changes, neither the files nor the table; without a table other columns are refused as ever."""
    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    export(store, output, table=table.option, columns=FEW)
    rows = rows_of(output)
    with pytest.raises(UsageError, match=match):
        export(grown(builder, store), output, "incremental", table=table.option, columns=columns)
    assert (rows_of(output), table.columns, table.versions()) == (rows, [*FEW], 1)


def test_a_type_never_changes(table: Table, builder: LogBuilder, tmp_path: Path) -> None:
    """What another version of the program wrote with another type is refused."""
    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    export(store, output, table=table.option, columns=FEW)
    manifest = manifest_of(output)
    manifest["columns"][1]["type"] = "int32"
    (output / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match="physical_offset of this table is int32, not int64"):
        export(store, output, "incremental", table=table.option, columns=MORE)


def test_another_store_and_more_columns(table: Table, builder: LogBuilder, tmp_path: Path) -> None:
    """Offsets count for each store by itself; one that is added later has all columns from its first row on."""
    first, second = LogBuilder(), LogBuilder()
    output, columns = tmp_path / "out", (*FEW, "store")
    stores = [grown(first, tmp_path / "a" / "store"), grown(second, tmp_path / "b" / "store", 3)]
    export(stores[:1], output, table=table.option, columns=columns)
    export(stores[1:], output, "append", table=table.option, columns=(*columns, "properties.A"))
    grown(first, stores[0])
    export(stores, output, "incremental", table=table.option, columns=(*columns, "properties.A", "keys"))
    rows = table.read().sort_by([("store", "ascending"), ("physical_offset", "ascending")])
    assert rows.column("properties.A").to_pylist() == [*[None] * 5, "5", "6", "7", "8", "9", "0", "1", "2"]
    assert rows.column("keys").to_pylist() == [*[None] * 5, *[[f"k{number}"] for number in range(5, 10)], *[None] * 3]
    assert check(stores, output) == []


def test_offsets_that_come_later(delta: Table, builder: LogBuilder, tmp_path: Path) -> None:
    """A check compares the rows that have them, one by one, and of the others the sums."""
    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    export(store, output, table="delta", columns=("topic",))
    export(grown(builder, store), output, "incremental", table="delta", columns=FEW)
    result = rmqtool("export", store, "--check", output, "--json")
    compared = result.document["result"]["check"]
    assert (result.status, compared["rows_compared"]) == (Exit.OK, 5)
    assert f"rows before {builder.offsets[5]} are not compared" in compared["unproven"][0]


@pytest.mark.parametrize("news", [0, 3])
def test_a_run_that_is_killed_anywhere(
    table: Table, news: int, builder: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has the columns and rows of before or of after; the next run makes the whole of it, each row once.

    Of the steps `make test` tries every fourth.
    """
    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    export(store, output, table=table.option, columns=FEW)
    columns: tuple[str, ...] = FEW
    for step in one_in(4, range(100), f"{news} {table.option}"):
        before = len(builder.offsets)
        grown(builder, store, news)
        wanted = (*columns, f"properties.A{step}")
        with monkeypatch.context() as patched:
            left = killed_at(step, output_module, STEPS, patched)
            try:
                export(store, output, "incremental", table=table.option, columns=wanted)
            except KilledError:
                assert table.values("physical_offset") in (builder.offsets[:before], builder.offsets)
        if left() >= 0:
            break
        export(store, output, "incremental", table=table.option, columns=wanted)
        assert (table.columns, table.values("physical_offset")) == ([*wanted], builder.offsets)
        assert check(store, output) == []
        columns = wanted
    assert step >= 4


def test_killed_between_the_columns_and_the_rows(
    delta: Table, builder: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a Delta table they are two versions; the next run, which need not say what is new, adds the rows."""
    import deltalake

    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    export(store, output, table="delta", columns=FEW)

    def killed(*_: Any, **__: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(deltalake.DeltaTable, "create_write_transaction", killed)
        with pytest.raises(KilledError):
            export(grown(builder, store), output, "incremental", table="delta", columns=MORE)
    assert (delta.columns, delta.values("physical_offset"), delta.versions()) == ([*MORE], builder.offsets[:5], 2)
    with pytest.raises(UsageError, match="left out"):
        export(store, output, "incremental", table="delta", columns=FEW)  # has finished what was begun
    assert (delta.values("physical_offset"), delta.versions()) == (builder.offsets, 3)
    assert check(store, output) == []


def test_what_people_see(builder: LogBuilder, delta: Table, tmp_path: Path) -> None:
    """A dry run, the run, and both as JSON say which columns are new."""
    store, output = grown(builder, tmp_path / "shop" / "store"), tmp_path / "out"
    export(store, output, table="delta", columns=FEW)
    run = ("export", store, "-o", output, "--table", "delta", *AGAIN, "--columns", ",".join(MORE))
    plan = rmqtool(*run, "--dry-run", "--json").document["result"]["plan"]
    assert (plan["added_columns"], plan["columns"]) == ([*MORE[2:]], [*MORE])
    shown = f"new columns  {', '.join(MORE[2:])}: null in the rows before"
    assert (shown in rmqtool(*run, "--dry-run").out, delta.columns) == (True, [*FEW])
    assert shown in rmqtool(*run).out
    assert "new columns" not in rmqtool(*run).out
    assert "added_columns" not in rmqtool(*run, "--json").document["result"]["last_run"]
