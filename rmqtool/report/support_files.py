"""What a bundle for a support case takes from the store itself: configuration, sizes and times, damaged bytes."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile, list_directory, read_all
from rmqtool.base.mapped_files import file_at
from rmqtool.base.times import rfc3339
from rmqtool.base.visible import visible
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, CONFIG, Store
from rmqtool.verify.bad_extents import UNREAD
from rmqtool.verify.outcome import Outcome

_FILTERS = "consumerFilter.json"
_MAX_CONFIG = 16 << 20
_SECRET = re.compile(
    r"secret|passw|credential|token|access_?key|private_?key|signature|authori[sz]ation|authenticationUser|header",
    re.IGNORECASE,
)
_HOST = re.compile(r"ip\d?$|addr|host|domain|server", re.IGNORECASE)
_HIDDEN = "***"
_WITHOUT_SECRETS = frozenset(
    f"{name}.json"
    for name in (
        *("topics", "subscriptionGroup", "consumerOffset", "lmqConsumerOffset", "delayOffset", "consumerFilter"),
        *("consumerOrderInfo", "topicQueueMapping", "messageRequestMode"),
    )
) | {"timercheck", "timermetrics", "transactionMetrics"}
"""Files of `config/` as brokers write them; others may be anything."""


class Member(NamedTuple):
    """One file of a bundle; `modified` is that of the file in the store, epoch s, None: now."""

    name: str
    data: bytes
    modified: int | None = None


class LeftOut(NamedTuple):
    """What is not in the bundle, and why."""

    name: str
    why: str


def config_files(store: Store, *, hosts: bool = True, expressions: bool = True) -> Iterator[Member | LeftOut]:
    """The known files of `config/` with their ``.bak``, the checkpoint, and the settings without secrets.

    Without `hosts` settings that name hosts are hidden, too; without `expressions` the SQL filters of consumers.
    """
    try:
        entries = list_directory(store.root / CONFIG)
    except RmqtoolError as error:
        yield LeftOut(f"{CONFIG}/", visible(str(error)))
        entries = []
    for entry in entries:
        path, name = Path(entry.path), entry.name.removesuffix(".bak")
        if name == _FILTERS and not expressions:
            yield LeftOut(store.relative(path), "its expressions may quote redacted values")
        elif name in _WITHOUT_SECRETS and entry.is_file(follow_symlinks=False):
            yield _config_file(store, path)
        else:
            yield LeftOut(visible(store.relative(path)), "not a file that every broker writes")
    if (store.root / CHECKPOINT).is_file():
        yield _config_file(store, store.root / CHECKPOINT)
    if store.conf.path is not None:
        hidden = re.compile(_SECRET.pattern if hosts else f"{_SECRET.pattern}|{_HOST.pattern}", re.IGNORECASE)
        lines = [f"{name}={_HIDDEN if value and hidden.search(name) else value}"
                 for name, value in store.conf.settings.items()]  # fmt: skip
        yield Member("broker.conf", "".join(f"{visible(line)}\n" for line in lines).encode())


def _config_file(store: Store, path: Path) -> Member | LeftOut:
    name = store.relative(path)
    try:
        status, content = path.stat(), read_all(path, _MAX_CONFIG + 1)
    except (RmqtoolError, OSError) as error:
        return LeftOut(name, visible(str(error)))
    if len(content) > _MAX_CONFIG:
        return LeftOut(name, f"larger than {_MAX_CONFIG >> 20} MiB")
    return Member(name, content, int(status.st_mtime))


def file_list(store: Store) -> Member:
    """Path, size, bytes on the disk, time of modification (UTC) and mode of each file, tabs between."""
    lines = ["path\tsize\tallocated\tmodified\tmode"]
    for root in dict.fromkeys((store.root, *store.log_directories)):
        lines += _lines_below(root, store)
    return Member("files.tsv", "\n".join([*dict.fromkeys(lines), ""]).encode("utf-8", "surrogateescape"))


def _lines_below(directory: Path, store: Store) -> Iterator[str]:
    for entry in _listed(directory):
        if entry.is_dir(follow_symlinks=False):
            yield from _lines_below(Path(entry.path), store)
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # deleted by a running broker since
        name = store.relative(Path(entry.path)).replace("\t", "\\t").replace("\n", "\\n")
        modified = rfc3339(status.st_mtime_ns // 1_000_000)
        yield f"{name}\t{status.st_size}\t{status.st_blocks * 512}\t{modified}\t{stat.filemode(status.st_mode)}"


def _listed(directory: Path) -> list[Any]:
    try:
        return list_directory(directory)
    except RmqtoolError:
        return []  # which the verification has reported


def damaged_bytes(snapshot: Snapshot, outcome: Outcome, most: int) -> Iterator[Member | LeftOut]:
    """The bytes of damaged extents of the log, `most` of them together; longer extents from their beginning."""
    for physical_offset, size, reason in outcome.total.extents:
        name = f"damaged/{physical_offset:020}-{size}"
        is_held = file_at(snapshot.log.files, physical_offset) is not None
        if reason == UNREAD or not is_held:
            yield LeftOut(name, "cannot be read" if is_held else "it is in no file")
            continue
        if most <= 0:
            yield LeftOut(name, "--max-damaged is reached")
            continue
        data = b"".join(_bytes_of(snapshot, physical_offset, min(size, most)))
        most -= len(data)
        if len(data) < size:
            yield LeftOut(name, f"all but its first {len(data)} bytes: a larger --max-damaged takes more")
        if data:
            yield Member(name, data)


def _bytes_of(snapshot: Snapshot, start: int, size: int) -> Iterator[bytes]:
    """The bytes that the files hold of an extent, up to the first that none holds."""
    end = start + size
    while start < end and (file := file_at(snapshot.log.files, start)):
        try:
            with InputFile(file.path) as opened:
                piece = opened.read(start - file.start_offset, min(end, file.end_offset) - start)
        except RmqtoolError:
            return
        yield piece
        start += len(piece)
