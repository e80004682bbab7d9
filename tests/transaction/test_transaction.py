"""What a transaction promises beside being all or nothing: names, attributes, times, locks, signals."""

from __future__ import annotations

import errno
import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rmqtool.base.errors import StoreInUseError, UnsupportedError, UnwritableError
from rmqtool.base.signals import deferred_signals
from rmqtool.store.lock import HELD_HERE, lock_holder
from rmqtool.store.store import Store, open_store
from rmqtool.transaction.home import interrupted
from rmqtool.transaction.system import SYSTEM, System
from rmqtool.transaction.transaction import Transaction
from rmqtool.transaction.undo import Undo, kept_transactions
from tests.conftest import GoldenStore
from tests.rights import needs_root
from tests.transaction.disk import Recorder
from tests.transaction.faults import CHANGES, Faulty
from tests.transaction.small import (
    FILES,
    MTIME_NS,
    NEW_MTIME_NS,
    SYSTEMS,
    make_store,
    put,
    repair,
    seen_by_others,
    tree,
    trim,
    undo,
)
from tests.unchanged import unchanged

ROOT = Path(__file__).parents[2]
BROKER = (7001, 7002)
QUEUE = "consumequeue/A/0"
FIRST = f"{QUEUE}/{0:020d}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def test_a_lock_that_cannot_be_closed_hides_no_error(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was written to it: what went wrong before is what is told."""
    release = os.close

    def fail(descriptor: int) -> None:
        release(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def change() -> None:
        with Transaction(store, "test"):
            monkeypatch.setattr(os, "close", fail)
            raise UnwritableError("this one")

    with pytest.raises(UnwritableError, match="this one"):
        change()


@pytest.mark.parametrize(("run", "states"), [(repair, ["done"]), (trim, ["done", "deleting"])])
def test_what_has_begun_needs_no_room(store: Path, run: Callable[[Path, System], None], states: list[str]) -> None:
    """All is written before; that it has begun is on the disk before anything of the store changes."""
    recorder = Recorder(SYSTEM)
    run(store, cast("System", recorder))
    home, calls = str(store / ".rmqtool"), recorder.calls
    begun = next(at for at, (name, paths) in enumerate(calls) if name == "rename" and os.path.dirname(paths[1]) == home)
    assert calls[begun + 1] == ("sync", (home,))
    assert not {name for name, _ in calls[begun:]} & {"create", "write", "set_size", "make_directory", "link"}
    created = [os.path.basename(paths[0]) for name, paths in calls if name == "create"]
    assert [name for name in created if name.startswith("state.")] == [
        f"state.{each}" for each in [*states, "committing"]
    ]


def test_what_stays_as_it_is_is_not_replaced(store: Path) -> None:
    """Not even where the directory above it is replaced."""
    before, data = (store / FIRST).stat(), (store / FIRST).read_bytes()
    with Transaction(store, "test") as transaction:
        transaction.file(FIRST, mtime_ns=before.st_mtime_ns).write(data, 0)
        transaction.put(FIRST)
        for queue in ("consumequeue/A/7", "consumequeue/C/7"):
            put(transaction, f"{queue}/00000000000000000000", b"new", at=queue)
        assert transaction.commit().changed == ("consumequeue/A/7", "consumequeue/C/7")
    assert (store / FIRST).stat().st_ino == before.st_ino


# Names


@pytest.mark.parametrize(
    "name",
    ["", "..", "../x", "/etc/passwd", "consumequeue/../../x", "a//b", "./x", "consumequeue/./x", "a\0b", "x/",
     "consumequeue/" + "t" * 256, ".rmqtool", ".rmqtool/x", "lock", "rocksdbstore", "rocksdbstore/LOCK"],
)  # fmt: skip
def test_a_name_outside_the_store_is_refused(store: Path, name: str) -> None:
    with Transaction(store, "test") as transaction:
        calls: list[Callable[[str], object]] = [
            transaction.file, transaction.put, transaction.remove, transaction.directory, transaction.delete,
            partial(transaction.link, source=FIRST), partial(transaction.link, "index/7"),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises((UnwritableError, UnsupportedError)):
                call(name)
    assert not (store / ".rmqtool").exists()


def test_a_file_elsewhere_is_refused_politely(store: Path, tmp_path: Path) -> None:
    """Such as one of a log that storePathCommitLog names: what can be done instead is said."""
    with Transaction(store, "test") as transaction:
        with pytest.raises(UnsupportedError, match="outside the store") as caught:
            transaction.file(str(tmp_path / "commitlog" / "00000000000000000000"))
        assert "salvage --output NEW" in str(caught.value.hint)


@pytest.mark.parametrize("link", ["consumequeue", "consumequeue/A", "index"])
def test_a_part_behind_a_link_is_refused_politely(store: Path, tmp_path: Path, link: str) -> None:
    (store / link).rename(tmp_path / "elsewhere")
    (store / link).symlink_to(tmp_path / "elsewhere")
    with unchanged(tmp_path / "elsewhere"), Transaction(store, "test") as transaction:
        with pytest.raises(UnsupportedError, match="symbolic link") as caught:
            transaction.file(f"{link}/7")
        assert "--output" in str(caught.value.hint)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a second file system")
def test_another_file_system_is_refused_politely(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Transaction(store, "test") as transaction:
        monkeypatch.setattr(transaction._paths, "_device", os.stat("/proc").st_dev)
        with pytest.raises(UnsupportedError, match="another file system"):
            transaction.file(FIRST)


def test_a_file_system_that_is_mounted_read_only(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel mounts it after errors of the disk: being root does not help."""
    for flags, hint in ((os.ST_RDONLY, "mount it for writing"), (0, "run as root")):
        monkeypatch.setattr(os, "access", lambda *_: False)
        monkeypatch.setattr(os, "statvfs", lambda _, flags=flags: SimpleNamespace(f_flag=flags))
        with pytest.raises(UnwritableError) as caught, Transaction(store, "test"):
            pass
        assert str(caught.value.hint).startswith(hint)


def test_our_directory_must_be_one(store: Path, tmp_path: Path) -> None:
    (store / ".rmqtool").symlink_to(tmp_path)
    with pytest.raises(UnsupportedError), Transaction(store, "test"):
        pass


def test_a_path_is_changed_once(store: Path) -> None:
    with Transaction(store, "test") as transaction:
        put(transaction, FIRST, b"x")
        for name in (FIRST, QUEUE, "consumequeue"):
            with pytest.raises(ValueError, match="twice"):
                transaction.remove(name)


def test_what_is_staged_must_be_put(store: Path) -> None:
    with Transaction(store, "test") as transaction:
        transaction.file(FIRST)
        with pytest.raises(ValueError, match="never put"):
            transaction.commit()


# Contents


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_link_or_pipe_is_replaced(store: Path, system: str) -> None:
    """By a file, as any other file is; undo puts it back."""
    (store / "checkpoint").unlink()
    (store / "checkpoint").symlink_to("gone")
    (store / "abort").unlink(missing_ok=True)
    os.mkfifo(store / "abort")
    with Transaction(open_store(store), "test", SYSTEMS[system]()) as transaction:
        put(transaction, "checkpoint", b"new")
        put(transaction, "abort", b"new")
        transaction.commit()
    assert [(store / name).read_bytes() for name in ("checkpoint", "abort")] == [b"new", b"new"]
    with Undo(store, SYSTEMS[system]()) as session:
        assert session.put_back()
    assert os.readlink(store / "checkpoint") == "gone"
    assert (store / "abort").is_fifo()


def test_ids_and_bytes_do_not_depend_on_the_moment(tmp_path: Path) -> None:
    """The same change of the same store gives the same id, journal and tree."""
    found = []
    for name in ("one", "two"):
        root = make_store(tmp_path / name)
        repair(root, SYSTEM)
        [journal] = root.glob(".rmqtool/*/journal.json")
        found.append((tree(root), journal.parent.name, journal.read_bytes()))
    assert found[0] == found[1]


def test_a_second_run_has_nothing_to_do(store: Path) -> None:
    for expected in ("done", "nothing", "nothing"):
        before = tree(store)
        with Transaction(store, "test") as transaction:
            put(transaction, FIRST, b"new", at=QUEUE)
            put(transaction, "checkpoint", b"new")
            transaction.remove("consumequeue/absent")
            committed = transaction.commit()
        assert committed.state == expected
        assert (tree(store) == before) == (expected == "nothing")
    assert [kept.id for kept in kept_transactions(store)] == [kept.id for kept in kept_transactions(store)][:1]


def test_a_check_that_objects_leaves_the_store_alone(store: Path) -> None:
    def check(path: Path) -> None:
        assert path.read_bytes() == b"staged"
        raise UnwritableError("differs", file=path)

    before = tree(store)
    with Transaction(store, "test") as transaction:
        transaction.file(FIRST, check=check).write(b"staged", 0)
        transaction.put(QUEUE)
        with pytest.raises(UnwritableError, match="differs"):
            transaction.commit()
    assert tree(store) == before
    assert not (store / ".rmqtool").exists()


@pytest.mark.slow
def test_many_files_need_few_descriptors(store: Path) -> None:
    open_before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with Transaction(store, "test") as transaction:
        files = [transaction.file(f"consumequeue/many/{number}/{0:020d}", size=40) for number in range(300)]
        for position in (0, 20):
            for number, file in enumerate(files):
                file.write(b"%20d" % number, position)
        if open_before:
            assert len(os.listdir("/proc/self/fd")) < open_before + 64
        for number in range(300):
            transaction.put(f"consumequeue/many/{number}")
        transaction.commit()
    assert (store / f"consumequeue/many/299/{0:020d}").read_bytes() == b"%20d%20d" % (299, 299)


def test_space_is_asked_for_before_anything_is_written(store: Path) -> None:
    with Transaction(store, "test") as transaction:
        transaction.require_space(1)
        with pytest.raises(UnwritableError, match=r"iB are needed in addition"):
            transaction.require_space(1 << 62)


def test_whole_exchange_keeps_files_and_leaves_no_links(store: Path) -> None:
    """What stays in an exchanged directory is the same file, with one name, and directories keep their times."""
    kept = store / "consumequeue/D/0/00000000000000000000"
    before = kept.stat()
    times = {path: path.stat().st_mtime_ns for path in (store / "consumequeue", kept.parent, store / QUEUE)}
    repair(store, SYSTEM)
    after = kept.stat()
    assert (after.st_ino, after.st_nlink, after.st_mtime_ns) == (before.st_ino, 1, before.st_mtime_ns)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert not list(store.glob(".rmqtool/*/old/consumequeue/D"))
    undo(store, SYSTEM)
    assert kept.stat().st_ino == before.st_ino
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_undo_refuses_to_take_out_what_is_new(store: Path) -> None:
    with Transaction(store, "test") as transaction:
        put(transaction, f"consumequeue/new/0/{0:020d}", b"x", at="consumequeue/new/0")
        transaction.commit()
    (store / "consumequeue/new/1").mkdir()
    with Undo(store) as session, pytest.raises(Exception, match="is new"):
        session.put_back()


def test_a_broker_that_ran_between_is_noticed(store: Path) -> None:
    """A run that is killed in its steps, then a broker that writes: what is in place stays, and nothing is lost."""
    counting = Faulty(SYSTEM)
    other = make_store(store.with_name("other"))
    repair(other, cast(System, counting))
    at = [number for number, name in enumerate(counting.names) if name == "exchange"][1]
    faulty = Faulty(SYSTEM, "kill-before", at)
    with pytest.raises(BaseException):  # noqa: B017, PT011
        repair(store, cast(System, faulty))
    faulty.clean_up()
    (store / "consumequeue/D/0/00000000000000000020").write_bytes(b"appended")
    now = tree(store)
    with Undo(store) as session:
        assert [found.outcome for found in session.recovered] == ["abandoned"]
        with pytest.raises(Exception, match="can't be taken back"):
            session.put_back()
    assert tree(store) == now
    with Undo(store) as session:
        assert session.recovered == ()
        session.discard()
    assert tree(store) == now
    assert not (store / ".rmqtool").exists()


# Attributes


def owners(root: Path) -> set[tuple[int, int]]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in [root, *root.rglob("*")]}


@needs_root
def test_files_of_root_belong_to_the_broker(store: Path) -> None:
    for path in [store, *store.rglob("*")]:
        os.chown(path, *BROKER)
        path.chmod(0o2750 if path.is_dir() else 0o640)
    (store / "lock").unlink()
    repair(store, SYSTEM)
    assert owners(store) - {(0, 0)} == {BROKER}
    mine = [path for path in store.rglob("*") if path.stat().st_uid == 0]
    assert all(".rmqtool" in path.parts for path in mine)  # journal and state: nobody but us reads them
    for name in ("consumequeue/C/7", "consumequeue/C", "consumequeue/A/0", "consumequeue"):
        assert stat.S_IMODE((store / name).stat().st_mode) == 0o2750
    for name in ("consumequeue/C/7/00000000000000000000", "checkpoint", FIRST, "lock"):
        assert stat.S_IMODE((store / name).stat().st_mode) == 0o640
    undo(store, SYSTEM)
    assert owners(store) == {BROKER}


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="needs extended attributes")
def test_labels_are_those_of_the_neighbours(store: Path) -> None:
    try:
        for path in store.rglob("*"):
            os.setxattr(path, "user.label", b"broker")
    except OSError:
        pytest.skip("no extended attributes here")
    repair(store, SYSTEM)
    for name in ("consumequeue/C/7/00000000000000000000", "consumequeue/C", FIRST, QUEUE, "consumequeue", "checkpoint"):
        assert os.getxattr(store / name, "user.label") == b"broker", name


def test_times_are_as_given(store: Path) -> None:
    repair(store, SYSTEM)
    assert (store / FIRST).stat().st_mtime_ns == NEW_MTIME_NS
    with Transaction(store, "test") as transaction:
        transaction.file("index/20240101000000000", size=3)
        transaction.put("index/20240101000000000")
        transaction.file("consumequeue/D/0/00000000000000000020", size=3)
        transaction.put("consumequeue/D/0/00000000000000000020")
        now = (store / "consumequeue/D/0").stat().st_mtime_ns
        transaction.commit()
    assert (store / "index/20240101000000000").stat().st_mtime_ns == NEW_MTIME_NS
    assert (store / "consumequeue/D/0/00000000000000000020").stat().st_mtime_ns == now
    assert (store / "consumequeue/D/0/00000000000000000000").stat().st_mtime_ns - MTIME_NS < len(FILES)


# Who else is there

HOLD = """
import fcntl, mmap, sys
file = open(sys.argv[1], "r+b")
{action}
print("ready", flush=True)
sys.stdin.read()
"""

MAPPED = "held = mmap.mmap(file.fileno(), 0)"


@contextmanager
def held(path: Path, action: str) -> Iterator[int]:
    """A process that does something with a file of the store; its id."""
    command = [sys.executable, "-c", HOLD.format(action=action), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("file", "action"),
    [
        ("lock", "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)"),
        ("rocksdbstore/LOCK", "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"),
        ("commitlog/00000000000000000000", MAPPED),
    ],
)
def test_a_running_broker_is_refused(store: Path, file: str, action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.transaction.session._PROC", Path("/proc"))
    (store / "rocksdbstore").mkdir()
    (store / "rocksdbstore/LOCK").touch()
    with held(store / file, action) as pid:
        with unchanged(store), pytest.raises(StoreInUseError, match=str(pid)), Transaction(store, "test"):
            pass
        with pytest.raises(StoreInUseError), Undo(store):
            pass
    with Transaction(store, "test"):
        pass


@pytest.mark.slow
def test_a_broker_that_begins_to_recover_meanwhile_is_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has opened what would be replaced, would get the lock behind us, and write to what was moved away."""
    monkeypatch.setattr("rmqtool.transaction.session._PROC", Path("/proc"))
    log, before = store / "commitlog/00000000000000000000", tree(store)
    with Transaction(store, "test") as transaction:
        transaction.file("checkpoint").write(b"other", 0)
        transaction.put("checkpoint")
        with held(log, MAPPED) as pid, pytest.raises(StoreInUseError, match=str(pid)):
            transaction.commit()
    assert tree(store) == before
    assert not (store / ".rmqtool").exists()
    with Transaction(store, "test") as transaction:
        transaction.file("checkpoint").write(b"other", 0)
        transaction.put("checkpoint")
        transaction.commit()
    changed = tree(store)
    with Undo(store) as undo, held(log, MAPPED) as pid, pytest.raises(StoreInUseError, match=str(pid)):
        undo.put_back()
    assert tree(store) == changed
    with Undo(store) as undo:
        undo.put_back()
    assert tree(store) == before


@pytest.mark.slow
def test_others_see_the_lock_until_the_end(store: Path) -> None:
    """Asking for the lock in this process, or reading the file, does not let go of it."""
    with Transaction(store, "test"):
        assert lock_holder(store) is None
        (store / "lock").read_bytes()
        assert "Holder" in seen_by_others(store)
        with pytest.raises(StoreInUseError), Transaction(store, "another"):
            pass
    assert seen_by_others(store) == "None"
    assert not HELD_HERE


def test_a_user_who_cannot_keep_the_owner_is_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with unchanged(store), pytest.raises(UnwritableError, match="belongs to user"), Transaction(store, "test"):
        pass


# Deletion


def test_a_commit_log_elsewhere_is_deleted_from(tmp_path: Path, store: Path) -> None:
    """Files of a commit log path outside the store, and behind a link; but nothing else."""
    (store / "commitlog").rename(tmp_path / "disk")
    (store / "commitlog").symlink_to(tmp_path / "disk")
    other = tmp_path / "disk2"
    other.mkdir()
    (other / f"{4096:020d}").touch()
    (other / "notes").touch()
    plain = open_store(store)
    found = Store(plain.root, plain.layout, plain.conf, (store / "commitlog", other))
    with Transaction(found, "clean") as transaction:
        transaction.delete(f"commitlog/{0:020d}")
        transaction.delete(other / f"{4096:020d}")
        for path in (other / "notes", tmp_path / "x", other / "absent"):
            with pytest.raises(UnwritableError):
                transaction.delete(path)
        committed = transaction.commit()
    assert len(committed.deleted) == 2
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == [f"{1024:020d}", f"{2048:020d}"]
    assert [path.name for path in other.iterdir()] == ["notes"]
    assert not (store / ".rmqtool").exists()


def test_a_file_that_changed_is_not_deleted_by_the_next_run(store: Path) -> None:
    class Stop(System):
        def unlink(self, path: str) -> None:
            raise KeyboardInterrupt

    with Transaction(store, "clean", Stop()) as transaction:
        transaction.delete(FIRST)
        transaction.delete("checkpoint")
        with pytest.raises(KeyboardInterrupt):
            transaction.commit()
    assert interrupted(store)
    os.utime(store / FIRST, ns=(1, 1))
    with Undo(store) as session:
        assert [found.outcome for found in session.recovered] == ["finished"]
    assert (store / FIRST).exists()
    assert not (store / "checkpoint").exists()


# Signals and SIGKILL

RUN = """
import os, random, signal, sys
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, {root!r})
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
signal.signal(signal.SIGINT, signal.default_int_handler)
from rmqtool.transaction.system import System
from tests.transaction import small

class Hit:
    def __init__(self, at, number):
        self.count, self.at, self.number, self.system = 0, at, number, System()
    def __getattr__(self, name):
        call = getattr(self.system, name)
        def counted(*arguments, **options):
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), self.number)
            return call(*arguments, **options)
        return counted

getattr(small, {job!r})(Path(sys.argv[1]), Hit(int(sys.argv[2]), int(sys.argv[3])))
"""
CALLS = 400


def run_hit(root: Path, job: str, at: int, number: int) -> int:
    code = RUN.format(root=str(ROOT), job=job)
    return subprocess.run(
        [sys.executable, "-c", code, str(root), str(at), str(number)],
        check=False,
        stderr=subprocess.DEVNULL,
        timeout=60,
    ).returncode


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("job", ["repair", "undo"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_real_signals(tmp_path: Path, job: str, number: int) -> None:
    """A seeded sample of calls: the store is as before or after, and a signal that can be held back leaves no half."""
    reference = make_store(tmp_path / "reference")
    before = tree(reference)
    repair(reference, SYSTEM)
    states = [before, tree(reference)]
    counting = Faulty(SYSTEM)
    (undo if job == "undo" else repair)(
        reference if job == "undo" else make_store(tmp_path / "count"), cast(System, counting)
    )
    chance = random.Random(number)
    for at in chance.sample(range(1, len(counting.names)), 4):
        root = make_store(tmp_path / f"store{at}")
        if job == "undo":
            repair(root, SYSTEM)
        status = run_hit(root, job, at, number)
        assert status in (-number, 128 + number, 1, -signal.SIGINT, 130)
        if number != signal.SIGKILL:
            assert tree(root) in states
            assert interrupted(root) is None
        with Undo(root):
            pass
        assert tree(root) in states
        assert interrupted(root) is None


def test_every_changing_call_is_known() -> None:
    """What the fault tests cut are calls of the system that exist."""
    assert set(CHANGES) <= set(vars(System))


def test_golden_store_is_as_before_after_undo(unpacked: GoldenStore, tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "store"
    shutil.copytree(unpacked("5.5.0-clean"), root, symlinks=True)
    before = tree(root)
    with Transaction(root, "test") as transaction:
        for queue in sorted((root / "consumequeue").glob("*/*")):
            name = str(queue.relative_to(root))
            put(transaction, f"{name}/{0:020d}", name.encode(), at=name)
        transaction.commit()
    assert tree(root) != before
    undo(root, SYSTEM)
    assert tree(root) == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_deletions_between_two_files(store: Path, number: int) -> None:
    """The file that is being deleted is; the rest is left to the next run, which says so."""
    counting = Faulty(SYSTEM)
    trim(make_store(store.with_name("count")), cast(System, counting))
    at = counting.names.index("unlink") + 1
    assert run_hit(store, "trim", at, number) in (128 + number, 1, -number)
    left = sorted(path.name for path in (store / "commitlog").iterdir())
    assert left == [f"{1024:020d}", f"{2048:020d}"]
    with Undo(store) as session:
        assert [(found.command, found.outcome) for found in session.recovered] == [("test", "finished")]
    assert [path.name for path in (store / "commitlog").iterdir()] == [f"{2048:020d}"]


def test_signals_that_a_job_ignores_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_signals() as deferred:
            signal.raise_signal(signal.SIGINT)
        assert deferred.signal_number is None
    finally:
        signal.signal(signal.SIGINT, before)
