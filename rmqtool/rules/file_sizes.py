"""Sizes of the files of a store as broker.conf sets them, and how releases treat a last file of 0 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rmqtool.formats import consume_queue
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Releases, Version, ranges_of

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
    "batch": _DEFAULT_QUEUE_UNITS * consume_queue.BATCH_UNIT_SIZE,
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


_REFUSED_SINCE = Version(4, 5, 1)
_LEFT_OUT_AGAIN = Version(4, 9, 2)
_DELETED_SINCE = Version(5, 1, 3)


def deletes_empty_last_file(version: Version) -> bool:
    """Whether a start deletes an empty file when it is the last one."""
    return version >= _DELETED_SINCE


def leaves_out_wrong_sizes(version: Version) -> bool:
    """Whether a start leaves out a file of another size, and all after it, instead of refusing."""
    return version < _REFUSED_SINCE or version == _LEFT_OUT_AGAIN


def refuses_empty_last_file(version: Version) -> bool:
    """Whether a broker does not start because the last file is empty."""
    return not (deletes_empty_last_file(version) or leaves_out_wrong_sizes(version))


def effect_of_empty_last_file(releases: Releases) -> str:
    """The effect of an empty last file at a start, in words, by the releases that may run and that do start."""
    does = (
        ("deletes it", releases.where(deletes_empty_last_file)),
        ("ignores it, and writes its next file in this place", releases.where(leaves_out_wrong_sizes)),
    )
    effects = [(text, releases_with) for text, releases_with in does if releases_with]
    if not effects:
        return "the broker refuses to start until the file is removed"
    if len(effects) == 1:
        return f"a start {effects[0][0]}"
    return "a start " + "; ".join(f"{text} ({spans_of(releases_with)})" for text, releases_with in effects)


def spans_of(versions: Sequence[Version]) -> str:
    """``4.5.1 to 4.9.1 and 4.9.3 to 5.1.2``: releases in words."""
    texts = ranges_of(versions)
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))
