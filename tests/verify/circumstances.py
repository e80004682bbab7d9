"""What is not a damage of some bytes of a stopped store: other logs, settings, the machine; each makes one code."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from rmqtool.broker.trigger import Disk
from rmqtool.formats.checkpoint import TIMER_CHECK_DTYPE
from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import MAGIC_CODE_V1, build_host
from rmqtool.transaction.losses import ChoiceRecord, keep_choice
from rmqtool.verify import disk_and_time_checks
from tests.building import START_TIME, message
from tests.store.other_process import JAVA, another_process
from tests.unreadable import forbidden
from tests.verify.damages import (
    FILE,
    OFFSETS,
    OTHER_FILE,
    QUEUE,
    config,
    copy_unit,
    log_file,
    overwrite,
    patch_log,
    read,
    sparse,
    tear,
)
from tests.verify.small_store import FILE_SIZE, GEOMETRY, QUEUE_FILE_SIZE, StoreBuilder, finish, small_log, small_store
from tests.verify.timer_store import store_with_timers

_HOUR = 3600
FILTERS = json.dumps(
    {"filterDataByTopic": {"orders": {"groupFilterData": {"g": {"expression": "a > 5", "expressionType": "SQL92"}}}}}
)
Apply = Callable[[Path], object]


class Circumstance(NamedTuple):
    """The code that is told, how the store is made so, and what else `verify` is told or meets."""

    code: str
    apply: Apply = lambda store: None
    build: Callable[[Path], Path] = small_store
    conf: Mapping[str, str] = {}
    version: str | None = None
    while_verifying: Callable[[Path], AbstractContextManager[object]] = lambda store: nullcontext()


def circumstances() -> Iterator[Circumstance]:
    """One for each code that none of the damages makes."""
    yield from _starts()
    yield from _surroundings()
    yield from _machine()
    yield from _logs()
    yield from _lost_logs()
    yield from _queues_and_index()
    yield from _timers()
    yield from _configuration()


def _starts() -> Iterator[Circumstance]:
    bad_body = patch_log(OFFSETS[2] + 88, b"B")
    yield Circumstance("start.data-loss", both(bad_body, killed, lambda s: (s / "checkpoint").unlink()))
    yield Circumstance("start.other-mode-data-loss", bad_body, version="5.5")
    yield Circumstance("start.depends-on-release", bad_body)
    yield Circumstance("start.refuses", lambda s: (s / "commitlog" / "nohup.out").write_text("not a log file"))
    yield Circumstance("start.other-directory", conf={"storePathCommitLog": "commitlog "}, version="4.7.1")
    yield Circumstance("start.refuses", conf={"mappedFileSizeCommitLog": f"{FILE_SIZE} "}, version="4.7.1")
    yield Circumstance("start.refuses", directory_in_place_of("checkpoint"))
    yield Circumstance("start.refuses", directory_in_place_of("lock"))
    plain = log_of(*({} for _ in range(120)))
    yield Circumstance(
        "start.hangs", both(lambda s: log_file(s, 1).unlink(), without_queues), build=plain, version="4.9.8"
    )
    yield Circumstance("start.queue-loss", behind, version="5.3.3", build=plain)


def _surroundings() -> Iterator[Circumstance]:
    yield Circumstance("store.in-use", while_verifying=lambda s: another_process(s / "lock", JAVA))
    yield Circumstance("store.abort-missing", tear)
    yield Circumstance("store.permission", lambda s: log_file(s, 1).chmod(0o444))
    yield Circumstance("store.permission", lambda s: (s / "config").chmod(0o555))
    yield Circumstance("store.paths", two_paths, conf={"storePathCommitLog": "commitlog,more"})
    yield Circumstance("commitlog.duplicate-file", file_in_both_paths, conf={"storePathCommitLog": "commitlog,more"})
    yield Circumstance("store.rocksdb-queues", database("consumequeue"))
    yield Circumstance("store.rocksdb-side-store", database("rocksdbstore"), conf={"timerRocksDBEnable": "true"})
    yield Circumstance("store.rocksdb-side-store", both(database("rocksdbstore"), touch("rocksdbstore/000012.sst")))
    yield Circumstance("store.mixed", both(other_broker, copy_unit(OTHER_FILE, FILE, 2)))
    yield Circumstance("store.mixed", other_broker)
    yield Circumstance("store.interrupted-run", interrupted_run)
    yield Circumstance("store.recorded-loss", recorded_loss)
    yield Circumstance("store.selection", recorded_choice)
    for name in ("checkpoint", "lock", "abort"):
        yield Circumstance("store.wrong-kind", directory_in_place_of(name))
    for name in ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "config", "timerlog",
                 "rocksdbstore", ".rmqtool"):  # fmt: skip
        yield Circumstance("store.wrong-kind", file_in_place_of(name))
    yield Circumstance("store.wrong-kind", lambda s: (s / "index" / "20261121113608184").mkdir())
    yield Circumstance("consumequeue.stray", file_in_place_of(QUEUE))
    yield Circumstance("consumequeue.stray", file_in_place_of("consumequeue/orders"))


def _machine() -> Iterator[Circumstance]:
    yield Circumstance("store.disk-full", while_verifying=lambda s: disk(used=0.93))
    yield Circumstance("commitlog.sparse", hollow, while_verifying=lambda s: disk(used=0.5, left=1000))
    yield Circumstance("store.retention-blocked", conf={"deleteWhen": "04 16"})
    yield Circumstance("store.retention-blocked", conf={"deleteWhen": "24"})
    yield Circumstance("upgrade.refused", conf={"rocksdbCQDoubleWriteEnable": "true"}, version="5.5")
    yield Circumstance("upgrade.setting", conf={"flushDiskTyp": "SYNC_FLUSH"}, version="5.5")
    yield Circumstance("upgrade.changed", version="5.5")
    yield Circumstance("store.retention-blocked", lambda s: os.utime(log_file(s, 0), (1 << 33, 1 << 33)))
    yield Circumstance("store.modification-times", lambda s: os.utime(log_file(s, 0), (1 << 20, 1 << 20)))
    yield Circumstance("store.modification-times", build=days_of_messages)


def _logs() -> Iterator[Circumstance]:
    yield Circumstance("commitlog.unreadable", while_verifying=lambda s: forbidden(log_file(s, 1)))
    yield Circumstance("commitlog.no-first-file", lambda s: log_file(s, 0).unlink())
    yield Circumstance("commitlog.preallocated", sparse(f"commitlog/{file_name(3 * FILE_SIZE)}", FILE_SIZE))
    yield Circumstance("commitlog.stale-bytes", patch_log(small_log().end, b"old bytes"))
    yield Circumstance("commitlog.stale-records", ghosts)
    yield Circumstance("commitlog.truncated", build=no_room)
    yield Circumstance("commitlog.deleted-topic", deleted_topic)
    yield Circumstance("commitlog.queue-offset-restart", build=topic_made_again)
    yield Circumstance("commitlog.properties", build=log_of({"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 2,
                                                             "properties": {"DELAY": "soon"}}))  # fmt: skip
    yield Circumstance("commitlog.destination", build=log_of({"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 2,
                                                              "properties": {"REAL_TOPIC": "orders"}}))  # fmt: skip
    yield Circumstance("commitlog.magic-code-v2", version="5.0")
    yield Circumstance("commitlog.time-order", build=log_of({"store_timestamp": START_TIME + 7_200_000},
                                                            {"store_timestamp": START_TIME}))  # fmt: skip


def _lost_logs() -> Iterator[Circumstance]:
    yield Circumstance("commitlog.missing", both(without("commitlog"), without("consumequeue"), without("index")))
    for position, value in ((8, START_TIME + _HOUR * 1000), (32, small_log().end + 1), (40, small_log().end)):
        yield Circumstance("commitlog.end-missing", checkpoint_number(position, value))
    yield Circumstance("commitlog.head-missing", without_log_files(2))
    yield Circumstance("commitlog.end-missing", last_epoch(small_log().end + 1))


def _queues_and_index() -> Iterator[Circumstance]:
    yield Circumstance("consumequeue.orphan", lambda s: names_topics(s, "payments", "t" * 140))
    yield Circumstance("consumequeue.shifted", build=closed_gap)
    yield Circumstance("consumequeue.neutral-unit", neutral_unit)
    yield Circumstance("consumequeue.lmq-mismatch", size_of_another, build=light_queue)
    yield Circumstance("commitlog.field", build=light_queue)
    yield Circumstance("consumequeue.batch-unit", build=batch_queue)
    yield Circumstance("index.missing", lambda s: shutil.rmtree(s / "index"))
    yield Circumstance("index.duplicate-unit", last_unit_again)
    yield Circumstance("index.name", wrong_names)
    yield Circumstance("checkpoint.behind", lambda s: overwrite(s, "checkpoint", 0, bytes(24)))


def _timers() -> Iterator[Circumstance]:
    yield Circumstance("timer.lost", lambda s: shutil.rmtree(s / "timerlog"), build=store_with_timers)
    yield Circumstance("timer.again", lambda s: (s / "config" / "timercheck").unlink(), build=store_with_timers)


def _configuration() -> Iterator[Circumstance]:
    yield Circumstance("timer.log", timer_checkpoint_ahead)
    yield Circumstance("timer.log", both(timer_checkpoint_ahead, sparse(f"timerlog/{file_name(5200)}", 100)))
    yield Circumstance("config.rocksdb", database("config/metadata"))
    yield Circumstance("config.backup-differs", two_sources)
    yield Circumstance("config.topic-queues", fewer_queues)
    taken = config("consumerOffset.json", '{"offsetTable":{"orders@g":{0:1}}}')
    yield Circumstance("store.pop-store-missing", taken, conf={"popConsumerKVServiceInit": "true"})
    yield Circumstance("config.filters-ignored", config("consumerFilter.json", FILTERS))
    half = {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "queue_id": 0}
    passed = config("consumerOffset.json", '{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:1}}}')
    yield Circumstance("config.half-messages-skipped", passed, build=log_of(half))
    yield Circumstance("config.offset-out-of-range", both(tear, committed(500)))
    yield Circumstance("config.offset-out-of-range", committed(500))
    yield Circumstance("config.wrong-offset", committed(1 << 40))
    yield Circumstance("config.missing", config("topics.json", "{}"))
    yield Circumstance("config.older-copy", older_than_backup)
    yield Circumstance("config.topic-missing", topic_lost)
    yield Circumstance("config.topic-permission", lambda s: topic_added(s, "%RETRY%group", perm=0))


def both(*applied: Apply) -> Apply:
    """One after the other."""
    return lambda store: [apply(store) for apply in applied]


def killed(store: Path) -> None:
    """As a broker leaves it that is killed."""
    (store / "abort").touch()


def touch(name: str) -> Apply:
    """An empty file."""
    return lambda store: (store / name).touch()


def without(name: str) -> Apply:
    """A directory is gone."""
    return lambda store: shutil.rmtree(store / name)


def without_log_files(count: int) -> Apply:
    """The first files of the log are gone."""
    return both(*[lambda store: log_file(store, 0).unlink()] * count)


def checkpoint_number(position: int, value: int) -> Apply:
    """One of the checkpoint's numbers is another."""
    return lambda store: overwrite(store, "checkpoint", position, struct.pack(">q", value))


