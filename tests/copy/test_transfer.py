"""Files that a broker writes while they are copied, and the order in which they are."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.files import UNLIMITED, InputFile, no_progress
from rmqtool.base.new_files import write_all
from rmqtool.copy import run, transfer
from rmqtool.copy.order import STEPS, inventory
from rmqtool.copy.transfer import content_of, copy_content, copy_index, copy_small
from rmqtool.formats.index_file import HEADER_SIZE, file_size, unit_position
from rmqtool.store.index_files import Geometry
from rmqtool.store.lock import Holder
from rmqtool.store.store import open_store
from tests.commands.running import rmqtool
from tests.verify.small_store import small_store

GEOMETRY = Geometry(4, 10)


@pytest.mark.parametrize("stop", [None, 5000])
def test_what_a_file_system_shares_is_hashed_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int | None
) -> None:
    """XFS and Btrfs give the copy the data of a file that stays as it is; of a part of one they are not asked."""
    path, written = tmp_path / "file", list[int]()
    path.write_bytes(bytes(range(1, 251)) * 40)

    def shares(descriptor: int, request: int, source: int) -> None:
        assert request == 0x40049409  # FICLONE, linux/fs.h
        os.pwrite(descriptor, os.pread(source, 1 << 20, 0), 0)

    def noted(descriptor: int, data: memoryview, position: int) -> None:
        written.append(len(data))
        write_all(descriptor, data, position)

    monkeypatch.setattr(fcntl, "ioctl", shares)
    monkeypatch.setattr(transfer, "write_all", noted)
    copied = copy_content(path, tmp_path / "copy", UNLIMITED, no_progress, stop, is_full=True)
    assert sum(written) == (stop or 0)
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()[:stop].ljust(10_000, b"\0")
    assert copied == content_of(tmp_path / "copy", UNLIMITED, no_progress)


def index_file(path: Path, count: int, slots: list[int], previous: list[int]) -> Path:
    """An index file whose header counts to `count`, though slots may lead to units after that."""
    header = struct.pack(">qqqqii", 1000, 2000, 0, 900, 2, count)
    units = b"".join(struct.pack(">iqii", number, number * 100, 0, each) for number, each in enumerate(previous))
    data = header + struct.pack(f">{len(slots)}i", *slots) + units
    path.write_bytes(data.ljust(file_size(GEOMETRY.slots, GEOMETRY.units), b"\0"))
    return path


def slots_of(path: Path) -> tuple[int, ...]:
    return struct.unpack(">4i", path.read_bytes()[HEADER_SIZE : HEADER_SIZE + 16])


def test_an_index_that_grows_leads_to_what_its_header_counts(tmp_path: Path) -> None:
    """Slots that lead to later units go back along the chain; the later units are left out."""
    path = index_file(tmp_path / "index", 3, [4, 2, 3, 0], [0, 0, 0, 1, 3])
    copy_index(path, tmp_path / "copy", GEOMETRY, UNLIMITED, no_progress)
    assert slots_of(tmp_path / "copy") == (1, 2, 1, 0)
    after = (tmp_path / "copy").read_bytes()
    end = unit_position(GEOMETRY.slots, 3)
    assert after[unit_position(GEOMETRY.slots, 0) : end] == path.read_bytes()[unit_position(GEOMETRY.slots, 0) : end]
    assert not after[end:].strip(b"\0")


def test_the_header_of_an_index_that_grows_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it counts is what the copy has, though the broker puts more keys at any moment."""
    path = index_file(tmp_path / "index", 3, [2, 0, 0, 0], [0, 0, 1])
    read = InputFile.read

    def then_grows(file: InputFile, position: int, size: int) -> bytes:
        data = read(file, position, size)
        if position == 0 and size == HEADER_SIZE:
            index_file(path, 5, [4, 0, 0, 0], [0, 0, 1, 2, 3])
        return data

    monkeypatch.setattr(InputFile, "read", then_grows)
    copy_index(path, tmp_path / "copy", GEOMETRY, UNLIMITED, no_progress)
    monkeypatch.undo()
    data = (tmp_path / "copy").read_bytes()
    assert int.from_bytes(data[HEADER_SIZE - 4 : HEADER_SIZE], "big") == 3
    assert slots_of(tmp_path / "copy") == (2, 0, 0, 0)


