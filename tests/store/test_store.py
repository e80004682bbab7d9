"""What a directory is taken for: stores of every layout, and what is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.base.errors import NotAStoreError, UnreadableError, UnsupportedError, UsageError
from rmqtool.formats.file_name import file_name
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.store import Store, holds_rocksdb, open_store, relative_to, require_plain_log
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.rights import NOBODY, needs_root
from tests.unchanged import unchanged


def make(root: Path, *paths: str) -> Path:
    """Make directories below `root`, and empty files where a path does not end in a slash."""
    root.mkdir(exist_ok=True)
    for path in paths:
        target = root / path
        (target if path.endswith("/") else target.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            target.touch()
    return root


def conf(**settings: str) -> BrokerConf:
    return BrokerConf(settings)


def opened(root: Path, given: BrokerConf | None = None) -> Store:
    with unchanged(root):
        return open_store(root, given)


@pytest.mark.parametrize("name", stores.names())
def test_golden_stores_have_the_default_layout(name: str, golden_store: GoldenStore) -> None:
    """Commit log files are listed from commitlog/, none of them a stray."""
    golden = golden_store(name)
    store = open_store(golden)
    assert store.layout == "default"
    assert store.commit_log_directories == (golden / "commitlog",)
    assert [file.path.name for file in store.commit_log().files] == sorted(os.listdir(golden / "commitlog"))
    assert store.commit_log().strays == ()


@pytest.mark.parametrize(
    "path", ["commitlog/", "consumequeue/", "batchconsumequeue/", "index/20260101000000000", "commitlog/x/y"]
)
def test_one_part_makes_a_store(tmp_path: Path, path: str) -> None:
    """A log, queues, or an index alone is a store, for that is what is left of some."""
    store = opened(make(tmp_path / "store", path))
    assert store.layout == "default"
    assert store.root == tmp_path / "store"
    assert store.commit_log_directories == (tmp_path / "store" / "commitlog",)


@pytest.mark.parametrize(
    "paths", [(), ("index/",), ("index/readme",), ("index",), ("config/topics.json",), ("checkpoint", "lock")]
)
def test_what_is_no_store(tmp_path: Path, paths: tuple[str, ...]) -> None:
    """Without log, queues and index files it is none, and the hint says which directory is asked for."""
    with pytest.raises(NotAStoreError, match="not a RocketMQ store") as caught:
        opened(make(tmp_path / "other", *paths))
    assert caught.value.file == str(tmp_path / "other")
    assert caught.value.hint == "give the directory that broker.conf calls storePathRootDir"


@pytest.mark.parametrize("more", [(), ("abort",)])
def test_a_store_that_a_broker_has_just_begun(tmp_path: Path, more: tuple[str, ...]) -> None:
    """A checkpoint of its size and the lock are all that 4.4.0 to 4.9.1 make before the first message."""
    root = make(tmp_path / "store", "checkpoint", "lock", *more)
    (root / "checkpoint").write_bytes(bytes(4096))
    assert opened(root).layout == "default"


def test_a_store_without_its_log(tmp_path: Path) -> None:
    """Configuration and checkpoint are what a broker keeps beside a log that is in another place, or lost."""
    assert opened(make(tmp_path, "checkpoint", "config/", "lock")).commit_log().files == ()


def test_a_store_below_is_hinted_at(tmp_path: Path) -> None:
    """The first directory below that has a log is named."""
    make(tmp_path, "a/", "b/store/commitlog/", "c/commitlog/", "d/commitlog/", "e/commitlog")
    with pytest.raises(NotAStoreError) as caught:
        opened(tmp_path)
    assert caught.value.hint == f"the store seems to be {tmp_path / 'c'}"


@pytest.mark.parametrize("name", ["commitlog", "config", "consumequeue"])
def test_a_store_above_is_hinted_at(tmp_path: Path, name: str) -> None:
    """Who gives a part of a store is told the store, also through a link."""
    store = make(tmp_path / "store", "commitlog/", "config/", "consumequeue/topic/0/")
    (tmp_path / "link").symlink_to(store / name)
    for path in (store / name, tmp_path / "link"):
        with pytest.raises(NotAStoreError) as caught:
            opened(path)
        assert caught.value.hint == f"the store seems to be {store}"


def test_several_commit_log_paths(tmp_path: Path) -> None:
    """With several paths in broker.conf, absolute or in the store, their files are one log."""
    root = make(tmp_path / "store", f"commitlog/{file_name(9)}", f"near/{file_name(2)}")
    far = make(tmp_path / "far", file_name(1), file_name(3))
    store = opened(root, conf(storePathCommitLog=f"near,{far}", readOnlyCommitLogStorePaths="gone"))
    assert store.layout == "multi-path"
    assert store.commit_log_directories == (root / "near", far, root / "gone")
    log = store.commit_log()
    assert [file.start_offset for file in log.files] == [1, 2, 3]
    assert [store.relative(file.path) for file in log.files] == [
        str(far / file_name(1)),
        f"near/{file_name(2)}",
        str(far / file_name(3)),
    ]


def test_one_commit_log_path_elsewhere(tmp_path: Path) -> None:
    """A single other path is no layout of its own, and makes an empty directory a store."""
    far = make(tmp_path / "far", file_name(7))
    store = opened(make(tmp_path / "store"), conf(storePathCommitLog=str(far)))
    assert store.layout == "default"
    assert [file.start_offset for file in store.commit_log().files] == [7]


def test_a_commit_log_path_of_another_machine(tmp_path: Path) -> None:
    """A copy with its broker's settings: the log beside the queues must not be taken for lost."""
    root = make(tmp_path / "store", "commitlog/", "consumequeue/")
    with pytest.raises(UsageError, match="storePathCommitLog: /data/elsewhere: no such directory") as caught:
        opened(root, conf(storePathCommitLog="/data/elsewhere"))
    assert str(root / "commitlog") in (caught.value.hint or "")
    make(tmp_path / "far")
    assert opened(root, conf(storePathCommitLog=f"/data/elsewhere,{tmp_path / 'far'}")).layout == "multi-path"