def last_epoch(start_offset: int) -> Apply:
    """The last epoch of a broker under a controller began at a physical offset."""
    return lambda store: (store / "epochFileCheckpoint").write_text(f"2\n0\n1-0\n2-{start_offset}\n")


def without_queues(store: Path) -> None:
    """No consume queue is left."""
    shutil.rmtree(store / "consumequeue")


def behind(store: Path) -> None:
    """The only queue lacks its last two units."""
    overwrite(store, f"{QUEUE}/{file_name(14 * QUEUE_FILE_SIZE)}", 120, bytes(40))


def two_paths(store: Path) -> None:
    """The last file of the log is in another directory."""
    (store / "more").mkdir()
    shutil.move(log_file(store, -1), store / "more")


def file_in_both_paths(store: Path) -> None:
    """The last file of the log is in two directories."""
    (store / "more").mkdir()
    shutil.copy2(log_file(store, -1), store / "more")


def database(name: str) -> Apply:
    """A directory that RocksDB has made."""

    def make(store: Path) -> None:
        (store / name).mkdir(parents=True, exist_ok=True)
        (store / name / "CURRENT").write_text("MANIFEST-000005\n")

    return make


def other_broker(store: Path) -> None:
    """The second file of the log begins with a message of another broker."""
    first = min(offset for offset in OFFSETS if offset >= FILE_SIZE)
    patch_log(first + 64, build_host("203.0.113.9", 10911))(store)


