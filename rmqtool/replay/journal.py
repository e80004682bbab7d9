"""What a replay has done, line by line: from it a replay that was killed goes on, and it holds the receipts.

Before messages are sent a line of kind `sending` names them and is synced; afterwards each gets a line of its own,
`sent`, `there` or `refused`. A message that was being sent and has no such line may be on the target: it is looked up
there before it is sent. Results are synced with the next `sending`: when power fails in between, they are looked up.
"""

from __future__ import annotations

import fcntl
import json
import os
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError, UnreadableError, UnwritableError, UsageError
from rmqtool.base.files import Closing
from rmqtool.base.new_files import sync
from rmqtool.base.visible import json_text

Reason = Literal[
    "delayed", "half", "system-topic", "retry-topic", "dead-letter", "replay", "rolled-back",
    "no-origin", "empty-body", "damaged-body", "damaged-batch", "too-large", "properties-too-large", "too-late",
    "no-topic", "not-writable", "already-there",
]  # fmt: skip
"""Why a message is not sent; `MEANINGS` explains each."""

MEANINGS: Mapping[Reason, str] = {
    "delayed": "wait for their time; delivered ones are in their topics (--delays sends waiting ones)",
    "half": "half messages of transactions, and operations on them: never sent",
    "rolled-back": "prepared or rolled back: never sent",
    "system-topic": "of topics that brokers use themselves: sent only if --topic names them",
    "retry-topic": "of retry topics, copies of messages: sent only if --topic names them",
    "dead-letter": "dead letters, copies of messages: sent only if --topic names them, or --dead-letters-of",
    "replay": "sent by an earlier replay (--include-replays sends them)",
    "no-origin": "do not name their topic",
    "empty-body": "have no body, which brokers refuse (--empty-bodies blank sends one blank)",
    "damaged-body": "have a body with a CRC mismatch, or that cannot be decompressed",
    "damaged-batch": "are a batch that cannot be split",
    "too-large": "are larger than the target accepts",
    "properties-too-large": "have properties or a topic that are too long",
    "too-late": "are due later than the target can wait",
    "no-topic": "have no topic on the target",
    "not-writable": "have a topic that is not writable on the target",
    "already-there": "are already there (--send-again sends them)",
}

EXPECTED: frozenset[Reason] = frozenset(
    ("delayed", "half", "rolled-back", "system-topic", "retry-topic", "dead-letter", "replay", "already-there")
)
"""Reasons that are no loss: the others are messages that were wanted and cannot be sent."""


class Identity(NamedTuple):
    """Where a message stands in the source: its physical offset, and which part of an inner batch it is, from 0."""

    physical_offset: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """A message of the source; times are epoch ms."""

    identity: Identity
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    store_timestamp: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is sent; `due_timestamp` is when it is to be delivered, epoch ms, None for at once.

    `source_topic` and `queue_id` are those that it was sent to first, and `is_copy` says that it comes from a retry or
    dead-letter topic, so that its original is expected to be on the same cluster.
    """

    origin: Origin
    source_topic: str
    topic: str
    queue_id: int
    properties: Mapping[str, str]
    body: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    reconsume_times: int
    due_timestamp: int | None = None
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """A message and the queue that it is sent to."""

    message: Outgoing
    broker: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A message that is not sent."""

    origin: Origin
    reason: Reason


SCHEMA = "rmqtool.replay-journal/1"
_BEGINNING = f'{{"kind":"replay","schema":"{SCHEMA}"'.encode()
_LONGEST_LINE = 16 << 20  # bytes: one that has no end is no line of a journal
_DONE = ("sent", "there")
_REMEMBERED = ("source", "name_servers", "topics", "to_retry_topics")


@dataclass(frozen=True)
class Receipt:
    """Where a message is on the target; `status` is one of `codes.STORED_ALL_THE_SAME`, None where all is well.

    `how`: sent by this run, or found when it was looked up because an earlier send had no answer.
    """

    message_id: str | None
    queue_offset: int
    status: str | None = None
    how: str = "sent"


@dataclass
class Done:
    """The messages of a journal: those that are on the target, and those of which it is not known, by their parts."""

    done: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    unknown: frozenset[Identity] = frozenset()

    def is_done(self, identity: Identity) -> bool:
        """Whether a message is on the target."""
        offsets = self.done.get(identity.part)
        if offsets is None:
            return False
        place = int(np.searchsorted(offsets, identity.physical_offset))
        return place < len(offsets) and int(offsets[place]) == identity.physical_offset

    def __len__(self) -> int:
        return sum(map(len, self.done.values()))