def test_a_broker_conf_of_the_store_that_was_copied(tmp_path: Path) -> None:
    """The log of that store is not taken for the copy's; the store itself, by another path too, and one moved are."""
    original = make(tmp_path / "store", "commitlog/" + file_name(0), "consumequeue/")
    copy = make(tmp_path / "copy", "commitlog/" + file_name(0), "consumequeue/")
    given = conf(storePathRootDir=str(original), storePathCommitLog=str(original / "commitlog"))
    with pytest.raises(UsageError, match="is of another store") as caught:
        opened(copy, given)
    assert str(copy / "commitlog") in str(caught.value)
    (tmp_path / "link").symlink_to(original)
    for root in (original, tmp_path / "link"):
        assert opened(root, given).commit_log_directories == (original / "commitlog",)
    moved = make(tmp_path / "moved", "commitlog/", "consumequeue/")
    assert opened(moved, given).commit_log_directories == (original / "commitlog",)
    own = conf(storePathRootDir=str(original), storePathCommitLog=str(copy / "commitlog"))
    assert opened(copy, own).commit_log_directories == (copy / "commitlog",)


def test_a_broker_conf_that_does_not_say_of_which_store_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of the one in the home directory: its log is not taken for that of another one."""
    (tmp_path / "home").mkdir()
    original = make(tmp_path / "home" / "store", "commitlog/" + file_name(0), "consumequeue/")
    copy = make(tmp_path / "copy", "commitlog/" + file_name(0), "consumequeue/")
    far = make(tmp_path / "far", file_name(0))
    given = conf(storePathCommitLog=str(far))
    with pytest.raises(UsageError, match=r"without storePathRootDir that of \$HOME/store: .*far would be read"):
        opened(copy, given)
    monkeypatch.setenv("HOME", str(original.parent))
    assert opened(original, given).commit_log_directories == (far,)
    (copy / "commitlog" / file_name(0)).unlink()
    assert opened(copy, given).commit_log_directories == (far,)


def test_a_broker_conf_of_the_node_that_was_copied(tmp_path: Path) -> None:
    """The entries of that node are not taken for the copy's, with its storePathRootDir or without."""
    original = make(tmp_path / "store", f"dledger-n0/data/{file_name(0)}")
    copy = make(tmp_path / "copy", f"dledger-n0/data/{file_name(0)}")
    entries = original / "dledger-n0" / "data"
    paths = {"storePathDLedgerCommitLog": str(entries)}
    for given in (conf(**paths), conf(storePathRootDir=str(original), **paths)):
        with pytest.raises(UsageError, match="is of another store"):
            opened(copy, given)
    given = conf(storePathRootDir=str(original), **paths)
    assert opened(original, given).commit_log_directories == (entries,)


