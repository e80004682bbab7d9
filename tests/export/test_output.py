"""The output: nothing half is seen, whatever happens, and what was there before stays until the new is there."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmqtool.base.errors import Exit, RmqtoolError, UnreadableError, UsageError
from rmqtool.base.new_files import sync
from rmqtool.export import output as outputs
from rmqtool.export.output import Output
from rmqtool.export.plan import ExportPlan
from rmqtool.export.results import SplitResult
from rmqtool.export.run import check_output
from rmqtool.export.sink import unwritable
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.copies import copied
from tests.export.exporting import export, manifest_of, rows_of, run_here
from tests.sampling import one_in
from tests.unchanged import snapshot


class KilledError(BaseException):
    """Stands for a crash: no `except Exception` sees it."""


@pytest.fixture
def builder() -> LogBuilder:
    return LogBuilder().add_all([{"queue_offset": number} for number in range(60)])


@pytest.fixture
def store(builder: LogBuilder, tmp_path: Path) -> Path:
    return builder.write(tmp_path / "store")


def failing(plan: ExportPlan) -> list[SplitResult]:
    """An engine that is killed when half of the splits are written."""
    run_here(replace(plan, tasks=plan.tasks[: len(plan.tasks) // 2]))
    raise KilledError


def test_a_run_that_fails_leaves_no_directory(store: Path, tmp_path: Path) -> None:
    """Not one that it made around the output; what was there, and what somebody put beside it, stays."""
    with pytest.raises(KilledError):
        export(store, tmp_path / "a" / "b" / "out", engine=failing)
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").mkdir()

    def busy(plan: ExportPlan) -> list[SplitResult]:
        (tmp_path / "a" / "b" / "note").touch()
        return failing(plan)

    with pytest.raises(KilledError):
        export(store, tmp_path / "a" / "b" / "out", engine=busy)
    assert [path.name for path in (tmp_path / "a").rglob("*")] == ["b", "note"]
    with pytest.raises(RmqtoolError, match="cannot write: file name too long"):
        Output(tmp_path / "c" / "d" / ("x" * 300), "error")
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["overwrite", "incremental"])
def test_a_run_that_fails_leaves_the_output_as_it_was(
    mode: Any, builder: LogBuilder, store: Path, tmp_path: Path
) -> None:
    """Not a file more, not a file less, in every mode; a new output is not even made."""
    with pytest.raises(KilledError):
        export(store, tmp_path / "out", mode, split_size=1000, engine=failing)
    assert not (tmp_path / "out").exists()
    export(store, tmp_path / "out", split_size=1000)
    before = {name: entry.content for name, entry in snapshot(tmp_path / "out").items()}
    builder.add_all([{}] * 100).write(store)
    with pytest.raises(KilledError):
        export(store, tmp_path / "out", mode, split_size=1000, engine=failing)
    assert {name: entry.content for name, entry in snapshot(tmp_path / "out").items()} == before


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["overwrite", "incremental"])
def test_a_commit_that_is_interrupted_is_finished_by_the_next_run(
    mode: Any, builder: LogBuilder, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before any of its steps, `make test` every fifth: the rows are those of the log, none twice."""
    output = tmp_path / "out"
    export(store, output, split_size=1000)
    builder.add_all([{}] * 60).write(store)
    kept = tmp_path / "kept"
    copied(output, kept)
    steps = _count_steps(lambda: export(store, output, mode, split_size=1000), monkeypatch)
    assert steps > 10
    for step in one_in(5, range(steps), mode):
        shutil.rmtree(output)
        copied(kept, output)
        with monkeypatch.context() as patch:
            _kill_at(step, patch)
            with pytest.raises(KilledError):
                export(store, output, mode, split_size=1000)
        export(store, output, "incremental", split_size=1000)
        assert [row["physical_offset"] for row in rows_of(output)] == builder.offsets, step