def directory_in_place_of(name: str) -> Apply:
    """A directory where a file should be."""

    def make(store: Path) -> None:
        (store / name).unlink(missing_ok=True)
        (store / name).mkdir()

    return make


def file_in_place_of(name: str) -> Apply:
    """A file where a directory should be."""

    def make(store: Path) -> None:
        shutil.rmtree(store / name, ignore_errors=True)
        (store / name).write_text("no directory")

    return make


def interrupted_run(store: Path) -> None:
    """A repair that was cut off."""
    (store / ".rmqtool" / "staging").mkdir(parents=True)


def recorded_choice(store: Path) -> None:
    """The record of a store that was made of chosen messages."""
    options = ("--topic", "orders")
    keep_choice(store, ChoiceRecord("salvage", START_TIME, ("/data/store",), options, "keep", 40, 100, FILE_SIZE))


def recorded_loss(store: Path) -> None:
    """A record that a repair has left, and that cannot be read."""
    (store / ".rmqtool" / "losses").mkdir(parents=True)
    (store / ".rmqtool" / "losses" / "0001-000000000000.json").write_text("cut off")


def disk(used: float, left: int = 1 << 40) -> AbstractContextManager[object]:
    """A disk of which a part is used, with so many bytes left."""
    found = Disk(Path("/disk"), total=1 << 41, free=left, usable=left, fixed_ratio=used)
    return patch.object(disk_and_time_checks, "disk_of", lambda path, version: found)