@pytest.mark.parametrize("start", [0, 512, 1024])
def test_what_is_left_of_a_node(tmp_path: Path, start: int) -> None:
    """Where a plain log goes on beside entries, broker.conf says which is the broker's; before them it is the older."""
    root = make(tmp_path / "store", "commitlog/", "dledger-n0/data/")
    for path in (root / "commitlog" / file_name(0), root / "dledger-n0" / "data" / file_name(start)):
        path.write_bytes(bytes(1024))
    if start == 1024:
        assert opened(root).dledger_directory == root / "dledger-n0"
    else:
        with pytest.raises(UsageError, match="two logs") as caught:
            opened(root)
        assert "enableDLegerCommitLog=true or =false" in (caught.value.hint or "")
    plain = opened(root, conf(enableDLegerCommitLog="false"))
    assert (plain.dledger_directory, plain.log_directories) == (None, (root / "commitlog",))
    assert opened(root, conf(enableDLegerCommitLog="true")).dledger_directory == root / "dledger-n0"


def test_topics_that_are_named_as_tables_are(tmp_path: Path) -> None:
    """A queue's directory is no table of RocksDB, and neither is any file."""
    for name in ("000012.sst", "MANIFEST-000004"):
        (tmp_path / "consumequeue" / name / "0").mkdir(parents=True)
    (tmp_path / "consumequeue" / "notes.sst").touch()
    (tmp_path / "commitlog").mkdir()
    assert open_store(tmp_path).layout == "default"


@pytest.mark.parametrize("directory", ["consumequeue", "consumequeue_rocksdb"])
def test_rocksdb_queues(tmp_path: Path, directory: str) -> None:
    """The database's file CURRENT tells the layout; a directory of that name is a topic."""
    root = make(tmp_path / "store", "commitlog/", f"{directory}/CURRENT")
    assert opened(root).layout == "rocksdb"
    assert holds_rocksdb(root / directory)
    (root / directory / "CURRENT").unlink()
    make(root, f"{directory}/CURRENT/")
    assert opened(root).layout == "default"
    assert not holds_rocksdb(root / "missing")


def test_entries_of_dledger(tmp_path: Path) -> None:
    """A Raft log is not read as if it were a plain one: headers stand before its records; plain files come first."""
    root = make(tmp_path / "store", "dledger-n1/", f"commitlog/{file_name(0)}", f"dledger-n0/data/{file_name(0)}")
    for directory, start in (("commitlog", 0), ("dledger-n0/data", 4096)):
        (root / directory / file_name(start)).write_bytes(bytes(4096))
    (root / "dledger-n0/data" / file_name(0)).unlink()
    store = opened(root)
    assert (store.layout, store.dledger_directory) == ("dledger", root / "dledger-n0")
    assert [(file.start_offset, file.header_size) for file in store.commit_log().files] == [(0, 0), (4096, 48)]
    with pytest.raises(UnsupportedError, match=r"DLedger store \(dledger-n0/\), which salvage does not take") as caught:
        require_plain_log(store, "salvage")
    assert caught.value.file == str(root)
    assert caught.value.hint == f"rmqtool convert {root} --output NEW converts it to a plain store"
    named = open_store(
        root, BrokerConf({"dLegerSelfId": "n0"}, path="broker.conf")
    )  # which may be one of several nodes
    with pytest.raises(UnsupportedError) as caught:
        require_plain_log(named, "salvage")
    assert str(caught.value.hint).startswith(f"rmqtool convert {root} --output NEW --broker-conf broker.conf converts")
    require_plain_log(opened(make(tmp_path / "plain", "commitlog/")), "salvage")


