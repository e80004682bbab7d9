"""Pulls: subscriptions, limits of broker.conf, ext units; the answers of each release are in tests/broker."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmqtool.broker.pull import Answer, Puller, Subscription, limits_of, puller_of
from rmqtool.formats.consume_queue import ext_address
from rmqtool.formats.java import string_hash
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.query.making import StoreMaker, write_queue
from tests.unchanged import unchanged

ALL = Subscription()


def made(count: int = 40, **fields: Any) -> StoreMaker:
    store = StoreMaker()
    for number in range(count):
        store.add(properties={"TAGS": "Aa" if number % 2 else "BB"}, **fields)
    return store


def pull(puller: Puller, offset: int, most: int, subscription: Subscription = ALL) -> Answer:
    return puller.pull(offset, most, subscription)


def test_hashes_and_texts_of_tags() -> None:
    """The broker compares 32 bits, the client the text; an unknown tags code is sent."""
    wanted = Subscription(("Aa",))
    assert wanted.takes_unit(string_hash("BB"))
    assert wanted.takes_unit(string_hash("Aa") + (7 << 32))
    assert wanted.takes_unit(None)
    assert not wanted.takes_unit(string_hash("x"))
    assert wanted.takes("Aa")
    assert not wanted.takes("BB")
    assert not wanted.takes(None)
    assert ALL.takes(None)


def test_limits_of_broker_conf(tmp_path: Path) -> None:
    """The number of messages, and of bytes, in memory and on disk; the first message is sent whatever its size."""
    snapshot = made(body=b"x" * 1000).snapshot(tmp_path)
    settings = {
        "maxTransferCountOnMessageInMemory": "5",
        "maxTransferCountOnMessageInDisk": "3",
        "maxTransferBytesOnMessageInDisk": "2500",
    }
    snapshot = Snapshot(replace(snapshot.store, conf=BrokerConf(settings)))
    puller = puller_of(snapshot, "orders", 0)
    assert len(pull(puller, 0, 32).units) == 5
    on_disk = replace(puller, limits=replace(puller.limits, memory=0))
    assert len(pull(on_disk, 0, 32).units) == 2
    tiny = replace(puller, limits=replace(puller.limits, bytes_in_memory=1))
    assert len(pull(tiny, 0, 32).units) == 1
    assert limits_of(BrokerConf()).count_in_memory == 32


def test_several_files_in_one_pull(tmp_path: Path) -> None:
    """Since 5.0 a broker may be told to look into further files while it has found nothing."""
    store = made()
    store.units["orders", 0] = store.units["orders", 0][:35]
    snapshot = store.snapshot(tmp_path)
    wanted = Subscription(("nobody",))
    one = puller_of(snapshot, "orders", 0)
    two = replace(one, limits=replace(one.limits, files=2))
    assert pull(one, 0, 32, wanted).next_begin_offset == 30
    assert pull(two, 0, 32, wanted).next_begin_offset == 35
    old = replace(two, version=parse_version("4.9.7"))
    assert pull(old, 0, 32, wanted).next_begin_offset == 30


def test_tags_in_ext_units(tmp_path: Path) -> None:
    """An address is followed; one that leads nowhere means that the client must filter."""
    store = made(2)
    units = store.units["orders", 0]
    first = struct.pack(">hqqh", 20, string_hash("Cc"), 0, 0)
    for number, address in enumerate((ext_address(0), ext_address(4000))):
        units[number] = units[number][:12] + struct.pack(">q", address)
    root = store.write(tmp_path)
    write_queue(root, "orders", 0, units)
    ext = root / "consumequeue_ext" / "orders" / "0"
    ext.mkdir(parents=True)
    (ext / f"{0:020d}").write_bytes(first.ljust(1024, b"\0"))
    with unchanged(root):
        puller = puller_of(Snapshot(open_store(root)), "orders", 0)
        sent = [unit.queue_offset for unit in pull(puller, 0, 32, Subscription(("Aa",))).units]
        assert sent == [1]
        sent = [unit.queue_offset for unit in pull(puller, 0, 32, Subscription(("Cc",))).units]
        assert sent == [0, 1]


def test_a_read_at_offset_0_when_file_0_is_gone(tmp_path: Path) -> None:
    """The broker takes the first file that is there, and sends what it finds."""
    store = StoreMaker(log_file=4096)
    for _ in range(60):
        store.add()
    root = store.write(tmp_path)
    min((root / "commitlog").iterdir()).unlink()
    puller = puller_of(Snapshot(open_store(root), parse_version("4.9.7")), "orders", 0)
    assert puller.log.file_of(0, 100) is not None
    assert puller.log.file_of(200, 100) is None
