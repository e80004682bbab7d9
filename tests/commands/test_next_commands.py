"""Whatever an overview finds names the command that looks closer, and that command runs."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.findings.catalogue import CATALOGUE
from tests.building import LOG, LogBuilder
from tests.commands.running import ROOT, inspect, rmqtool
from tests.conftest import GoldenStore
from tests.verify.damages import overwrite
from tests.verify.small_store import StoreBuilder, finish

START = 1 << 16
SOURCES = ("inspect/overview.py", "store/file_findings.py", "transaction/home.py")


def codes_of(source: str) -> set[str]:
    """Every code that stands in a module."""
    tree = ast.parse((ROOT / "rmqtool" / source).read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts & CATALOGUE.keys()


def write(path: Path, data: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def log_file(store: Path, number: int) -> Path:
    return store / LOG / str(START + number * 4096).zfill(20)


def _overlap(store: Path) -> None:
    log_file(store, 1).rename(store / LOG / str(START + 4000).zfill(20))


def _bad_index(store: Path) -> None:
    write(store / "index" / "20261121113330090", bytes(32) + b"\0\0\0\5" + b"\0\0\0\5" + bytes(100))


def _expired(store: Path) -> None:
    write(store / "consumequeue/orders/0" / ("0" * 20), (bytes(8) + b"\0\0\0\x64" + bytes(8)) * 3)


def _queue_files(store: Path, sizes: Mapping[int, int]) -> None:
    for start, size in sizes.items():
        write(store / "consumequeue/orders/0" / str(start).zfill(20), bytes(size))


def _damaged_queue(damage: Callable[[Path], object]) -> Callable[[Path], object]:
    """Make a store of two topics, and damage the queue of the first; the log ends with the other one's messages."""

    def make(store: Path) -> None:
        shutil.rmtree(store)
        builder = StoreBuilder()
        for topic in ("orders",) * 4 + ("payments",) * 2:
            builder.put(topic, body=b"body")
        finish(builder.write(store), ("orders", "payments"))
        damage(store / "consumequeue/orders")

    return make


def _blank_unit(number: int) -> Callable[[Path], object]:
    return lambda topic: overwrite(topic, f"0/{'0' * 20}", 20 * number, bytes(20))


MAKE: Mapping[str, Callable[[Path], object]] = {
    "store.unclean-stop": lambda store: write(store / "abort"),
    "store.unreadable": lambda store: os.symlink(store / "nowhere", log_file(store, 9)),
    "store.rocksdb-queues": lambda store: write(store / "consumequeue_rocksdb/CURRENT"),
    "store.interrupted-run": lambda store: (store / ".rmqtool/staging").mkdir(parents=True),
    "store.version-ambiguous": _expired,
    "config.rocksdb": lambda store: write(store / "config/rdb/CURRENT"),
    "config.rocksdb-damaged": lambda store: write(store / "config/consumerOffsets/CURRENT"),
    "config.consumer-offset": lambda store: write(store / "config/consumerOffset.json", b"{"),
    "commitlog.stray": lambda store: write(store / LOG / "a note.txt"),
    "commitlog.stray-directory": lambda store: log_file(store, 9).mkdir(),
    "commitlog.file-size": lambda store: write(log_file(store, 2), bytes(100)),
    "commitlog.empty-file": lambda store: write(log_file(store, 2)),
    "commitlog.gap": lambda store: log_file(store, 1).rename(log_file(store, 5)),
    "commitlog.overlap": _overlap,
    "consumequeue.stray": lambda store: write(store / "consumequeue/orders/0/a note.txt"),
    "consumequeue.empty-file": lambda store: _queue_files(store, {0: 600, 600: 600, 1200: 0}),
    "consumequeue.file-size": lambda store: _queue_files(store, {0: 600, 600: 600, 1200: 7}),
    "consumequeue.gap": lambda store: _queue_files(store, {0: 600, 1200: 600}),
    "consumequeue.hole": _damaged_queue(_blank_unit(1)),
    "consumequeue.missing-queue": _damaged_queue(shutil.rmtree),
    "consumequeue.missing-unit": _damaged_queue(_blank_unit(3)),
    "index.geometry": _bad_index,
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A sound store of two commit log files, in a folder with a blank in its name."""
    root = tmp_path / "a store"
    return (
        LogBuilder(start_offset=START)
        .add_all({"body": bytes(300), "queue_offset": number} for number in range(12))
        .write(root)
    )


def test_every_code_of_an_overview_is_tried() -> None:
    """A code that is added to an overview has to be made here."""
    assert set().union(*(codes_of(source) for source in SOURCES)) == set(MAKE)


@pytest.mark.parametrize("code", sorted(MAKE))
def test_a_finding_names_the_next_command(store: Path, code: str) -> None:
    """It can be pasted into a shell as it stands, is no usage error, and is another one than was asked."""
    MAKE[code](store)
    findings = inspect(store, "--json").document["findings"]
    [found] = [finding for finding in findings if finding["code"] == code]
    assert found["remedy"] in inspect(store, "--color", "never").out.replace("\n", " ")
    program, *words = shlex.split(found["remedy"])
    assert program == "rmqtool"
    assert words != ["inspect", str(store)]
    assert rmqtool(*words).status in (Exit.OK, Exit.FINDINGS, Exit.LOSSY, Exit.FAILED)


def test_a_dledger_store_names_what_reads_it(unpacked: GoldenStore) -> None:
    """Verify says what it finds in such a store, whose start it does not predict."""
    store = unpacked("more/5.3.3-dledger")
    write(store / "abort")
    [found] = inspect(store, "--json").document["findings"]
    assert found["code"] == "store.unclean-stop"
    assert rmqtool(*shlex.split(found["remedy"])[1:]).status == Exit.FINDINGS


@pytest.mark.slow
def test_tables_name_the_next_command(golden_store: GoldenStore) -> None:
    """Offsets out of range and dead letters have no finding, but a command too."""
    for name, words in (("5.3.3-clean", "--group beyond"), ("5.5.0-shop", "--topic %DLQ%billing")):
        notes = inspect(golden_store(name)).err
        [command] = [line.partition(": ")[2] for line in notes.splitlines() if words in line]
        found = rmqtool(*shlex.split(command)[1:])
        assert found.status == Exit.OK
        assert found.out


def test_many_equal_findings_of_queues_are_one(store: Path) -> None:
    """It counts the others."""
    for number in range(5):
        write(store / "consumequeue/orders" / str(number) / "note", b"")
    [found] = inspect(store, "--json").document["findings"]
    assert (found["code"], found["count"], found["queue_id"]) == ("consumequeue.stray", 5, 0)
    assert found["message"].endswith("(4 more like this)")