def hollow(store: Path) -> None:
    """A file of the log is a hole after its records."""
    path = log_file(store, -1)
    data = path.read_bytes().rstrip(b"\0")
    path.write_bytes(b"")
    os.truncate(path, 1 << 16)
    overwrite(store, f"commitlog/{path.name}", 0, data)


def days_of_messages(store: Path) -> Path:
    """Files whose messages are a day apart, written at once."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for day in range(3):
        builder.put(body=b"x" * 3000, store_timestamp=START_TIME + day * 24 * _HOUR * 1000)
    return finish(builder.write(store))


def log_of(*records: Mapping[str, object]) -> Callable[[Path], Path]:
    """A store of these messages."""

    def build(store: Path) -> Path:
        builder = StoreBuilder(file_size=FILE_SIZE)
        for fields in records:
            builder.put(**fields)  # type: ignore[arg-type]
        return finish(builder.write(store), geometry=None)

    return build


def ghosts(store: Path) -> None:
    """Old records behind bytes that are none."""
    end = small_log().end + 50
    old = message(end, store_timestamp=START_TIME - 60_000, queue_offset=99)
    patch_log(small_log().end, b"old bytes".ljust(50, b"o") + old)(store)


def no_room(store: Path) -> Path:
    """The last bytes of a file begin as a record does, and are too few for one."""
    size = FILE_SIZE - 20 - len(message(body=b""))
    log_of({"body": b"x" * size}, {})(store)
    patch_log(FILE_SIZE - 20, struct.pack(">ii", 16, MAGIC_CODE_V1))(store)
    return store


def deleted_topic(store: Path) -> None:
    """Neither queues nor configuration are left of a topic."""
    names_topics(store, "orders", "t" * 140)
    shutil.rmtree(store / "consumequeue" / "payments")


def names_topics(store: Path, *topics: str) -> None:
    """Only these topics are configured."""
    table = json.loads((store / "config" / "topics.json").read_text())
    table["topicConfigTable"] = {name: table["topicConfigTable"][name] for name in topics}
    config("topics.json", json.dumps(table))(store)


def topic_made_again(store: Path) -> Path:
    """The queue offsets of a topic begin again."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    builder.put()
    builder.put()
    builder.next_offsets.clear()
    builder.put()
    finish(builder.write(store))
    (store / QUEUE / file_name(0)).write_bytes(unit(builder, 2).ljust(160, b"\0"))
    return store


def closed_gap(store: Path) -> Path:
    """A broker has appended after a gap of queue offsets."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    builder.put()
    builder.put(queue_offset=7)
    builder.write(store)
    return write_queue(store, "consumequeue/orders/0", unit(builder, 0) + unit(builder, 1), 160)


def light_queue(store: Path) -> Path:
    """A light queue whose unit is of a record that does not name it."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    builder.put(properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"})
    builder.put()
    builder.write(store)
    write_queue(store, "consumequeue/orders/0", unit(builder, 0) + unit(builder, 1), 160)
    return write_queue(store, "consumequeue/%LMQ%a/0", unit(builder, 0) + unit(builder, 1), 160)


def size_of_another(store: Path) -> None:
    """The unit of a light queue for a record that does not name it is wrong otherwise, too."""
    name = f"consumequeue/%LMQ%a/0/{file_name(0)}"
    overwrite(store, name, 28, struct.pack(">i", 99))