class Journal(Closing):
    """An open journal, which no other replay writes to at the same time; raises UsageError or UnwritableError."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """`header` is what this replay is; a journal of another one is refused."""
        self.path = path
        if path.exists() and not path.is_file():
            raise _no_journal(path)
        try:
            self._file: BinaryIO = path.open("a+b")
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.before = self._load(header)
        except BlockingIOError as error:
            self._file.close()
            raise UsageError("another replay writes to this journal now", file=path) from error
        except BaseException:
            self._file.close()
            raise

    def sending(self, ready: Sequence[Sequence[Ready]], at: int) -> None:
        """Remember batches that are about to be sent, on the disk; `at` is now, epoch ms."""
        self._write(_sending(batch, at) for batch in ready)
        self.sync()

    def sent(self, one: Ready, receipt: Receipt, at: int) -> None:
        """Remember that a message is on the target."""
        result = {"new_message_id": receipt.message_id, "queue_offset": receipt.queue_offset,
                  "status": receipt.status, "how": receipt.how}  # fmt: skip
        self._write([_of("sent", one, at, result)])

    def there(self, one: Ready, message_id: str, at: int) -> None:
        """Remember that a message is not sent, because another copy of it is on the target."""
        self._write([_of("there", one, at, {"new_message_id": message_id})])

    def refused(self, one: Ready, code: int, reason: str, at: int) -> None:
        """Remember that a broker refused a message; it is tried again by the next run."""
        self._write([_of("refused", one, at, {"code": code, "reason": reason})])

    def sync(self) -> None:
        """Have all lines on the disk."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def close(self) -> None:
        """Have all lines on the disk, and let other replays have it."""
        try:
            self.sync()
        finally:
            self._file.close()

    def _write(self, lines: Iterable[dict[str, Any]]) -> None:
        try:
            self._file.write("".join(f"{json_text(line)}\n" for line in lines).encode())
            self._file.flush()
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _load(self, header: Mapping[str, Any]) -> Done:
        self._file.seek(0)
        done, end = _read(self._file, header, self.path)
        try:
            self._file.truncate(end)
            self._file.seek(0, os.SEEK_END)
            if not end:
                self._write([{"kind": "replay", "schema": SCHEMA, **header}])
                self.sync()
                sync(self.path.parent)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return done


def read_done(path: Path, header: Mapping[str, Any]) -> Done:
    """What a journal says is done, without writing to it; nothing where there is none. Raises as `Journal`."""
    try:
        with path.open("rb") as file:
            return _read(file, header, path)[0]
    except FileNotFoundError:
        return Done()
    except OSError as error:
        raise UnreadableError(f"cannot be read: {(error.strerror or str(error)).lower()}", file=path) from error


def _read(file: BinaryIO, header: Mapping[str, Any], path: Path) -> tuple[Done, int]:
    """What is done, and where the last whole line ends."""
    done: defaultdict[int, array[int]] = defaultdict(partial(array, "q"))
    unknown, end = set[Identity](), 0
    for number, (line, position) in enumerate(_lines(file), 1):
        entry = _entry(line)
        if entry is None:
            if number == 1 and not _BEGINNING.startswith(line[: len(_BEGINNING)].rstrip(b"\0")):
                raise _no_journal(path)
            if file.read(1 << 20).strip(b"\0\n"):
                raise UnreadableError(f"line {number} is damaged: it is not known which messages were sent", file=path)
            break  # torn when power failed: what it says is looked up
        if number == 1:
            _require_same(entry, header, path)
        elif entry["kind"] == "sending":
            unknown.update(entry["messages"])
        elif entry["kind"] in _DONE:
            unknown.discard(entry["identity"])
            done[entry["identity"].part].append(entry["identity"].physical_offset)
        end = position
    return Done({part: np.unique(offsets) for part, offsets in done.items()}, frozenset(unknown)), end


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Each line with the position after it."""
    end = file.tell()
    while line := file.readline(_LONGEST_LINE):
        end += len(line)
        yield line, end


def _entry(line: bytes) -> dict[str, Any] | None:
    """The entry of a line; None for one that is damaged or has no end."""
    if not line.endswith(b"\n"):
        return None
    try:
        entry = json.loads(line)
        if not isinstance(entry, dict):
            return None
        if entry["kind"] == "sending":
            return {**entry, "messages": [Identity(int(offset), int(part)) for offset, part in entry["messages"]]}
        if entry["kind"] in (*_DONE, "refused"):
            return {**entry, "identity": Identity(int(entry["physical_offset"]), int(entry["part"]))}
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    return entry


def _no_journal(path: Path) -> UsageError:
    return UsageError("this is not the journal of a replay", file=path, hint="give another file: --journal FILE")


def _require_same(entry: Mapping[str, Any], header: Mapping[str, Any], path: Path) -> None:
    if entry.get("kind") != "replay" or entry.get("schema") != SCHEMA:
        raise _no_journal(path)
    for name in _REMEMBERED:
        if name in header and entry.get(name) != header[name]:  # what is only counted has no name servers
            what = name.replace("_", " ")
            was, now = json_text(entry.get(name)), json_text(header.get(name))
            raise UsageError(
                f"the journal is of another replay: {what} was {was}, and is {now}",
                file=path,
                hint="give another file: --journal FILE",
            )


def _sending(batch: Sequence[Ready], at: int) -> dict[str, Any]:
    first = batch[0]
    return {
        "kind": "sending",
        "at": at,
        "topic": first.message.topic,
        "broker": first.broker,
        "queue_id": first.queue_id,
        "messages": [list(one.message.origin.identity) for one in batch],
    }


def _of(kind: str, one: Ready, at: int, result: Mapping[str, Any]) -> dict[str, Any]:
    origin = one.message.origin
    return {
        "kind": kind,
        "at": at,
        "physical_offset": origin.identity.physical_offset,
        "part": origin.identity.part,
        "source_topic": origin.topic,
        "source_queue_id": origin.queue_id,
        "source_queue_offset": origin.queue_offset,
        "message_id": origin.message_id,
        "unique_key": one.message.properties["UNIQ_KEY"],
        "topic": one.message.topic,
        "broker": one.broker,
        "queue_id": one.queue_id,
        **result,
    }


def _unwritable(path: Path, error: OSError) -> RmqtoolError:
    return UnwritableError(f"cannot be written: {(error.strerror or str(error)).lower()}", file=path)