@pytest.mark.slow
def test_a_commit_that_is_interrupted_is_reported(
    builder: LogBuilder, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--check does not judge what is half in place, and the run that finishes it says so before it refuses."""
    output = tmp_path / "out"
    export(store, output, split_size=1000)
    builder.add_all([{}] * 60).write(store)
    with monkeypatch.context() as patch:
        _kill_at(3, patch)
        with pytest.raises(KilledError):
            export(store, output, "incremental", split_size=1000)
    checked = rmqtool("export", store, "--check", output)
    assert checked.status == Exit.FAILED
    assert "an export was interrupted" in checked.err
    assert "run that export again" in checked.err
    again = rmqtool("export", store, "--output", output)
    assert again.status == Exit.USAGE
    assert "the interrupted export is finished now: its messages are in the output, and it need not be run" in again.err
    assert len(rows_of(output)) == len(builder.offsets)
    assert rmqtool("export", store, "--check", output).status == Exit.OK


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["overwrite", "incremental"])
def test_what_the_manifest_names_is_one_export_at_any_moment(
    mode: Any, builder: LogBuilder, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before every step of a commit: all rows of before, or all of after; and there is no _SUCCESS meanwhile."""
    output = tmp_path / "out"
    export(store, output, split_size=1000)
    before = list(builder.offsets)
    builder.add_all([{}] * 60).write(store)
    seen: list[list[int]] = []

    def look() -> None:
        files = [output / file["path"] for file in manifest_of(output)["files"]]
        seen.append([row for file in files for row in pq.read_table(file)["physical_offset"].to_pylist()])
        assert {path.name for path in output.glob("*.parquet")} == {file.name for file in files} or not (
            output / "_SUCCESS"
        ).exists()

    with monkeypatch.context() as patch:
        _steps(patch, look)
        export(store, output, mode, split_size=1000)
    look()
    assert {len(rows) for rows in seen} == {len(before), len(builder.offsets)}
    assert all(sorted(rows) in (before, builder.offsets) for rows in seen)


def _steps(patch: pytest.MonkeyPatch, before: Callable[[], None]) -> None:
    """Call `before` each time that a commit is about to change a name."""
    for owner, name in ((os, "replace"), (Path, "unlink"), (Path, "touch"), (Path, "rmdir")):
        real = getattr(owner, name)

        def step(*args: Any, real: Callable[..., Any] = real, **kwargs: Any) -> Any:
            before()
            return real(*args, **kwargs)

        patch.setattr(owner, name, step)


def _count_steps(run: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    count: list[int] = []
    with monkeypatch.context() as patch:
        _steps(patch, lambda: count.append(1))
        run()
    return len(count)


def _kill_at(step: int, patch: pytest.MonkeyPatch) -> None:
    count: list[int] = []

    def before() -> None:
        if len(count) == step:
            raise KilledError
        count.append(1)

    _steps(patch, before)


def test_what_a_killed_run_left_is_thrown_away(store: Path, tmp_path: Path) -> None:
    """Files that were never committed do not come back."""
    export(store, tmp_path / "out")
    (tmp_path / "out" / "_temporary" / "dead").mkdir(parents=True)
    (tmp_path / "out" / "_temporary" / "dead" / "half.parquet").write_bytes(b"half")
    export(store, tmp_path / "out", "incremental")
    assert len(rows_of(tmp_path / "out")) == 60


def test_modes_and_what_is_there(store: Path, tmp_path: Path) -> None:
    """An output with an export needs a mode; a directory with anything else is never touched."""
    export(store, tmp_path / "out")
    with pytest.raises(UsageError, match="already has an export"):
        export(store, tmp_path / "out")
    export(store, tmp_path / "out", "overwrite", partition_by=("queue",))
    assert len(rows_of(tmp_path / "out")) == 60
    export(store, tmp_path / "out", "overwrite")
    assert {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()} == set()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("mine")
    for mode in ("error", "append", "overwrite", "incremental"):
        with pytest.raises(UsageError, match="not empty"):
            export(store, tmp_path / "other", mode)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["precious.txt"]


def test_two_runs_at_once(store: Path, tmp_path: Path) -> None:
    """The second is refused."""

    def engine(plan: ExportPlan) -> list[SplitResult]:
        with pytest.raises(RmqtoolError, match="another export"):
            Output(tmp_path / "out", "incremental")
        return run_here(plan)

    export(store, tmp_path / "out", engine=engine)
    assert len(rows_of(tmp_path / "out")) == 60


def test_an_output_inside_of_a_store_is_refused(store: Path, tmp_path: Path) -> None:
    """Reading a store adds nothing to it, by whatever name."""
    (tmp_path / "link").symlink_to(store)
    for output in (store, store / "out", tmp_path / "link" / "a" / "b"):
        with pytest.raises(UsageError, match="inside"):
            check_output(output, [store])
    check_output(tmp_path / "store2", [store])


def test_files_are_on_the_disk_before_they_are_seen(store: Path, tmp_path: Path, synced: list[int]) -> None:
    """Data, manifest and directory are flushed."""
    export(store, tmp_path / "out", split_size=1000)
    manifest = manifest_of(tmp_path / "out")
    names = [file["path"] for file in manifest["files"]] + ["_manifest.json", "."]
    assert {(tmp_path / "out" / name).stat().st_ino for name in names} <= set(synced)


def test_each_step_of_a_commit_is_on_the_disk_before_the_next(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories of moved files, and those that were made, before the manifest; until the end nothing says whole."""
    out = tmp_path / "new" / "out"
    synced: list[tuple[Path, bool]] = []
    write = outputs._write_json

    def note_sync(path: Path) -> int:
        synced.append((path, (out / "_SUCCESS").exists()))
        return sync(path)

    def note_write(path: Path, value: dict[str, Any]) -> None:
        synced.append((path, (out / "_SUCCESS").exists()))
        write(path, value)

    monkeypatch.setattr(outputs, "sync", note_sync)
    monkeypatch.setattr(outputs, "_write_json", note_write)
    export(store, out, partition_by=("topic",))
    paths = [path for path, _ in synced]
    journal, manifest = paths.index(out / "_temporary" / "commit.json"), paths.index(out / "_manifest.json")
    for part in (paths[:journal], paths[journal + 1 : manifest]):
        assert "_temporary" in {path.parent.name for path in part}
    assert {out, *out.glob("topic=*"), tmp_path, tmp_path / "new"} <= {*paths[journal:manifest]}
    synced.clear()
    export(store, out, "overwrite", partition_by=("queue",))
    whole = [is_whole for _, is_whole in synced]
    assert whole[whole.index(False) :] == [*[False] * (len(whole) - whole.index(False) - 1), True]


def test_the_disk_begins_while_rows_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group is on its way when it is made, the file's end when that is there, and no byte twice."""
    begun: list[tuple[int, int]] = []

    def advise(descriptor: int, start: int, length: int, advice: int) -> None:
        assert (length, advice) == (0, os.POSIX_FADV_DONTNEED)
        begun.append((start, os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    export(LogBuilder().add_all([{}]).write(tmp_path / "store"), tmp_path / "out")
    [file] = (tmp_path / "out").glob("*.parquet")
    (first, row_group), (second, end) = begun
    assert 0 == first < row_group == second < end == file.stat().st_size


@pytest.mark.parametrize("system", ["has none", "refuses"])
def test_where_no_advice_is_taken(system: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be begun is waited for as a whole."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    if system == "refuses":
        monkeypatch.setattr(os, "posix_fadvise", refuse, raising=False)
    export(store, tmp_path / "out")
    assert pq.read_table(tmp_path / "out").num_rows == manifest_of(tmp_path / "out")["rows"] > 0


def test_a_full_disk_is_a_sentence(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever meets it: pyarrow, or the commit; and the output stays."""

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for owner, name in ((pq.ParquetWriter, "write_table"), (pq.ParquetWriter, "close"), (os, "fsync")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, full)
            with pytest.raises(RmqtoolError, match="no space is left on the output's disk"):
                export(store, tmp_path / "out", split_size=1 << 20)
        assert not (tmp_path / "out").exists()
    assert "permission denied" in str(unwritable(tmp_path, PermissionError(errno.EACCES, "")))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "other"}'])
def test_a_manifest_that_is_none(text: str, store: Path, tmp_path: Path) -> None:
    """It is told, and nothing is overwritten."""
    export(store, tmp_path / "out", split_size=1 << 20)
    (tmp_path / "out" / "_manifest.json").write_text(text)
    with pytest.raises(UnreadableError, match="manifest"):
        export(store, tmp_path / "out", "overwrite")