def batch_queue(store: Path) -> Path:
    """A batch queue whose unit tells another number of messages than its record."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    properties = {"INNER_BASE": "0", "INNER_NUM": "5"}
    builder.put("bulk", sys_flag=0xC0, queue_offset=0, properties=properties)
    builder.write(store)
    (store / "config").mkdir()
    table = {"topicConfigTable": {"bulk": {"topicName": "bulk", "attributes": {"queue.type": "BatchCQ"}}}}
    config("topics.json", json.dumps(table))(store)
    wrong = unit(builder, 0) + struct.pack(">qqhii", START_TIME + 1, 0, 4, -1, 0)
    return write_queue(store, "batchconsumequeue/bulk/0", wrong, 460)


def unit(builder: StoreBuilder, number: int) -> bytes:
    """The unit of one record."""
    at = builder.offsets[number]
    size = int.from_bytes(builder.files[at // FILE_SIZE][at % FILE_SIZE :][:4], "big")
    return build_unit(at, size, 0)


def write_queue(store: Path, name: str, units: bytes, size: int) -> Path:
    """Write the one file of a queue; return the store."""
    (store / name).mkdir(parents=True, exist_ok=True)
    (store / name / file_name(0)).write_bytes(units.ljust(size, b"\0"))
    return store


def neutral_unit(store: Path) -> None:
    """A message is lost, and its unit is one of the next message, as a rebuild leaves it."""
    (lost,) = struct.unpack(">q", read(store, FILE, 40, 8))
    patch_log(lost + 4, b"lost")(store)
    overwrite(store, FILE, 40, read(store, FILE, 60, 20))


def last_unit_again(store: Path) -> None:
    """The index holds the last key of the last record twice."""
    path = min((store / "index").iterdir())
    data = bytearray(path.read_bytes())
    (count,) = struct.unpack(">i", data[36:40])
    units_at = 40 + 4 * GEOMETRY[0]
    last = data[units_at + 20 * (count - 1) : units_at + 20 * count]
    slot = 40 + 4 * (struct.unpack(">i", last[:4])[0] % GEOMETRY[0])
    data[units_at + 20 * count : units_at + 20 * (count + 1)] = last[:16] + data[slot : slot + 4]
    data[slot : slot + 4] = data[36:40]
    data[36:40] = struct.pack(">i", count + 1)
    path.write_bytes(data)


def wrong_names(store: Path) -> None:
    """Two index files, of which the one with the later name begins before the other."""
    path = min((store / "index").iterdir())
    shutil.copy2(path, path.with_name("20991114221320001"))
    overwrite(store, f"index/{path.name}", 16, struct.pack(">q", OFFSETS[5]))


def timer_checkpoint_ahead(store: Path) -> None:
    """`timercheck` has flushed more of the timer log than there is."""
    (store / "timerlog").mkdir(exist_ok=True)
    sparse(f"timerlog/{file_name(0)}", 5200)(store)
    numbers = [START_TIME, 9000, 0, 0, 0, 0, 0]
    data = b"".join(struct.pack(">q", number) for number in numbers)
    assert len(data) == TIMER_CHECK_DTYPE.itemsize
    (store / "config" / "timercheck").write_bytes(data.ljust(4096, b"\0"))


def two_sources(store: Path) -> None:
    """A ``.bak`` of the same data version that tells another number of queues."""
    table = json.loads((store / "config" / "topics.json").read_text())
    table["dataVersion"] = {"counter": 3, "timestamp": START_TIME}
    config("topics.json", json.dumps(table))(store)
    table["topicConfigTable"]["orders"]["readQueueNums"] = 9
    config("topics.json.bak", json.dumps(table))(store)


def older_than_backup(store: Path) -> None:
    """A ``.bak`` of a later data version."""
    table = json.loads((store / "config" / "topics.json").read_text())
    for name, counter in (("topics.json", 3), ("topics.json.bak", 7)):
        table["dataVersion"] = {"counter": counter, "timestamp": START_TIME + counter}
        config(name, json.dumps(table))(store)


def topic_lost(store: Path) -> None:
    """A topic is not configured, and has messages that were stored since the last change."""
    names_topics(store, "orders", "t" * 140)
    table = json.loads((store / "config" / "topics.json").read_text())
    table["dataVersion"] = {"counter": 3, "timestamp": START_TIME}
    config("topics.json", json.dumps(table))(store)


def topic_added(store: Path, topic: str, **fields: object) -> None:
    """One more topic is configured."""
    table = json.loads((store / "config" / "topics.json").read_text())
    table["topicConfigTable"][topic] = {"topicName": topic, **fields}
    config("topics.json", json.dumps(table))(store)


def fewer_queues(store: Path) -> None:
    """A topic's second queue may not be read any more."""
    table = json.loads((store / "config" / "topics.json").read_text())
    table["topicConfigTable"]["orders"].update(readQueueNums=1, writeQueueNums=1)
    config("topics.json", json.dumps(table))(store)


def committed(offset: int) -> Apply:
    """A group that has committed this offset."""
    return config("consumerOffset.json", json.dumps({"offsetTable": {"orders@group": {"0": offset}}}))