def test_a_small_file_is_copied_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of 5.1.0 and later writes it in place: it is read again until it can be parsed, and twice the same."""
    path, answers = tmp_path / "topics.json", iter([b"", b'{"a"', b'{"a":1}', b'{"a":12}', b'{"a":12}'])
    path.write_bytes(b'{"a":12}')
    monkeypatch.setattr(transfer, "read_all", lambda *_: next(answers))
    assert copy_small(path, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b'{"a":12}'
    assert next(answers, None) is None


def test_a_small_file_that_vanishes(tmp_path: Path) -> None:
    """Brokers up to 5.0.0 delete it before they rename the new one to its place."""
    path = tmp_path / "topics.json"
    writer = threading.Timer(0.02, path.write_text, ["{}"])
    writer.start()
    assert copy_small(path, tmp_path / "copy")
    writer.join()
    assert not copy_small(tmp_path / "none", tmp_path / "copy")


def test_what_stays_damaged_is_copied_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text("{half")
    assert copy_small(tmp_path / "topics.json", tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "{half"


def test_holes_stay_holes(tmp_path: Path) -> None:
    """Also between pages that are written; the hash is of all that comes before the last byte of data."""
    path = tmp_path / "file"
    with path.open("wb") as file:
        for page in (0, 3, 700):
            file.seek(page * 4096)
            file.write(b"data")
        file.truncate(64 << 20)
    copied = copy_content(path, tmp_path / "copy", UNLIMITED, no_progress)
    assert copied == content_of(path, UNLIMITED, no_progress)
    assert (copied.size, copied.used) == (64 << 20, 700 * 4096 + 4)
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    assert (tmp_path / "copy").stat().st_blocks <= path.stat().st_blocks


def test_order(tmp_path: Path) -> None:
    """What points comes before what it points at; positions come first, names last."""
    store = small_store(tmp_path / "store")
    for name in (
        "consumequeue_ext/orders/0/00000000000000000000",
        "timerwheel",
        "timerlog/00000000000000000000",
        "config/topics.json",
        "config/consumerOffset.json",
    ):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).touch()
    found = inventory(open_store(store)).files
    steps = {file.name.split("/")[0] if "config" not in file.name else file.name: file.step for file in found}
    order = ["config/consumerOffset.json", "checkpoint", "timerwheel", "timerlog", "index", "consumequeue", "commitlog",
             "config/topics.json"]  # fmt: skip
    places = [STEPS.index(steps[name]) for name in order]
    assert places == sorted(places)
    assert [file.name for file in found if file.step == "timer"] == ["timerwheel", "timerlog/00000000000000000000"]
    logs = inventory(open_store(store)).of("log")
    assert [file.is_full for file in logs][:3] == [False, False, True]
    queues = [file.name.split("/")[0] for file in inventory(open_store(store)).of("queues")]
    assert queues == sorted(queues)
    assert {*queues} == {"consumequeue", "consumequeue_ext"}


def test_the_newest_file_of_a_log_is_copied_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that is not full yet when it is read would be followed by the next one, with a gap between them."""
    store, names = small_store(tmp_path / "store"), list[str]()

    def noted(path: Path, *arguments: Any, **named: Any) -> Any:
        names.append(path.name if path.parent.name == "commitlog" else "")
        return transfer.copy_content(path, *arguments, **named)

    monkeypatch.setattr(run, "copy_content", noted)
    monkeypatch.setattr(run, "lock_holder", lambda _: Holder(1, "lock"))  # what no broker writes comes at once
    monkeypatch.setattr(run, "_COPIES", 1)
    assert rmqtool("copy", store, "--output", tmp_path / "copy").status == 0
    logs = [name for name in names if name]
    assert logs == [*sorted(logs)[:-2], *reversed(sorted(logs)[-2:])]
    last = len(names) - names[::-1].index(logs[-1])
    assert "" not in names[names.index(logs[-2]) : last]


def test_a_log_in_several_directories_becomes_one(tmp_path: Path) -> None:
    """Wherever they are, also below the store, and each file once."""
    store = small_store(tmp_path / "store")
    (store / "disks" / "b").mkdir(parents=True)
    (store / "commitlog").rename(store / "disks" / "a")
    for number, path in enumerate(sorted((store / "disks" / "a").iterdir())):
        if number % 2:
            path.rename(store / "disks" / "b" / path.name)
    (conf := tmp_path / "broker.conf").write_text(
        f"storePathRootDir={store}\nstorePathCommitLog={store / 'disks' / 'a'},{store / 'disks' / 'b'}\n"
    )
    assert rmqtool("copy", store, "--output", tmp_path / "copy", "--broker-conf", conf).status == 0
    assert not [path for path in (tmp_path / "copy" / "disks").rglob("*") if path.is_file()]
    checked = rmqtool("copy", "--verify", tmp_path / "copy", "--json")
    assert (checked.status, checked.document["result"]["verdict"]) == (0, "clean")
