"""Who runs on a store, asked with real locks and real maps of other processes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.store.lock import Holder, lock_holder, program_of
from tests.rights import NOBODY, needs_root
from tests.store.other_process import BYTE_1, FLOCK, JAVA, MAP, NOTHING, ROCKSDB, SHARED, another_process
from tests.unchanged import unchanged

needs_proc = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")


@pytest.fixture
def store(public_path: Path) -> Path:
    """A store that a broker has stopped on."""
    root = public_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "rocksdbstore").mkdir()
    (root / "commitlog" / "00000000000000000000").write_bytes(bytes(4096))
    (root / "lock").write_bytes(b"lock")
    (root / "rocksdbstore" / "LOCK").touch()
    return root


def holder(root: Path) -> Holder | None:
    with unchanged(root):
        return lock_holder(root)


def test_nobody(store: Path, tmp_path: Path) -> None:
    """Lock files that nobody has locked, and none at all, are no broker."""
    assert holder(store) is None
    assert lock_holder(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("name", "action"), [("lock", JAVA), ("lock", SHARED), ("lock", ROCKSDB), ("rocksdbstore/LOCK", ROCKSDB)]
)
def test_a_broker_s_lock_is_seen(store: Path, name: str, action: str) -> None:
    """A record lock on the first byte is seen with the process that has it, until that ends."""
    with another_process(store / name, action) as pid:
        assert holder(store) == Holder(pid, name)
        assert holder(store) == Holder(pid, name)
    assert holder(store) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "program"),
    [("rmqtool", ["repair"], "rmqtool repair"), ("rmqtool", ["--json", "undo"], "rmqtool undo"),
     ("rmqtool", [], "rmqtool"), ("mqbroker", ["repair"], None)],
)  # fmt: skip
def test_a_run_of_ours_is_named(tmp_path: Path, name: str, words: list[str], program: str | None) -> None:
    """By its command line; what another program is called with does not count."""
    script = tmp_path / name
    script.write_text("import sys; print(flush=True); sys.stdin.read()")
    command = [sys.executable, str(script), *words, "/data/rmqtool"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert program_of(process.pid) == program
        process.communicate()
    assert program_of(None) is None


@pytest.mark.parametrize("action", [FLOCK, BYTE_1, NOTHING])
def test_other_locks_are_no_broker_s(store: Path, action: str) -> None:
    """A flock, a lock on another byte and an open file are none."""
    with another_process(store / "lock", action):
        assert holder(store) is None


def test_the_broker_s_lock_comes_first(store: Path) -> None:
    """When both are locked, the one that says that the broker is up is told."""
    with another_process(store / "lock", JAVA) as pid, another_process(store / "rocksdbstore" / "LOCK", ROCKSDB):
        assert holder(store) == Holder(pid, "lock")


def test_asking_takes_nothing(store: Path) -> None:
    """While we ask and after it, another process gets the lock."""
    assert holder(store) is None
    with another_process(store / "lock", JAVA) as pid:
        assert holder(store) == Holder(pid, "lock")


def test_asking_releases_no_lock_of_others(store: Path) -> None:
    """A lock that another process has is still refused to a third after we asked."""
    with another_process(store / "lock", JAVA):
        holder(store)
        with (store / "lock").open("r+b") as file, pytest.raises(OSError, match="unavailable"):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)


def test_whoever_holds_the_lock_must_not_ask(store: Path) -> None:
    """POSIX: a process does not see its own lock, and closing any descriptor of the file releases it."""
    with (store / "lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
        assert lock_holder(store) is None
        with another_process(store / "lock", JAVA) as pid:
            assert holder(store) == Holder(pid, "lock")


@pytest.mark.parametrize("kind", ["directory", "pipe", "dangling"])
def test_what_is_no_lock_file(store: Path, kind: str) -> None:
    """Whatever lies there instead of a file is no lock, and nothing waits for it."""
    (store / "lock").unlink()
    if kind == "directory":
        (store / "lock").mkdir()
    elif kind == "pipe":
        os.mkfifo(store / "lock")
    else:
        (store / "lock").symlink_to("nowhere")
    assert holder(store) is None


_ASK = """
import os, sys
from pathlib import Path
from rmqtool.store.lock import Holder, lock_holder

os.seteuid(int(sys.argv[2]))
found = lock_holder(Path(sys.argv[1]))
print(found and found.pid)
"""


@needs_root
def test_asking_needs_no_right_to_write(store: Path) -> None:
    """A user who may only read the store and its lock file sees the broker too."""
    (store / "lock").chmod(0o444)
    store.chmod(0o555)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", _ASK, str(store), str(NOBODY)]
    with another_process(store / "lock", JAVA) as pid:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert answer.stdout.strip() == str(pid)


@needs_proc
def test_a_recovering_broker_is_seen_by_its_maps(store: Path) -> None:
    """Before a broker takes its lock, the process in abort has mapped files of the store."""
    with another_process(store / "commitlog" / "00000000000000000000", MAP) as pid:
        (store / "abort").write_text(str(pid), encoding="ascii")
        assert holder(store) == Holder(pid, "abort")
        assert lock_holder(linked(store)) == Holder(pid, "abort")
    assert holder(store) is None


def linked(store: Path) -> Path:
    link = store.with_name("link")
    link.symlink_to(store)
    return link


@needs_proc
@pytest.mark.parametrize("place", ["other", "store2", "x/store", "deeper"])
def test_a_map_of_another_store_is_none_of_this(store: Path, place: str) -> None:
    """A live process in abort that maps files elsewhere, however alike the path is, does not run on this store."""
    other = store.parent / place if place != "deeper" else Path(f"{store.parent}/deeper{store}")
    other.mkdir(parents=True)
    (other / "file").write_bytes(bytes(4096))
    with another_process(other / "file", MAP) as pid:
        (store / "abort").write_text(str(pid), encoding="ascii")
        assert holder(store) is None


@needs_proc
@pytest.mark.parametrize(
    "content", [b"", b"\n", b"abc", b"-1", b"0", b"1.5", b"\xb2", b"9" * 19, b"9" * 20, b"7" * 100, b"\0" * 4096]
)
def test_junk_in_abort(store: Path, content: bytes) -> None:
    """What is no process id names nobody."""
    (store / "abort").write_bytes(content)
    assert holder(store) is None


def test_a_live_process_that_maps_nothing(store: Path) -> None:
    """A process id that was given to another process since is no broker."""
    (store / "abort").write_text(str(os.getpid()), encoding="ascii")
    assert holder(store) is None


def test_an_abort_directory(store: Path) -> None:
    """A directory of that name names nobody."""
    (store / "abort").mkdir()
    assert holder(store) is None
