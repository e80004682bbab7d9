"""``verify --resume FILE``: runs that end early come to what one run comes to; a file that does not fit is refused."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shlex
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit, UsageError
from rmqtool.formats.file_name import file_name
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.show.verify_reports import outcome_json
from rmqtool.store.store import open_store
from rmqtool.verify import log_pass
from rmqtool.verify.log_pass import PartCheck
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.saved_progress import SavedProgress
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.commands.running import rmqtool
from tests.store.other_process import JAVA, another_process
from tests.unchanged import unchanged
from tests.verify.circumstances import log_of
from tests.verify.small_store import FILE_SIZE, small_store

PART_SIZE = 350


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


@pytest.fixture
def damaged(store: Path) -> Path:
    """Damage within a part, and where parts meet."""
    for path in sorted((store / "commitlog").iterdir())[:2]:
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        data[2000:2700] = b"\xaa" * 700
        path.write_bytes(data)
    return store


@pytest.fixture
def delayed(tmp_path: Path) -> Path:
    """Delayed messages that no broker can deliver."""
    delayed: Mapping[str, object] = {"topic": SCHEDULE_TOPIC, "queue_id": 2}
    return log_of(*[delayed, {"topic": "orders"}] * 20)(tmp_path / "delayed")


@pytest.fixture
def progress(tmp_path: Path) -> Path:
    return tmp_path / "verify.progress"


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of a small store has many parts."""
    monkeypatch.setattr(log_pass, "_SMALL_PART", PART_SIZE)


def run(store: Path, progress: Path | None, step: Callable[[int], None] = lambda size: None, **options: Any) -> Outcome:
    """A verification that `step` may end; options as those of `VerifyRequest`."""
    asked, opened = VerifyRequest(part_size=PART_SIZE, **options), open_store(store)
    saved = SavedProgress(progress, opened, asked, "1.0") if progress else None
    made = Verification(opened, asked, saved)
    with unchanged(store), suppress(KeyboardInterrupt, SystemExit):
        made.run(step)
    return outcome_of(made)


def told(outcome: Outcome) -> Any:
    return outcome_json(outcome), outcome.findings


def ended_by(error: type[BaseException], after: int) -> Callable[[int], None]:
    """Ends a run after so many steps, the first of which tells what was done before."""
    left = [after]

    def step(size: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise error

    return step


@pytest.mark.slow
@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("kind", ["store", "damaged", "delayed"])
def test_runs_that_are_interrupted(
    end: type[BaseException], kind: str, progress: Path, request: pytest.FixtureRequest
) -> None:
    """Ctrl-C and SIGTERM, wherever they come: all runs together find what one run finds, and read each part once."""
    store: Path = request.getfixturevalue(kind)
    whole = told(run(store, None))
    runs = 1
    while not (outcome := run(store, progress, ended_by(end, 4))).complete:
        assert (progress.stat().st_mode & 0o777) == 0o600
        runs += 1
    assert runs > 4
    assert told(outcome) == whole
    assert not progress.exists()


@pytest.mark.slow
def test_samples_add_up(damaged: Path, progress: Path) -> None:
    """Each looks at other parts; a last run without it looks at what is left."""
    whole, left = told(run(damaged, None)), []
    for _ in range(4):
        outcome = run(damaged, progress, sample=0.15)
        left.append(sum(extent.size for extent in outcome.log_map if extent.state == "not-reached"))
    assert left == sorted(set(left), reverse=True)
    assert told(run(damaged, progress)) == whole


@pytest.mark.slow
def test_parts_that_were_to_be_checked_again(damaged: Path, progress: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in between: they are checked again next time."""
    whole, calls = told(run(damaged, None)), []

    def interrupted(self: PartCheck, part: object) -> None:
        calls.append(part)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PartCheck, "recheck", interrupted)
        assert run(damaged, progress).complete is False
    assert len(calls) == 1
    assert told(run(damaged, progress)) == whole


@pytest.mark.slow
def test_a_kill_loses_little(store: Path, progress: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress is saved every now and then; after a kill there is what was saved last."""
    monkeypatch.setattr(log_pass, "_SAVED_EVERY", 0)
    monkeypatch.setattr(log_pass, "_SAVING_SHARE", 0)
    kept: list[bytes] = []

    def step(size: int) -> None:
        if progress.exists():
            kept.append(progress.read_bytes())

    whole = told(run(store, progress, step))
    assert len(set(kept)) > 5
    progress.write_bytes(kept[-2])
    sizes: list[int] = []
    assert told(run(store, progress, sizes.append)) == whole
    assert sizes[0] > FILE_SIZE  # what was done before is told at once


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_of_a_command(damaged: Path, progress: Path) -> None:
    """The printed next step, followed to the letter until there is another one."""
    options = ("--max-examples", "3", "--skip", "index.slot,checkpoint")
    whole = rmqtool("verify", damaged, *options, "--json", "-j", "2").document
    first = rmqtool("verify", damaged, "--sample", "10%", "--resume", progress, *options)
    assert first.err.startswith(f"next: rmqtool verify {damaged} --resume {progress} --skip ")
    words = shlex.split(first.err)[2:]
    found = rmqtool(*words, "--json", "-j", "2")
    assert found.err == f"{progress}: removed, because everything is verified now\n"
    assert (found.document["result"], found.document["findings"]) == (whole["result"], whole["findings"])
    assert rmqtool("verify", damaged, "--resume", progress, "-q").err == ""
    assert not progress.exists()


def _other_options(store: Path, progress: Path) -> str:
    return refused(store, progress, "--fast")


def _other_settings(store: Path, progress: Path) -> str:
    conf = progress.with_name("broker.conf")
    conf.write_text("fileReservedTime=48\n")
    return refused(store, progress, "--broker-conf", conf)


def _changed_file(store: Path, progress: Path) -> str:
    os.utime(store / "commitlog" / file_name(0), ns=(5, 5))
    return refused(store, progress)


def _new_file(store: Path, progress: Path) -> str:
    (store / "config" / "more.json").touch()
    return refused(store, progress)


def _other_store(store: Path, progress: Path) -> str:
    return refused(small_store(store.with_name("another")), progress)


def refused(store: Path, progress: Path, *options: str | Path) -> str:
    """What is said; the file stays as it is, and so does the store."""
    before = progress.read_bytes()
    with unchanged(store):
        found = rmqtool("verify", store, "--resume", progress, *options)
    assert (found.status, found.out) == (Exit.USAGE, "")
    assert "name another file for --resume, or remove this one to begin again" in " ".join(found.err.split())
    assert progress.read_bytes() == before
    return found.err


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("attempt", "why"),
    [
        (_other_options, "is of a verification with other options: none"),
        (_other_settings, "is of a verification with another broker.conf"),
        (_changed_file, "is of an earlier state of the store: its files have changed since"),
        (_new_file, "is of an earlier state of the store: its files have changed since"),
        (_other_store, "is of another store"),
    ],
)
def test_a_file_of_something_else(attempt: Callable[[Path, Path], str], why: str, store: Path, progress: Path) -> None:
    rmqtool("verify", store, "--sample", "10%", "--resume", progress)
    assert why in " ".join(attempt(store, progress).split())


def test_another_release(store: Path, progress: Path) -> None:
    run(store, progress, ended_by(KeyboardInterrupt, 4))
    asked = VerifyRequest(part_size=PART_SIZE)
    with pytest.raises(UsageError, match=r"was written by another release of rmqtool: 1\.0"):
        SavedProgress(progress, open_store(store), asked, "1.1")


@pytest.mark.slow
def test_a_damaged_file(store: Path, progress: Path) -> None:
    """Wherever a byte is flipped, and wherever it is cut: it is refused."""
    run(store, progress, ended_by(KeyboardInterrupt, 8))
    data = progress.read_bytes()
    step = len(data) // 60
    for at in range(0, len(data), step):
        for wrong in (data[:at], data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :], data[:at] + data[at + 1 :]):
            progress.write_bytes(wrong)
            with pytest.raises(UsageError) as refusal:
                SavedProgress(progress, open_store(store), VerifyRequest(part_size=PART_SIZE), "1.0")
            assert refusal.value.hint
    progress.write_bytes(data)
    assert run(store, progress).complete


