"""What causes each finding of a rebuild: a store and a command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from tests.verify.circumstances import topic_made_again
from tests.verify.damages import DAMAGES
from tests.verify.small_store import FILE_SIZE, QUEUE_FILE_SIZE, StoreBuilder, small_store

JUNK = -1
"""In place of a queue offset: some bytes that are no record."""


class Cause(NamedTuple):
    """The code, the store that makes it, and the command line."""

    code: str
    build: Callable[[Path], Path]
    command: str = "rebuild-cq"
    options: tuple[str, ...] = ()


def log_of(*queue_offsets: int) -> Callable[[Path], Path]:
    """A log of one queue whose messages tell these queue offsets."""

    def build(store: Path) -> Path:
        builder = StoreBuilder(file_size=FILE_SIZE)
        for queue_offset in queue_offsets:
            if queue_offset == JUNK:
                builder.files[-1] += b"j" * 20
            else:
                builder.put(queue_offset=queue_offset)
        return builder.write(store)

    return build


def damaged(store: Path) -> Path:
    """The small store with a record of zeros."""
    DAMAGES["zeros"].apply(small_store(store))
    return store


def with_conf(store: Path) -> Path:
    """The small store and a broker.conf with other sizes, no index and ext units."""
    lines = ("mappedFileSizeConsumeQueue=6000", "messageIndexEnable=false", "enableConsumeQueueExt=true")
    (store.parent / "broker.conf").write_text("\n".join(lines))
    return small_store(store)


def without_the_end(store: Path) -> Path:
    """The small store with a queue whose messages were behind the log's end."""
    lost = small_store(store) / "consumequeue" / "lost" / "0"
    lost.mkdir(parents=True)
    (lost / file_name(0)).write_bytes(build_unit(1 << 40, 100, 0).ljust(QUEUE_FILE_SIZE, b"\0"))
    return store


def with_topic(store: Path) -> Path:
    """A message of a topic whose name leads out of the store."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    builder.put("../outside")
    return builder.write(store)


def with_forbidden(store: Path) -> Path:
    """A log of one queue, and a group that may not read its topic."""
    log_of(0, 1, 2)(store)
    (store / "config").mkdir(exist_ok=True)
    text = '{"forbiddenTable":{"group":{"orders":1}},"subscriptionGroupTable":{"group":{"groupName":"group"}}}'
    (store / "config" / "subscriptionGroup.json").write_text(text)
    return store


def causes() -> Iterator[Cause]:
    yield Cause("commitlog.skipped", damaged)
    yield Cause("commitlog.neutralised", damaged, options=("--neutralise",))
    yield Cause("commitlog.not-neutralised", log_of(0, 1, JUNK, 2), options=("--neutralise",))
    yield Cause("rebuild.file-size-assumed", log_of(0, 1, 2))
    yield Cause("rebuild.file-size-differs", with_conf, options=("--broker-conf", "broker.conf"))
    yield Cause("rebuild.index-disabled", with_conf, "rebuild-index", ("--broker-conf", "broker.conf"))
    yield Cause("rebuild.ext-units", with_conf, options=("--broker-conf", "broker.conf"))
    yield Cause("rebuild.version-assumed", log_of(0, 1, 2), "rebuild-index")
    yield Cause("rebuild.topic-name", with_topic)
    yield Cause("rebuild.not-carried", with_forbidden, options=("--to", "rocksdb", "--broker-version", "5.2.0"))
    yield Cause("rebuild.queue-offset-jump", log_of(0, 1, 1 << 40, (1 << 40) + 1))
    yield Cause("rebuild.neutral-units", damaged)
    yield Cause("rebuild.no-messages-in-log", without_the_end)
    yield Cause("rebuild.superseded", topic_made_again)
    yield Cause("rebuild.stranger", log_of(0, 1, 2, 3, 0, 4, 5))
    yield Cause("rebuild.queue-offset", log_of(0, 1, 7, 3, 4, 5))
    yield Cause("rebuild.shifted", log_of(0, 1, 7, 8), options=("--append-order",))
    yield Cause("rebuild.repeated", log_of(0, 1, 2, 1, 3), options=("--append-order",))


CAUSES = list(causes())
