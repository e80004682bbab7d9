"""The kind of a file by its first bytes, whatever its name: to notice that it is not of the kind its path says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rmqtool.base.errors import WrongKindError
from rmqtool.base.files import InputFile
from rmqtool.formats import (
    batch_consume_queue,
    checkpoint,
    consume_queue,
    consume_queue_ext,
    dledger,
    index_file,
    timer_log,
    timer_wheel,
)
from rmqtool.formats.layout import integer_at
from rmqtool.formats.message import BLANK_SIZE, MAGIC_CODE_BLANK, MAGIC_CODE_V1, MAGIC_CODE_V2, PREFIX_DTYPE
from rmqtool.scan.events import MAX_MESSAGE_SIZE
from rmqtool.store.paths import Kind

_HEAD = 4096
_FIRST_UNITS = 4  # of a consume queue: a batch queue's first unit begins as one of these
_FIRST_TIME, _LAST_TIME = 946_684_800_000, 4_102_444_800_000  # the years 2000 to 2100, epoch ms
_MAGIC_CODES = (MAGIC_CODE_V1, MAGIC_CODE_V2, MAGIC_CODE_BLANK)
_NAMES: dict[Kind, str] = {
    "commitlog": "a commit log file",
    "dledger": "a file of DLedger entries",
    "config": "JSON",
    "timerlog": "a timer log file",
    "lock": "a lock file",
    "checkpoint": "a checkpoint",
    "timerwheel": "a timer wheel",
    "index": "an index file",
    "dledger-index": "an index of DLedger entries",
    "batchconsumequeue": "a batch consume queue file",
    "consumequeue": "a consume queue file",
    "consumequeue-ext": "a consume queue ext file",
}
_ALIKE: dict[Kind, Kind] = {"compaction": "commitlog", "compaction-queue": "batchconsumequeue"}


def detect_kind(path: Path) -> Kind | None:
    """The kind of which the first bytes are typical; None when they are of no kind."""
    with InputFile(path) as file:
        head, size = file.read(0, _HEAD), file.size
    return next((kind for kind, matches in (*_SURE.items(), *_LIKELY.items()) if matches(head, size)), None)


def name_of(kind: Kind) -> str:
    """A kind in words, for a sentence."""
    return _NAMES.get(kind, kind)


def require_kind(path: Path, kind: Kind) -> None:
    """Raise WrongKindError when the first bytes show for sure that a file is of another kind."""
    with InputFile(path) as file:
        head, size = file.read(0, _HEAD), file.size
    detected = next((kind_of_bytes for kind_of_bytes, matches in _SURE.items() if matches(head, size)), None)
    if detected and detected != _ALIKE.get(kind, kind):
        raise WrongKindError(
            f"this looks like {name_of(detected)}, not {name_of(kind)}", file=path, hint=as_hint(detected)
        )


def other_kind_of(path: Path, kind: Kind) -> Kind | None:
    """Another kind of which the first bytes are typical, where they are not typical of `kind`; else None.

    No proof: a file of `kind` may begin with damage that looks like something else.
    """
    own = {**_SURE, **_LIKELY, "timercheck": _nothing}.get(_ALIKE.get(kind, kind))
    with InputFile(path) as file:
        head, size = file.read(0, _HEAD), file.size
    return None if own is None or own(head, size) else detect_kind(path)


def as_hint(kind: Kind) -> str:
    """The option that reads a file as the kind that was detected."""
    return f"--as {kind} reads it as {name_of(kind)}"


def _is_time(value: int) -> bool:
    return _FIRST_TIME <= value <= _LAST_TIME


def _nothing(head: bytes, size: int) -> bool:
    return False  # its numbers may be any


def _commit_log(head: bytes, size: int) -> bool:
    return len(head) >= BLANK_SIZE and integer_at(PREFIX_DTYPE, "magic_code", head) in _MAGIC_CODES


def _dledger(head: bytes, size: int) -> bool:
    if integer_at(dledger.ENTRY_DTYPE, "magic", head) != dledger.MAGIC_ENTRY:
        return False
    return integer_at(PREFIX_DTYPE, "magic_code", head, dledger.ENTRY_HEADER_SIZE) in _MAGIC_CODES


def _json(head: bytes, size: int) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and not any(head[:64].count(byte) for byte in (0, 1, 2))


def _timer_log(head: bytes, size: int) -> bool:
    units = timer_log.decode_units(head[: timer_log.UNIT_SIZE])
    return bool(len(units) and timer_log.is_written(units)[0] and _is_time(int(units["write_timestamp"][0])))


def _lock(head: bytes, size: int) -> bool:
    return head == b"lock"


def _checkpoint(head: bytes, size: int) -> bool:
    return size == checkpoint.FILE_SIZE and all(
        _is_time(integer_at(checkpoint.CHECKPOINT_DTYPE, name, head))
        for name in ("physic_message_timestamp", "logics_message_timestamp")
    )


def _wheel(head: bytes, size: int) -> bool:
    return size == timer_wheel.FILE_SIZE


def _index(head: bytes, size: int) -> bool:
    if len(head) < index_file.HEADER_SIZE or size <= index_file.file_size(1, 1):
        return False
    header = np.frombuffer(head, index_file.HEADER_DTYPE, count=1)[0]
    times = _is_time(int(header["begin_timestamp"])) and _is_time(int(header["end_timestamp"]))
    return times and 0 < header["hash_slot_count"] <= header["index_count"]


def _dledger_index(head: bytes, size: int) -> bool:
    units = dledger.decode_index(head[: 2 * dledger.INDEX_UNIT_SIZE])
    return bool(len(units) and dledger.is_written(units)[0] and units["position"][0] >= 0 and units["term"][0] >= 0)


def _batch_queue(head: bytes, size: int) -> bool:
    units = batch_consume_queue.decode_units(head[: batch_consume_queue.UNIT_SIZE])
    return bool(len(units) and batch_consume_queue.is_written(units)[0] and _is_time(int(units["store_timestamp"][0])))


def _queue(head: bytes, size: int) -> bool:
    units = consume_queue.decode_units(head)[:_FIRST_UNITS]
    if size % consume_queue.UNIT_SIZE or not len(units) or _index(head, size):
        return False
    written = consume_queue.is_written(units) & (units["message_size"] <= MAX_MESSAGE_SIZE)
    written |= consume_queue.is_pre_blank(units)
    unused = (units["physical_offset"] == 0) & (units["message_size"] == 0)
    return bool(written[0] and (written | unused).all())


def _ext(head: bytes, size: int) -> bool:
    first = next(consume_queue_ext.decode_units(head), None)
    return first is not None and first.is_sound and _is_time(first.store_timestamp)


_SURE: dict[Kind, Callable[[bytes, int], bool]] = {
    "commitlog": _commit_log,
    "dledger": _dledger,
    "config": _json,
    "timerlog": _timer_log,
    "lock": _lock,
}
_LIKELY: dict[Kind, Callable[[bytes, int], bool]] = {
    "checkpoint": _checkpoint,
    "timerwheel": _wheel,
    "index": _index,
    "dledger-index": _dledger_index,
    "batchconsumequeue": _batch_queue,
    "consumequeue-ext": _ext,
    "consumequeue": _queue,
}