class _Harm:
    """What pickle would call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("kind", ["call", "number", "text", "json", "empty"])
def test_a_file_that_somebody_else_made(kind: str, store: Path, progress: Path) -> None:
    """It can do nothing."""
    run(store, progress, ended_by(KeyboardInterrupt, 4))
    header, _, _ = progress.read_bytes().partition(b"\n")
    harm = progress.with_name("harm")
    content = zlib.compress(pickle.dumps(_Harm(harm) if kind == "call" else 5))
    made = {**json.loads(header), "sha256": hashlib.sha256(content).hexdigest()}
    other = {"text": b"notes of mine\n", "json": b"[1]\n", "empty": b""}
    progress.write_bytes(other.get(kind, json.dumps(made).encode() + b"\n" + content))
    with pytest.raises(UsageError, match="is not the progress of a verification, or is damaged"):
        SavedProgress(progress, open_store(store), VerifyRequest(part_size=PART_SIZE), "1.0")
    assert not harm.exists()


def test_places_where_it_cannot_be(store: Path, tmp_path: Path) -> None:
    for place, why in (
        (store / "progress", "it would be a file of the store"),
        (tmp_path / "none" / "progress", "cannot be written"),
        (Path("/dev/null"), "it would replace something that is not a file"),
    ):
        with unchanged(store):
            found = rmqtool("verify", store, "--resume", place)
        assert (found.status in (Exit.USAGE, Exit.FAILED), found.out) == (True, "")
        assert why in " ".join(found.err.split())


def test_a_store_in_use(store: Path, progress: Path) -> None:
    (store / "lock").touch()
    with another_process(store / "lock", JAVA):
        found = rmqtool("verify", store, "--resume", progress)
    assert found.status == Exit.USAGE
    assert "a broker runs on this store" in found.err
    assert not progress.exists()


@pytest.mark.usefixtures("small_parts")
def test_a_full_disk(store: Path, progress: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of the run is shown all the same, and the next step does not name the file."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rmqtool.verify.saved_progress.os.fsync", full)
    found = rmqtool("verify", store, "--sample", "10%", "--resume", progress)
    assert (found.status, "verdict  unproven" in found.out) == (Exit.OK, True)
    assert "WARNING" in found.err
    assert "cannot be written: no space left on device" in " ".join(found.err.split())
    assert found.err.endswith(f"next: rmqtool verify {store}\n")
    assert [*progress.parent.glob(".verify*")] == []
