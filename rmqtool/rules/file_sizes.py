"""Sizes of the files of a store as broker.conf sets them, and without it (`MessageStoreConfig`), bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rmqtool.formats import batch_consume_queue, consume_queue
from rmqtool.rules.broker_conf import BrokerConf

_DEFAULT_QUEUE_UNITS = 300_000  # of either kind
LOG_FILE_SIZE = ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog")
QUEUE_FILE_SIZE: dict[Literal["simple", "batch"], tuple[str, ...]] = {
    "simple": ("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"),
    "batch": ("mapperFileSizeBatchConsumeQueue",),
}
"""The names of a setting that releases spell differently."""

DEFAULT_LOG_FILE_SIZE = 1 << 30
DEFAULT_QUEUE_FILE_SIZE: dict[Literal["simple", "batch"], int] = {
    "simple": _DEFAULT_QUEUE_UNITS * consume_queue.UNIT_SIZE,
    "batch": _DEFAULT_QUEUE_UNITS * batch_consume_queue.UNIT_SIZE,
}


def queue_file_size(conf: BrokerConf, kind: Literal["simple", "batch"]) -> int | None:
    """Size of the files of a kind of queue, None where it is not set; raises UsageError.

    That of simple queues is rounded up to whole units (`#getMappedFileSizeConsumeQueue`), that of batch queues is not.
    Where the broker does not read what is set, it is the default.
    """
    size = conf.size_or_default(QUEUE_FILE_SIZE[kind], DEFAULT_QUEUE_FILE_SIZE[kind])
    if size is None or kind == "batch":
        return size
    return -(-size // consume_queue.UNIT_SIZE) * consume_queue.UNIT_SIZE


def unread_size(conf: BrokerConf, names: Sequence[str]) -> str | None:
    """The name of a size in broker.conf that the broker does not read, so that its default counts; None without."""
    given = [name for name in names if conf.settings.get(name, "").strip()]
    return given[0] if given and conf.number(*names) is None else None


def log_file_size(conf: BrokerConf) -> int | None:
    """Size of the commit log files, None where it is not set: the default where the broker does not read what is."""
    return conf.size_or_default(LOG_FILE_SIZE, DEFAULT_LOG_FILE_SIZE)