@pytest.mark.parametrize("path", ["dledger-n0/", "dledger-n0", "dledger-n0/data", "xdledger-n0/data/"])
def test_what_only_looks_like_dledger(tmp_path: Path, path: str) -> None:
    """Without a directory data/ in it there is no Raft log."""
    assert opened(make(tmp_path / "store", "commitlog/", path)).layout == "default"


def test_a_missing_directory(tmp_path: Path) -> None:
    """A path that does not exist is unreadable and not another directory's store."""
    with pytest.raises(UnreadableError, match="no such file or directory"):
        open_store(tmp_path / "missing")


def test_a_file_is_no_store(tmp_path: Path) -> None:
    """Nobody is told to move it away: it may be any file of the system."""
    with pytest.raises(NotAStoreError, match="a file, not a directory") as caught:
        opened(make(tmp_path, "file") / "file")
    assert "move" not in str(caught.value.hint)


def test_a_file_in_place_of_the_log(tmp_path: Path) -> None:
    """A file with the name of the log's directory is told when the log is listed."""
    store = opened(make(tmp_path / "store", "commitlog"))
    with pytest.raises(UnreadableError, match="not a directory"):
        store.commit_log()


def test_paths_are_shown_relative_to_the_store(tmp_path: Path) -> None:
    """What lies outside is shown in full."""
    root = tmp_path / "store"
    assert relative_to(root / "commitlog" / "0", root) == "commitlog/0"
    assert relative_to(tmp_path / "other", root) == str(tmp_path / "other")
    assert relative_to(Path("other"), root) == str(Path.cwd() / "other")


_LOOK = """
import os, sys
from pathlib import Path
from rmqtool.base.errors import UnreadableError
from rmqtool.inspect.overview import overview_of
from rmqtool.store.store import open_store

os.seteuid(int(sys.argv[1]))
for root in sys.argv[2:]:
    try:
        overview = overview_of(open_store(Path(root)))
        errors = overview.unread
    except UnreadableError as error:
        errors = [error]
    if errors:
        print(errors[0].file, errors[0].message, sep="|")
    else:
        print(overview.log_range.max_offset)
"""


def look_as_nobody(*roots: Path) -> list[str]:
    """What an overview of each store says to a user without rights."""
    command = [sys.executable, "-c", _LOOK, str(NOBODY), *map(str, roots)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return answer.stdout.splitlines()


@pytest.mark.slow
@needs_root
def test_a_closed_directory_is_unreadable(public_path: Path) -> None:
    """A directory that may not be listed or entered is named, and never taken for an empty one."""
    parts = (f"commitlog/{file_name(0)}", f"consumequeue/topic/0/{file_name(0)}")
    closed = ("", "commitlog", "consumequeue", "consumequeue/topic/0")
    cases = [(part, mode) for part in closed for mode in (0o700, 0o744, 0o711)]
    roots = [make(public_path / f"store{number}", *parts) for number in range(len(cases))]
    for root, (part, mode) in zip(roots, cases, strict=True):
        (root / part).chmod(mode)
    opened_by_all = make(public_path / "open", *parts)
    *answers, last = look_as_nobody(*roots, opened_by_all)
    assert last == "0"
    for root, (part, _), answer in zip(roots, cases, answers, strict=True):
        file, message = answer.split("|")
        assert Path(file).is_relative_to(root / part)
        assert message == "cannot read: permission denied"
